"""One image as it is kept, and who may see it (Glance v2 names and rules)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from commands.neighbours.identity import Credentials
from domain.instance.events import BootFile, ImageSpec

QUEUED, SAVING, ACTIVE, DEACTIVATED, KILLED = "queued", "saving", "active", "deactivated", "killed"
PUBLIC, COMMUNITY, SHARED, PRIVATE = "public", "community", "shared", "private"
VISIBILITIES = (PUBLIC, COMMUNITY, SHARED, PRIVATE)
HASH_ALGORITHM = "sha512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    id: str
    owner: str | None  # a project id
    created_at: float  # Unix seconds
    updated_at: float
    name: str | None = None
    status: str = QUEUED
    visibility: str = SHARED
    protected: bool = False
    hidden: bool = False
    disk_format: str | None = None
    container_format: str | None = None
    min_disk_gib: int = 0
    min_ram_mib: int = 0
    size_bytes: int | None = None
    virtual_size_bytes: int | None = None
    md5: str | None = None
    sha512: str | None = None
    tags: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)  # project id → pending, accepted or rejected

    def readable_by(self, credentials: Credentials) -> bool:
        project_id = credentials.project_id
        return (
            "admin" in credentials.roles
            or self.visibility in (PUBLIC, COMMUNITY)
            or (self.owner is not None and self.owner == project_id)
            or (self.visibility == SHARED and project_id in self.members)
        )

    def to_spec(self, kernel: BootFile | None, ramdisk: BootFile | None) -> ImageSpec:
        return ImageSpec(
            image_id=self.id,
            properties=dict(self.properties),
            min_disk_gib=self.min_disk_gib,
            min_ram_mib=self.min_ram_mib,
            disk_format=self.disk_format,
            container_format=self.container_format,
            size_bytes=self.size_bytes,
            checksum_algorithm=HASH_ALGORITHM,
            checksum=self.sha512,
            kernel=kernel,
            ramdisk=ramdisk,
        )

    def to_boot_file(self) -> BootFile:
        return BootFile(
            image_id=self.id,
            checksum_algorithm=HASH_ALGORITHM,
            checksum=self.sha512,
            size_bytes=self.size_bytes,
        )


def to_json(image: Image) -> bytes:
    return orjson.dumps(asdict(image), option=orjson.OPT_INDENT_2)


def from_json(content: bytes) -> Image:
    """Raises:
    ValueError: not an image's record.
    """
    fields: dict[str, Any] = orjson.loads(content)
    try:
        return Image(**{**fields, "tags": tuple(fields["tags"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"not an image's record: {error}") from None
