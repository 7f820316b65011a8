"""A guest as libvirt's domain XML. Pure: what it needs of the host and of the disk is passed in.

Source: libvirt, "Domain XML format"; image properties and defaults are Nova's libvirt driver's.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from commands.orders import GuestSpec
from hostagent.drivers.protocol import DriverError

NAMESPACE = "urn:compute-ledger:instance:1"
ET.register_namespace("ledger", NAMESPACE)

DISK_PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd"}  # by hw_disk_bus
VIF_MODELS = ("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3")
VIDEO_MODELS = ("vga", "cirrus", "vmvga", "qxl", "virtio", "bochs", "none")
WATCHDOG_ACTIONS = ("none", "pause", "poweroff", "reset")
MACHINE_TYPES = {
    "x86_64": "pc",
    "i686": "pc",
    "aarch64": "virt",
    "ppc64le": "pseries",
    "s390x": "s390-ccw-virtio",
}
TB_CACHE_MIB = 32  # QEMU's own default may grow to 1 GiB a guest (Nova, [libvirt] tb_cache_size)

# what XML 1.0 cannot carry; a carriage return would be read as a newline, or as nothing before one
_UNPRINTABLE = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of the host and its settings shapes every guest's XML."""

    virt_type: str  # libvirt's domain type: "kvm", "qemu" or "test"
    arch: str = "x86_64"
    machine_type: str | None = None
    cpu_mode: str | None = None  # "host-model", "host-passthrough", "maximum"; none leaves it to QEMU
    bridge: str | None = None  # where interfaces are plugged; none: QEMU's user network
    vnc_listen: str | None = None  # an address; none: no graphical console


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDisks:
    """The guest's own files; none of them under libvirt's test driver."""

    root: Path | None = None  # qcow2
    ephemerals: tuple[Path, ...] = ()  # raw, as is the swap disk
    swap: Path | None = None
    config_drive: Path | None = None
    kernel: Path | None = None
    ramdisk: Path | None = None
    console_log: Path | None = None


def guest_xml(guest: GuestSpec, machine: Machine, disks: GuestDisks) -> str:
    """The whole definition.

    Raises:
        DriverError: an image property asks for something this driver does not know.
    """
    properties = _properties(guest)
    domain = ET.Element("domain", type=machine.virt_type)
    _text(domain, "name", guest.domain_name)
    _text(domain, "uuid", str(guest.instance_id))
    domain.append(_metadata(guest))
    _text(domain, "memory", str(guest.memory_mib), unit="MiB")
    _text(domain, "vcpu", str(guest.vcpus))
    if machine.virt_type == "test":
        _text(ET.SubElement(domain, "os"), "type", "hvm")
    else:
        domain.append(_smbios(guest))
        machine_type = _machine_type(properties, machine)
        domain.append(_os(guest, properties, machine, disks, machine_type))
        domain.append(_features(properties, machine))
        domain.extend(list(_cpu(machine)))
        domain.append(_clock(properties, machine))
        domain.append(_devices(guest, properties, machine, disks, machine_type))
        return _document(domain)
    devices = ET.SubElement(domain, "devices")
    devices.extend(list(_interfaces(guest, properties, machine)))
    return _document(domain)


def root_bus(guest: GuestSpec) -> str:
    """The bus of the root disk: what its block device asks for, else the image's hw_disk_bus."""
    asked = next((device.bus for device in guest.block_devices if device.boot_index == 0 and device.bus), None)
    return _known("hw_disk_bus", asked or _properties(guest).get("hw_disk_bus", "virtio"), DISK_PREFIXES)


def administrator_of(guest: GuestSpec) -> str:
    """Who administers what runs in the guest: the image's os_admin_user, or what its system is known to have."""
    properties = _properties(guest)
    return properties.get("os_admin_user") or ("Administrator" if properties.get("os_type") == "windows" else "root")


def kernel_command_line(guest: GuestSpec, virt_type: str) -> str:
    """For a guest that boots from a kernel of its own: the image's os_command_line, or Nova's default."""
    own = _properties(guest).get("os_command_line")
    if own is not None:
        return own
    line = f"root=/dev/{DISK_PREFIXES[root_bus(guest)]}a console=tty0 console=ttyS0"
    # the kernel's timer check fails by chance where the CPU is software
    return f"{line} no_timer_check" if virt_type == "qemu" else line


def _properties(guest: GuestSpec) -> Mapping[str, str]:
    return {} if guest.image is None else guest.image.properties


def _known(what: str, value: str, known: Mapping[str, str] | tuple[str, ...]) -> str:
    if value not in known:
        raise DriverError(f"{what} {value!r} is not one of {', '.join(known)}")
    return value


def _yes(value: str | None) -> bool:
    return value is not None and value.strip().lower() in ("1", "t", "true", "on", "y", "yes")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = _UNPRINTABLE.sub("\ufffd", text)
    return element


def _document(domain: ET.Element) -> str:
    return ET.tostring(domain, encoding="unicode")


def _metadata(guest: GuestSpec) -> ET.Element:
    """What an operator reading `virsh dumpxml` wants to know; nothing here reads it back."""
    metadata = ET.Element("metadata")
    instance = ET.SubElement(metadata, f"{{{NAMESPACE}}}instance")
    for tag, text in (
        ("name", guest.name),
        ("flavor", guest.flavor_name),
        ("project", guest.project_id),
        ("user", guest.user_id),
        ("image", "" if guest.image is None else guest.image.image_id),
    ):
        _text(instance, f"{{{NAMESPACE}}}{tag}", text)
    return metadata


def _smbios(guest: GuestSpec) -> ET.Element:
    """What its firmware tells the guest. Guests know an OpenStack cloud by this product name (cloud-init)."""
    sysinfo = ET.Element("sysinfo", type="smbios")
    system = ET.SubElement(sysinfo, "system")
    for name, text in (
        ("manufacturer", "OpenStack Foundation"),
        ("product", "OpenStack Nova"),
        ("version", "Compute Ledger"),
        ("serial", str(guest.instance_id)),
        ("uuid", str(guest.instance_id)),
        ("family", "Virtual Machine"),
    ):
        _text(system, "entry", text, name=name)
    return sysinfo


def _machine_type(properties: Mapping[str, str], machine: Machine) -> str | None:
    return properties.get("hw_machine_type") or machine.machine_type or MACHINE_TYPES.get(machine.arch)


def _os(
    guest: GuestSpec,
    properties: Mapping[str, str],
    machine: Machine,
    disks: GuestDisks,
    machine_type: str | None,
) -> ET.Element:
    os = ET.Element("os")
    if properties.get("hw_firmware_type") == "uefi":
        os.set("firmware", "efi")
    kind = _text(os, "type", "hvm", arch=machine.arch)
    if machine_type:
        kind.set("machine", machine_type)
    if disks.kernel is not None:
        _text(os, "kernel", str(disks.kernel))
        if disks.ramdisk is not None:
            _text(os, "initrd", str(disks.ramdisk))
        _text(os, "cmdline", kernel_command_line(guest, machine.virt_type))
    else:
        ET.SubElement(os, "boot", dev="hd")
    ET.SubElement(os, "smbios", mode="sysinfo")
    return os


def _features(properties: Mapping[str, str], machine: Machine) -> ET.Element:
    features = ET.Element("features")
    ET.SubElement(features, "acpi")  # without it the guest never hears the power button
    if machine.arch in ("x86_64", "i686"):
        ET.SubElement(features, "apic")
        ET.SubElement(features, "vmcoreinfo", state="on")
    if machine.virt_type == "kvm" and _yes(properties.get("img_hide_hypervisor_id")):
        ET.SubElement(ET.SubElement(features, "kvm"), "hidden", state="on")
    if machine.virt_type == "qemu":
        _text(ET.SubElement(features, "tcg"), "tb-cache", str(TB_CACHE_MIB), unit="MiB")
    return features


def _cpu(machine: Machine) -> Iterator[ET.Element]:
    if machine.cpu_mode is not None:
        yield ET.Element("cpu", mode=machine.cpu_mode)


def _clock(properties: Mapping[str, str], machine: Machine) -> ET.Element:
    windows = properties.get("os_type") == "windows"
    clock = ET.Element("clock", offset="localtime" if windows else "utc")
    if machine.arch in ("x86_64", "i686"):
        ET.SubElement(clock, "timer", name="pit", tickpolicy="delay")
        ET.SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
        ET.SubElement(clock, "timer", name="hpet", present="no")
    return clock


def _devices(
    guest: GuestSpec,
    properties: Mapping[str, str],
    machine: Machine,
    disks: GuestDisks,
    machine_type: str | None,
) -> ET.Element:
    devices = ET.Element("devices")
    devices.extend(list(_disks(guest, properties, disks, machine_type or "")))
    devices.extend(list(_interfaces(guest, properties, machine)))
    if disks.console_log is not None:
        serial = ET.SubElement(devices, "serial", type="pty")
        ET.SubElement(serial, "log", file=str(disks.console_log), append="on")
    if _yes(properties.get("hw_qemu_guest_agent")):
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    if machine.vnc_listen is not None:
        ET.SubElement(devices, "graphics", type="vnc", autoport="yes", listen=machine.vnc_listen)
        if machine.arch in ("x86_64", "i686"):
            ET.SubElement(devices, "input", type="tablet", bus="usb")  # or the pointer drifts
    model = properties.get("hw_video_model", "vga" if machine.vnc_listen is not None else None)
    if model is not None:
        video = ET.SubElement(devices, "video")
        ET.SubElement(video, "model", type=_known("hw_video_model", model, VIDEO_MODELS))
    if (action := properties.get("hw_watchdog_action")) not in (None, "disabled"):
        action = _known("hw_watchdog_action", action or "", WATCHDOG_ACTIONS)
        ET.SubElement(devices, "watchdog", model="i6300esb", action=action)
    if _yes(guest.extra_specs.get("hw_rng:allowed", "true")):
        rng = ET.SubElement(devices, "rng", model="virtio")
        _text(rng, "backend", "/dev/urandom", model="random")
    ET.SubElement(ET.SubElement(devices, "memballoon", model="virtio"), "stats", period="10")
    return devices


def _disks(
    guest: GuestSpec, properties: Mapping[str, str], disks: GuestDisks, machine_type: str
) -> Iterator[ET.Element]:
    used: dict[str, int] = {}  # how many devices have each prefix

    def disk(path: Path, image_format: str, bus: str, device: str = "disk") -> ET.Element:
        prefix = DISK_PREFIXES[bus]
        letter = chr(ord("a") + used.get(prefix, 0))
        used[prefix] = used.get(prefix, 0) + 1
        element = ET.Element("disk", type="file", device=device)
        ET.SubElement(element, "driver", name="qemu", type=image_format)
        ET.SubElement(element, "source", file=str(path))
        ET.SubElement(element, "target", dev=f"{prefix}{letter}", bus=bus)
        if device == "cdrom":
            ET.SubElement(element, "readonly")
        return element

    bus = root_bus(guest)
    others = _known("hw_disk_bus", properties.get("hw_disk_bus", "virtio"), DISK_PREFIXES)
    if disks.root is not None:
        yield disk(disks.root, "qcow2", bus)
    for path in disks.ephemerals:
        yield disk(path, "raw", others)
    if disks.swap is not None:
        yield disk(disks.swap, "raw", others)
    cdrom = _known("hw_cdrom_bus", properties.get("hw_cdrom_bus", _cdrom_bus(machine_type)), DISK_PREFIXES)
    if disks.config_drive is not None:
        yield disk(disks.config_drive, "raw", cdrom, "cdrom")
    if "scsi" in (bus, others, cdrom):
        yield ET.Element("controller", type="scsi", model=properties.get("hw_scsi_model", "virtio-scsi"))


def _cdrom_bus(machine_type: str) -> str:
    if "q35" in machine_type:
        return "sata"  # it has no IDE
    return "ide" if machine_type.startswith("pc") else "scsi"


def _interfaces(guest: GuestSpec, properties: Mapping[str, str], machine: Machine) -> Iterator[ET.Element]:
    model = _known("hw_vif_model", properties.get("hw_vif_model", "virtio"), VIF_MODELS)
    for interface in guest.interfaces:
        element = ET.Element("interface", type="user" if machine.bridge is None else "bridge")
        if interface.mac_address:
            ET.SubElement(element, "mac", address=interface.mac_address)
        if machine.bridge is not None:
            ET.SubElement(element, "source", bridge=machine.bridge)
        ET.SubElement(element, "model", type=model)
        yield element
