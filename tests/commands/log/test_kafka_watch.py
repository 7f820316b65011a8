"""A process that starts says why Kafka does not answer it, and where; once for each reason, until it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from commands.log.kafka_options import KafkaOptions, wrong_with_bootstrap
from commands.log.kafka_watch import KafkaWatch
from deploy.private_kafka import Security
from tests.support.certificates import certificate_of
from tests.support.hypervisors import eventually
from tests.support.kafka import private_kafka, shared_kafka

LIMIT_S = 60


@contextmanager
def watched(options: KafkaOptions) -> Iterator[KafkaWatch]:
    with closing(KafkaWatch(options)) as watch:
        watch.start()
        yield watch


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "commands.log.kafka_watch"]


def says(caplog: pytest.LogCaptureFixture, options: KafkaOptions, *words: str) -> None:
    with watched(options):
        eventually(
            lambda: any(all(word in line for word in (options.bootstrap, *words)) for line in told(caplog)),
            f"{words} are said",
            within_s=LIMIT_S,
        )


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    says(caplog, KafkaOptions(bootstrap="127.0.0.1:1"), "ECONNREFUSED")


def test_no_such_host(caplog: pytest.LogCaptureFixture) -> None:
    says(caplog, KafkaOptions(bootstrap="kafka.invalid:9092"), "DNS")


def test_one_who_never_answers(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        says(caplog, KafkaOptions(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}"), "bootstrap")


def test_tls_where_none_is_spoken(caplog: pytest.LogCaptureFixture) -> None:
    says(caplog, KafkaOptions(bootstrap=shared_kafka().bootstrap, security_protocol="SSL"), "Handshake failed")


def test_a_wrong_password(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path, "node")
    with private_kafka(tmp_path / "node", Security(certificate, key, "agent", "right")) as node:
        options = KafkaOptions(
            bootstrap=node.sasl_bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(certificate),
            sasl_mechanism="PLAIN",
            sasl_username="agent",
            sasl_password="a wrong one",
        )
        says(caplog, options, "Authentication")
    assert "a wrong one" not in caplog.text


def test_each_reason_is_said_once_and_the_answer_too(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO")
    with ExitStack() as stack:
        node = stack.enter_context(private_kafka(tmp_path / "node"))
        node.kill()
        watch = stack.enter_context(watched(KafkaOptions(bootstrap=node.bootstrap)))
        eventually(lambda: len(watch._met) == 1 and told(caplog), "it is told", within_s=LIMIT_S)
        first = dict(watch._met)
        eventually(lambda: dict(watch._met) != first, "it is met again", within_s=LIMIT_S)
        assert len(told(caplog)) == len(watch._met)

        node.start()

        eventually(lambda: told(caplog)[-1] == "Kafka answers", "the answer is told", within_s=LIMIT_S)
        eventually(lambda: not watch._thread.is_alive(), "nobody asks any more", within_s=LIMIT_S)


@pytest.mark.parametrize("text", ["k:9092", "10.0.0.1:1", "[::1]:65535", "a.b-c_d:9092,[fe80::1]:9092, k:1"])
def test_addresses_of_brokers(text: str) -> None:
    assert wrong_with_bootstrap(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", ":9092", "host:port", "host:0", "host:99999", "host:9092,", ",host:9092", "a:1,,b:1"),
        *(
            "::1",
            "::1:9092",
            "[::1]",
            "[::1]:",
            "[host]:9092",
            "[]:1",
            "a b:1",
            "PLAINTEXT://k:9092",
            "k:9092/x",
            "k:٣",
        ),
    ],
)
def test_what_is_no_address_of_a_broker(text: str) -> None:
    assert "HOST:PORT" in (wrong_with_bootstrap(text) or "")
