#!/usr/bin/env python3
"""A Kafka node of one's own, for trying things out and for tests: broker and controller in one, on loopback alone.

    private_kafka.py fetch     bring its jars here, with Maven; done in a moment when they are here
    private_kafka.py run DIR   run a node with its data in DIR until standard input ends; prints its address

A node ends with the thread that started it, however that ends. Its topics are made by who uses it, never by being named.
With `Security` it also listens with TLS, and with TLS and SASL.

The jars go to .cache/kafka of the working copy, or of the directory that COMPUTE_LEDGER_CACHE names, once; beside them an
archive of their loaded classes, which halves the time to start. Needs Java 17 or newer (Debian's
openjdk-17-jre-headless), and maven for `fetch`.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
POM = ROOT / "deploy" / "kafka" / "pom.xml"
START_LIMIT_S = 60
STOP_LIMIT_S = 20
PR_SET_PDEATHSIG = 1  # prctl(2)
FIRST_PORT = 15000  # up to where the kernel begins to give ports to outgoing connections
METADATA, METADATA_VERSION = 3, 1  # Kafka's protocol: a request's key, and the form asked for
ARCHIVE = "classes.jsa"

JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# A node that was killed is let in again when its old session is over.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
"""

SECURE_SETTINGS = """\
ssl.keystore.type=PEM
ssl.keystore.location={pem}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


class CannotStart(Exception):
    """Kafka cannot be had, or does not start; the message says why."""


@dataclass(frozen=True, slots=True)
class Security:
    """Certificate and PKCS #8 key as PEM, for 127.0.0.1; the one user that SASL knows, by PLAIN and by SCRAM-SHA-512."""

    certificate: Path
    key: Path
    user: str
    password: str


def main(arguments: list[str]) -> int:
    match arguments:
        case ["fetch"]:
            print(jars())
            return 0
        case ["run", directory]:
            node = start(Path(directory).absolute())
            print(f"{node.bootstrap} ready in {node.ready_in_s:.1f} s", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdin.buffer.read()
            node.stop()
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


class PrivateKafka:
    """One node. `bootstrap` is its plain listener; the others are there with `Security`."""

    def __init__(self, directory: Path, security: Security | None = None) -> None:
        self._directory = directory
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_in_s = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        plain, controller, tls, sasl = free_ports(4)
        listeners = {"PLAINTEXT": plain, "CONTROLLER": controller}
        secure = ""
        if security is not None:
            listeners |= {"SSL": tls, "SASL_SSL": sasl}
            secure = SECURE_SETTINGS.format(pem=self._pem(security), user=security.user, password=security.password)
        self.bootstrap = f"127.0.0.1:{plain}"
        self.tls_bootstrap = f"127.0.0.1:{tls}"
        self.sasl_bootstrap = f"127.0.0.1:{sasl}"
        self._settings = directory / "server.properties"
        self._settings.touch(mode=0o600)
        settings = SETTINGS.format(
            controller=controller,
            listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            data=directory / "data",
        )
        self._settings.write_text(settings + secure)

    def restart(self, *, empty: bool = False) -> None:
        """End it if it runs, and start it on the same ports; `empty`: without its data, as a new cluster."""
        self.stop()
        if empty:
            shutil.rmtree(self._directory / "data")
        self.start()

    def start(self, archived_at_exit: Path | None = None) -> None:
        """Return when it answers. Raises CannotStart when it does not."""
        began = monotonic()
        if not (self._directory / "data").exists():
            self._format()
        with self.log_file.open("ab") as log:
            self._process = launch(["kafka.Kafka", str(self._settings)], log, archived_at_exit)
        while not answers(self.bootstrap):
            if self._process.poll() is not None or monotonic() - began > START_LIMIT_S:
                self.kill()
                raise CannotStart(f"Kafka did not start: {self.log_file.read_text()[-2000:]}")
            sleep(0.02)
        self.ready_in_s = monotonic() - began

    def stop(self) -> None:
        """End it in an orderly way."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ended(self) -> tuple[int, int] | None:
        """Its pid and exit code, if it ended though nobody here ended it."""
        process = self._process
        code = None if process is None else process.poll()
        return None if process is None or code is None else (process.pid, code)

    def pause(self) -> None:
        """It holds its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def log_file(self) -> Path:
        return self._directory / "kafka.log"

    def _format(self) -> None:
        command = ["kafka.tools.StorageTool", "format", "--config", str(self._settings), f"--cluster-id={kafka_uuid()}"]
        if self._security is not None:
            user, password = self._security.user, self._security.password
            command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        with self.log_file.open("ab") as log:
            if launch(command, log).wait() != 0:
                raise CannotStart(f"Kafka could not format its storage: {self.log_file.read_text()[-2000:]}")

    def _pem(self, security: Security) -> Path:
        """Key and certificate in one file, as Kafka wants them."""
        pem = self._directory / "node.pem"
        pem.touch(mode=0o600)
        pem.write_bytes(security.key.read_bytes() + security.certificate.read_bytes())
        return pem


def start(directory: Path, security: Security | None = None) -> PrivateKafka:
    """A node in this directory, which answers when this returns. What an earlier one left there is its data."""
    node = PrivateKafka(directory, security)
    node.start()
    return node


def why_no_kafka() -> str | None:
    if shutil.which("java") is None:
        return "java is not installed"
    if not jars_directory().exists() and shutil.which("mvn") is None:
        return "maven, which would fetch Kafka, is not installed"
    return None


def launch(command: Sequence[str], log: IO[bytes], archived_at_exit: Path | None = None) -> subprocess.Popen[bytes]:
    """A Java program of Kafka's, which is killed when this thread ends."""
    directory = jars()
    options = [f"-XX:ArchiveClassesAtExit={archived_at_exit}"] if archived_at_exit else []
    if (directory / ARCHIVE).exists():
        options = [f"-XX:SharedArchiveFile={directory / ARCHIVE}"]
    classes = ":".join(sorted(str(jar) for jar in directory.glob("*.jar")))
    libc, parent = ctypes.CDLL(None), os.getpid()

    def end_with_parent() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        ["java", *JVM, *options, "-cp", classes, *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=end_with_parent,
    )


def jars() -> Path:
    """The directory with Kafka's jars; fetched if they are not there yet, by one of those who ask at once."""
    directory = jars_directory()
    if not directory.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.exists():
                fetch(directory)
    return directory


def jars_directory() -> Path:
    version = ElementTree.parse(POM).findtext(".//{*}kafka.version")
    return cache() / f"{version}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:8]}"


def cache() -> Path:
    return Path(os.environ.get("COMPUTE_LEDGER_CACHE", ROOT / ".cache")).absolute() / "kafka"


def fetch(directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        fetched, archive = Path(work, "jars"), Path(work, ARCHIVE)
        maven = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(maven, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise CannotStart(f"Maven could not fetch Kafka: {done.stdout[-2000:]}")
        fetched.rename(directory)
        node = PrivateKafka(Path(work, "node"))
        node.start(archived_at_exit=archive)
        node.stop()
        with contextlib.suppress(FileNotFoundError):  # it does without
            archive.rename(directory / ARCHIVE)


def free_ports(count: int) -> list[int]:
    """Ports that no outgoing connection takes meanwhile: a node that is restarted finds its own free."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(FIRST_PORT, max(first_outgoing, FIRST_PORT + 1000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def answers(bootstrap: str) -> bool:
    """Whether it names itself as a broker that takes requests (Kafka's protocol: Metadata, of no topic)."""
    host, _, port = bootstrap.partition(":")
    request = struct.pack(">hhihi", METADATA, METADATA_VERSION, 0, -1, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(4096)
    except OSError:
        return False
    return len(answer) >= 12 and struct.unpack(">i", answer[8:12])[0] > 0  # size, correlation id, count of brokers


def kafka_uuid() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
