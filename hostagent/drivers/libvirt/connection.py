"""The connection to libvirt: opened when needed, opened again when lost, its errors told as the driver's own.

One thread of the process runs libvirt's event loop; without it no lifecycle event and no keepalive arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import libvirt

from hostagent.drivers.protocol import DriverError, HypervisorUnreachable

KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3  # unanswered, and the connection counts as lost

_LOST_CODES = (
    libvirt.VIR_ERR_SYSTEM_ERROR,
    libvirt.VIR_ERR_INTERNAL_ERROR,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_NO_CONNECT,
)
_LOST_FROM = (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)

_loop_lock = threading.Lock()
_loop: threading.Thread | None = None


def error_code(error: libvirt.libvirtError) -> int:
    return cast(int, error.get_error_code())


class Connection:
    def __init__(self, uri: str, lifecycle: Callable[[Any, int], None]) -> None:
        """`lifecycle` is called from libvirt's event thread with a virDomain and a virDomainEventType."""
        self.uri = uri
        self._lifecycle = lifecycle
        self._handle: libvirt.virConnect | None = None
        self._lock = threading.Lock()

    @contextmanager
    def calls(self) -> Iterator[libvirt.virConnect]:
        """The open connection, for some calls of libvirt.

        Raises:
            HypervisorUnreachable: nobody answers, or no longer; what was asked may or may not have been done.
            DriverError: libvirt refused.
        """
        handle = self._opened()
        try:
            yield handle
        except libvirt.libvirtError as error:
            if _lost(handle, error):
                self._drop(handle)
                raise HypervisorUnreachable(f"{self.uri}: {error}") from error
            raise DriverError(f"libvirt: {error}") from error

    def close(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(libvirt.libvirtError):
                handle.close()

    def _opened(self) -> libvirt.virConnect:
        with self._lock:
            if self._handle is not None and not _alive(self._handle):
                with suppress(libvirt.libvirtError):
                    self._handle.close()
                self._handle = None
            if self._handle is None:
                self._handle = self._open()
            return self._handle

    def _open(self) -> libvirt.virConnect:
        _run_event_loop()
        try:
            handle = libvirt.open(self.uri)
            with suppress(libvirt.libvirtError):  # a driver inside this process has none
                handle.setKeepAlive(KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT)
            handle.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._event, None)
        except libvirt.libvirtError as error:
            raise HypervisorUnreachable(f"{self.uri}: {error}") from error
        return handle

    def _event(self, _connection: Any, domain: Any, event: int, _detail: int, _opaque: Any) -> None:
        self._lifecycle(domain, event)

    def _drop(self, handle: libvirt.virConnect) -> None:
        with self._lock:
            if self._handle is handle:
                self._handle = None
        with suppress(libvirt.libvirtError):
            handle.close()


def _alive(handle: libvirt.virConnect) -> bool:
    """Whether the socket is still open; asks nobody."""
    try:
        return bool(handle.isAlive())
    except libvirt.libvirtError:
        return False


def _lost(handle: libvirt.virConnect, error: libvirt.libvirtError) -> bool:
    remote = error.get_error_domain() in _LOST_FROM and error_code(error) in _LOST_CODES
    return remote or error_code(error) == libvirt.VIR_ERR_INVALID_CONN or not _alive(handle)


def _run_event_loop() -> None:
    """Start the process's event thread, once; it has to be there before the first connection is."""
    global _loop
    with _loop_lock:
        if _loop is None:
            libvirt.registerErrorHandler(_quiet, None)  # or each error is printed, and raised as well
            libvirt.virEventRegisterDefaultImpl()
            _loop = threading.Thread(target=_event_loop, daemon=True, name="libvirt-events")
            _loop.start()


def _event_loop() -> None:
    while True:
        with suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()


def _quiet(_context: Any, _error: Any) -> None:
    pass
