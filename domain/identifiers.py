"""The names things go by. Each is a plain value; the types only keep them apart."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

InstanceId = NewType("InstanceId", UUID)
NodeId = NewType("NodeId", UUID)  # one hypervisor: also its resource provider's and its hypervisor's id
ServiceId = NewType("ServiceId", UUID)  # a host's agent; its topics carry this, since host names collide once escaped
HostName = NewType("HostName", str)
ProjectId = NewType("ProjectId", str)
UserId = NewType("UserId", str)
ServerGroupId = NewType("ServerGroupId", UUID)
RequestId = NewType("RequestId", str)  # "req-" and a UUID, as in Nova's x-openstack-request-id
VaultRef = NewType("VaultRef", str)  # names a sealed payload; tells nothing about what it holds
StreamId = NewType("StreamId", str)  # "instance:<uuid>"

FLAVOR_CATALOG = StreamId("flavor:catalog")  # one stream, so that names are unique without a lock
HOST_AGGREGATES = StreamId("host_aggregate:catalog")


def instance_stream(instance_id: InstanceId) -> StreamId:
    return StreamId(f"instance:{instance_id}")


def provider_stream(node_id: NodeId) -> StreamId:
    return StreamId(f"provider:{node_id}")


def service_stream(service_id: ServiceId) -> StreamId:
    return StreamId(f"service:{service_id}")


def host_key_stream(service_id: ServiceId) -> StreamId:
    return StreamId(f"host_key:{service_id}")


def quota_stream(project_id: ProjectId) -> StreamId:
    return StreamId(f"quota:{project_id}")


def quota_class_stream(class_name: str) -> StreamId:
    return StreamId(f"quota_class:{class_name}")


def keypair_stream(user_id: UserId) -> StreamId:
    return StreamId(f"keypair:{user_id}")


def server_group_stream(server_group_id: ServerGroupId) -> StreamId:
    return StreamId(f"server_group:{server_group_id}")


def category_of(stream: StreamId) -> str:
    """The kind of stream: what stands before the colon."""
    return stream.partition(":")[0]
