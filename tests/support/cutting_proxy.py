"""A TCP proxy that ends a connection right after it has passed something on, before the answer comes back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Passes everything between clients and a server; once `cut_after` is set, the first connection on which a client sends
    it is ended, with the server's answer to it thrown away."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_after: bytes | None = None
        self.cuts = 0
        self._guard = threading.Lock()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                with self._guard:
                    cut = self.cut_after is not None and self.cut_after in data
                    if cut:
                        self.cut_after = None
                        self.cuts += 1
                if cut:
                    client.shutdown(socket.SHUT_RDWR)  # whatever is answered now reaches nobody
                    server.sendall(data)
                    while server.recv(65536):  # until the server has done it and hangs up in turn
                        server.shutdown(socket.SHUT_WR)
                    return
                server.sendall(data)
        _end(client, server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
