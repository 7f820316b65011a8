"""What libvirt says of its host: the processor, and the kinds of guest it can run. Pure."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass

from hostagent.drivers.protocol import DriverError


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    arch: str
    cpu_info: str  # JSON, as Nova's hypervisor details show it
    virt_type: str  # how guests are run: "kvm", "qemu" or "test"


def read_capabilities(text: str, virt_type: str) -> HostCapabilities:
    """The host's processor, and how guests of its architecture can be run.

    Raises:
        DriverError: the operator asks for a kind of guest that libvirt does not offer here.
    """
    capabilities = ET.fromstring(text)
    arch = capabilities.findtext("host/cpu/arch") or ""
    kinds = {
        domain.get("type")
        for guest in capabilities.iterfind("guest")
        if guest.findtext("os_type") == "hvm"
        for domain in guest.iterfind(f"arch[@name='{arch}']/domain")
    }
    if virt_type == "auto":
        virt_type = "kvm" if "kvm" in kinds else "qemu"
    if virt_type not in kinds and virt_type != "test":
        raise DriverError(f"libvirt offers no {virt_type} guests of {arch} here, only {', '.join(map(str, kinds))}")
    return HostCapabilities(arch, _cpu_info(capabilities, arch), virt_type)


def _cpu_info(capabilities: ET.Element, arch: str) -> str:
    topology = capabilities.find("host/cpu/topology")
    return json.dumps(
        {
            "arch": arch,
            "model": capabilities.findtext("host/cpu/model", ""),
            "vendor": capabilities.findtext("host/cpu/vendor", ""),
            "topology": {} if topology is None else {k: int(v) for k, v in topology.items() if v.isdigit()},
            "features": sorted(feature.get("name", "") for feature in capabilities.iterfind("host/cpu/feature")),
        }
    )
