"""What a handler is given and what it gives back. `gateway/app.py` makes the one and sends the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from commands.neighbours.identity import Credentials
from gateway.faults import Fault
from gateway.microversions import Version
from gateway.operations import OperationKey
from gateway.policy import Policy

MAX_QUERY_FIELDS = 1000


class Query:
    """The query string's fields, in order; a field may come several times."""

    __slots__ = ("_values", "items")

    def __init__(self, items: Sequence[tuple[str, str]] = ()) -> None:
        self.items = list(items)
        self._values: dict[str, list[str]] = {}
        for key, value in items:
            self._values.setdefault(key, []).append(value)

    @staticmethod
    def parse(raw: bytes) -> Query:
        """Raises:
        Fault: 400, not UTF-8 or more than MAX_QUERY_FIELDS fields.
        """
        if not raw:
            return Query()
        try:
            text = raw.decode("ascii")
            return Query(parse_qsl(text, True, max_num_fields=MAX_QUERY_FIELDS, errors="strict"))
        except UnicodeError:
            raise Fault(400, "Query string is not UTF-8 encoded") from None
        except ValueError:
            raise Fault(400, f"Query string has more than {MAX_QUERY_FIELDS} fields") from None

    def get(self, key: str) -> str | None:
        """The last of its values, as in Nova."""
        values = self._values.get(key)
        return values[-1] if values else None

    def all(self, key: str) -> list[str]:
        return self._values.get(key, [])

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def lists(self) -> Mapping[str, list[str]]:
        """Every field with all its values: the form that the query schemas describe."""
        return self._values

    def only(self, keys: Callable[[str], bool]) -> Query:
        return Query([item for item in self.items if keys(item[0])])

    def with_changed(self, **changed: str) -> str:
        """The query string with some fields set: for a next link."""
        kept = [item for item in self.items if item[0] not in changed]
        return urlencode(kept + list(changed.items()))


@dataclass(slots=True, kw_only=True)
class Request:
    """One request that is authenticated, routed, validated and allowed by its operation's policy rule."""

    request_id: str  # "req-" and a UUID
    global_request_id: str | None  # from another service, of the same form
    method: str
    path: str  # below the version prefix and the project id: "/servers/detail"
    path_params: Mapping[str, str]
    action: str | None  # of a POST to .../action: "os-start"
    version: Version
    legacy_v2: bool  # came by /v2: no microversions
    credentials: Credentials
    query: Query
    body: Any  # parsed and valid; None without one
    headers: Mapping[str, str]  # names in lower case
    base_url: str  # of self links: "https://cloud.example/compute/v2.1", with the project id if the path had it
    bookmark_url: str  # of bookmark links: the same without the version
    policy: Policy = field(repr=False)

    @property
    def project_id(self) -> str:
        """Raises:
        Fault: 403, the token is not for a project.
        """
        project_id = self.credentials.project_id
        if project_id is None:
            raise Fault(403, "The token is not scoped to a project.")
        return project_id

    @property
    def user_id(self) -> str:
        return self.credentials.user_id

    def allows(self, rule: str, *, project_id: str | None = None, user_id: str | None = None) -> bool:
        """Whether policy lets the caller do `rule` to something of that project and user; its own when not given."""
        return self.policy.allows(rule, self.credentials, project_id=project_id, user_id=user_id)

    def require(self, rule: str, *, project_id: str | None = None, user_id: str | None = None) -> None:
        """Raises:
        Fault: 403, naming the rule.
        """
        self.policy.require(rule, self.credentials, project_id=project_id, user_id=user_id)


@dataclass(slots=True)
class Response:
    """`content` is bytes of ready JSON, or anything that orjson writes; None sends no body."""

    content: Any = None
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "application/json"


Handler = Callable[[Request], Awaitable[Response]]
HandlerKey = OperationKey
