"""Bodies and queries: JSON read strictly, then held to the operation's schema, with a refusal in Nova's words.

A refusal never shows a secret, and stays short whatever was sent.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema_rs

from gateway import strict_json
from gateway.faults import Fault
from gateway.microversions import Since, Version
from gateway.operations import Operation, OperationKey
from gateway.request import Query
from gateway.schemas import (
    external_events,
    flavors,
    host_aggregates,
    keypairs,
    queries,
    quotas,
    server_action,
    server_groups,
    server_parts,
    servers,
    services,
)
from gateway.schemas.formats import FORMATS, REASONS
from gateway.schemas.values import Forms, Schema

BODIES: Forms = (
    servers.BODIES
    | server_action.BODIES
    | server_parts.BODIES
    | flavors.BODIES
    | keypairs.BODIES
    | quotas.BODIES
    | services.BODIES
    | host_aggregates.BODIES
    | server_groups.BODIES
    | external_events.BODIES
)

MAX_DEPTH = 32  # of JSON; no body of the API comes near
MAX_SHOWN = 300  # characters of a refused value
SECRETS = frozenset({"adminPass", "user_data", "personality", "contents", "password", "private_key"})
HIDDEN = "***"

_WHOLE = re.compile(r"-?[0-9]+")


def parse_json(raw: bytes) -> Any:
    """Raises:
    Fault: 400, it is not JSON, is not UTF-8, says something twice, is nested too deeply or has a number too large.
    """
    try:
        return strict_json.read(raw, max_depth=MAX_DEPTH, keys_once=True)
    except ValueError:
        raise _malformed() from None


def action_of(content: Any) -> str:
    """The one key of an action's body.

    Raises:
        Fault: 400, there is none or more than one.
    """
    if not isinstance(content, dict) or len(content) != 1:
        raise _malformed()
    return str(next(iter(content)))


class Validation:
    """Schemas, compiled when they are first used."""

    def __init__(self, bodies: Forms = BODIES, query_schemas: Forms = queries.QUERIES) -> None:
        self._bodies = _rules(bodies)
        self._queries = _rules(query_schemas)

    def body(self, operation: Operation, version: Version, content: Any, *, loose: bool = False) -> Any:
        """The body; for a `loose` client (/v2) without the keys that the schema does not know.

        Raises:
            Fault: 400
        """
        since = self._bodies.get(operation.key)
        rules = since.at(version) if since is not None else None
        if rules is None:
            return content
        if loose:
            content = _known_keys(content, rules.schema)
        rules.check(content, loose=loose)
        return content

    def query(self, operation: Operation, version: Version, query: Query, *, loose: bool = False) -> Query:
        """The query, without fields that the operation does not know.

        Raises:
            Fault: 400
        """
        if not query.items:
            return query
        since = self._queries.get(operation.key)
        rules = since.at(version) if since is not None else None
        if rules is None:
            if version >= queries.ALL_CLOSED and operation.method == "GET":
                raise Fault(400, _unexpected(query))
            return query
        if loose or rules.schema["additionalProperties"]:
            known = rules.schema["properties"]
            query = query.only(lambda field: field in known or field.startswith("_"))
        rules.check(query.lists(), query=True)
        return query


class _Rules:
    """One schema. A fast validator says whether a value passes; a slow one says why it does not."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._fast: dict[bool, jsonschema_rs.Draft4Validator] = {}

    def check(self, value: Any, *, query: bool = False, loose: bool = False) -> None:
        fast = self._fast.get(loose)
        if fast is None:
            fast = self._fast[loose] = jsonschema_rs.Draft4Validator(
                self.schema, formats=_formats(loose), validate_formats=True
            )
        if not fast.is_valid(value):
            raise Fault(400, _why(self.schema, value, query=query, loose=loose))


def _rules(forms: Forms) -> dict[OperationKey, Since[_Rules]]:
    return {
        key: Since(dict(zip(since.versions, map(_Rules, since.forms), strict=True))) for key, since in forms.items()
    }


def _formats(loose: bool) -> dict[str, Any]:
    """For /v2, a name may begin and end with spaces."""
    return FORMATS | {"name": FORMATS["name_or_spaced"]} if loose else FORMATS


def _why(schema: Schema, value: Any, *, query: bool, loose: bool) -> str:
    error = _first_error(schema, value, loose)
    if error is None:
        return "Invalid input received"
    reason = REASONS.get(error.validator_value) if error.validator == "format" else None
    if reason is not None:
        return f"An invalid 'name' value was provided. The name must be: {reason}"
    shown, message = _shown(error)
    path = list(error.absolute_path)
    if not path:
        return message
    if query:
        return f"Invalid input for query parameters {_cut(str(path[0]))}. Value: {shown}. {message}"
    return f"Invalid input for field/attribute {_cut(str(path[-1]))}. Value: {shown}. {message}"


def _first_error(schema: Schema, value: Any, loose: bool) -> Any:
    validator_class, checker = _explaining(loose)
    return next(validator_class(schema, format_checker=checker).iter_errors(value), None)


@cache
def _explaining(loose: bool) -> tuple[Any, Any]:
    """The slow validator and its formats; loaded with the first refusal."""
    import jsonschema

    def bound(keyword: str) -> Any:
        plain = jsonschema.Draft4Validator.VALIDATORS[keyword]

        def check(validator: Any, limit: Any, instance: Any, schema: Any) -> Any:
            """As Nova's: holds for a number in text too."""
            if isinstance(instance, str) and len(instance) <= 40 and _WHOLE.fullmatch(instance):
                instance = int(instance)
            return plain(validator, limit, instance, schema)

        return check

    def one_of(validator: Any, choices: Any, instance: Any, schema: Any) -> Any:
        """Without the errors of every choice, which a long list has very many of."""
        fitting = sum(validator.evolve(schema=choice).is_valid(instance) for choice in choices)
        if fitting != 1:
            what = "is valid under several" if fitting else "is not valid under any"
            yield jsonschema.ValidationError(f"{instance!r} {what} of the given schemas")

    checker = jsonschema.FormatChecker(formats=())
    for name, check in _formats(loose).items():
        if not name.startswith("whole "):  # what the two bounds above say better
            checker.checks(name)(check)
    ours = {"minimum": bound("minimum"), "maximum": bound("maximum"), "oneOf": one_of}
    return jsonschema.validators.extend(jsonschema.Draft4Validator, ours), checker


def _shown(error: Any) -> tuple[str, str]:
    """The refused value and the schema's message about it, cut and without secrets."""
    message = str(error.message)
    value = error.instance
    shown = HIDDEN if SECRETS.intersection(map(str, error.absolute_path)) else _without_secrets(value)
    if shown is not value:
        message = message.replace(repr(value), HIDDEN if shown == HIDDEN else repr(shown))
    return _cut(str(shown)), _cut(message)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if key in SECRETS else _without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in value]
    return value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _known_keys(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and "properties" in schema and not schema.get("additionalProperties", True):
        known = schema["properties"]
        return {key: _known_keys(inner, known[key]) for key, inner in value.items() if key in known}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_known_keys(inner, schema["items"]) for inner in value]
    return value


def _unexpected(query: Query) -> str:
    names = sorted(set(query.lists()))
    verb = "was" if len(names) == 1 else "were"
    listed = ", ".join(repr(name) for name in names)
    return f"Additional properties are not allowed ({_cut(listed)} {verb} unexpected)"


def _malformed() -> Fault:
    return Fault(400, "Malformed request body")
