"""Which host a request to the agent API is from: signed with its key, for this minute, and never seen before."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

from starlette.requests import Request

from commands.host_keys import HostKeys, NotVerified
from commands.log.signed import (
    NONCE_HEADER,
    REQUEST,
    SERVICE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Signed,
    decode_signature,
    request_body,
)
from commands.metrics import AGENT_REQUESTS_REFUSED
from commands.refused import Refused
from domain.host_key import HostKey
from domain.identifiers import ServiceId

WINDOW_S = 60  # how far a host's clock may be off
NONCES_A_HOST = 10_000  # within the window, before and after
LONGEST_NONCE = 64


class RequestRefused(Exception):
    def __init__(self, reason: str, message: str, status: int = 401, time_s: int | None = None) -> None:
        """`time_s`: what the time is, where the host has it wrong."""
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.headers = {} if time_s is None else {TIME_HEADER: str(time_s)}


class HostRequests:
    """Safe on any thread."""

    def __init__(
        self, keys: HostKeys, clock: Callable[[], float], elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = keys
        self._clock = clock  # seconds since 1970
        self._elapsed = elapsed
        self._seen: dict[ServiceId, OrderedDict[str, float]] = {}  # nonces, and until when they would be in time
        self._guard = threading.Lock()
        self._refused = Refused("request", AGENT_REQUESTS_REFUSED)

    def host_of(self, request: Request) -> HostKey:
        """Raises:
        RequestRefused: it is no enrolled host's, or not of now; HTTP answers 401 (429 to one that asks too much).
        StoreUnavailable
        """
        host = ""
        try:
            signed, time_s, nonce = _read(request)
            key = self._keys.verify(REQUEST, signed)
            host = key.host
            self._require_now(key, time_s, nonce)
        except NotVerified as refusal:
            self._refused.note(refusal.reason, refusal.host, str(refusal))
            raise RequestRefused(refusal.reason, str(refusal)) from None
        except RequestRefused as refusal:
            self._refused.note(refusal.reason, host, str(refusal))
            raise
        return key

    def not_theirs(self, key: HostKey, path: str) -> RequestRefused:
        """What a host is answered that asks for what is not its own, or is not there: which of both, it does not learn."""
        self._refused.note("not_yours", key.host, f"it asked for {path}")
        return RequestRefused("not_found", "There is nothing here for this host.", 404)

    def _require_now(self, key: HostKey, time_s: int, nonce: str) -> None:
        now = self._clock()
        if abs(now - time_s) > WINDOW_S:
            said = f"The clocks of host and gateway are {now - time_s:+.0f} s apart."
            raise RequestRefused("wrong_time", said, time_s=int(now))
        passed = self._elapsed()
        with self._guard:
            seen = self._seen.setdefault(key.service_id, OrderedDict())
            while seen and next(iter(seen.values())) < passed:
                seen.popitem(last=False)
            if nonce in seen:
                raise RequestRefused("repeated", "This very request was made before.")
            if len(seen) >= NONCES_A_HOST:
                raise RequestRefused("too_many", "This host asks too often.", 429)
            seen[nonce] = passed + 2 * WINDOW_S  # whatever its time says, it is too old by then


def _read(request: Request) -> tuple[Signed, int, str]:
    """Raises:
    RequestRefused: it is not signed.
    """
    headers, scope = request.headers, request.scope
    try:
        service_id = ServiceId(UUID(headers[SERVICE_HEADER]))
        signature = decode_signature(headers[SIGNATURE_HEADER])
        time_s, nonce = int(headers[TIME_HEADER][:20]), headers[NONCE_HEADER]
    except KeyError:
        raise RequestRefused("unsigned", "The request is not signed with a host's key.") from None
    except ValueError:
        raise RequestRefused("undecodable", "The request's signature cannot be read.") from None
    if not 16 <= len(nonce) <= LONGEST_NONCE:
        raise RequestRefused("undecodable", f"A nonce has 16 to {LONGEST_NONCE} characters.")
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    body = request_body(request.method, path, time_s, nonce)
    return Signed(service_id=service_id, signature=signature, body=body), time_s, nonce
