"""What every image service must do for a create and a host; then what the standalone one does with its directory."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from commands.neighbours.identity import Credentials
from commands.neighbours.images import ImageNotActive, ImageNotFound, Images
from commands.neighbours.standalone import image_records
from commands.neighbours.standalone.image_format import ImageDataRefused
from commands.neighbours.standalone.image_record import Image
from commands.neighbours.standalone.image_upload import ImageTooBig
from commands.neighbours.standalone.images import ImageBusy, ImageExists, StandaloneImages
from domain.instance.events import BootFile

OURS, THEIRS = "project-ours", "project-theirs"
DATA = b"\x00bytes of a disk" * 1000


def credentials(project_id: str, *roles: str) -> Credentials:
    return Credentials(
        user_id="u",
        user_name="u",
        user_domain_id="default",
        user_domain_name="Default",
        project_id=project_id,
        project_name=project_id,
        project_domain_id="default",
        project_domain_name="Default",
        roles=roles or ("member", "reader"),
        system_scope=False,
        is_admin_project=True,
        expires_at=datetime(2100, 1, 1, tzinfo=UTC),
        audit_id="a",
    )


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], StandaloneImages]:
    return lambda: StandaloneImages(tmp_path / "images", max_bytes=1 << 20)


@pytest.fixture
def standalone(start: Callable[[], StandaloneImages]) -> StandaloneImages:
    return start()


def queued(images: StandaloneImages, **fields: object) -> Image:
    given = {"owner": OURS, "disk_format": "raw", "container_format": "bare", "visibility": "private"}
    image = Image(id=str(uuid4()), created_at=0, updated_at=0, **{**given, **fields})  # type: ignore[arg-type]
    return images.create(image)


def active(images: StandaloneImages, data: bytes = DATA, **fields: object) -> Image:
    image = queued(images, **fields)
    upload = images.begin_upload(image.id)
    upload.write(data)
    upload.commit()
    return shown(images, image)


def shown(images: StandaloneImages, image: Image) -> Image:
    found = images.get(image.id)
    assert found is not None
    assert found in images.all()
    return found


def files(directory: Path) -> set[str]:
    """Besides the lock, which stays."""
    return {path.name for path in directory.iterdir() if path.is_file()} - {"lock"}


# the port


def test_a_create_reads_all_of_an_image_it_may_need_later(standalone: StandaloneImages) -> None:
    image = active(standalone, properties={"hw_machine_type": "q35", "os_distro": "x"}, min_disk_gib=2, min_ram_mib=64)
    port: Images = standalone
    spec = port.show(image.id, credentials(OURS))
    assert spec.properties == {"hw_machine_type": "q35", "os_distro": "x"}
    assert (spec.min_disk_gib, spec.min_ram_mib, spec.size_bytes) == (2, 64, len(DATA))
    assert (spec.disk_format, spec.container_format) == ("raw", "bare")
    assert (spec.checksum_algorithm, spec.checksum) == ("sha512", hashlib.sha512(DATA).hexdigest())
    assert (spec.kernel, spec.ramdisk) == (None, None)


def test_a_kernel_and_a_ramdisk_are_images_of_their_own(standalone: StandaloneImages) -> None:
    kernel, ramdisk = active(standalone, b"kernel"), active(standalone, b"ramdisk")
    image = active(standalone, properties={"kernel_id": kernel.id, "ramdisk_id": ramdisk.id})
    spec = standalone.show(image.id, credentials(OURS))
    assert spec.kernel == BootFile(
        image_id=kernel.id,
        checksum_algorithm="sha512",
        checksum=hashlib.sha512(b"kernel").hexdigest(),
        size_bytes=6,
    )
    assert spec.ramdisk is not None
    assert spec.ramdisk.image_id == ramdisk.id


def test_a_kernel_that_the_project_cannot_see_is_not_found(standalone: StandaloneImages) -> None:
    kernel = active(standalone, owner=THEIRS)
    image = active(standalone, properties={"kernel_id": kernel.id})
    with pytest.raises(ImageNotFound, match=kernel.id):
        standalone.show(image.id, credentials(OURS))


@pytest.mark.parametrize(
    ("visibility", "owner", "members", "seen"),
    [
        ("public", THEIRS, {}, True),
        ("community", THEIRS, {}, True),
        ("private", OURS, {}, True),
        ("private", THEIRS, {}, False),
        ("private", THEIRS, {OURS: "accepted"}, False),
        ("shared", THEIRS, {OURS: "pending"}, True),
        ("shared", THEIRS, {}, False),
        ("private", None, {}, False),
    ],
)
def test_a_project_sees_its_own_what_is_public_and_what_is_shared_with_it(
    standalone: StandaloneImages, visibility: str, owner: str | None, members: dict[str, str], seen: bool
) -> None:
    image = active(standalone, visibility=visibility, owner=owner, members=members)
    if seen:
        assert standalone.show(image.id, credentials(OURS)).image_id == image.id
    else:
        with pytest.raises(ImageNotFound):
            standalone.show(image.id, credentials(OURS))
    assert standalone.show(image.id, credentials(OURS, "admin"))


def test_an_image_without_data_cannot_be_booted_or_fetched(standalone: StandaloneImages, tmp_path: Path) -> None:
    image = queued(standalone)
    with pytest.raises(ImageNotActive):
        standalone.show(image.id, credentials(OURS))
    with pytest.raises(ImageNotActive):
        standalone.fetch(image.id, tmp_path / "copy")
    with pytest.raises(ImageNotFound):
        standalone.fetch(str(uuid4()), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_host_gets_the_bytes_and_keeps_them_when_the_image_is_deleted(
    standalone: StandaloneImages, tmp_path: Path
) -> None:
    image, to = active(standalone), tmp_path / "copy"
    to.write_bytes(b"something older")
    standalone.fetch(image.id, to)
    standalone.fetch(image.id, to)
    assert to.stat().st_nlink == 1, "the host's own file, whoever it gives it to"
    standalone.delete(image.id)
    assert to.read_bytes() == DATA
    assert files(tmp_path) == {"copy"}


def test_the_bytes_can_be_read_in_pieces_and_outlive_the_image(standalone: StandaloneImages) -> None:
    port: Images = standalone
    image = active(standalone)
    with port.open(image.id) as file:
        first = file.read(10)
        standalone.delete(image.id)
        assert first + file.read() == DATA
    with pytest.raises(ImageNotFound):
        port.open(image.id)
    with pytest.raises(ImageNotActive):
        port.open(queued(standalone).id)


# the standalone directory


def test_images_outlive_a_restart(start: Callable[[], StandaloneImages]) -> None:
    images = start()
    image = active(images, name="kept", tags=("a", "b"), properties={"k": "v"})
    assert start().get(image.id) == image


def test_an_upload_cut_off_by_a_crash_leaves_the_image_queued(
    start: Callable[[], StandaloneImages], tmp_path: Path
) -> None:
    images = start()
    image = queued(images)
    images.begin_upload(image.id).write(DATA)
    after = start()  # nothing was committed or aborted
    kept = after.get(image.id)
    assert kept is not None
    assert kept.status == "queued"
    assert files(tmp_path / "images") == {f"{image.id}.json"}
    upload = after.begin_upload(image.id)
    upload.write(DATA)
    upload.commit()
    assert after.show(image.id, credentials(OURS)).size_bytes == len(DATA)


def test_data_whose_record_a_crash_kept_back_is_not_an_active_image(
    start: Callable[[], StandaloneImages], tmp_path: Path
) -> None:
    image = queued(start())
    (tmp_path / "images" / image.id).write_bytes(b"half")
    (tmp_path / "images" / str(uuid4())).write_bytes(b"deleted, but for its data")
    start()
    assert files(tmp_path / "images") == {f"{image.id}.json"}


def test_an_image_that_lost_its_data_is_killed(start: Callable[[], StandaloneImages], tmp_path: Path) -> None:
    image = active(start())
    (tmp_path / "images" / image.id).unlink()
    kept = start().get(image.id)
    assert kept is not None
    assert kept.status == "killed"


def test_an_upload_that_was_given_up_may_be_begun_again(standalone: StandaloneImages) -> None:
    image = queued(standalone)
    upload = standalone.begin_upload(image.id)
    upload.write(DATA)
    with pytest.raises(ImageBusy):
        standalone.begin_upload(image.id)
    upload.abort()
    standalone.begin_upload(image.id).commit()
    with pytest.raises(ImageBusy):
        standalone.begin_upload(image.id)


def test_an_image_deleted_during_its_upload_stays_deleted(standalone: StandaloneImages, tmp_path: Path) -> None:
    image = queued(standalone)
    upload = standalone.begin_upload(image.id)
    upload.write(DATA)
    standalone.delete(image.id)
    upload.commit()
    assert standalone.get(image.id) is None
    assert files(tmp_path / "images") == set()


def test_a_change_during_an_upload_is_kept(start: Callable[[], StandaloneImages]) -> None:
    images = start()
    image = queued(images)
    upload = images.begin_upload(image.id)
    images.change(image.id, lambda one: replace(one, name="renamed"))
    upload.write(DATA)
    upload.commit()
    kept = start().get(image.id)
    assert kept is not None
    assert (kept.name, kept.status) == ("renamed", "active")


def test_no_more_is_taken_in_than_the_limit(standalone: StandaloneImages) -> None:
    upload = standalone.begin_upload(queued(standalone).id)
    upload.write(b"\x01" * (1 << 20))
    with pytest.raises(ImageTooBig):
        upload.write(b"\x01")
    upload.abort()


def test_an_id_is_given_once(standalone: StandaloneImages) -> None:
    image = queued(standalone)
    with pytest.raises(ImageExists):
        standalone.create(image)


def qcow2(*, version: int = 3, backing: int = 0, features: int = 0) -> bytes:
    head = b"QFI\xfb" + version.to_bytes(4, "big") + backing.to_bytes(8, "big") + bytes(8)
    return (head + (1 << 30).to_bytes(8, "big")).ljust(72, b"\0") + features.to_bytes(8, "big") + bytes(512)


@pytest.mark.parametrize(
    ("disk_format", "data", "accepted"),
    [
        ("qcow2", qcow2(), True),
        ("qcow2", qcow2(version=2), True),
        ("qcow2", qcow2(backing=512), False),
        ("qcow2", qcow2(features=1 << 2), False),
        ("qcow2", qcow2(version=4), False),
        ("qcow2", qcow2()[:40], False),
        ("qcow2", DATA, False),
        ("raw", qcow2(backing=512), False),
        ("raw", b"# Disk DescriptorFile\nversion=1\n", False),
        ("vmdk", b"# Disk DescriptorFile\nversion=1\n", False),
        ("vmdk", b"KDMV" + bytes(512), True),
        ("iso", b"KDMV" + bytes(512), False),
        ("raw", b"", True),
    ],
)
def test_data_must_be_what_its_disk_format_says_and_refer_to_nothing_outside(
    standalone: StandaloneImages, disk_format: str, data: bytes, accepted: bool
) -> None:
    image = queued(standalone, disk_format=disk_format)
    upload = standalone.begin_upload(image.id)
    for index in range(0, len(data), 7):
        upload.write(data[index : index + 7])
    if accepted:
        upload.commit()
    else:
        with pytest.raises(ImageDataRefused):
            upload.commit()
        upload.abort()
    kept = standalone.get(image.id)
    assert kept is not None
    assert kept.status == ("active" if accepted else "queued")
    if accepted and disk_format == "qcow2":
        assert kept.virtual_size_bytes == 1 << 30


# another process over the same directory


@pytest.fixture
def other(standalone: StandaloneImages, start: Callable[[], StandaloneImages]) -> StandaloneImages:
    return start()


def test_what_one_process_does_with_an_image_the_others_see(
    standalone: StandaloneImages, other: StandaloneImages, tmp_path: Path
) -> None:
    image = active(standalone, visibility="shared")
    assert shown(other, image) == image
    assert other.show(image.id, credentials(OURS)).size_bytes == len(DATA)
    with pytest.raises(ImageExists):
        other.create(image)
    with pytest.raises(ImageNotFound):
        other.show(image.id, credentials(THEIRS))

    standalone.change(image.id, lambda one: replace(one, members={THEIRS: "pending"}, status="deactivated"))
    assert shown(other, image).members == {THEIRS: "pending"}
    with pytest.raises(ImageNotActive):
        other.show(image.id, credentials(THEIRS))
    with pytest.raises(ImageNotActive):
        other.fetch(image.id, tmp_path / "copy")

    other.change(image.id, lambda one: replace(one, status="active"))
    standalone.fetch(image.id, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA

    standalone.delete(image.id)
    assert other.get(image.id) is None
    assert other.all() == []
    assert other.open_data(image.id) is None


def test_an_upload_through_one_process_keeps_the_others_from_the_image(
    standalone: StandaloneImages, other: StandaloneImages
) -> None:
    image = queued(standalone)
    upload = standalone.begin_upload(image.id)
    upload.write(DATA)
    assert shown(other, image).status == "saving"
    with pytest.raises(ImageBusy):
        other.begin_upload(image.id)
    renamed = other.change(image.id, lambda one: replace(one, name=f"renamed while {one.status}"))
    assert renamed.status == "saving"
    upload.commit()
    assert (shown(other, image).status, shown(other, image).name) == ("active", "renamed while saving")
    with pytest.raises(ImageBusy):
        other.begin_upload(image.id)


def test_an_upload_that_one_process_gave_up_another_may_begin(
    standalone: StandaloneImages, other: StandaloneImages
) -> None:
    image = queued(standalone)
    standalone.begin_upload(image.id).abort()
    assert shown(other, image).status == "queued"
    upload = other.begin_upload(image.id)
    upload.write(DATA)
    upload.commit()
    assert standalone.show(image.id, credentials(OURS)).size_bytes == len(DATA)


def test_a_start_leaves_what_another_process_is_receiving(
    standalone: StandaloneImages, start: Callable[[], StandaloneImages]
) -> None:
    image = queued(standalone)
    upload = standalone.begin_upload(image.id)
    upload.write(DATA)
    other = start()
    assert shown(other, image).status == "saving"
    upload.commit()
    assert shown(other, image).status == "active"
    assert other.open_data(image.id) is not None


def test_an_upload_to_an_image_deleted_and_made_anew_elsewhere_does_not_reach_the_new_one(
    standalone: StandaloneImages, other: StandaloneImages, tmp_path: Path
) -> None:
    image = queued(standalone)
    late = standalone.begin_upload(image.id)
    late.write(b"to the one that was deleted")
    other.delete(image.id)
    other.create(image)
    assert shown(standalone, image).status == "queued"
    upload = other.begin_upload(image.id)
    upload.write(DATA)
    late.commit()
    assert shown(standalone, image).status == "saving"
    upload.commit()
    standalone.fetch(image.id, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA


def test_every_change_is_seen_however_soon_it_follows_and_however_alike_it_is(
    standalone: StandaloneImages, other: StandaloneImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = queued(standalone)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    for number in range(10, 60):
        for name in (f"{number} a", f"{number} b"):
            standalone.change(image.id, lambda one, name=name: replace(one, name=name, updated_at=0))  # type: ignore[misc]
        assert shown(other, image).name == f"{number} b"


def test_a_list_misses_nothing_that_was_changed_within_a_tick_of_the_file_systems_clock(
    standalone: StandaloneImages, other: StandaloneImages, tmp_path: Path
) -> None:
    first = queued(standalone)
    assert other.all() == [first]
    status = (tmp_path / "images").stat()
    second = queued(standalone)
    os.utime(tmp_path / "images", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert {image.id for image in other.all()} == {first.id, second.id}


def test_a_list_that_has_settled_is_read_again_once_something_changes(
    standalone: StandaloneImages, other: StandaloneImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_records, "TICK_S", -1.0)
    for _ in range(3):
        assert other.all() == standalone.all()
        image = queued(standalone)
        upload = standalone.begin_upload(image.id)
        assert shown(other, image).status == "saving"
        upload.abort()
        assert shown(other, image).status == "queued"


def test_an_image_is_asked_for_by_an_id_and_not_by_a_path(standalone: StandaloneImages, tmp_path: Path) -> None:
    image = active(standalone)
    (tmp_path / f"{image.id}.json").write_bytes((tmp_path / "images" / f"{image.id}.json").read_bytes())
    for name in (f"../{image.id}", f"./{image.id}", image.id + "\n", "\0", "\udc80", "", "lock"):
        assert standalone.get(name) is None
        with pytest.raises(ImageNotFound):
            standalone.fetch(name, tmp_path / "copy")


def test_a_record_that_cannot_be_used_is_left_out_until_it_can(
    standalone: StandaloneImages, other: StandaloneImages, tmp_path: Path
) -> None:
    image = active(standalone)
    record = tmp_path / "images" / f"{image.id}.json"
    content = record.read_bytes()
    for damaged in (b"{", b"{}", content.replace(image.id.encode(), str(uuid4()).encode())):
        record.write_bytes(damaged)
        assert other.get(image.id) is None
        with pytest.raises(ImageExists):
            other.create(image)
    record.write_bytes(content)
    assert shown(other, image) == image
