"""The log of usage audits, which Nova's hosts run once a period and report on. Here use is read off the ledger at any time
(`tenant_usage.py`), so no host ever runs one, and every host is told as one that did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response

FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")


class UsageAudit:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        path = "/os-instance_usage_audit_log"
        return {("GET", path): self.index, ("GET", f"{path}/{{before_timestamp}}"): self.show}

    async def index(self, request: Request) -> Response:
        before = datetime.now(UTC).replace(tzinfo=None)
        return Response({"instance_usage_audit_logs": await self._log(before)})

    async def show(self, request: Request) -> Response:
        return Response({"instance_usage_audit_log": await self._log(_time(request.path_params["before_timestamp"]))})

    async def _log(self, before: datetime) -> dict[str, Any]:
        rows = await self._backend.views.rows("SELECT host FROM services ORDER BY host")
        begin, end = last_month(before)
        return {
            "period_beginning": str(begin),
            "period_ending": str(end),
            "num_hosts": len(rows),
            "num_hosts_done": 0,
            "num_hosts_running": 0,
            "num_hosts_not_run": len(rows),
            "hosts_not_run": [host for (host,) in rows],
            "total_instances": 0,
            "total_errors": 0,
            "overall_status": f"{'ALL' if not rows else f'0 of {len(rows)}'} hosts done. 0 errors.",
            "log": {},
        }


def last_month(before: datetime) -> tuple[datetime, datetime]:
    """The last month that was over before a time (Nova's instance_usage_audit_period)."""
    end = datetime(before.year, before.month, 1)
    if end >= before:
        end = _month_before(end)
    return _month_before(end), end


def _month_before(month: datetime) -> datetime:
    return month.replace(year=month.year - 1, month=12) if month.month == 1 else month.replace(month=month.month - 1)


def _time(text: str) -> datetime:
    """Raises:
    Fault: 400
    """
    try:
        time = datetime.strptime(text, FORMS["." in text])
        last_month(time)
    except ValueError:
        raise Fault(400, f"Invalid timestamp for date {text[:100]}") from None
    return time
