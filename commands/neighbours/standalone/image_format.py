"""Whether an image's bytes are what its disk format says.

A hypervisor that opened other bytes could be made to read any file of its host: through a backing file, an
external data file, or another format's header on a raw image.
Sources: QEMU, docs/interop/qcow2, block/vdi.c; VMware, Virtual Disk Format 5.0; Microsoft, MS-VHDX, VHD 1.0.
"""

from __future__ import annotations

DISK_FORMATS = ("ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso")
CONTAINER_FORMATS = ("ami", "ari", "aki", "bare")
HEAD_BYTES = 112  # of an image's start, all that is looked at

_MUST_SHOW = ("qcow2", "vmdk", "vhdx", "vdi")  # formats that always begin with their mark
_EXTERNAL_DATA_FILE = 1 << 2  # qcow2 incompatible feature


class ImageDataRefused(Exception):
    """The data is not what the image's disk format says, or refers to files outside it."""


def check(head: bytes, disk_format: str | None) -> None:
    """Raises:
    ImageDataRefused
    """
    found = detect(head)
    if found is None and disk_format in _MUST_SHOW:
        raise ImageDataRefused(f"The data is not of disk format {disk_format}.")
    if found is not None and found != disk_format:
        raise ImageDataRefused(f"The data is of disk format {found}, not {disk_format}.")
    if found == "qcow2":
        _check_qcow2(head)


def detect(head: bytes) -> str | None:
    if head.startswith(b"QFI\xfb"):
        return "qcow2"
    if head.startswith(b"KDMV"):
        return "vmdk"
    if head.lstrip().lower().startswith(b"# disk descriptorfile"):
        return "vmdk descriptor"  # names other files: never accepted
    if head.startswith(b"vhdxfile"):
        return "vhdx"
    if head.startswith(b"conectix"):
        return "vhd"
    if head[64:68] == b"\x7f\x10\xda\xbe":
        return "vdi"
    return None


def virtual_size_bytes(head: bytes, disk_format: str | None, size_bytes: int) -> int | None:
    """How large a disk a guest sees; None when it is not known."""
    if disk_format == "qcow2":
        return int.from_bytes(head[24:32], "big")
    return size_bytes if disk_format in ("raw", "iso") else None


def _check_qcow2(head: bytes) -> None:
    if len(head) < 72:
        raise ImageDataRefused("The data ends within its qcow2 header.")
    version = int.from_bytes(head[4:8], "big")
    if version not in (2, 3):
        raise ImageDataRefused(f"qcow2 version {version} is not known.")
    if any(head[8:16]):
        raise ImageDataRefused("The qcow2 image has a backing file; flatten it first.")
    if version == 3 and (len(head) < 80 or int.from_bytes(head[72:80], "big") & _EXTERNAL_DATA_FILE):
        raise ImageDataRefused("The qcow2 image keeps its data in another file.")
