"""What a guest uses and has done, as libvirt counts it. What a hypervisor does not count is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from domain.instance.state import PowerState
from hostagent.drivers.protocol import CpuUse, Diagnostics, DiskUse, NicUse

_COUNTED = (
    libvirt.VIR_DOMAIN_STATS_STATE  # that much any driver knows
    | libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
)


def read_diagnostics(
    connection: libvirt.virConnect, domain: libvirt.virDomain, power_states: Mapping[int, PowerState], hypervisor: str
) -> Diagnostics:
    [(_, stats)] = connection.domainListGetStats([domain], _COUNTED, 0)
    state, maximum_kib, used_kib, cpus, _ = domain.info()
    devices = ET.fromstring(domain.XMLDesc())
    return Diagnostics(
        power_state=power_states.get(state, PowerState.NO_STATE),
        driver="libvirt",
        hypervisor=hypervisor,
        memory_maximum_kib=maximum_kib,
        memory_used_kib=used_kib,
        cpus=tuple(CpuUse(number=number, time_ns=stats.get(f"vcpu.{number}.time")) for number in range(cpus)),
        disks=tuple(_disk(stats, f"block.{number}") for number in range(stats.get("block.count", 0))),
        nics=tuple(_nic(stats, element) for element in devices.findall("./devices/interface")),
    )


def _disk(stats: Mapping[str, Any], at: str) -> DiskUse:
    return DiskUse(
        device=stats[f"{at}.name"],
        read_bytes=stats.get(f"{at}.rd.bytes"),
        read_requests=stats.get(f"{at}.rd.reqs"),
        write_bytes=stats.get(f"{at}.wr.bytes"),
        write_requests=stats.get(f"{at}.wr.reqs"),
        errors=stats.get(f"{at}.errors"),
    )


def _nic(stats: Mapping[str, Any], element: ET.Element) -> NicUse:
    """One that is no device of the host's (QEMU's user network) is not counted."""
    mac, target = element.find("mac"), element.find("target")
    device = None if target is None else target.get("dev")
    at = next(
        (f"net.{n}" for n in range(stats.get("net.count", 0)) if device and stats.get(f"net.{n}.name") == device), ""
    )
    return NicUse(
        device=device,
        mac_address=None if mac is None else mac.get("address"),
        rx_octets=stats.get(f"{at}.rx.bytes"),
        rx_packets=stats.get(f"{at}.rx.pkts"),
        rx_errors=stats.get(f"{at}.rx.errs"),
        rx_drop=stats.get(f"{at}.rx.drop"),
        tx_octets=stats.get(f"{at}.tx.bytes"),
        tx_packets=stats.get(f"{at}.tx.pkts"),
        tx_errors=stats.get(f"{at}.tx.errs"),
        tx_drop=stats.get(f"{at}.tx.drop"),
    )
