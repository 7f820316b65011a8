#!/usr/bin/env python3
"""A whole distributed ledger on this machine: PostgreSQL, Kafka, and every role a process of its own.

    region.py run DIR [--gateways N] [--twice] [--hosts N]    until Ctrl-C

For trying it out and for tests; each process can be killed, frozen and started again. On real machines the same command
lines are run by `compose.yaml` or the systemd units beside this file. The store's URL holds a password, so processes have it
in their environment: who may list processes sees their command lines.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psycopg

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deploy import private_kafka, private_postgresql  # noqa: E402

PROGRAM = Path(sys.executable).with_name("compute-ledger")
START_LIMIT_S = 180
STOP_LIMIT_S = 60
WATCH_S = 0.2
PR_SET_PDEATHSIG = 1  # prctl(2)


class DidNotStart(Exception):
    """A process ended, or said nothing, before it was ready; with what it wrote to its log."""


class Part:
    """One process of the ledger, started again and again under the same name."""

    def __init__(
        self, name: str, arguments: Sequence[str], log_file: Path, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.environment = dict(environment)
        self.log_file = log_file
        self.ready = ""  # what it said when it was
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        return self.ready.split()[1]

    @property
    def metrics_url(self) -> str:
        """Where it serves /metrics, /healthz and /readyz to operators."""
        return self.ready.split()[3]

    def begin(self) -> None:
        """Start it, and do not wait."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "up", *self.arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=_end_with_parent,
            )
        self._frozen = False

    def await_ready(self) -> Part:
        """Raises:
        DidNotStart
        """
        assert self._process is not None
        assert self._process.stdout is not None
        line, deadline = b"", monotonic() + START_LIMIT_S
        while not line.endswith(b"\n") and monotonic() < deadline:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - monotonic()))
            part = os.read(self._process.stdout.fileno(), 1000) if readable else b""
            if not part:
                break
            line += part
        if not line.startswith(b"ready "):
            self.kill()
            raise DidNotStart(f"{self.name}: {self.logged()[-2000:]}")
        self.ready = line.decode()
        return self

    def start(self) -> Part:
        self.begin()
        return self.await_ready()

    def died(self) -> str | None:
        """How it ended, if it did though nobody here ended it."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return last_words(self.name, self.pid, code, self.log_file)

    def kill(self) -> None:
        """End it where it stands."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator does; its exit code."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self._frozen = True

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._frozen = False

    def logged(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _end(self, number: int) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            if self._frozen and number != signal.SIGKILL:
                self.wake()
            process.send_signal(number)
        try:
            code = process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code


class Region:
    """All of them, under one directory."""

    def __init__(self, directory: Path, *, settings: str = "", store: str = "", kafka: str = "") -> None:
        """`settings` is the text of a configuration file for every process; `store` and `kafka` are those of others that run
        already, else private ones are started."""
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o711)  # PostgreSQL, under its own account, has its directory in there
        self.directory = directory
        self.data = directory / "data"  # of the roles that share a machine
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs = directory / "logs"
        self.logs.mkdir(exist_ok=True)
        self.parts: dict[str, Part] = {}
        self.config = directory / "compute-ledger.conf"
        self.config.write_text(settings)
        self.config.chmod(0o600)
        self.postgresql = None if store else private_postgresql.start(directory / "postgresql")
        self.kafka = None if kafka else private_kafka.start(directory / "kafka")
        self.store_url = store or (self.postgresql.url if self.postgresql else "")
        self.bootstrap = kafka or (self.kafka.bootstrap if self.kafka else "")

    def add(
        self, name: str, roles: Sequence[str], *arguments: str, data: Path | None = None, store: bool = True
    ) -> Part:
        """A process that plays these roles; not started yet."""
        words = [word for role in roles for word in ("--role", role)]
        words += ["--data", str(data or self.data), "--kafka", self.bootstrap, "--config-file", str(self.config)]
        words += ["--metrics", "127.0.0.1:0"]
        part = self.parts[name] = Part(
            name, [*words, *arguments], self.logs / f"{name}.log", self._environment(store=store)
        )
        return part

    def add_gateway(self, name: str, *arguments: str) -> Part:
        return self.add(name, ["gateway"], "--listen", "127.0.0.1:0", *arguments)

    def add_agent(self, name: str, gateways: Sequence[str], *arguments: str, data: Path | None = None) -> Part:
        """Host `name`, enrolled now, with a working directory of its own."""
        own = data or self.directory / "hosts" / name
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        credential = own / "credential.json"
        if not credential.exists():
            credential.touch(mode=0o600)
            credential.write_text(self.command("host", "enroll", name))
        urls = [word for gateway in gateways for word in ("--gateway", gateway)]
        return self.add(name, ["agent"], "--credential", str(credential), *urls, *arguments, data=own, store=False)

    def start(self, *names: str) -> None:
        """Start these, side by side, and wait until all are ready."""
        parts = [self.parts[name] for name in names or self.parts]
        for part in parts:
            part.begin()
        for part in parts:
            part.await_ready()

    def command(self, *words: str) -> str:
        """Another subcommand, on this ledger; what it printed.

        Raises:
            subprocess.CalledProcessError
        """
        return subprocess.run(
            [PROGRAM, *words, "--data", str(self.data), "--config-file", str(self.config)],
            env=self._environment(),
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    def exports(self) -> str:
        """What a shell is told so that `openstack` and `compute-ledger` work on this ledger."""
        told = {
            "OS_CLIENT_CONFIG_FILE": str(self.data / "clouds.yaml"),
            "OS_CLOUD": "admin",
            "COMPUTE_LEDGER_DATA": str(self.data),
            "COMPUTE_LEDGER_STORE": self.store_url,
            "COMPUTE_LEDGER_KAFKA": self.bootstrap,
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in told.items()]
        return "\n".join([*lines, f"export PATH={shlex.quote(str(PROGRAM.parent))}:$PATH"]) + "\n"

    def _environment(self, *, store: bool = True) -> dict[str, str]:
        """Of a process, with the store where it may know it."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTE_LEDGER_")}
        return others | ({"COMPUTE_LEDGER_STORE": self.store_url} if store else {})

    def recorded(self, wire_name: str) -> int:
        """How many events of a type there are."""
        with psycopg.connect(self.store_url, autocommit=True) as connection:
            found = connection.execute("SELECT count(*) FROM stored_events WHERE topic = %s", (wire_name,)).fetchone()
        return 0 if found is None else int(found[0])

    def died(self) -> dict[str, str]:
        """What ended though nobody here ended it, PostgreSQL and Kafka included, and how."""
        found = {name: part.died() for name, part in self.parts.items()}
        for name, server in (("postgresql", self.postgresql), ("kafka", self.kafka)):
            if server is not None and (ended := server.ended()) is not None:
                found[name] = last_words(name, *ended, server.log_file)
        return {name: said for name, said in found.items() if said is not None}

    def close(self) -> None:
        for part in self.parts.values():
            part.kill()
        if self.kafka is not None:
            self.kafka.stop()
        if self.postgresql is not None:
            self.postgresql.stop()


def last_words(name: str, pid: int, code: int, log_file: Path) -> str:
    how = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
    logged = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    return f"{name} (pid {pid}) ended, {how}; in {log_file} it says last: {(logged or ['nothing'])[-1]}"


def answers(url: str, path: str = "/readyz", cafile: Path | None = None) -> bool:
    """Whether a gateway can do its work."""
    trusted = None if cafile is None else ssl.create_default_context(cafile=cafile)
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=10, context=trusted) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def running(
    directory: Path, *, gateways: int = 2, twice: bool = True, hosts: int = 2, settings: str = ""
) -> Iterator[Region]:
    """A ledger with every role, ready; hosts have the fake driver."""
    region = Region(directory, settings=settings)
    try:
        copies = "ab" if twice else "a"
        first = [region.add_gateway(f"gateway-{number}") for number in range(1, gateways + 1)]
        for role in ("managers", "projections", "relay", "inbox"):
            for copy in copies:
                region.add(f"{role}-{copy}", [role])
        region.start()
        urls = [part.url for part in first]
        agents = [region.add_agent(f"host-{number}", urls).name for number in range(1, hosts + 1)]
        if agents:
            region.start(*agents)
        while not (all(answers(url) for url in urls) and region.recorded("service.came_up") >= hosts):
            sleep(0.05)
        yield region
    finally:
        region.close()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--twice", action="store_true", help="of every other role too, two processes")
    parser.add_argument("--hosts", type=int, default=2)
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        run(chosen.directory.absolute(), chosen.gateways, chosen.twice, chosen.hosts)
    except (DidNotStart, private_postgresql.CannotStart, private_kafka.CannotStart) as error:
        sys.stderr.write(f"region: {' '.join(str(error).split())}\n")
        return 1
    return 0


def run(directory: Path, gateways: int, twice: bool, hosts: int) -> None:
    with running(directory, gateways=gateways, twice=twice, hosts=hosts) as region:
        environment = directory / "environment"
        environment.touch(mode=0o600)
        environment.write_text(region.exports())
        for part in region.parts.values():
            _say(f"{part.name:14} pid {part.pid:<8} {part.ready.strip()}")
        _say(f"\nEach logs to {region.logs}/NAME.log. In another terminal, or `. {environment}`:\n\n{region.exports()}")
        told: set[str] = set()
        while True:
            for name, said in region.died().items():
                if name not in told:
                    told.add(name)
                    _say(said)
            sleep(WATCH_S)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
