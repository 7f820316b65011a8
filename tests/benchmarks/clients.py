"""Clients of a ledger: plain HTTP/1.1 on connections that are kept, with next to no work of their own."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any, TypeVar
from urllib.parse import urlsplit

VERSION = {"OpenStack-API-Version": "compute 2.100"}
SERVERS = "/compute/v2.1/servers"
TIMEOUT_S = 60
IDLE_S = 3.0  # servers hang up on connections that are idle for longer
SEEN_EVERY_S = 0.002  # between two GETs of who waits for one server
COUNTED_EVERY_S = 0.01  # of who waits for many
SETTLED_WITHIN_S = 120.0

T = TypeVar("T")
R = TypeVar("R")


class Client:
    """One connection, with a token; for one thread at a time."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        self._used = monotonic()
        self._headers = {"Content-Type": "application/json", **VERSION}
        if token is not None:
            self._headers["X-Auth-Token"] = token

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes, http.client.HTTPMessage]:
        headers, data = self._headers, None
        if isinstance(body, bytes):
            headers, data = {**headers, "Content-Type": "application/octet-stream"}, body
        elif body is not None:
            data = json.dumps(body).encode()
        if monotonic() - self._used > IDLE_S:
            self._connection.close()  # the next request opens it again
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        content = response.read()
        self._used = monotonic()
        return response.status, content, response.headers

    def expect(self, status: int, method: str, path: str, body: object = None) -> bytes:
        got, content, _ = self.call(method, path, body)
        if got != status:
            raise RuntimeError(f"{method} {path}: {got} {content[:300]!r}")
        return content

    def get(self, path: str) -> Any:
        return json.loads(self.expect(200, "GET", path))

    def close(self) -> None:
        self._connection.close()


class Cloud:
    """The gateways of a ledger, an image and a flavor there, and a token for all of it."""

    def __init__(self, urls: Sequence[str], credentials: Mapping[str, str]) -> None:
        """As an administrator, as `clouds.yaml` has it."""
        self._urls = urls
        self._token = _log_in(urls[0], credentials)
        client = self.client()
        image = {"name": "bench", "disk_format": "raw", "container_format": "bare"}
        self._image = json.loads(client.expect(201, "POST", "/image/v2/images", image))["id"]
        client.expect(204, "PUT", f"/image/v2/images/{self._image}/file", b"\0" * 4096)
        flavor = {"flavor": {"name": "bench", "ram": 64, "vcpus": 1, "disk": 1}}
        self._flavor = json.loads(client.expect(200, "POST", "/compute/v2.1/flavors", flavor))["flavor"]["id"]
        client.close()

    @property
    def gateways(self) -> int:
        return len(self._urls)

    def client(self, number: int = 0) -> Client:
        """Of the gateways, in turn."""
        return Client(self._urls[number % len(self._urls)], self._token)

    def body(self, name: str) -> object:
        """Of a POST that makes a server."""
        return {"server": {"name": name, "imageRef": self._image, "flavorRef": self._flavor, "networks": "auto"}}

    def create(self, client: Client, name: str) -> str:
        identifier: str = json.loads(client.expect(202, "POST", SERVERS, self.body(name)))["server"]["id"]
        return identifier

    def side_by_side(self, clients: int, do: Callable[[Client, T], R], items: Iterable[T]) -> list[R]:
        """Each item once, by so many clients at a time; those are spread over the gateways."""
        local, numbers = threading.local(), itertools.count()

        def one(item: T) -> R:
            if not hasattr(local, "client"):
                local.client = self.client(next(numbers))
            return do(local.client, item)

        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(one, items))

    def settle(self) -> None:
        """Wait until no server is being built. Raises RuntimeError where one is in error."""
        client = self.client()
        wait_until(lambda: not client.get(f"{SERVERS}?status=BUILD&limit=1")["servers"])
        if errors := client.get(f"{SERVERS}?status=ERROR")["servers"]:
            raise RuntimeError(f"{len(errors)} servers are in ERROR")
        client.close()


def wait_until(seen: Callable[[], bool], every_s: float = COUNTED_EVERY_S) -> None:
    deadline = monotonic() + SETTLED_WITHIN_S
    while not seen():
        if monotonic() > deadline:
            raise RuntimeError(f"it did not come about within {SETTLED_WITHIN_S:.0f} s")
        sleep(every_s)


def _log_in(url: str, credentials: Mapping[str, str]) -> str:
    domain = {"name": "Default"}
    user = {"name": credentials["username"], "password": credentials["password"], "domain": domain}
    scope = {"project": {"name": credentials["project_name"], "domain": domain}}
    auth = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    status, content, headers = Client(url).call("POST", "/identity/v3/auth/tokens", auth)
    if status != 201:
        raise RuntimeError(f"log-in: {status} {content!r}")
    return str(headers["X-Subject-Token"])
