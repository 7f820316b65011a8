"""Flavors' extra specs that Nova knows: which names there are in its namespaces, and what their values may be.

Checked from Nova API 2.86 on. A name without a namespace, or in another one, is the operator's own and not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

Check = Callable[[str], str | None]  # of a value: what is wrong with it

ANY_GROUP = "([a-zA-Z0-9_-]{1,64})?"
CPUS = r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*"


def anything(value: str) -> str | None:
    return None


def truth(value: str) -> str | None:
    if value.strip().lower() in ("1", "t", "true", "on", "y", "yes", "0", "f", "false", "off", "n", "no"):
        return None
    return "is not a valid boolean-like value"


def whole(low: int | None = None, high: int | None = None) -> Check:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not a valid integer value"
        if high is not None and number > high:
            return f"is greater than the max value of '{high}'"
        if low is not None and number < low:
            return f"is less than the min value of '{low}'"
        return None

    return check


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"is not one of: {', '.join(choices)}"


def shaped(pattern: str) -> Check:
    return lambda value: None if re.fullmatch(pattern, value) else f"is not of the format '{pattern}'"


# Name → check of its value, by namespace.
HW: dict[str, Check] = {
    "boot_menu": truth,
    "cpu_cores": whole(1),
    "cpu_dedicated_mask": shaped(CPUS),
    "cpu_max_cores": whole(1),
    "cpu_max_sockets": whole(1),
    "cpu_max_threads": whole(1),
    "cpu_policy": one_of("dedicated", "shared", "mixed"),
    "cpu_realtime": truth,
    "cpu_realtime_mask": shaped(r"(\^)?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*"),
    "cpu_sockets": whole(1),
    "cpu_thread_policy": one_of("prefer", "isolate", "require"),
    "cpu_threads": whole(1),
    "emulator_threads_policy": one_of("isolate", "share"),
    "ephemeral_encryption": truth,
    "ephemeral_encryption_format": one_of("plain", "luks", "luksv2"),
    "hide_hypervisor_id": truth,
    "locked_memory": truth,
    "mem_encryption": truth,
    "mem_encryption_model": one_of("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
    "mem_page_size": shaped(r"(large|small|any|\d+([kKMGT]i?)?(b|bit|B)?)"),
    "numa_nodes": whole(1),
    "pci_numa_affinity_policy": one_of("required", "preferred", "legacy", "socket"),
    "pmem": shaped("([a-zA-Z0-9_]+(,)?)+"),
    "pmu": truth,
    "redirected_usb_ports": whole(0, 15),
    "serial_port_count": whole(0),
    "sound_model": one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "tpm_model": one_of("tpm-tis", "tpm-crb"),
    "tpm_secret_security": one_of("user", "host", "deployment"),
    "tpm_version": one_of("1.2", "2.0"),
    "usb_model": one_of("none", "nec-xhci", "qemu-xhci"),
    "vif_multiqueue_enabled": truth,
    "viommu_model": one_of("intel", "smmuv3", "virtio", "auto"),
    "virtio_packed_ring": truth,
    "watchdog_action": one_of("none", "pause", "poweroff", "reset", "disabled"),
}
QUOTA: dict[str, Check] = {
    "cpu_period": whole(0),
    "cpu_quota": whole(),
    "cpu_shares": whole(0),
    **{f"disk_{what}_{unit}_sec": whole(0) for what in ("read", "write", "total") for unit in ("bytes", "iops")},
    **{f"vif_{way}_{what}": whole(0) for way in ("inbound", "outbound") for what in ("average", "peak", "burst")},
    **{f"{what}_limit": whole(0) for what in ("cpu", "memory", "disk_io", "vif")},
    **{f"{what}_reservation": whole() for what in ("cpu", "memory", "disk_io", "vif")},
    **{
        f"{what}_shares_level": one_of("custom", "high", "normal", "low")
        for what in ("cpu", "memory", "disk_io", "vif")
    },
    **{f"{what}_shares_share": whole(0) for what in ("cpu", "memory", "disk_io", "vif")},
}
CAPABILITIES = (
    "aggregates", "cell_uuid", "cpu_allocation_ratio", "current_workload", "disk_allocation_ratio",
    "disk_available_least", "disk_mb_used", "failed_builds", "free_disk_gb", "free_disk_mb", "free_ram_mb", "host",
    "host_ip", "hypervisor_hostname", "hypervisor_type", "hypervisor_version", "id", "local_gb", "local_gb_used",
    "mapped", "memory_mb", "memory_mb_used", "num_instances", "num_io_ops", "ram_allocation_ratio", "running_vms",
    "service_id", "total_usable_disk_gb", "total_usable_ram_mb", "updated", "uuid", "vcpus", "vcpus_total",
    "vcpus_used",
)  # fmt: skip
NESTED_CAPABILITIES = (
    "cpu_info", "instances", "limits", "metrics", "nodename", "numa_topology", "pci_device_pools", "pci_stats",
    "stats", "supported_hv_specs", "supported_instances",
)  # fmt: skip
OTHERS: dict[str, Check] = {
    "accel:device_profile": anything,
    "group_policy": one_of("isolate", "none"),
    "hide_hypervisor_id": truth,
    "hw_rng:allowed": truth,
    "hw_rng:rate_bytes": whole(0),
    "hw_rng:rate_period": whole(0),
    "hw_video:ram_max_mb": whole(0),
    "os:secure_boot": one_of("disabled", "required"),
    "pci_passthrough:alias": shaped(r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*"),
    "vmware:hw_version": anything,
    "vmware:storage_policy": anything,
}


def wrong_with(name: str, value: str) -> str | None:
    """Why an extra spec is refused; None if it is not."""
    check = _named(name)
    if check is not None:
        wrong = check(value)
        return None if wrong is None else f"Validation failed; '{value}' {wrong}."
    namespace, colon, _ = name.partition(":")
    if colon and _NAMESPACES.fullmatch(namespace):
        return f"Validation failed; extra spec '{name}' does not appear to be a valid extra spec."
    return None


_NAMESPACES = re.compile(
    "accel|aggregate_instance_extra_specs|capabilities|hw|hw_rng|hw_video|os|pci_passthrough|quota|vmware|"
    f"(resources|trait){ANY_GROUP}"
)


def _named(name: str) -> Check | None:
    by_name, by_pattern = _known()
    return by_name.get(name) or next((check for pattern, check in by_pattern if pattern.fullmatch(name)), None)


@cache
def _known() -> tuple[dict[str, Check], list[tuple[re.Pattern[str], Check]]]:
    names = {**OTHERS, **{f"hw:{name}": check for name, check in HW.items()}}
    names |= {f"quota:{name}": check for name, check in QUOTA.items()}
    names |= {f"capabilities:{name}": anything for name in CAPABILITIES}
    return names, [(re.compile(pattern), check) for pattern, check in _patterns()]


def _patterns() -> Iterator[tuple[str, Check]]:
    """Names with something free in them. The lists of classes and traits are loaded with the first look at one."""
    import os_resource_classes
    import os_traits

    yield r"hw:numa_cpus\.\d+", shaped(CPUS)
    yield r"hw:numa_mem\.\d+", whole(1)
    yield "aggregate_instance_extra_specs:.+", anything
    yield rf"capabilities:({'|'.join(NESTED_CAPABILITIES)})(:\w+)*", anything
    classes = "|".join(os_resource_classes.STANDARDS)
    yield f"resources{ANY_GROUP}:({classes}|CUSTOM_[A-Z0-9_]+)", whole()
    traits = "|".join(os_traits.get_traits())
    yield f"trait{ANY_GROUP}:({traits}|CUSTOM_[A-Z0-9_]+)", one_of("required", "forbidden")
