"""Where a process listens: HOST:PORT on the command line → a socket → what clients may call it."""

from __future__ import annotations

import socket


class CannotListen(Exception):
    """The address is taken, or is not this machine's."""


def address_of(text: str) -> tuple[str, int]:
    """Raises:
    CannotListen: it is not HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CannotListen(f"cannot listen on {text}: it is not HOST:PORT")
    return host.strip("[]"), int(port)


def listen(text: str) -> socket.socket:
    """A listening socket on HOST:PORT; port 0 takes a free one.

    Raises:
        CannotListen: with one line that says why.
    """
    host, port = address_of(text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        sock.close()
        reason = error.strerror if isinstance(error, OSError) else None
        raise CannotListen(f"cannot listen on {text}: {reason or 'there is no such address'}") from None
    sock.listen(512)
    return sock


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    host, port = sock.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{shown}:{port}"
