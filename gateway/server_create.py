"""Creating servers: one validated body → one command. What this deployment cannot do is refused here, never ignored."""

from __future__ import annotations

import base64
import re
import secrets
import string
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from commands.instance.create import CreateInstances, payload_ref
from commands.neighbours.identity import Credentials
from commands.neighbours.images import ImageNotFound, Images
from commands.neighbours.networks import Networks
from commands.vault import Payload
from domain.identifiers import InstanceId, ProjectId, UserId, VaultRef, instance_stream
from domain.instance.events import BlockDevice, ImageSpec, NetworkMode, NetworkRequest
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import Version
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.schemas.formats import address
from gateway.server_filters import is_uuid, truth

MOST_AT_ONCE = 1000  # instances of one request; max_count beyond it is an upper bound that is not reached
PASSWORD_LETTERS = string.ascii_letters + string.digits
PASSWORD_LENGTH = 12  # Nova's [DEFAULT] password_length
_HINT_LISTS = ("same_host", "different_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSettings:
    force_config_drive: bool
    default_zone: str | None = None  # Nova's [DEFAULT] default_schedule_zone
    metadata_items: int = 128


class ServerCreate:
    def __init__(self, backend: Backend, images: Images, networks: Networks, settings: CreateSettings) -> None:
        self._backend = backend
        self._images = images
        self._networks = networks
        self._settings = settings

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("POST", "/servers"): self.create}

    async def create(self, request: Request) -> Response:
        server: dict[str, Any] = request.body["server"]
        lowest, highest = _counts(server)
        if highest > 1 and server.get("hostname"):
            raise Fault(400, "Unable to allocate a single hostname to multiple instances")
        ids = tuple(InstanceId(uuid.uuid4()) for _ in range(highest))
        password = server.get("adminPass") or _password()
        placement = await self._placement(request, server)
        mode, networks = _networks(server, request.version)
        groups = tuple(dict.fromkeys(g["name"] for g in server.get("security_groups", ()) if g.get("name")))
        project_id = ProjectId(request.project_id)
        self._networks.plan(mode, networks, groups, ids[0], project_id)
        image, devices = await self._disks(request, server)
        secret = _secrets(server, password, project_id, UserId(request.user_id), ids)
        command = CreateInstances(
            instance_ids=ids,
            min_count=lowest,
            user_id=UserId(request.user_id),
            project_id=project_id,
            roles=request.credentials.roles,
            all_flavors=request.allows("context_is_admin"),
            reservation_id="r-" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(8)),
            name=server["name"],
            hostname=server.get("hostname") or sanitized_hostname(server["name"]),
            description=server.get("description"),
            flavor_id=str(server["flavorRef"]).rstrip("/").rpartition("/")[2],
            image=image,
            block_devices=devices,
            network_mode=mode,
            networks=networks,
            security_groups=groups or ("default",),
            key_name=server.get("key_name"),
            scheduler_hints=_hints(request.body),
            config_drive=self._settings.force_config_drive or truth(str(server.get("config_drive", ""))),
            disk_config=server.get("OS-DCF:diskConfig", "MANUAL"),
            access_ipv4=_address(server, "accessIPv4"),
            access_ipv6=_address(server, "accessIPv6"),
            metadata=self._metadata(server),
            tags=tuple(server.get("tags", ())),
            trusted_certificates=_certificates(server),
            has_user_data=server.get("user_data") is not None,
            has_admin_password=True,
            has_injected_files=bool(server.get("personality")),
            **placement,
        )
        await self._backend.ask(request, command, secret)
        return _answer(request, server, command, password)

    def _metadata(self, server: Mapping[str, Any]) -> Mapping[str, str]:
        metadata: Mapping[str, str] = server.get("metadata", {})
        if len(metadata) > self._settings.metadata_items:
            raise Fault(403, f"Maximum number of metadata items exceeds {self._settings.metadata_items}")
        return metadata

    async def _placement(self, request: Request, server: Mapping[str, Any]) -> dict[str, str | None]:
        """Zone, forced host and requested host: by name, and only as policy lets the caller."""
        asked = server.get("availability_zone")
        zone, _, rest = (asked or "").partition(":")
        host, _, node = rest.partition(":")
        if asked and asked.count(":") > 2:
            raise Fault(400, "Unable to parse availability_zone, expected ZONE:HOST:NODE")
        if host or node:
            request.require("os_compute_api:servers:create:forced_host")
        requested_host, requested_node = server.get("host"), server.get("hypervisor_hostname")
        if requested_host or requested_node:
            request.require("compute:servers:create:requested_destination")
        zone = zone or self._settings.default_zone or ""
        rows = await self._backend.views.rows(
            "SELECT s.host, s.zone, h.name FROM services s JOIN hypervisors h USING (service_id)"
        )
        if zone and not host and zone not in {row[1] for row in rows}:
            raise Fault(400, "The requested availability zone is not available")
        for name, known in ((host, 0), (requested_host, 0), (node, 2), (requested_node, 2)):
            if name and name not in {row[known] for row in rows}:
                raise Fault(400, f"Compute host {name} could not be found.")
        return {
            "availability_zone": asked,
            "pinned_availability_zone": zone or None,
            "forced_host": host or None,
            "forced_node": node or None,
            "requested_host": requested_host,
            "requested_node": requested_node,
        }

    async def _disks(
        self, request: Request, server: Mapping[str, Any]
    ) -> tuple[ImageSpec | None, tuple[BlockDevice, ...]]:
        """The image to boot and the disks asked for. Every disk is the host's own: volumes are refused."""
        if server.get("block_device_mapping"):
            raise Fault(400, "Booting from a volume is not supported by this deployment.")
        reference = server.get("imageRef")
        devices = [_device(d, reference) for d in server.get("block_device_mapping_v2", ())]
        root = next((d for d in devices if d.boot_index == 0), None)
        image_id = reference or (root.source_id if root is not None else None)
        if not image_id:
            if reference is None and not devices:
                raise Fault(400, "Missing imageRef attribute")
            raise Fault(400, "Block Device Mapping is Invalid: no bootable disk was given.")
        if root is None:
            root = BlockDevice(
                device_id=str(uuid.uuid4()),
                source_type="image",
                destination_type="local",
                source_id=image_id,
                boot_index=0,
                device_type="disk",
                delete_on_termination=True,
            )
            devices.insert(0, root)
        return show_image(self._images, image_id, request.credentials), tuple(devices)


def show_image(images: Images, image_id: str, credentials: Credentials) -> ImageSpec:
    """Raises:
    Fault: 400, no such image for this project.
    """
    if not is_uuid(image_id):
        raise Fault(400, "Invalid imageRef provided.")
    try:
        return images.show(image_id, credentials)
    except ImageNotFound:
        raise Fault(400, "Can not find requested image") from None


def sanitized_hostname(name: str) -> str:
    """A display name as a host name: ASCII letters, digits and hyphens, at most 63 (RFC 1123), as Nova does; empty, where
    it has none of them."""
    text = name.encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9-]+", "", re.sub(r"[ _.]", "-", text)).strip("-")[:63].strip("-")


def _counts(server: Mapping[str, Any]) -> tuple[int, int]:
    lowest = int(server.get("min_count", 1))
    highest = int(server.get("max_count", lowest))
    if lowest > highest:
        raise Fault(400, "min_count must be <= max_count")
    if lowest > MOST_AT_ONCE:
        raise Fault(400, f"min_count must be <= {MOST_AT_ONCE}")
    return lowest, min(highest, MOST_AT_ONCE)


def _address(server: Mapping[str, Any], name: str) -> str | None:
    return address(server[name]) if server.get(name) else None


def _password() -> str:
    return "".join(secrets.choice(PASSWORD_LETTERS) for _ in range(PASSWORD_LENGTH))


def _networks(server: Mapping[str, Any], version: Version) -> tuple[NetworkMode, tuple[NetworkRequest, ...]]:
    asked = server.get("networks")
    if isinstance(asked, str):
        return ("none" if asked == "none" else "auto"), ()
    requests = tuple(
        NetworkRequest(
            network_id=item.get("uuid"),
            port_id=item.get("port"),
            fixed_ip=item.get("fixed_ip"),
            tag=item.get("tag"),
            created_by_us=item.get("port") is None,
        )
        for item in asked or ()
    )
    return "list", requests


def _device(item: Mapping[str, Any], reference: str | None) -> BlockDevice:
    """One block_device_mapping_v2 item, if it is a disk of the host's own.

    Raises:
        Fault: 400, it needs a volume, or does not fit the image.
    """
    source = item.get("source_type") or ("blank" if item.get("no_device") else "")
    destination = item.get("destination_type") or ("volume" if source in ("volume", "snapshot") else "local")
    boot_index = None if item.get("boot_index") in (None, "") else int(item["boot_index"])
    if destination == "volume" or source in ("volume", "snapshot"):
        raise Fault(400, "Block Device Mapping is Invalid: volumes are not supported by this deployment.")
    if source == "image" and boot_index != 0:
        raise Fault(400, "Block Device Mapping is Invalid: an image can only be the boot disk of this deployment.")
    if source == "image" and reference and item.get("uuid") != reference:
        raise Fault(400, "Block Device Mapping is Invalid: the boot disk is not of the image that imageRef names.")
    size = item.get("volume_size")
    return BlockDevice(
        device_id=str(uuid.uuid4()),
        source_type=source,
        destination_type="local",
        source_id=item.get("uuid"),
        boot_index=boot_index,
        size_gib=None if size in (None, "") else int(size),
        bus=item.get("disk_bus"),
        device_type=item.get("device_type") or "disk",
        device_name=item.get("device_name"),
        guest_format=item.get("guest_format"),
        volume_type=item.get("volume_type"),
        tag=item.get("tag"),
        delete_on_termination=truth(str(item.get("delete_on_termination", True))),
    )


def _hints(body: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    hints: Mapping[str, Any] = body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints") or {}
    return {
        key: tuple(
            v if isinstance(v, str) else orjson.dumps(v).decode() for v in (value if _is_list(value) else [value])
        )
        for key, value in hints.items()
    }


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _certificates(server: Mapping[str, Any]) -> tuple[str, ...] | None:
    certificates = server.get("trusted_image_certificates")
    return None if certificates is None else tuple(certificates)


def _secrets(
    server: Mapping[str, Any], password: str, project_id: ProjectId, user_id: UserId, ids: tuple[InstanceId, ...]
) -> dict[VaultRef, Payload]:
    """What goes into the vault and nowhere else, for each instance.

    Raises:
        Fault: 400, user data that is not base64.
    """
    kept: dict[str, bytes] = {"admin_password": password.encode()}
    if server.get("user_data") is not None:
        try:
            kept["user_data"] = base64.b64decode(server["user_data"], validate=False)
        except ValueError:
            raise Fault(400, "User data needs to be valid base 64.") from None
    if server.get("personality"):
        kept["injected_files"] = orjson.dumps([[f["path"], f["contents"]] for f in server["personality"]])
    return {
        payload_ref(instance_id, what): Payload(data, subject=user_id, owner=instance_stream(instance_id))
        for instance_id in ids
        for what, data in kept.items()
    }


def _answer(request: Request, server: Mapping[str, Any], command: CreateInstances, password: str) -> Response:
    identifier = str(command.instance_ids[0])
    link = f"{request.base_url}/servers/{identifier}"
    if truth(str(server.get("return_reservation_id", ""))):
        return Response({"reservation_id": command.reservation_id}, status=202)
    body = {
        "server": {
            "id": identifier,
            "links": [
                {"rel": "self", "href": link},
                {"rel": "bookmark", "href": f"{request.bookmark_url}/servers/{identifier}"},
            ],
            "OS-DCF:diskConfig": command.disk_config,
            "security_groups": [{"name": name} for name in command.security_groups],
            "adminPass": password,
        }
    }
    return Response(body, status=202, headers=(("location", link),))
