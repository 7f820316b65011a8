"""Bodies of PUT /os-services/{service_id} (from 2.53), of the forms by host and binary before it, and of /os-hosts."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import BOOLEAN, HOST, Forms, text, thing

BINARY = text(255)
REASON = text(255)
ENABLE_OR_DISABLE = {"type": "string", "enum": ["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"]}
WHICH = {"host": HOST, "binary": BINARY}

BODIES: Forms = {
    ("PUT", "/os-services/{service_id}"): Since(
        {
            V(2, 53): thing(
                {
                    "status": {"type": "string", "enum": ["enabled", "disabled"]},
                    "disabled_reason": REASON,
                    "forced_down": BOOLEAN,
                }
            )
        }
    ),
    ("PUT", "/os-services/enable"): Since({OLDEST: thing(WHICH, ["host", "binary"])}),
    ("PUT", "/os-services/disable"): Since({OLDEST: thing(WHICH, ["host", "binary"])}),
    ("PUT", "/os-services/disable-log-reason"): Since(
        {OLDEST: thing(WHICH | {"disabled_reason": REASON}, ["host", "binary", "disabled_reason"])}
    ),
    ("PUT", "/os-services/force-down"): Since(
        {V(2, 11): thing(WHICH | {"forced_down": BOOLEAN}, ["host", "binary", "forced_down"])}
    ),
    ("PUT", "/os-hosts/{host_name}"): Since(
        {
            OLDEST: thing(dict.fromkeys(("status", "maintenance_mode"), ENABLE_OR_DISABLE))
            | {"anyOf": [{"required": ["status"]}, {"required": ["maintenance_mode"]}]}
        }
    ),
}
