import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.instance.events import BlockDevice
from hostagent.drivers.libvirt.guest_xml import NAMESPACE, GuestDisks, Machine, guest_xml
from hostagent.drivers.protocol import DriverError
from tests.support.hypervisors import PrivateLibvirtd, guest_spec

SOFTWARE = Machine(virt_type="qemu")
DISKS = GuestDisks(
    root=Path("/i/disk"),
    ephemerals=(Path("/i/disk.eph0"),),
    swap=Path("/i/disk.swap"),
    config_drive=Path("/i/disk.config"),
    console_log=Path("/i/console.log"),
)
KERNEL = replace(DISKS, kernel=Path("/i/kernel"), ramdisk=Path("/i/ramdisk"))


def parsed(
    properties: dict[str, str] | None = None, machine: Machine = SOFTWARE, disks: GuestDisks = DISKS
) -> ET.Element:
    return ET.fromstring(guest_xml(guest_spec(properties=properties), machine, disks))


def targets(domain: ET.Element) -> list[tuple[str | None, str | None, str | None]]:
    disks = ((disk, disk.find("target")) for disk in domain.iterfind("devices/disk"))
    return [(disk.get("device"), target.get("dev"), target.get("bus")) for disk, target in disks if target is not None]


def attribute(domain: ET.Element, path: str, name: str) -> str | None:
    element = domain.find(path)
    return None if element is None else element.get(name)


def test_a_guest_has_its_instances_identity_and_size() -> None:
    spec = guest_spec(memory_mib=768)
    domain = ET.fromstring(guest_xml(spec, SOFTWARE, DISKS))

    assert domain.get("type") == "qemu"
    assert domain.findtext("name") == f"instance-{spec.instance_id}"
    assert domain.findtext("uuid") == str(spec.instance_id)
    assert domain.findtext("sysinfo/system/entry[@name='uuid']") == str(spec.instance_id)
    assert (domain.findtext("memory"), attribute(domain, "memory", "unit")) == ("768", "MiB")
    assert domain.findtext("vcpu") == "1"
    assert domain.find("features/acpi") is not None
    assert domain.find("devices/rng") is not None


def test_disks_come_in_novas_order_and_the_config_drive_is_a_cdrom() -> None:
    assert targets(parsed()) == [
        ("disk", "vda", "virtio"),
        ("disk", "vdb", "virtio"),
        ("disk", "vdc", "virtio"),
        ("cdrom", "hda", "ide"),
    ]


@pytest.mark.parametrize(
    ("bus", "root", "cdrom"),
    [("scsi", "sda", "hda"), ("sata", "sda", "hda"), ("ide", "hda", "hdd"), ("usb", "sda", "hda")],
)
def test_the_image_chooses_the_disk_bus(bus: str, root: str, cdrom: str) -> None:
    domain = parsed({"hw_disk_bus": bus})

    assert targets(domain)[0] == ("disk", root, bus)
    assert targets(domain)[-1] == ("cdrom", cdrom, "ide")
    assert (domain.find("devices/controller[@type='scsi']") is not None) == (bus == "scsi")


def test_a_block_device_chooses_the_bus_of_the_root_disk_alone() -> None:
    root = BlockDevice(device_id="d", source_type="image", destination_type="local", boot_index=0, bus="sata")
    spec = replace(guest_spec(), block_devices=(root,))

    domain = ET.fromstring(guest_xml(spec, SOFTWARE, DISKS))

    assert [bus for _, _, bus in targets(domain)] == ["sata", "virtio", "virtio", "ide"]


def test_a_q35_machine_has_no_ide() -> None:
    assert targets(parsed({"hw_machine_type": "q35"}))[-1] == ("cdrom", "sda", "sata")


def test_a_guest_without_a_kernel_boots_from_its_disk() -> None:
    domain = parsed()

    assert attribute(domain, "os/boot", "dev") == "hd"
    assert domain.find("os/kernel") is None


def test_a_guest_with_a_kernel_boots_from_it_with_novas_command_line_or_the_images() -> None:
    domain = parsed(disks=KERNEL)
    assert domain.findtext("os/kernel") == "/i/kernel"
    assert domain.findtext("os/initrd") == "/i/ramdisk"
    assert domain.findtext("os/cmdline") == "root=/dev/vda console=tty0 console=ttyS0 no_timer_check"

    assert parsed({"os_command_line": "quiet"}, disks=KERNEL).findtext("os/cmdline") == "quiet"
    assert "root=/dev/sda " in (parsed({"hw_disk_bus": "scsi"}, disks=KERNEL).findtext("os/cmdline") or "")


def test_interfaces_keep_their_address_and_go_to_the_operators_bridge() -> None:
    alone = parsed({"hw_vif_model": "e1000"})
    bridged = parsed(machine=replace(SOFTWARE, bridge="br-int"))

    assert attribute(alone, "devices/interface", "type") == "user"
    assert attribute(alone, "devices/interface/mac", "address") == "fa:16:3e:00:00:01"
    assert attribute(alone, "devices/interface/model", "type") == "e1000"
    assert attribute(bridged, "devices/interface/source", "bridge") == "br-int"
    assert attribute(bridged, "devices/interface/model", "type") == "virtio"


@pytest.mark.parametrize("name", ["hw_disk_bus", "hw_vif_model", "hw_video_model", "hw_watchdog_action"])
def test_a_property_with_an_unknown_value_is_refused(name: str) -> None:
    with pytest.raises(DriverError, match=f"{name} 'xyzzy'"):
        parsed({name: "xyzzy"})


def test_libvirts_test_driver_gets_no_more_than_it_knows() -> None:
    domain = ET.fromstring(guest_xml(guest_spec(), Machine(virt_type="test"), GuestDisks()))

    assert {element.tag for element in domain} == {
        "name",
        "uuid",
        "metadata",
        "memory",
        "vcpu",
        "os",
        "devices",
    }
    assert [element.tag for element in domain.iterfind("devices/*")] == ["interface"]


@given(name=st.text(max_size=255))
@example(name="\r\n")
def test_any_name_survives_xml(name: str) -> None:
    spec = guest_spec(name=name)

    domain = ET.fromstring(guest_xml(spec, SOFTWARE, DISKS))

    told = domain.findtext(f"metadata/{{{NAMESPACE}}}instance/{{{NAMESPACE}}}name") or ""
    assert len(told) == len(name)
    assert all(said in (meant, "\ufffd") for said, meant in zip(told, name, strict=True))


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"hw_machine_type": "q35", "hw_disk_bus": "scsi", "hw_scsi_model": "lsilogic"},
        {"hw_disk_bus": "ide", "hw_vif_model": "rtl8139", "hw_video_model": "cirrus"},
        {"hw_watchdog_action": "reset", "hw_qemu_guest_agent": "yes", "hw_video_model": "virtio"},
        {"os_type": "windows", "hw_disk_bus": "sata", "hw_vif_model": "e1000e"},
    ],
)
@pytest.mark.qemu
def test_libvirts_schema_and_qemu_accept_every_kind_of_guest(
    libvirtd: PrivateLibvirtd, properties: dict[str, str]
) -> None:
    machine = replace(SOFTWARE, bridge="br0", vnc_listen="127.0.0.1", cpu_mode="maximum")
    spec = guest_spec(name="<Größe> & \"'\u0001", properties=properties)
    connection = libvirt.open(libvirtd.qemu_uri)

    domain = connection.defineXMLFlags(guest_xml(spec, machine, KERNEL), libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    domain.undefine()
    connection.close()
