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

HOST_STATUS = """',"host_status":"' || CASE WHEN host IS NULL THEN '' ELSE COALESCE((SELECT CASE
    WHEN s.forced_down OR NOT s.up THEN 'DOWN' WHEN NOT s.enabled THEN 'MAINTENANCE' ELSE 'UP' END
    FROM services s WHERE s.service_id = servers.service_id), 'UNKNOWN') END || '"'"""
USER_DATA = """',"OS-EXT-SRV-ATTR:user_data":' || CASE WHEN user_data IS NULL THEN 'null'
    ELSE '"' || char(3) || user_data || char(3) || '"' END"""
_USER_DATA_REF = re.compile(rb"\x03([^\x03]*)\x03")


@dataclass(frozen=True, slots=True)
class Part:
    """A column (or SQL expression) shown from one microversion on, until another; to administrators only, or in shows."""

    sql: str
    since: tuple[int, int] = (2, 1)
    until: tuple[int, int] = (2, 9999)
    admin: bool | None = None  # True: for administrators; False: for others; None: for all
    show_only: bool = False


PARTS: tuple[Part, ...] = (
    Part("base"),
    Part("flavor_link", until=(2, 46)),
    Part("flavor_whole", since=(2, 47)),
    Part("image", until=(2, 97)),
    Part("image_whole", since=(2, 98)),
    Part("fault", admin=False),
    Part("fault_admin", admin=True),
    Part("admin", admin=True),
    Part("admin_more", since=(2, 3), admin=True),
    Part(USER_DATA, since=(2, 3), admin=True),
    Part("hostname_part", since=(2, 3), until=(2, 89), admin=True),
    Part("hostname_part", since=(2, 90)),
    Part("locked", since=(2, 9)),
    Part(HOST_STATUS, since=(2, 16), admin=True),
    Part("description", since=(2, 19)),
    Part("tag_list", since=(2, 26)),
    Part("certificates", since=(2, 63)),
    Part("groups", since=(2, 71), show_only=True),
    Part("locked_reason", since=(2, 73)),
    Part("pinned_zone", since=(2, 96)),
    Part("hints", since=(2, 100)),
)


@lru_cache(maxsize=512)
def detail_expression(version: Version, *, admin: bool, show: bool) -> str:
    """SQL for one server as a JSON object, without its URLs."""
    wanted = [
        part.sql
        for part in PARTS
        if part.since <= (version.major, version.minor) <= part.until
        and part.admin in (None, admin)
        and (show or not part.show_only)
    ]
    return " || ".join([*(f"({sql})" if " " in sql else sql for sql in wanted), "'}'"])


def with_user_data(answer: bytes, payload: Callable[[VaultRef], bytes | None]) -> bytes:
    """Put in the user data that administrators see (Nova API 2.3); it is never in a view."""

    def opened(match: re.Match[bytes]) -> bytes:
        data = payload(VaultRef(match[1].decode()))
        return b"" if data is None else base64.b64encode(data)

    return _USER_DATA_REF.sub(opened, answer) if b"\x03" in answer else answer
