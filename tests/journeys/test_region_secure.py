"""A distributed ledger whose processes trust nobody without a certificate: PostgreSQL, Kafka and gateways over TLS."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
import yaml

from deploy import private_kafka, private_postgresql
from deploy.private_kafka import Security
from deploy.region import Part, Region, answers
from tests.support.certificates import Authority
from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.region import SHARED_ROLES, START_LIMIT_S, why_no_region

KAFKA_PASSWORD = "pa$$word; of {Kafka} 100%"
USER_DATA = b"#!/bin/sh\necho known to one guest\n"
IMAGE = b"a disk that only guests may read" * 1000


@dataclass
class Secure:
    """One process of each role, and a host whose guests are made of images."""

    region: Region
    authority: Authority
    stranger: Path  # of an authority that vouches for none of this
    postgresql: private_postgresql.PrivatePostgreSQL
    kafka: private_kafka.PrivateKafka

    def start(self) -> None:
        self.gateway = self.region.add_gateway("gateway")
        for role in SHARED_ROLES:
            self.region.add(role, [role])
        self.region.start()
        self.host = self.region.add_agent("host", [self.gateway.url], "--driver", "test")
        self.region.start("host")
        eventually(lambda: self.region.recorded("service.came_up"), "the host is up", within_s=START_LIMIT_S)
        eventually(self.ready, "the gateway is ready", within_s=START_LIMIT_S)

    def ready(self) -> bool:
        return answers(self.gateway.url, cafile=self.authority.certificate)

    @property
    def url(self) -> str:
        return self.gateway.url

    def credentials(self, cloud: str) -> dict[str, str]:
        auth: dict[str, str] = yaml.safe_load((self.region.data / "clouds.yaml").read_text())["clouds"][cloud]["auth"]
        return auth

    def user(self, cloud: str = "demo") -> User:
        return User(self, cloud, cafile=self.authority.certificate)  # type: ignore[arg-type]

    def settings(self, name: str, text: str) -> tuple[str, str]:
        """Arguments with which a process has these besides."""
        file = self.region.directory / f"{name}.conf"
        file.write_text(text)
        return "--config-file", str(file)


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    if (reason := why_no_region()) is not None:
        pytest.skip(reason)
    pytest.importorskip("libvirt")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="secure-", ignore_cleanup_errors=True)))
        directory.chmod(0o711)  # PostgreSQL, under its own account, has its directory in there
        authority, stranger = Authority.made(directory, "authority"), Authority.made(directory, "stranger")
        certificate, key = authority.certificate_of("postgresql")
        postgresql = private_postgresql.start(directory / "postgresql", certificate=certificate, key=key)
        stack.callback(postgresql.stop)
        certificate, key = authority.certificate_of("kafka")
        security = Security(certificate, key, "ledger", KAFKA_PASSWORD)
        kafka = private_kafka.start(directory / "kafka", security)
        stack.callback(kafka.kill)
        certificate, key = authority.certificate_of("gateway")
        store = postgresql.url_of("postgres", sslmode="verify-full", sslrootcert=str(authority.certificate))
        settings = f"""\
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
[fake]
vcpus = 8
memory_mib = 8192
disk_gib = 100
"""
        region = Region(directory / "region", settings=settings, store=store, kafka=kafka.sasl_bootstrap)
        stack.callback(region.close)
        made = Secure(region, authority, stranger.certificate, postgresql, kafka)
        made.start()
        yield made


def test_a_server_with_user_data_is_made_of_what_came_over_tls(secure: Secure) -> None:
    with secure.user("admin") as admin, secure.user() as user:
        flavor = admin.create_flavor("secret", ram=128, disk=0)
        image = user.upload_image(data=IMAGE)
        server = user.create_server(image, flavor, user_data=base64.b64encode(USER_DATA).decode())
        print(user.wait_for(server, "ACTIVE", "ERROR"))
    for n,p in secure.region.parts.items():
        print("==",n); print(p.logged()[-6000:])
    import subprocess
    print(subprocess.run(["find", str(secure.region.directory/"hosts")],capture_output=True,text=True).stdout)
    for name, more in {
        "wrong-store": None,}.items(): pass
    relay = secure.region.add("relay-2", ["relay"], *secure.settings("k", f"[kafka]\nssl_cafile={secure.stranger}\n"))
    relay.start()
    agent = secure.region.add_agent("host-2", [secure.gateway.url], "--driver", "fake", *secure.settings("k", f"[kafka]\nssl_cafile={secure.stranger}\n"))
    agent.start()
    from time import sleep
    secure.region.parts["relay"].stop()
    sleep(25)
    store = secure.postgresql.url_of("postgres", sslmode="verify-full", sslrootcert=str(secure.stranger))
    m = secure.region.add("managers-2", ["managers"], "--store", store); m.begin()
    sleep(8)
    for p in (relay, agent, m): print("==",p.name); print(p.logged())
    assert 0
