"""A distributed ledger whose processes trust nobody without a certificate: PostgreSQL, Kafka and the gateway over TLS."""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from deploy import private_kafka, private_postgresql
from deploy.private_kafka import PrivateKafka, Security
from deploy.private_postgresql import PrivatePostgreSQL
from deploy.region import Part, Region, answers
from tests.support.certificates import Authority
from tests.support.http_client import User
from tests.support.hypervisors import PrivateLibvirtd, eventually
from tests.support.region import SHARED_ROLES, START_LIMIT_S, why_no_region

pytestmark = pytest.mark.qemu  # only guests that boot are made of images and user data

KAFKA_PASSWORD = "pa$$word; of {Kafka} 100%"
WRONG_PASSWORD = "a wrong word"
USER_DATA = b"#!/bin/sh\necho known to one guest\n"
IMAGE = secrets.token_bytes(1 << 16)  # nothing that boots: the guest idles


@dataclass
class Secure:
    """One process of each role."""

    region: Region
    authority: Authority
    stranger: Authority  # vouches for none of this
    postgresql: PrivatePostgreSQL
    kafka: PrivateKafka
    libvirtd: PrivateLibvirtd

    def start(self) -> None:
        self.gateway = self.region.add_gateway("gateway")
        for role in SHARED_ROLES:
            self.region.add(role, [role])
        self.region.start()
        self.add_host().start()
        eventually(lambda: self.region.recorded("service.came_up"), "the host is up", within_s=START_LIMIT_S)
        eventually(lambda: answers(self.url, cafile=self.trusted), "the gateway is ready", within_s=START_LIMIT_S)

    def add_host(self, settings: str = "") -> Part:
        driver = ("--driver", "libvirt", "--libvirt-uri", self.libvirtd.qemu_uri)
        return self.region.add_agent("host", [self.url], *driver, *self.with_settings("host", settings))

    def with_settings(self, name: str, text: str) -> tuple[str, str]:
        """Arguments with which a process has these settings besides."""
        file = self.region.directory / f"{name}.conf"
        file.touch(mode=0o600)
        file.write_text(text)
        return "--config-file", str(file)

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def trusted(self) -> Path:
        return self.authority.certificate

    @property
    def store_password(self) -> str:
        return str(conninfo_to_dict(self.region.store_url)["password"])

    def credentials(self, cloud: str) -> dict[str, str]:
        auth: dict[str, str] = yaml.safe_load((self.region.data / "clouds.yaml").read_text())["clouds"][cloud]["auth"]
        return auth

    def user(self, cloud: str = "demo") -> User:
        return User(self, cloud, cafile=self.trusted)  # type: ignore[arg-type]

    def host_file(self, *parts: str) -> Path:
        return self.region.directory.joinpath("hosts", "host", *parts)


@pytest.fixture(scope="module")
def secure(libvirtd: PrivateLibvirtd) -> Iterator[Secure]:
    if (reason := why_no_region()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="secure-", ignore_cleanup_errors=True)))
        directory.chmod(0o711)  # PostgreSQL, under its own account, has its directory in there
        authority, stranger = (Authority.made(directory, name) for name in ("authority", "stranger"))
        certificate, key = authority.certificate_of("postgresql")
        postgresql = private_postgresql.start(directory / "postgresql", certificate=certificate, key=key)
        stack.callback(postgresql.stop)
        security = Security(*authority.certificate_of("kafka"), "ledger", KAFKA_PASSWORD)
        kafka = private_kafka.start(directory / "kafka", security)
        stack.callback(kafka.kill)
        store = postgresql.url_of("postgres", sslmode="verify-full", sslrootcert=str(authority.certificate))
        certificate, key = authority.certificate_of("gateway")
        settings = f"""\
[libvirt]
virt_type = qemu
[kafka]
security_protocol = SASL_SSL
ssl_cafile = {authority.certificate}
sasl_mechanism = SCRAM-SHA-512
sasl_username = ledger
sasl_password = {KAFKA_PASSWORD.replace("$", "$$")}
[ssl]
cert_file = {certificate}
key_file = {key}
[agent]
ca_file = {authority.certificate}
"""
        region = Region(directory / "region", settings=settings, store=store, kafka=kafka.sasl_bootstrap)
        stack.callback(region.close)
        made = Secure(region, authority, stranger, postgresql, kafka, libvirtd)
        made.start()
        yield made


@pytest.fixture(scope="module")
def flavor(secure: Secure) -> str:
    with secure.user("admin") as admin:
        return admin.create_flavor("secret", ram=64)


def test_a_guest_is_made_of_an_image_and_user_data_that_came_over_tls(secure: Secure, flavor: str) -> None:
    with secure.user() as user:
        image = user.upload_image(data=IMAGE)
        server = user.create_server(image, flavor, user_data=base64.b64encode(USER_DATA).decode())
        user.wait_for(server, "ACTIVE")

        assert IMAGE in [file.read_bytes() for file in secure.host_file("images").iterdir()]
        of_the_guest = [file for file in secure.host_file("instances").rglob("*") if server in str(file)]
        assert any(USER_DATA in file.read_bytes() for file in of_the_guest if file.is_file())
        user.delete_server(server)
        user.wait_until_gone(server)


def test_nothing_of_it_can_be_reached_in_the_open(secure: Secure) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(secure.url.replace("https", "http"))
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(secure.url)
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(secure.postgresql.url_of("postgres", sslmode="disable"))
    with psycopg.connect(secure.region.store_url) as connection:
        of_ours = (
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name ~ 'compute-ledger'"
        )
        sessions = [encrypted for (encrypted,) in connection.execute(of_ours)]
    assert len(sessions) > len(SHARED_ROLES)
    assert all(sessions)


# who is not who it should be


def warnings(part: Part) -> list[str]:
    """What a process complained of; whatever it was, without a traceback."""
    logged = part.logged()
    assert "raceback" not in logged
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged.splitlines()]
    return [line["message"] for line in lines if line.get("level") in ("WARNING", "ERROR")]


def complaint(part: Part, reason: str) -> str:
    """What it says with this reason, and says once."""
    eventually(lambda: any(reason in line for line in warnings(part)), f"{part.name} says why", within_s=120)
    said = [line for line in warnings(part) if reason in line]
    assert len(said) == len(set(said))
    return said[0]


@pytest.mark.parametrize("wrong", ["authority", "password"])
def test_a_role_waits_for_the_right_store_and_says_what_is_wrong_with_this_one(secure: Secure, wrong: str) -> None:
    url = secure.region.store_url
    if wrong == "authority":
        url, reason = url.replace("authority.crt", "stranger.crt"), "certificate verify failed"
    else:
        url, reason = url.replace(secure.store_password, "nonsense"), "password authentication failed"
    part = secure.region.add(f"store-{wrong}", ["managers"], "--store", url)

    part.begin()

    assert complaint(part, reason).startswith("the store does not answer: ")
    assert part.running
    assert "nonsense" not in part.logged()
    part.kill()


@pytest.mark.parametrize(
    ("wrong", "reason"), [("authority", "CERTIFICATE_VERIFY_FAILED"), ("password", "Authentication")]
)
def test_a_role_waits_for_the_right_kafka_and_says_what_is_wrong_with_this_one(
    secure: Secure, wrong: str, reason: str
) -> None:
    setting = {
        "authority": f"ssl_cafile = {secure.stranger.certificate}",
        "password": f"sasl_password = {WRONG_PASSWORD}",
    }
    settings = f"[kafka]\n{setting[wrong]}\n[roles]\nstand_by = false\n"
    name = f"kafka-{wrong}"
    part = secure.region.add(name, ["relay"], *secure.with_settings(name, settings))

    part.start()

    assert complaint(part, reason).startswith(
        ("relay waits, and tries again: LogUnavailable: Kafka: ", "Kafka does not answer at ")
    )
    eventually(lambda: not answers(part.metrics_url), "it is not ready", within_s=120)
    assert answers(part.metrics_url, "/healthz")
    part.kill()


def test_an_agent_that_does_not_trust_the_gateway_says_so_and_so_does_the_server(secure: Secure, flavor: str) -> None:
    secure.region.parts["host"].stop()
    distrusting = secure.add_host(f"[agent]\nca_file = {secure.stranger.certificate}\n").start()
    with secure.user() as user:
        server = user.create_server(user.upload_image(data=secrets.token_bytes(1 << 16)), flavor)
        shown = user.wait_for(server, "ERROR", within_s=180)

        said = complaint(distrusting, "certificate verify failed")
        assert said.startswith(f"spawn of guest {server} failed: image ")
        assert secure.url in said
        assert "certificate verify failed" in shown["fault"]["message"]
        user.delete_server(server)
    distrusting.stop()
    secure.add_host().start()


def test_no_password_is_in_any_log(secure: Secure) -> None:
    credential = json.loads(secure.host_file("credential.json").read_text())
    passwords = [secure.credentials(cloud)["password"] for cloud in ("admin", "demo")]
    words = [secure.store_password, KAFKA_PASSWORD, WRONG_PASSWORD, credential["private_key"], *passwords]
    logs = list(secure.region.logs.iterdir())
    assert len(logs) >= len(secure.region.parts)
    for log in logs:
        assert [word for word in words if word in log.read_text()] == [], log.name
