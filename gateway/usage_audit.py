"""The log of usage audits: which hosts have told of a period's use. Nova's hosts do so once a period, and may fail to. Here
use is read off the ledger (`tenant_usage.py`), which misses nobody: of a period that is over every host has told.
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
        begin, end = last_month(before)
        rows = await self._backend.views.rows(
            "SELECT s.host, (SELECT COUNT(*) FROM usage u JOIN servers v ON v.id = u.instance_id WHERE v.host = s.host "
            "AND u.launched_at < ? AND (u.terminated_at IS NULL OR u.terminated_at > ?)) FROM services s ORDER BY s.host",
            (end.isoformat(), begin.isoformat()),
        )
        return {
            "period_beginning": str(begin),
            "period_ending": str(end),
            "num_hosts": len(rows),
            "num_hosts_done": len(rows),
            "num_hosts_running": 0,
            "num_hosts_not_run": 0,
            "hosts_not_run": [],
            "total_instances": sum(count for _, count in rows),
            "total_errors": 0,
            "overall_status": "ALL hosts done. 0 errors.",
            "log": {host: _done(count) for host, count in rows},
        }


def _done(instances: int) -> dict[str, Any]:
    message = f"The use of {instances} instances is recorded."
    return {"state": "DONE", "instances": instances, "errors": 0, "message": message}


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
