"""The agent API over a ledger in which two hosts have keys, and guests with payloads and images."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import BinaryIO
from uuid import uuid5

from commands.host_keys import HostKeys
from commands.instance.create import payload_ref
from commands.neighbours.images import ImageNotFound
from commands.snapshots import Snapshots
from commands.vault import Payload
from domain.identifiers import InstanceId
from domain.instance.events import BootFile
from gateway.agent_api import agent_api
from gateway.site import Site
from hostagent.host_key import HostCredential
from tests.support.enrolled import enroll
from tests.support.ledger import IMAGE, NAMES, USER, Ledger, create_command

BOOTED = replace(IMAGE, kernel=BootFile(image_id="a-kernel"), ramdisk=BootFile(image_id="a-ramdisk"))
SECRET = b"#!/bin/sh\necho secret\n"
MEBIBYTE = 1 << 20


class EndlessFile(io.RawIOBase):
    """A file of `size` bytes that is never in memory as a whole; how it is read is noted."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.reads: list[int] = []
        self.was_closed = False

    def read(self, size: int = -1) -> bytes:
        self.reads.append(size)
        given = min(size, self._left)
        self._left -= given
        return b"\x5a" * given

    def close(self) -> None:
        self.was_closed = True
        super().close()


class FakeImages:
    """Images in memory; `opened` are the files that were given out."""

    def __init__(self) -> None:
        self.images: dict[str, bytes | int] = {
            "an-image": b"a disk",
            "a-kernel": b"a kernel",
            "a-ramdisk": b"a ramdisk",
        }
        self.opened: list[EndlessFile] = []

    def open(self, image_id: str) -> BinaryIO:
        content = self.images.get(image_id)
        if content is None:
            raise ImageNotFound(image_id)
        if isinstance(content, bytes):
            return io.BytesIO(content)
        file = EndlessFile(content)
        self.opened.append(file)
        return file  # type: ignore[return-value]


class Offered:
    """The ledger, its two hosts' keys, and what is mounted at /agent."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.alpha, self.beta = enroll(ledger, "alpha"), enroll(ledger, "beta")
        self.images = FakeImages()
        self.now = 1_900_000_000.0
        self.set_by = 0.0  # somebody has set the gateway's clock
        keys = HostKeys(ledger.store, Snapshots(ledger.vault), ledger.records, clock=ledger.clock.elapsed)
        api = agent_api(
            ledger.storage,
            keys,
            self.images,  # type: ignore[arg-type]
            lambda: self.now + self.set_by,
            lambda: self.now,
        )
        self.app = Site({"agent": api})

    def guest_on(self, host: HostCredential, what: str = "guest") -> InstanceId:
        """A guest of its host, with user data in the vault."""
        instance_id = InstanceId(uuid5(NAMES, f"{what} on {host.host}"))
        payload = Payload(SECRET, subject=USER, owner=f"instance:{instance_id}")
        self.ledger.ask(
            create_command([instance_id], image=BOOTED, has_user_data=True, requested_host=host.host),
            payloads={payload_ref(instance_id, "user_data"): payload},
        )
        self.ledger.settle()
        return instance_id
