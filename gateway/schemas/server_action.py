"""Bodies of POST /servers/{id}/action. An action without arguments has no schema: its value is not looked at (Nova)."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import MAX_BIG_INTEGER, Forms, text, thing, whole_number, wrapped

ACTION = "/servers/{server_id}/action"
REBOOT_TYPES = ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]
LOCK = thing({"locked_reason": text(255)}) | {"type": ["object", "null"]}

BODIES: Forms = {
    ("POST", ACTION, "reboot"): Since(
        {OLDEST: wrapped("reboot", thing({"type": {"type": "string", "enum": REBOOT_TYPES}}, ["type"]))}
    ),
    ("POST", ACTION, "lock"): Since({V(2, 73): wrapped("lock", LOCK)}),
    ("POST", ACTION, "os-resetState"): Since(
        {OLDEST: wrapped("os-resetState", thing({"state": {"type": "string", "enum": ["active", "error"]}}, ["state"]))}
    ),
    ("POST", ACTION, "os-getConsoleOutput"): Since(
        {OLDEST: wrapped("os-getConsoleOutput", thing({"length": whole_number(-1, MAX_BIG_INTEGER, null=True)}))}
    ),
}
