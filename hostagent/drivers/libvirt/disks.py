"""A guest's files on the host: `<instances>/<uuid>/` with its disks, kernel, config drive and console log.

Names are Nova's. The root disk is a qcow2 overlay on the cached image, so a create copies nothing;
`hostagent/images.py` keeps the image for as long as the guest lives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from oslo_utils.imageutils import format_inspector

from commands.orders import GuestSpec
from domain.identifiers import InstanceId
from hostagent.drivers.libvirt.guest_xml import GuestDisks
from hostagent.drivers.protocol import DriverError, GuestFiles

GIB = 1 << 30
MIB = 1 << 20
COMMAND_TIMEOUT_S = 300
CONSOLE_BYTES = 100 * 1024
FORMATS = {
    "raw": "raw",
    "ami": "raw",
    "qcow2": "qcow2",
    "vmdk": "vmdk",
    "vdi": "vdi",
    "vhd": "vpc",
    "vhdx": "vhdx",
}

_ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"  # where mkfs and mkswap are; not on every service's PATH


def guest_directory(instances: Path, instance_id: InstanceId) -> Path:
    return instances / str(instance_id)


def make_disks(instances: Path, guest: GuestSpec, files: GuestFiles) -> GuestDisks:
    """Make all files of a guest that has none; what an interrupted attempt left is thrown away first.

    Raises:
        DriverError: nothing is left.
    """
    refuse_volumes(guest)
    directory = guest_directory(instances, guest.instance_id)
    try:
        remove_disks(instances, guest.instance_id)
        directory.mkdir(parents=True, mode=0o711)  # QEMU's own user has to reach the disks in it
        return _make(directory, guest, files)
    except BaseException as error:
        remove_disks(instances, guest.instance_id)
        if isinstance(error, OSError):
            raise DriverError(f"the disks of {guest.domain_name} could not be made: {error}") from error
        raise


def remove_disks(instances: Path, instance_id: InstanceId) -> None:
    directory = guest_directory(instances, instance_id)
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DriverError(f"{directory} could not be removed: {error}") from error


def refuse_volumes(guest: GuestSpec) -> None:
    if any(device.destination_type == "volume" for device in guest.block_devices):
        raise DriverError("this driver does not attach volumes yet")


def read_console(instances: Path, instance_id: InstanceId) -> bytes:
    """The last 100 KiB of the console: the log, and what virtlogd has rotated away (console.log.0, .1, …)."""
    log = guest_directory(instances, instance_id) / "console.log"
    text, number = _tail(log, CONSOLE_BYTES), 0
    while len(text) < CONSOLE_BYTES:
        older = _tail(log.with_name(f"{log.name}.{number}"), CONSOLE_BYTES - len(text))
        if not older:
            break
        text, number = older + text, number + 1
    return text


def _make(directory: Path, guest: GuestSpec, files: GuestFiles) -> GuestDisks:
    return GuestDisks(
        root=_root(directory / "disk", guest, files),
        ephemerals=tuple(
            _ephemeral(directory / f"disk.eph{number}", gib, number)
            for number, gib in enumerate(_ephemeral_sizes(guest))
        ),
        swap=_swap(directory / "disk.swap", guest.swap_mib) if guest.swap_mib else None,
        config_drive=_moved(files.config_drive, directory / "disk.config"),
        kernel=_linked(files.kernel, directory / "kernel"),
        ramdisk=_linked(files.ramdisk, directory / "ramdisk"),
        console_log=directory / "console.log",
    )


def _root(path: Path, guest: GuestSpec, files: GuestFiles) -> Path | None:
    size = guest.root_gib * GIB
    if files.root_image is None:
        if size:
            _run("qemu-img", "create", "-q", "-f", "qcow2", str(path), str(size))
        return path if size else None
    kind = FORMATS.get(files.root_format)
    if kind is None:
        raise DriverError(f"disk format {files.root_format!r} is not one of {', '.join(FORMATS)}")
    virtual = _virtual_size(files.root_image, files.root_format, kind)
    if size and virtual > size:
        raise DriverError(f"the image needs {virtual} bytes of disk, the flavor gives {size}")
    base = str(files.root_image.resolve())
    _run("qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", base, str(path), str(size or virtual))
    return path


def _virtual_size(image: Path, named: str, kind: str) -> int:
    """How large the guest sees the image, in bytes.

    Users write images: one that reaches for the host's files is refused (the checks Nova makes since
    OSSA-2024-001).
    """
    if kind == "raw":
        return image.stat().st_size
    try:
        inspector = format_inspector.detect_file_format(str(image))
        if inspector is None or str(inspector) != named:
            raise DriverError(f"the image is said to be {named} but is {inspector or 'unknown'}")
        inspector.safety_check()
    except (format_inspector.ImageFormatError, format_inspector.SafetyCheckFailed) as error:
        raise DriverError(f"the image is not safe to use: {error}") from error
    return int(inspector.virtual_size)


def _ephemeral_sizes(guest: GuestSpec) -> list[int]:
    """In GiB: as the block devices ask, else one disk of the flavor's size."""
    asked = [
        device.size_gib
        for device in guest.block_devices
        if device.source_type == "blank" and device.guest_format != "swap" and device.size_gib
    ]
    return asked or ([guest.ephemeral_gib] if guest.ephemeral_gib else [])


def _ephemeral(path: Path, gib: int, number: int) -> Path:
    _sparse(path, gib * GIB)
    _run("mkfs.ext4", "-q", "-F", "-L", f"ephemeral{number}", str(path))
    return path


def _swap(path: Path, mib: int) -> Path:
    _sparse(path, mib * MIB)
    _run("mkswap", str(path))
    return path


def _sparse(path: Path, size: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as disk:
        disk.truncate(size)


def _moved(source: Path | None, target: Path) -> Path | None:
    if source is None:
        return None
    shutil.move(source, target)
    return target


def _linked(source: Path | None, target: Path) -> Path | None:
    """The guest's own name for a cached file, so that it still boots when the cache has let go of it."""
    if source is None:
        return None
    try:
        os.link(source.resolve(), target)
    except OSError:  # the cache is on another file system
        shutil.copyfile(source, target)
    return target


def _tail(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - size))
            return log.read(size)
    except FileNotFoundError:
        return b""


def _run(*command: str) -> None:
    program = shutil.which(command[0]) or shutil.which(command[0], path=_ADMINISTRATION)
    if program is None:
        raise DriverError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DriverError(f"{command[0]} took longer than {COMMAND_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-1000:]
        raise DriverError(f"{command[0]} failed ({done.returncode}): {said}")
