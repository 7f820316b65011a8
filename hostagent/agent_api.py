"""Payloads and images from the gateways' agent API (`gateway/agent_api.py`), each request signed with the host's key.

The gateways are tried in turn, and all of them again while there is hope: a gateway that is being restarted must cost no
guest its life. For one whose certificate is not trusted there is none. A host whose clock is off goes by the gateway's.
"""

from __future__ import annotations

import base64
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
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
SHORT = httpx.Timeout(5.0, connect=2.0)  # for what can as well be asked later
TRY_AGAIN = (429, 502, 503, 504)
WRONG_TIME = "wrong_time"
OF_THE_KEY = ("unknown_host", "revoked", "bad_signature")
SAY_EVERY_S = 600
T = TypeVar("T")


class AgentApiError(Exception):
    """No gateway gave what was asked for; the message says why the last one did not."""


class KeyRefused(AgentApiError):
    """The ledger does not know this host's key, or no longer."""


class AgentApi:
    """A `PayloadSource` over HTTP. Safe on any thread."""

    def __init__(
        self,
        urls: Sequence[str],
        key: Signer,
        cafile: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
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
        self._elapsed = elapsed
        self._pause = pause
        self._behind_s = 0.0  # how far the clock is behind that of the gateway that found it wrong
        self._said_so: float | None = None
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

    def session(self, epoch: int, session: str) -> str:
        """What this host's session is to the ledger: "current", "replaced", or "unheard". Asked once of each gateway.

        Raises:
            KeyRefused
            AgentApiError: none of them says.
        """
        try:
            return self._get(f"/v1/session/{epoch}/{session}", _standing, pauses=(), timeout=SHORT)
        except _NotThere as error:  # a gateway of an older release
            raise AgentApiError(str(error)) from None

    def close(self) -> None:
        self._client.close()

    def _get(
        self,
        path: str,
        take: Callable[[httpx.Response], T],
        *,
        pauses: Sequence[float] = PAUSES_S,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> T:
        for pause_s in (*pauses, None):
            refusals: list[str] = []
            hope, kind = False, AgentApiError
            for url in self._urls:
                try:
                    return self._get_from(url, path, take, timeout)
                except httpx.HTTPError as error:
                    hope = hope or not _distrusted(error)
                    refusals.append(f"{url}: {error or type(error).__name__}")
                except _Refused as refused:
                    hope = hope or refused.may_pass
                    kind = KeyRefused if refused.reason in OF_THE_KEY else kind
                    refusals.append(f"{url}: {refused}")
            if not hope or pause_s is None:
                break
            self._pause(pause_s)
        raise kind("; ".join(refusals))

    def _get_from(
        self, url: str, path: str, take: Callable[[httpx.Response], T], timeout: httpx.Timeout, *, again: bool = True
    ) -> T:
        """Raises:
        _NotThere, _Refused
        httpx.HTTPError: it could not be asked, or not to the end.
        """
        headers = self._headers("GET", path)
        with self._client.stream("GET", f"{url}/agent{quote(path)}", headers=headers, timeout=timeout) as response:
            if response.status_code == 200:
                return take(response)
            reason, said = _error_of(response)
        if response.status_code == 404:
            raise _NotThere(said)
        if reason == WRONG_TIME and again and self._goes_by(response.headers.get(TIME_HEADER, "")):
            return self._get_from(url, path, take, timeout, again=False)
        may_pass = response.status_code in TRY_AGAIN or reason == WRONG_TIME
        raise _Refused(f"{response.status_code} {said}", reason, may_pass)

    def _goes_by(self, time_s: str) -> bool:
        """Take a gateway's time for the right one, if it told it."""
        if not time_s.isdecimal():
            return False
        self._behind_s = int(time_s) - self._clock()
        now = self._elapsed()
        if self._said_so is None or now - self._said_so >= SAY_EVERY_S:
            self._said_so = now
            there = datetime.fromtimestamp(int(time_s), UTC).isoformat()
            log.warning(
                "this host's clock is %+.0f s from the gateway's, where it is %s; set it. Until then requests go by the "
                "gateway's",
                -self._behind_s,
                there,
            )
        return True

    def _headers(self, method: str, path: str) -> dict[str, str]:
        time_s, nonce = int(self._clock() + self._behind_s), secrets.token_urlsafe(24)
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
    def __init__(self, message: str, reason: str, may_pass: bool) -> None:
        super().__init__(message)
        self.reason = reason  # the code of the gateway's refusal
        self.may_pass = may_pass  # it may be another answer later


def _distrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _standing(response: httpx.Response) -> str:
    try:
        response.read()
        return str(response.json()["session"])
    except (ValueError, KeyError, TypeError):
        raise _Refused("200 answered in no form of the agent API", "", may_pass=False) from None


def _error_of(response: httpx.Response) -> tuple[str, str]:
    """The code and the message of the gateway, or of whoever answers in its place."""
    try:
        response.read()
        error = response.json()["error"]
        return str(error["code"]), str(error["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return "", "answered in no form of the agent API"
