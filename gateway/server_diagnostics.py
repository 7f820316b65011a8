"""What a guest uses and has done: asked of its host, shown as libvirt's names below 2.48 and in Nova's one shape from it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from domain.errors import InstanceWrongState
from domain.instance.state import PowerState
from gateway.backend import Backend, QueryFailed, QueryUnanswered
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_host import host_of, unanswered_by_host
from gateway.servers import find_server

STATES = {
    PowerState.NO_STATE: "pending",
    PowerState.RUNNING: "running",
    PowerState.PAUSED: "paused",
    PowerState.SHUTDOWN: "shutdown",
    PowerState.CRASHED: "crashed",
    PowerState.SUSPENDED: "suspended",
}
ONE_SHAPE = V(2, 48)
_OF_DISK = {"read": "read_bytes", "read_req": "read_requests", "write": "write_bytes", "write_req": "write_requests"}
_OF_NIC = ("rx_packets", "rx_errors", "rx_drop", "tx_packets", "tx_errors", "tx_drop")


class ServerDiagnostics:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("GET", "/servers/{server_id}/diagnostics"): self.show}

    async def show(self, request: Request) -> Response:
        server_id, service_id = await host_of(self._backend, request)
        try:
            found = await self._backend.diagnostics(service_id, server_id)
        except QueryFailed as failed:
            raise Fault(404, f"Nothing is known of the guest: {failed}") from None
        except QueryUnanswered as unanswered:
            raise unanswered_by_host(unanswered) from None
        if found["power_state"] != PowerState.RUNNING:
            state = STATES.get(found["power_state"], "pending")
            raise InstanceWrongState("get_diagnostics", server_id, "power state", state)
        if request.version < ONE_SHAPE:
            return Response(by_libvirts_names(found))
        launched_at, config_drive = await find_server(self._backend, request, "launched_at, config_drive")
        return Response(in_one_shape(found, config_drive=bool(config_drive), uptime_s=_seconds_since(launched_at)))


def by_libvirts_names(found: Mapping[str, Any]) -> dict[str, int]:
    shown = {f"cpu{cpu['number']}_time": cpu["time_ns"] for cpu in found["cpus"]}
    for disk in found["disks"]:
        shown |= {f"{disk['device']}_{theirs}": disk[ours] for theirs, ours in _OF_DISK.items()}
        shown[f"{disk['device']}_errors"] = -1 if disk["errors"] is None else disk["errors"]
    for nic in found["nics"]:
        if nic["device"] is not None:
            shown |= {f"{nic['device']}_rx": nic["rx_octets"], f"{nic['device']}_tx": nic["tx_octets"]}
            shown |= {f"{nic['device']}_{name}": nic[name] for name in _OF_NIC}
    shown["memory"] = found["memory_maximum_kib"]
    shown["memory-actual"] = found["memory_used_kib"]
    return {name: value for name, value in shown.items() if value is not None}


def in_one_shape(found: Mapping[str, Any], *, config_drive: bool, uptime_s: int | None) -> dict[str, Any]:
    """Nova API 2.48."""
    return {
        "config_drive": config_drive,
        "state": STATES[found["power_state"]],
        "driver": found["driver"],
        "hypervisor": found["hypervisor"],
        "hypervisor_os": "linux",
        "uptime": uptime_s,
        "num_cpus": len(found["cpus"]),
        "num_disks": len(found["disks"]),
        "num_nics": len(found["nics"]),
        "memory_details": {"maximum": _mib(found["memory_maximum_kib"]), "used": _mib(found["memory_used_kib"])},
        "cpu_details": [{"id": c["number"], "time": c["time_ns"], "utilisation": None} for c in found["cpus"]],
        "disk_details": [
            {"errors_count": disk["errors"]} | {name: disk[name] for name in _OF_DISK.values()}
            for disk in found["disks"]
        ],
        "nic_details": [
            {name: nic[name] for name in ("mac_address", "rx_octets", "tx_octets", *_OF_NIC)}
            | {"rx_rate": None, "tx_rate": None}
            for nic in found["nics"]
        ],
    }


def _mib(kib: int | None) -> int | None:
    return None if kib is None else kib // 1024


def _seconds_since(text: str | None) -> int | None:
    if text is None:
        return None
    return max(0, int((datetime.now(UTC) - datetime.fromisoformat(text).replace(tzinfo=UTC)).total_seconds()))
