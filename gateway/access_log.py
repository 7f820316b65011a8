"""One line of JSON for each answered request, on stderr. Neither query strings nor tokens are ever in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

AccessLog = Callable[[dict[str, Any]], None]

# What follows opens a console, or is personal.
SECRET_PATHS = ("/os-console-auth-tokens/", "/os-keypairs/", "/tags/", "/metadata/")

# A server asked for by its name, which is personal: clients try that before they look through a list.
_NAMED_SERVER = re.compile(r"(?<=/servers/)(?!detail\b)(?![0-9a-fA-F-]{32,36}(?:/|$))[^/]+")


def write_line(record: dict[str, Any]) -> None:
    line = orjson.dumps({"time": datetime.now(UTC), **record}, option=orjson.OPT_APPEND_NEWLINE)
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


def shown_path(path: str) -> str:
    for secret in SECRET_PATHS:
        before, found, _ = path.partition(secret)
        if found:
            path = f"{before}{secret}***"
    path = _NAMED_SERVER.sub("***", path)
    return path.encode(errors="replace").decode()[:1000]
