"""Which parts of a server's row make its answer, at each microversion and for whom: data, turned into one SQL expression.

Source: Nova API microversion history, "Server view (show) steps".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from domain.identifiers import VaultRef
from gateway.microversions import Version
from gateway.request import Request

ADMIN_VIEW = "os_compute_api:os-extended-server-attributes"
ADMINISTRATOR = "context_is_admin"
EXTRA_SPECS = "os_compute_api:servers:show:flavor-extra-specs"
ANY_HOST_STATUS = "os_compute_api:servers:show:host_status"
UNKNOWN_HOST_STATUS = "os_compute_api:servers:show:host_status:unknown-only"
RULES = (ADMIN_VIEW, ADMINISTRATOR, EXTRA_SPECS, ANY_HOST_STATUS, UNKNOWN_HOST_STATUS)

DETAIL, SHOW, UPDATE = "detail", "show", "update"  # the answers that a server is shown in
WHOLE_UPDATE = (2, 75)  # from here an update answers all that a show does

_STATUS_OF_HOST = """CASE WHEN host IS NULL THEN '' ELSE COALESCE((SELECT CASE
    WHEN s.forced_down OR NOT s.up THEN 'DOWN' WHEN NOT s.enabled THEN 'MAINTENANCE' ELSE 'UP' END
    FROM services s WHERE s.service_id = servers.service_id), 'UNKNOWN') END"""
HOST_STATUS = f"""',"host_status":"' || {_STATUS_OF_HOST} || '"'"""
HOST_STATUS_IF_UNKNOWN = f"""CASE {_STATUS_OF_HOST} WHEN 'UNKNOWN' THEN ',"host_status":"UNKNOWN"' ELSE '' END"""
PLAIN_ADDRESSES = """',"addresses":' || CASE vm_state WHEN 'building' THEN '{}' ELSE networks END"""
SERVER_GROUPS = """',"server_groups":[' || COALESCE((SELECT '"' || m.group_id || '"' FROM server_group_members m
    WHERE m.instance_id = servers.id), '') || ']'"""
USER_DATA = """',"OS-EXT-SRV-ATTR:user_data":' || CASE WHEN user_data IS NULL THEN 'null'
    ELSE '"' || char(3) || user_data || char(3) || '"' END"""
_USER_DATA_REF = re.compile(rb"\x03([^\x03]*)\x03")


@dataclass(frozen=True, slots=True)
class Part:
    """A column (or SQL expression) shown from one microversion on, until another, to those whom a rule allows it."""

    sql: str
    since: tuple[int, int] = (2, 1)
    until: tuple[int, int] = (2, 9999)
    to: str | None = None  # the rule; none: to all
    not_to: str | None = None  # those whom this rule allows more
    update_since: tuple[int, int] = (2, 1)  # in the answer to an update
    detail: bool = True  # also in lists


PARTS: tuple[Part, ...] = (
    Part("base"),
    Part("addresses", update_since=WHOLE_UPDATE),
    Part("extended", update_since=WHOLE_UPDATE),
    Part("flavor_link", until=(2, 46)),
    Part("flavor_specs", since=(2, 47), to=EXTRA_SPECS),
    Part("flavor_whole", since=(2, 47), not_to=EXTRA_SPECS),
    Part("image", until=(2, 97)),
    Part("image_whole", since=(2, 98)),
    Part("fault", not_to=ADMINISTRATOR),
    Part("fault_admin", to=ADMINISTRATOR),
    Part("admin", to=ADMIN_VIEW, update_since=WHOLE_UPDATE),
    Part("admin_more", since=(2, 3), to=ADMIN_VIEW, update_since=WHOLE_UPDATE),
    Part(USER_DATA, since=(2, 3), to=ADMIN_VIEW, update_since=WHOLE_UPDATE),
    Part("hostname_part", since=(2, 3), until=(2, 89), to=ADMIN_VIEW, update_since=WHOLE_UPDATE),
    Part("hostname_part", since=(2, 90)),
    Part("locked", since=(2, 9)),
    Part(HOST_STATUS, since=(2, 16), to=ANY_HOST_STATUS, update_since=WHOLE_UPDATE),
    Part(
        HOST_STATUS_IF_UNKNOWN,
        since=(2, 16),
        to=UNKNOWN_HOST_STATUS,
        not_to=ANY_HOST_STATUS,
        update_since=WHOLE_UPDATE,
    ),
    Part("description", since=(2, 19)),
    Part("tag_list", since=(2, 26)),
    Part("certificates", since=(2, 63)),
    Part(SERVER_GROUPS, since=(2, 71), detail=False),
    Part("locked_reason", since=(2, 73)),
    Part("pinned_zone", since=(2, 96)),
    Part("hints", since=(2, 100)),
)


def shown_to(request: Request, form: str) -> str:
    """SQL for a server as this caller sees it in an answer of that form: a JSON object, without its URLs."""
    return server_expression(request.version, frozenset(rule for rule in RULES if request.allows(rule)), form)


@lru_cache(maxsize=1024)
def server_expression(version: Version, allowed: frozenset[str], form: str) -> str:
    wanted = [
        part.sql
        for part in PARTS
        if part.since <= version <= part.until
        and (part.to is None or part.to in allowed)
        and part.not_to not in allowed
        and (form != DETAIL or part.detail)
        and (form != UPDATE or part.update_since <= version)
    ]
    if form == UPDATE and version < WHOLE_UPDATE:
        wanted.append(PLAIN_ADDRESSES)
    return " || ".join([*(f"({sql})" if " " in sql else sql for sql in wanted), "'}'"])


def finished(request: Request, answer: bytes, payload: Callable[[VaultRef], bytes | None]) -> bytes:
    """An answer with its URLs, and with the user data that administrators see."""
    answer = with_user_data(answer, payload)
    return answer.replace(b"\x01", request.base_url.encode()).replace(b"\x02", request.bookmark_url.encode())


def with_user_data(answer: bytes, payload: Callable[[VaultRef], bytes | None]) -> bytes:
    """Put in the user data that administrators see (Nova API 2.3); it is never in a view."""

    def opened(match: re.Match[bytes]) -> bytes:
        data = payload(VaultRef(match[1].decode()))
        return b"" if data is None else base64.b64encode(data)

    return _USER_DATA_REF.sub(opened, answer) if b"\x03" in answer else answer
