"""A PostgreSQL server of one's own, for trying things out and for tests: it shares nothing with the machine's.

    with closing(start(directory)) as server:
        psycopg.connect(server.url)

Its data, log, socket and password are in the directory; started there again, it is the same server. It answers on a free
port of 127.0.0.1, asks for a password, waits for the disk at each commit, and ends with the thread that started it. As
root it runs as the user `postgres`, or `nobody`, who must be able to reach the directory.

Needs PostgreSQL 15 or newer (Debian's package `postgresql`); running servers of the machine are left alone.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlencode

OLDEST = 15
SUPERUSER = "ledger"
START_LIMIT_S = 60
STOP_LIMIT_S = 60
SOCKET_PATH_LIMIT = 107  # of a Unix socket's address, in bytes
PR_SET_PDEATHSIG = 1  # prctl(2)

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "max_connections": "100",
    "jit": "off",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %a ",
}


class CannotStart(Exception):
    """One line that says why, and where the server's log is."""


def programs() -> Path | None:
    """Where the newest PostgreSQL's programs are that will do; `initdb` is on no one's PATH in Debian."""
    found = [Path(path) for path in _candidates()]
    usable = [(version, path) for path in found if (version := _version(path)) >= OLDEST]
    return max(usable)[1] if usable else None


def _candidates() -> Iterator[Path]:
    yield from Path("/usr/lib/postgresql").glob("*/bin")
    if (config := shutil.which("pg_config")) is not None:
        yield Path(subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True).stdout.strip())
    if (postgres := shutil.which("postgres")) is not None:
        yield Path(postgres).resolve().parent


def _version(path: Path) -> int:
    if not (path / "initdb").exists() or not (path / "postgres").exists():
        return 0
    told = subprocess.run([path / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+", told)
    return 0 if found is None else int(found[0])


def start(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> PrivatePostgreSQL:
    """Start a server in the directory, made there if there is none. To be called from a thread that stays.

    With a certificate and its key it speaks TLS, and but for its socket nothing else.

    Raises:
        CannotStart
    """
    directory = directory.absolute()
    if (bin_directory := programs()) is None:
        raise CannotStart(f"PostgreSQL {OLDEST} or newer is not installed")
    if len(f"{directory}/.s.PGSQL.65535".encode()) > SOCKET_PATH_LIMIT:
        raise CannotStart(f"{directory} is too long a name for a socket")
    server = PrivatePostgreSQL(directory, bin_directory)
    server.lay_out({**SETTINGS, **(settings or {})}, certificate, key)
    server.start()
    return server


class PrivatePostgreSQL:
    def __init__(self, directory: Path, bin_directory: Path) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._programs = bin_directory
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "postgresql.log"
        self.port = 0

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, **parameters: str) -> str:
        """How to connect to a database of it, with libpq's connection parameters."""
        url = f"postgresql://{SUPERUSER}:{self._password()}@127.0.0.1:{self.port}/{database}"
        return f"{url}?{urlencode(parameters)}" if parameters else url

    def lay_out(self, settings: Mapping[str, str], certificate: Path | None, key: Path | None) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        settings = {"unix_socket_directories": str(self._directory), **settings}
        if certificate is not None and key is not None:
            for source, name in ((certificate, "server.crt"), (key, "server.key")):
                self._write(self._data / name, source.read_text())
            settings |= {"ssl": "on"}
        over_tcp = "host" if certificate is None else "hostssl"
        doors = f"local all all scram-sha-256\n{over_tcp} all all 127.0.0.1/32 scram-sha-256\n"
        self._write(self._data / "pg_hba.conf", doors)
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        self._write(self._data / "postgresql.auto.conf", "".join(lines))

    def _initialise(self) -> None:
        if (account := _account()) is not None:
            os.chown(self._directory, account.pw_uid, account.pw_gid)
        password = self._directory / "password"
        self._write(password, secrets.token_urlsafe(16))
        made = subprocess.run(
            [
                self._programs / "initdb",
                f"--pgdata={self._data}",
                f"--username={SUPERUSER}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-instructions",
            ],
            capture_output=True,
            text=True,
            **self._as_account(),
        )
        if made.returncode != 0:
            raise CannotStart(f"initdb failed in {self._directory}: {made.stderr.strip()}")

    def start(self) -> None:
        """Start it, on the port that it had before if it had one.

        Raises:
            CannotStart
        """
        for _ in range(5):
            port = self.port or _free_port()
            if self._starts(port):
                self.port = port
                return
        raise CannotStart(f"PostgreSQL does not start, see {self.log_file}")

    def _starts(self, port: int) -> bool:
        """Whether it came up; it does not where another was faster to take the port."""
        with self.log_file.open("ab") as log:
            process = self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent(os.getpid()),
                **self._as_account(),
            )
        deadline = monotonic() + START_LIMIT_S
        while process.poll() is None:
            if self._is_ready(process.pid):
                return True
            if monotonic() > deadline:
                self.kill()
                return False
            sleep(0.01)
        self._process = None
        return False

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """End it as an operator would: sessions are ended, nothing is left to recover."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    close = stop

    def ended(self) -> tuple[int, int] | None:
        """Its pid and exit code, if it ended though nobody here ended it."""
        process = self._process
        code = None if process is None else process.poll()
        return None if process is None or code is None else (process.pid, code)

    def kill(self) -> None:
        """End it as a loss of power would, but for the disk: all of it at once, without a word to its clients."""
        if self._process is None:
            return
        everyone = self._processes()
        for pid in everyone:
            _signal(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        deadline = monotonic() + STOP_LIMIT_S
        while any(_status(pid)[0] not in "XZ" for pid in everyone) and monotonic() < deadline:
            sleep(0.005)  # another may not start beside what is left of this one

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Freeze it: connections stand, and nobody answers."""
        everyone = self._processes()
        try:
            for pid in everyone:
                _signal(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in everyone:
                _signal(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """The server and its children, the server first: once it is stopped or gone there are no new ones."""
        assert self._process is not None
        parent = self._process.pid
        pids = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [parent, *(pid for pid in pids if _status(pid)[1] == parent)]

    def _password(self) -> str:
        return (self._directory / "password").read_text()

    def _write(self, path: Path, text: str) -> None:
        """A file for the server alone."""
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        if (account := _account()) is not None:
            os.chown(path, account.pw_uid, account.pw_gid)

    def _as_account(self) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        how: dict[str, Any] = {"cwd": self._directory, "env": environment}
        if (account := _account()) is not None:
            how |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return how


def _account() -> pwd.struct_passwd | None:
    """Whom to run as; None means as oneself. PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def _end_with_parent(parent: int) -> Callable[[], None]:
    """To be run in the child, after it has changed its user: the change would undo it."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _status(pid: int) -> tuple[str, int]:
    """A process's state, X where there is none, and its parent (proc(5), /proc/PID/stat)."""
    try:
        state, parent, *_ = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    return state, int(parent)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
