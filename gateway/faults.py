"""Refusals and failures as HTTP: a status, Nova's fault key, a message. The only place where a `code` becomes a status."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

import orjson

from commands.event_store import StoreUnavailable
from domain.errors import ConcurrencyConflict, Conflict, DomainError, Forbidden, Invalid, NotFound

FAULT_KEYS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
OTHER_KEY = "computeFault"  # 406, 410, 500, ...

STATUS_BY_KIND: tuple[tuple[type[DomainError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 400),
    (Forbidden, 403),
    (ConcurrencyConflict, 409),
)
STATUS_BY_CODE: dict[str, int] = {}  # for a refusal that HTTP answers differently from the rest of its kind

MAX_BODY_BYTES = 4000
MAX_MESSAGE_CHARS = 2000
RETRY_AFTER_S = 2

Headers = Sequence[tuple[bytes, bytes]]


class Fault(Exception):
    """An answer in Nova's fault form; a handler raises it.

    `retry_after_s` is sent as a Retry-After header, and in the body of an overLimit fault.
    """

    def __init__(self, status: int, message: str, *, headers: Headers = (), retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)
        if retry_after_s is not None:
            self.headers += ((b"retry-after", b"%d" % retry_after_s),)
        self.retry_after_s = retry_after_s

    def body(self, accept: str) -> tuple[str, bytes]:
        """Content type and body, always shorter than 4 kB: a long message is cut. `accept` is the client's header."""
        return "application/json", self._json()

    def _json(self) -> bytes:
        message = (
            self.message if len(self.message) <= MAX_MESSAGE_CHARS else self.message[: MAX_MESSAGE_CHARS - 3] + "..."
        )
        encoded = self._encoded(message)
        while len(encoded) > MAX_BODY_BYTES:
            message = message[: len(message) // 2] + "..."
            encoded = self._encoded(message)
        return encoded

    def _encoded(self, message: str) -> bytes:
        fault: dict[str, object] = {"code": self.status, "message": message}
        if self.status in (413, 429) and self.retry_after_s is not None:
            fault["retryAfter"] = str(self.retry_after_s)
        try:
            return orjson.dumps({FAULT_KEYS.get(self.status, OTHER_KEY): fault})
        except orjson.JSONEncodeError:  # a lone surrogate
            return self._encoded(message.encode(errors="replace").decode())


class PlainFault(Fault):
    """From in front of the API proper, where Nova answers in WebOb's forms: text, HTML or JSON by what is accepted."""

    def body(self, accept: str) -> tuple[str, bytes]:
        title = HTTPStatus(self.status).phrase
        match _preferred(accept):
            case "application/json":
                shown = {
                    "message": f"{self.message}<br /><br />\n\n\n",
                    "code": f"{self.status} {title}",
                    "title": title,
                }
                return "application/json", orjson.dumps(shown)
            case "text/html":
                return "text/html; charset=UTF-8", (
                    f"<html>\n <head>\n  <title>{self.status} {title}</title>\n </head>\n <body>\n"
                    f"  <h1>{self.status} {title}</h1>\n  {self.message}<br /><br />\n\n\n\n </body>\n</html>"
                ).encode()
            case _:
                return "text/plain; charset=UTF-8", f"{self.status} {title}\n\n{self.message}\n\n   ".encode()


def _preferred(accept: str) -> str | None:
    """Of HTML and JSON what the client likes better, HTML where it is the same to it; None where it likes neither."""
    likes = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.split(","):
        media, _, parameters = part.partition(";")
        media = media.strip().lower()
        quality = _QUALITY.search(parameters)
        weight = float(quality[1]) if quality else 1.0
        for offer in likes:
            if media in (offer, offer.partition("/")[0] + "/*", "*/*"):
                likes[offer] = max(likes[offer], weight)
    best = max(likes, key=likes.__getitem__)
    return best if likes[best] > 0 else None


_QUALITY = re.compile(r"\bq\s*=\s*([01](?:\.[0-9]{0,3})?)")


def fault_of(error: Exception) -> Fault | None:
    """The fault of a refusal or of a store that does not answer; None for anything else, which is a bug."""
    match error:
        case Fault():
            return error
        case DomainError():
            return Fault(status_of(error), str(error) or error.code)
        case StoreUnavailable():
            return Fault(503, "The ledger's store does not answer.", retry_after_s=RETRY_AFTER_S)
        case _:
            return None


def status_of(error: DomainError) -> int:
    by_code = STATUS_BY_CODE.get(error.code)
    if by_code is not None:
        return by_code
    for kind, status in STATUS_BY_KIND:
        if isinstance(error, kind):
            return status
    return 400


def unexpected(request_id: str) -> Fault:
    """What a client hears of a bug: nothing but the id under which it is logged."""
    return Fault(500, f"Unexpected API Error. Please contact the administrator with the request id {request_id}.")


def unrouted() -> Fault:
    """No such path, or not with this method."""
    return PlainFault(404, "The resource could not be found.")


def too_large() -> Fault:
    return PlainFault(413, "Request is too large.")


def not_found() -> Fault:
    """An operation that this version does not have, or a thing that the caller may not know of."""
    return Fault(404, "The resource could not be found.")
