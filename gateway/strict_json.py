"""JSON from strangers: UTF-8, nothing said twice where that matters, and not nested without end."""

from __future__ import annotations

import json
from typing import Any

import orjson


def read(raw: bytes | bytearray, *, max_depth: int, keys_once: bool = False) -> Any:
    """Raises:
    ValueError: not JSON, nested deeper than `max_depth`, or (with `keys_once`) with a key twice in one object.
    """
    content = orjson.loads(raw)
    if raw.count(b"[") + raw.count(b"{") > max_depth and _deeper_than(content, max_depth):
        raise ValueError("nested too deeply")
    if keys_once:
        json.loads(raw, object_pairs_hook=_only_once)
    return content


def _only_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")


def _deeper_than(content: Any, levels: int) -> bool:
    layer = [content]
    for _ in range(levels):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not layer:
            return False
    return True
