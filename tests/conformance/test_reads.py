"""Every read that is built, at every microversion, held against Nova's own schemas."""

from __future__ import annotations

import pytest

from gateway.microversions import NEWEST, OLDEST, Version
from gateway.operations import Operation, operations_and_rules
from tests.conformance.judge import NovaSchemas
from tests.support.http_client import User

VERSIONS = [Version(2, minor) for minor in range(OLDEST.minor, NEWEST.minor + 1)]
READS = [
    operation
    for operation in operations_and_rules()[0]
    if operation.method == "GET" and not operation.tells_versions and operation.kind is None
]


@pytest.fixture(scope="module")
def named(admin: User) -> dict[str, str]:
    """What the variables of the paths may stand for: one of each kind, with all that a user can give it."""
    flavor = admin.create_flavor("a flavor")
    key = admin("POST", "/os-keypairs", {"keypair": {"name": "a-key", "type": "ssh"}}, version="2.91").json()
    server = admin.create_server(
        admin.upload_image(),
        flavor,
        key_name=key["keypair"]["name"],
        metadata={"a": "b"},
        tags=["a-tag"],
        description="words",
    )
    admin.wait_for(server, "ACTIVE")
    requested = admin.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]["request_id"]
    private = {"name": "private", "id": "private", "vcpus": 1, "ram": 1, "disk": 1, "os-flavor-access:is_public": False}
    assert admin("POST", "/flavors", {"flavor": private}).status_code == 200
    assert admin("POST", "/flavors/private/os-extra_specs", {"extra_specs": {"a": "b"}}).status_code == 200
    granted = {"addTenantAccess": {"tenant": admin.project_id}}
    assert admin("POST", "/flavors/private/action", granted).status_code == 200
    attic = {"aggregate": {"name": "attic", "availability_zone": "attic"}}
    aggregate = str(admin("POST", "/os-aggregates", attic).json()["aggregate"]["id"])
    host = admin.get("/os-services")["services"][-1]["host"]
    assert admin("POST", f"/os-aggregates/{aggregate}/action", {"add_host": {"host": host}}).status_code == 200
    web = {"server_group": {"name": "web", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}}}
    group = admin("POST", "/os-server-groups", web).json()["server_group"]["id"]
    old, new = (str(admin.get("/os-hypervisors", version=v)["hypervisors"][0]["id"]) for v in ("2.52", "2.53"))
    return {
        "server_id": server,
        "flavor_id": "private",
        "keypair_name": "a-key",
        "request_id": requested,
        "hypervisor_id": new,
        "hypervisor_id below 2.53": old,
        "project_id": admin.project_id,
        "tenant_id": admin.project_id,
        "key": "a",
        "tag": "a-tag",
        "network_label": "private",
        "class_name": "default",
        "alias": "os-keypairs",
        "aggregate_id": aggregate,
        "server_group_id": group,
        "before_timestamp": "2026-01-01 00:00:00",
    }


def path_of(operation: Operation, version: Version, named: dict[str, str]) -> str:
    path = operation.path
    if version < Version(2, 53):
        named = named | {"hypervisor_id": named["hypervisor_id below 2.53"]}
    for name, value in named.items():
        path = path.replace("{" + name + "}", value)
    return path


@pytest.mark.parametrize("operation", READS, ids=str)
def test_a_read_that_is_built_is_answered_as_nova_s_schemas_say(
    admin: User, named: dict[str, str], schemas: NovaSchemas, operation: Operation
) -> None:
    faults, unbuilt = [], 0
    versions = [version for version in VERSIONS if operation.serves(version)]
    for version in versions:
        answer = admin("GET", path_of(operation, version, named), version=str(version))
        if answer.status_code == 501:
            unbuilt += 1
        elif answer.status_code >= 300:
            faults.append(f"{version}: {answer.status_code} {answer.text[:200]}")
        else:
            body = answer.json() if answer.content else None
            faults += [f"{version}: {fault}" for fault in schemas.faults(operation, version, body)]
    assert not faults, "\n".join(faults[:10])
    assert unbuilt in (0, len(versions)), "it is built at every version or at none"
