"""Reaching Kafka over TLS with a password; and what is said where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from commands.log.kafka_clients import Shared
from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import REPORTS, LogUnavailable
from deploy.private_kafka import PrivateKafka, Security
from tests.support.certificates import certificate_of
from tests.support.hypervisors import eventually
from tests.support.kafka import arrived, private_kafka, published

PASSWORD = "a {secret} word"


@dataclass(frozen=True)
class Secured:
    node: PrivateKafka
    options: KafkaOptions  # which let in
    stranger: Path  # a certificate that has nothing to do with it


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    certificate, key = certificate_of(directory, "node")
    with private_kafka(directory / "node", Security(certificate, key, "agent", PASSWORD)) as node:
        options = KafkaOptions(
            bootstrap=node.sasl_bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(certificate),
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="agent",
            sasl_password=PASSWORD,
        )
        yield Secured(node, options, certificate_of(directory, "stranger")[0])


def works(options: KafkaOptions) -> None:
    with closing(Topics(options)) as topics, closing(KafkaMessages(options)) as messages:
        topics.delete([REPORTS])
        topics.ensure([REPORTS])
        published(messages, REPORTS, "a=1", within_s=0)
        assert [record.value for record in arrived(messages, REPORTS, 1)] == [b"a=1"]


def refusal(options: KafkaOptions) -> str:
    with closing(Topics(options)) as topics, pytest.raises(LogUnavailable) as refused:
        topics.ensure([REPORTS])
    return str(refused.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_messages_travel_over_tls_for_one_who_knows_the_password(secured: Secured, mechanism: str) -> None:
    works(replace(secured.options, sasl_mechanism=mechanism))


def test_messages_travel_over_tls_alone(secured: Secured) -> None:
    works(
        KafkaOptions(
            bootstrap=secured.node.tls_bootstrap, security_protocol="SSL", ssl_cafile=secured.options.ssl_cafile
        )
    )


def test_a_broker_with_a_strange_certificate_is_not_trusted(secured: Secured) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in refusal(replace(secured.options, ssl_cafile=str(secured.stranger)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_said_and_not_shown(secured: Secured, mechanism: str) -> None:
    options, said = replace(secured.options, sasl_mechanism=mechanism, sasl_password="a wrong one"), []

    def told() -> bool:  # a broker may hang up before it is understood why
        said.append(refusal(options))
        return "Authentication" in said[-1]

    eventually(told, "the broker says why", within_s=60)
    assert "a wrong one" not in "".join(said)


def test_the_password_is_not_shown_with_the_options(secured: Secured) -> None:
    assert PASSWORD not in repr(secured.options)


# one client for all threads


class Client:
    def __init__(self) -> None:
        self.closed = 0


def shared(made: list[Client]) -> Shared[Client]:
    def make() -> Client:
        made.append(Client())
        return made[-1]

    def close(client: Client) -> None:
        client.closed += 1

    return Shared(make, close)


def use(clients: Shared[Any], *, fail: bool = False) -> Any:
    with clients.use() as held:
        if fail:
            raise OSError("it broke")
        return held.client


def test_a_client_that_failed_is_closed_and_another_one_made() -> None:
    clients = shared(made := [])
    assert use(clients) is use(clients)

    with pytest.raises(OSError, match="it broke"):
        use(clients, fail=True)

    assert use(clients) is made[1]
    assert [client.closed for client in made] == [1, 0]
    clients.close()
    assert [client.closed for client in made] == [1, 1]


def test_a_client_that_failed_is_left_open_for_those_who_still_use_it() -> None:
    clients = shared(made := [])
    with clients.use() as held:
        with pytest.raises(OSError, match="it broke"):
            use(clients, fail=True)
        assert held.client.closed == 0
        assert use(clients) is made[1]

    assert [client.closed for client in made] == [1, 0]


def test_nothing_is_made_once_all_is_closed() -> None:
    clients = shared(made := [])
    with clients.use():
        clients.close()

    with pytest.raises(LogUnavailable):
        use(clients)
    assert [client.closed for client in made] == [1]
