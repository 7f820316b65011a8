#!/usr/bin/env python3
"""A libvirtd of one's own, for trying things out and for tests: it shares nothing with the machine's.

    libvirtd_private.py start DIR NAME   start host NAME in the background; prints its QEMU URI
    libvirtd_private.py run DIR NAME     the same in the foreground, until its standard input ends
    libvirtd_private.py restart DIR      kill the daemon alone and start another; guests go on running
    libvirtd_private.py stop DIR         stop it and every guest of it

It has its own mount and UTS namespaces, with private /etc/libvirt, /var/lib/libvirt, /run/libvirt,
/var/cache/libvirt and /var/log/libvirt under DIR, and a host name and UUID made of NAME and DIR; several act
as several compute hosts. Its socket also serves libvirt's test driver:
`test+unix:///default?socket=DIR/run/libvirt-sock`. KVM is hidden from it unless LIBVIRTD_PRIVATE_KVM=1, so
that guests run in software everywhere alike.

Started by another user than root it is a session daemon (`qemu+unix:///session?socket=...`): its guests run as that
user, in software or with KVM as /dev/kvm allows, and its host name is the machine's.

Needs libvirt-daemon-system, qemu-system-x86, qemu-utils (Debian's names) and util-linux.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from time import monotonic, sleep

START_LIMIT_S = 60
STOP_LIMIT_S = 60
SOCKET_PATH_LIMIT = 107  # of a Unix socket's address, in bytes
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

PRIVATE = {
    "etc": "/etc/libvirt",
    "lib": "/var/lib/libvirt",
    "run": "/run/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
}

SESSION = {"CONFIG_HOME": "etc", "DATA_HOME": "lib", "RUNTIME_DIR": "run", "CACHE_HOME": "cache"}  # XDG's variables

LIBVIRTD_CONF = """\
host_uuid = "{host_uuid}"
unix_sock_dir = "{socket_directory}"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
auth_unix_ro = "none"
listen_tls = 0
listen_tcp = 0
max_clients = 500
max_workers = 8
max_client_requests = 50
log_level = 3
log_outputs = "3:file:{directory}/log/libvirtd.log"
"""

AS_ROOT = """\
user = "root"
group = "root"
dynamic_ownership = 1
remember_owner = 0
"""

QEMU_CONF = """\
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
vnc_listen = "127.0.0.1"
max_core = 0
"""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["start", directory, name]:
            return start(Path(directory).absolute(), name)
        case ["run", directory, name]:
            return run(Path(directory).absolute(), name)
        case ["restart", directory]:
            return restart(Path(directory).absolute())
        case ["stop", directory]:
            return stop(Path(directory).absolute())
        case ["inside", directory, name]:
            return inside(Path(directory), name)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def start(directory: Path, name: str) -> int:
    prepare(directory, name)
    with (directory / "log" / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            in_namespace(directory, name),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "LIBVIRTD_PRIVATE_STAY": "1"},
        )
    wait_for_socket(directory, keeper)
    print(uri(directory))
    return 0


def run(directory: Path, name: str) -> int:
    prepare(directory, name)
    keeper = subprocess.Popen(in_namespace(directory, name), start_new_session=True)
    wait_for_socket(directory, keeper)
    print(uri(directory), flush=True)
    return keeper.wait()


def restart(directory: Path) -> int:
    keeper = keeper_of(directory)
    if keeper is None:
        print(f"nothing runs in {directory}", file=sys.stderr)
        return 1
    before = (directory / "daemon.pid").read_text()
    os.kill(keeper, signal.SIGUSR1)
    deadline = monotonic() + START_LIMIT_S
    while (directory / "daemon.pid").read_text() in (before, "") or not answers(directory):
        if monotonic() > deadline:
            print("the daemon did not come back", file=sys.stderr)
            return 1
        sleep(0.02)
    print(uri(directory))
    return 0


def stop(directory: Path) -> int:
    keeper = keeper_of(directory)
    if keeper is None:
        return 0
    os.kill(keeper, signal.SIGTERM)
    deadline = monotonic() + STOP_LIMIT_S
    while keeper_of(directory) is not None:
        if monotonic() > deadline:
            print(f"process {keeper} does not end", file=sys.stderr)
            return 1
        sleep(0.02)
    return 0


def uri(directory: Path) -> str:
    return f"qemu+unix:///{'session' if is_session() else 'system'}?socket={directory}/run/libvirt-sock"


def is_session() -> bool:
    return os.geteuid() != 0


def program(name: str) -> str | None:
    """Where it is; the directories for administration are not on every user's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def prepare(directory: Path, name: str) -> None:
    """Write its configuration. Refuses where one runs already, or could not be reached."""
    for needed in ("libvirtd", "qemu-system-x86_64", "unshare"):
        if program(needed) is None:
            raise SystemExit(f"{needed} is not installed")
    if len(f"{directory}/run/libvirt-sock".encode()) > SOCKET_PATH_LIMIT:
        raise SystemExit(f"{directory} is too long a name: its socket could not be reached")
    for folder in PRIVATE:
        (directory / folder).mkdir(parents=True, exist_ok=True)
    if keeper_of(directory) is not None:
        raise SystemExit(f"one runs in {directory} already")
    qemu = directory / "etc" / "qemu"
    qemu.mkdir(exist_ok=True)
    host_uuid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{directory}")
    sockets = short_name(directory) / "run" if is_session() else Path(PRIVATE["run"])
    settings = LIBVIRTD_CONF.format(host_uuid=host_uuid, directory=directory, socket_directory=sockets)
    (directory / "etc" / "libvirtd.conf").write_text(settings)
    (directory / "etc" / "qemu.conf").write_text(AS_ROOT + QEMU_CONF)
    (directory / "etc" / "libvirt").mkdir(exist_ok=True)
    (directory / "etc" / "libvirt" / "qemu.conf").write_text(QEMU_CONF)  # where a session daemon looks for it
    (directory / "run" / "libvirt-sock").unlink(missing_ok=True)
    (directory / "run" / "libvirtd.pid").unlink(missing_ok=True)
    (directory / "daemon.pid").write_text("")
    if not is_session():
        for path in PRIVATE.values():
            Path(path).mkdir(parents=True, exist_ok=True)


def in_namespace(directory: Path, name: str) -> list[str]:
    unshare = [] if is_session() else ["unshare", "--mount", "--uts", "--propagation", "private"]
    return [*unshare, sys.executable, str(Path(__file__).absolute()), "inside", str(directory), name]


def wait_for_socket(directory: Path, keeper: subprocess.Popen[bytes]) -> None:
    deadline = monotonic() + START_LIMIT_S
    while not answers(directory):
        if keeper.poll() is not None or died(directory) or monotonic() > deadline:
            if keeper.poll() is None:
                keeper.terminate()
            for log in ("keeper.log", "libvirtd.log"):
                path = directory / "log" / log
                print(path.read_text() if path.exists() else "", file=sys.stderr)
            raise SystemExit("libvirtd did not start")
        sleep(0.02)


def died(directory: Path) -> bool:
    pid = (directory / "daemon.pid").read_text()
    return pid != "" and not Path("/proc", pid).exists()


def answers(directory: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(f"{directory}/run/libvirt-sock")
        except OSError:
            return False
    return True


def keeper_of(directory: Path) -> int | None:
    """The process that keeps this daemon, if any: it holds a lock, so an old process id deceives nobody."""
    try:
        with (directory / "keeper.lock").open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0) or None
    except FileNotFoundError:
        pass
    return None


def inside(directory: Path, name: str) -> int:
    """The keeper, in the new namespaces: start the daemon, outlive it, collect what it leaves."""
    lock = (directory / "keeper.lock").open("a+")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    if not is_session():
        set_up_namespace(directory, name)
    # libvirt polls a killed QEMU until its zombie is gone. Where process 1 is slow to collect orphans every
    # destroy and every probe of QEMU would wait for it, so orphans come here.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keep(directory, stay=os.environ.get("LIBVIRTD_PRIVATE_STAY") == "1")
    return 0


def set_up_namespace(directory: Path, name: str) -> None:
    for folder, path in PRIVATE.items():
        subprocess.run(["mount", "--bind", directory / folder, path], check=True)
    socket.sethostname(name)
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {name}\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    if os.environ.get("LIBVIRTD_PRIVATE_KVM") != "1" and Path("/dev/kvm").exists():
        # A read-only file in its place: libvirt reports no KVM. (With /dev/null there it would find what it
        # knows of QEMU out of date at every call, and probe it again.)
        hidden = directory / "no-kvm"
        hidden.touch()
        subprocess.run(["mount", "--bind", hidden, "/dev/kvm"], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", "/dev/kvm"], check=True)


def keep(directory: Path, *, stay: bool) -> None:
    """Run the daemon until SIGTERM or, unless `stay`, the end of standard input. SIGUSR1 replaces it."""
    told, tell = os.pipe()
    os.set_blocking(told, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    daemon = start_daemon(directory)
    while True:
        ready, _, _ = select.select([told] if stay else [told, 0], [], [])
        numbers = os.read(told, 512) if told in ready else b""
        collect()
        if (0 in ready and not os.read(0, 512)) or signal.SIGTERM in numbers or signal.SIGINT in numbers:
            break
        if signal.SIGUSR1 in numbers:
            kill(daemon, signal.SIGKILL)
            daemon = start_daemon(directory)
    kill(daemon, signal.SIGTERM)
    end_children()
    if is_session():
        shutil.rmtree(short_name_holder(directory), ignore_errors=True)


def start_daemon(directory: Path) -> int:
    (directory / "run" / "libvirtd.pid").unlink(missing_ok=True)
    (directory / "run" / "libvirt-sock").unlink(missing_ok=True)
    command, environment = [program("libvirtd") or "libvirtd"], dict(os.environ)
    if is_session():
        short = short_name(directory)
        environment |= {f"XDG_{kind}": f"{short}/{folder}" for kind, folder in SESSION.items()}
        command += ["--config", f"{short}/etc/libvirtd.conf", "--pid-file", f"{short}/run/libvirtd.pid"]
    else:
        command += ["--pid-file", "/run/libvirt/libvirtd.pid"]  # elsewhere it is the machine's
    with (directory / "log" / "daemon.log").open("ab") as log:
        pid = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment).pid
    (directory / "daemon.pid").write_text(str(pid))
    return pid


def short_name(directory: Path) -> Path:
    """Another name for the directory, always the same: QEMU's monitor is a socket too, far below it.

    Root needs none: in its namespace the directory has libvirt's own, short names.
    """
    holder = short_name_holder(directory)
    holder.mkdir(mode=0o700, exist_ok=True)
    status = holder.lstat()
    if holder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SystemExit(f"{holder} is not a private directory of this user")
    (holder / "d").unlink(missing_ok=True)
    (holder / "d").symlink_to(directory)
    return holder / "d"


def short_name_holder(directory: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"libvirtd-{os.geteuid()}-{hashlib.sha256(bytes(directory)).hexdigest()[:8]}"


def kill(pid: int, number: int) -> None:
    """Signal a child and collect it; one that is gone already is fine."""
    deadline = monotonic() + 10
    try:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, number if monotonic() < deadline else signal.SIGKILL)
            sleep(0.01)
    except ChildProcessError:  # collected already: its id may be another's by now
        pass


def collect() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def end_children() -> None:
    """Kill and collect every descendant: as they become orphans they become children of this process."""
    while True:
        for pid in children():
            kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                sleep(0.01)
        except ChildProcessError:
            return


def children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
