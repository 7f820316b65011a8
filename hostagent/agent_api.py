"""Payloads and images from the gateways' agent API (`gateway/agent_api.py`), each request signed with the host's key.

The gateways are tried in turn, and all of them again while there is hope: a gateway that is being restarted must cost no
guest its life. For one whose certificate is not trusted there is none.
"""

from __future__ import annotations

import base64
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import httpx

from commands.log.signed import (
    NONCE_HEADER,
    REQUEST,
    SERVICE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Signer,
    bytes_to_sign,
    request_body,
)
from domain.identifiers import InstanceId, VaultRef

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0)  # between rounds over all gateways
TIMEOUT = httpx.Timeout(30.0, connect=5.0)  # for each piece that comes, not for an image as a whole
PIECE_BYTES = 1 << 20
TRY_AGAIN = (429, 502, 503, 504)
T = TypeVar("T")


class AgentApiError(Exception):
    """No gateway gave what was asked for; the message says why the last one did not."""


class AgentApi:
    """A `PayloadSource` over HTTP. Safe on any thread."""

    def __init__(
        self,
        urls: Sequence[str],
        key: Signer,
        cafile: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`urls` are where the gateways' sites are; `cafile` holds the authorities that vouch for them, by default the
        system's.

        Raises:
            AgentApiError: there is no URL, or the file holds no certificate.
        """
        if not urls:
            raise AgentApiError("no gateway is named")
        self._urls = [url.rstrip("/") for url in urls]
        self._key = key
        self._clock = clock
        self._pause = pause
        try:
            trusted = ssl.create_default_context(cafile=cafile)
        except OSError as error:  # ssl.SSLError is one
            raise AgentApiError(f"{cafile} holds no certificates: {error.strerror or error}") from None
        self._client = httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False)
        for url in self._urls:
            if urlsplit(url).scheme != "https" and urlsplit(url).hostname not in ("127.0.0.1", "::1", "localhost"):
                log.warning("%s is not https: passwords and user data travel there for all to read", url)

    def payload(self, instance_id: InstanceId, ref: VaultRef) -> bytes | None:
        """Raises:
        AgentApiError
        """
        try:
            return self._get(f"/v1/instances/{instance_id}/payloads/{ref}", lambda response: response.read())
        except _NotThere:
            return None

    def fetch_image(self, instance_id: InstanceId, image_id: str, to: Path) -> None:
        """Raises:
        AgentApiError
        OSError: it cannot be written.
        """

        def write(response: httpx.Response) -> None:
            with to.open("wb") as file:
                for piece in response.iter_bytes(PIECE_BYTES):
                    file.write(piece)

        try:
            self._get(f"/v1/instances/{instance_id}/images/{image_id}", write)
        except _NotThere as error:
            raise AgentApiError(str(error)) from None

    def close(self) -> None:
        self._client.close()

    def _get(self, path: str, take: Callable[[httpx.Response], T]) -> T:
        for pause_s in (*PAUSES_S, None):
            refusals: list[str] = []
            hope = False
            for url in self._urls:
                try:
                    return self._get_from(url, path, take)
                except httpx.HTTPError as error:
                    hope = hope or not _distrusted(error)
                    refusals.append(f"{url}: {error or type(error).__name__}")
                except _Refused as refused:
                    hope = hope or refused.may_pass
                    refusals.append(f"{url}: {refused}")
            if not hope or pause_s is None:
                break
            self._pause(pause_s)
        raise AgentApiError("; ".join(refusals))

    def _get_from(self, url: str, path: str, take: Callable[[httpx.Response], T]) -> T:
        """Raises:
        _NotThere, _Refused
        httpx.HTTPError: it could not be asked, or not to the end.
        """
        headers = self._headers("GET", path)
        with self._client.stream("GET", f"{url}/agent{quote(path)}", headers=headers) as response:
            if response.status_code == 200:
                return take(response)
            said = _message_of(response)
            if response.status_code == 404:
                raise _NotThere(said)
            raise _Refused(f"{response.status_code} {said}", response.status_code in TRY_AGAIN)

    def _headers(self, method: str, path: str) -> dict[str, str]:
        time_s, nonce = int(self._clock()), secrets.token_urlsafe(24)
        body = request_body(method, path, time_s, nonce)
        signature = self._key.sign(bytes_to_sign(REQUEST, self._key.service_id, body))
        return {
            SERVICE_HEADER: str(self._key.service_id),
            TIME_HEADER: str(time_s),
            NONCE_HEADER: nonce,
            SIGNATURE_HEADER: base64.b64encode(signature).decode(),
        }


class _NotThere(Exception):
    """A gateway that knows says so."""


class _Refused(Exception):
    def __init__(self, message: str, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass  # it may be another answer later


def _distrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _message_of(response: httpx.Response) -> str:
    """What the gateway says, or whoever answers in its place."""
    try:
        response.read()
        return str(response.json()["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return "answered in no form of the agent API"
