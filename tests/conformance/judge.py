"""What Nova's released code says the body of each answer has to be, at each microversion."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from jsonschema import Draft4Validator, FormatChecker

from gateway.microversions import Version
from gateway.operations import Operation
from tests.conformance.environment import CACHE, NOVA, programs_of

Json = dict[str, Any]
Key = tuple[str, str, str | None]

_SCRIPT = Path(__file__).with_name("nova_schemas.py")


class NovaSchemas:
    def __init__(self) -> None:
        """Raises:
        Unavailable
        """
        self._forms: dict[Key, list[tuple[Version | None, Version | None, Draft4Validator]]] = defaultdict(list)
        for method, path, action, oldest, newest, schema in orjson.loads(_exported()):
            validator = Draft4Validator(schema, format_checker=FormatChecker())
            bounds = (oldest and Version(*oldest), newest and Version(*newest))
            self._forms[method, _nameless(path), action].append((*bounds, validator))

    def knows(self, operation: Operation) -> bool:
        return _key(operation) in self._forms

    def faults(self, operation: Operation, version: Version, body: object) -> list[str]:
        """What is wrong with an answer's body: nothing, where it is as Nova's."""
        for oldest, newest, validator in self._forms[_key(operation)]:
            if (oldest is None or oldest <= version) and (newest is None or version <= newest):
                return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(body)]
        return []


@cache
def nova_schemas() -> NovaSchemas:
    """Raises:
    Unavailable
    """
    return NovaSchemas()


def _exported() -> bytes:
    programs = programs_of(NOVA)
    kept = CACHE / f"{NOVA}.json"
    if not kept.exists():
        done = subprocess.run([programs / "python", _SCRIPT], capture_output=True, timeout=300, check=True)
        kept.write_bytes(done.stdout)
    return kept.read_bytes()


def _key(operation: Operation) -> Key:
    return operation.method, _nameless(operation.path), operation.action


def _nameless(path: str) -> str:
    """Variables by place, not by name."""
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
