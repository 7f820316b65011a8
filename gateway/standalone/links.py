"""Absolute links, built from the address that the client used."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request

_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """`trust_proxy`: believe X-Forwarded-Proto and -Host (a proxy in front must set or drop them)."""

    trust_proxy: bool = False

    def base(self, request: Request) -> str:
        """Where the whole product is, without a slash at the end."""
        outer = request.scope.get("app_root_path", "")
        return self._origin(request) + str(outer).rstrip("/")

    def service(self, request: Request) -> str:
        """Where the service that answers this request is mounted, without a slash at the end."""
        return self._origin(request) + str(request.scope.get("root_path", "")).rstrip("/")

    def _origin(self, request: Request) -> str:
        scheme, host = request.scope["scheme"], request.headers.get("host", "")
        if self.trust_proxy:
            forwarded = _first(request.headers.get("x-forwarded-proto", "")).lower()
            scheme = forwarded if forwarded in ("http", "https") else scheme
            host = _first(request.headers.get("x-forwarded-host", "")) or host
        if not _HOST.fullmatch(host):
            address, port = request.scope.get("server") or ("localhost", None)
            host = f"{address}:{port}" if port else str(address)
        return f"{scheme}://{host}"


def _first(header: str) -> str:
    return header.partition(",")[0].strip()
