"""What an operator names, looked at before anything is started with it.

Each function returns what is wrong, if anything, to be said after the name; nothing of a URL that may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

from gateway.roles import USED_BY, Role

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
NOT_A_STORE = "is not a URL of PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
UNREADABLE = (
    "cannot be read: in its password every character but letters, digits and -._~ must be written as %XX (a % as %25, a / "
    "as %2F, an @ as %40), and what follows a ? are libpq's parameters"
)


def wrong_with_option(name: str, roles: Collection[Role]) -> str | None:
    """Of `up`, given on the command line of a process that has these roles."""
    users = USED_BY.get(name)
    if users is None or not users.isdisjoint(roles):
        return None
    whose = f"{', '.join(sorted(users))} alone" if users else "an embedded ledger, without --role"
    return f"is not used by {', '.join(sorted(roles))}: it is for {whose}"


def wrong_with_gateway(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        more = "@" in parts.netloc or parts.query or parts.fragment
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not more:
            return None
    except ValueError:  # of a port, or of brackets
        pass
    return "is not http://HOST:PORT or https://HOST:PORT"


def wrong_with_store(url: str) -> str | None:
    """What libpq would take for something else is refused: it might show a piece of the password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return NOT_A_STORE
    credentials, at, after = rest.partition("@")
    if at and ("/" in credentials or "@" in after):
        return UNREADABLE
    try:
        found = conninfo_to_dict(url)
    except ProgrammingError:
        return UNREADABLE
    ports = [port for port in str(found.get("port") or "").split(",") if port]
    if not all(port.isdecimal() and 0 < int(port) < 65536 for port in ports):
        return "has a port that is none"
    if found.get("sslmode", "prefer") not in SSL_MODES:
        return f"has an sslmode that is none of {', '.join(SSL_MODES)}"
    return None


def wrong_with_libvirt(uri: str) -> str | None:
    return None if "://" in uri else "is not a URI of libvirt's, such as qemu:///system"


def wrong_with_ip(text: str) -> str | None:
    try:
        ip_address(text)
    except ValueError:
        return "is not an IP address"
    return None


def wrong_with_directory(directory: Path) -> str | None:
    """It is made where it is not there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        return "is not a directory"
    except OSError as error:
        return f"cannot be made: {error.strerror}"
    try:
        TemporaryFile(dir=directory).close()  # os.access knows less, of root
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return None
