"""Bodies of POST /servers/{id}/action. An action without arguments has no schema: its value is not looked at (Nova)."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import MAX_BIG_INTEGER, Forms, Schema, text, thing, whole_number, wrapped

ACTION = "/servers/{server_id}/action"
REBOOT_TYPES = ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]
LOCK = thing({"locked_reason": text(255)}) | {"type": ["object", "null"]}


def console(action: str, *types: str) -> Schema:
    return wrapped(action, thing({"type": {"type": "string", "enum": list(types)}}, ["type"]))


BODIES: Forms = {
    ("POST", ACTION, "reboot"): Since(
        {OLDEST: wrapped("reboot", thing({"type": {"type": "string", "enum": REBOOT_TYPES}}, ["type"]))}
    ),
    ("POST", ACTION, "changePassword"): Since(
        {OLDEST: wrapped("changePassword", thing({"adminPass": {"type": "string"}}, ["adminPass"]))}
    ),
    ("POST", ACTION, "os-getVNCConsole"): Since({OLDEST: console("os-getVNCConsole", "novnc", "xvpvnc")}),
    ("POST", ACTION, "os-getSPICEConsole"): Since({OLDEST: console("os-getSPICEConsole", "spice-html5")}),
    ("POST", ACTION, "os-getSerialConsole"): Since({OLDEST: console("os-getSerialConsole", "serial")}),
    ("POST", ACTION, "lock"): Since({V(2, 73): wrapped("lock", LOCK)}),
    ("POST", ACTION, "os-resetState"): Since(
        {OLDEST: wrapped("os-resetState", thing({"state": {"type": "string", "enum": ["active", "error"]}}, ["state"]))}
    ),
    ("POST", ACTION, "os-getConsoleOutput"): Since(
        {OLDEST: wrapped("os-getConsoleOutput", thing({"length": whole_number(-1, MAX_BIG_INTEGER, null=True)}))}
    ),
}
