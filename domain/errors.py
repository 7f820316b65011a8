"""Every refusal, as one tree. `code` is public and permanent; only `gateway/faults.py` turns it into HTTP."""

from __future__ import annotations


class DomainError(Exception):
    """A command was refused; nothing was recorded. The message is meant for the person who asked."""

    code = "refused"


class NotFound(DomainError):
    code = "not_found"


class Conflict(DomainError):
    code = "conflict"


class Invalid(DomainError):
    code = "invalid"


class Forbidden(DomainError):
    code = "forbidden"


class ConcurrencyConflict(DomainError):
    """Another writer was faster, several times in a row; the same command may be sent again."""

    code = "concurrency_conflict"


# instances


class InstanceNotFound(NotFound):
    code = "instance.not_found"

    def __init__(self, instance_id: object) -> None:
        super().__init__(f"Instance {instance_id} could not be found.")


class InstanceExists(Conflict):
    code = "instance.exists"


class InstanceWrongState(Conflict):
    """Nova's InstanceInvalidState: the attribute is vm_state, task_state or launched_at."""

    code = "instance.wrong_state"

    def __init__(self, action: str, instance_id: object, attribute: str, value: str) -> None:
        super().__init__(f"Cannot '{action}' instance {instance_id} while it is in {attribute} {value}")


class InstanceNotReady(Conflict):
    code = "instance.not_ready"

    def __init__(self, instance_id: object) -> None:
        super().__init__(f"Instance {instance_id} is not ready")


class InstanceIsLocked(Conflict):
    code = "instance.locked"

    def __init__(self, instance_id: object) -> None:
        super().__init__(f"Instance {instance_id} is locked")


class InstanceLockedByAdmin(Forbidden):
    """An administrator's lock is lifted by those whom policy lets override locks."""

    code = "instance.locked_by_admin"


class ZoneNotPinnable(Conflict):
    """Nova API 2.104: a server can only be pinned to the zone that it is in."""

    code = "instance.zone_not_pinnable"


class PasswordNotChangeable(Conflict):
    code = "instance.password_not_changeable"


class MetadataLimitExceeded(Forbidden):
    code = "instance.metadata_limit_exceeded"

    def __init__(self, allowed: int) -> None:
        super().__init__(f"Maximum number of metadata items exceeds {allowed}")


class MetadataItemNotFound(NotFound):
    code = "instance.metadata_item_not_found"

    def __init__(self) -> None:
        super().__init__("Metadata item was not found")


class TagNotFound(NotFound):
    code = "instance.tag_not_found"

    def __init__(self, instance_id: object, tag: str) -> None:
        super().__init__(f"Instance {instance_id} has no tag '{tag}'")


class TagInvalid(Invalid):
    code = "instance.tag_invalid"

    def __init__(self, tag: str, why: str) -> None:
        super().__init__(
            f"Tag '{tag}' is invalid. It must be a non empty string without characters '/' and ','. "
            f"Validation error message: {why}"
        )


class TagLimitExceeded(Invalid):
    code = "instance.tag_limit_exceeded"

    def __init__(self, allowed: int) -> None:
        super().__init__(f"The number of tags exceeded the per-server limit {allowed}")


class ReportSuperseded(DomainError):
    """A report about a task that is no longer the pending one, or that was settled before."""

    code = "report.superseded"


class ReportNotYours(Forbidden):
    """A host reported on a guest that is not and never was its own."""

    code = "report.not_yours"


# scheduling and claims


class ClaimDoesNotFit(Conflict):
    """No candidate of a claim has the room any more; another choice may."""

    code = "claim.does_not_fit"


class ProviderNotFound(NotFound):
    code = "provider.not_found"


# quota


class QuotaExceeded(Forbidden):
    code = "quota.exceeded"

    def __init__(self, resource: str, requested: str, used: str, allowed: str) -> None:
        super().__init__(
            f"Quota exceeded for {resource}: Requested {requested}, but already used {used} of {allowed} {resource}"
        )


class KeypairQuotaExceeded(Forbidden):
    code = "quota.keypairs_exceeded"

    def __init__(self) -> None:
        super().__init__("Quota exceeded, too many key pairs.")


class QuotaBelowUsage(Invalid):
    code = "quota.below_usage"

    def __init__(self, resource: str, limit: int, least: int) -> None:
        super().__init__(
            f"Quota limit {limit} for {resource} must be greater than or equal to already used and reserved {least}."
        )


class QuotaAboveProject(Invalid):
    code = "quota.above_project"

    def __init__(self, resource: str, limit: int, most: int) -> None:
        super().__init__(f"Quota limit {limit} for {resource} must be less than or equal to {most}.")


# server groups


class ServerGroupNotFound(NotFound):
    code = "server_group.not_found"

    def __init__(self, server_group_id: object) -> None:
        super().__init__(f"Instance group {server_group_id} could not be found.")


class BadServerGroup(Invalid):
    """A create named a group that its project does not have (Nova answers 400)."""

    code = "server_group.bad_reference"

    def __init__(self, server_group_id: object) -> None:
        super().__init__(f"Instance group {server_group_id} could not be found.")


class ServerGroupQuotaExceeded(Forbidden):
    code = "quota.server_groups_exceeded"

    def __init__(self) -> None:
        super().__init__("Quota exceeded, too many server groups.")


class TooManyServersInGroup(Forbidden):
    code = "quota.server_group_members_exceeded"

    def __init__(self) -> None:
        super().__init__("Quota exceeded, too many servers in group")


# flavors


class FlavorNotFound(NotFound):
    code = "flavor.not_found"

    def __init__(self, flavor_id: str) -> None:
        super().__init__(f"Flavor {flavor_id} could not be found.")


class FlavorExists(Conflict):
    code = "flavor.exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"Flavor with name {name} already exists.")


class FlavorIdExists(Conflict):
    code = "flavor.id_exists"

    def __init__(self, flavor_id: str) -> None:
        super().__init__(f"Flavor with ID {flavor_id} already exists.")


class ExtraSpecNotFound(NotFound):
    code = "flavor.extra_spec_not_found"

    def __init__(self, flavor_id: str, key: str) -> None:
        super().__init__(f"Flavor {flavor_id} has no extra specs with key {key}.")


class FlavorIsPublic(Conflict):
    code = "flavor.is_public"

    def __init__(self) -> None:
        super().__init__("Can not add access to a public flavor.")


class FlavorAccessExists(Conflict):
    code = "flavor.access_exists"

    def __init__(self, flavor_id: str, project_id: str) -> None:
        super().__init__(f"Flavor access already exists for flavor {flavor_id} and project {project_id} combination.")


class FlavorAccessNotFound(NotFound):
    code = "flavor.access_not_found"

    def __init__(self, flavor_id: str, project_id: str) -> None:
        super().__init__(f"Flavor access not found for {flavor_id} / {project_id} combination.")


class FlavorUnusable(Invalid):
    """The flavor is there but cannot run this image (memory or disk too small)."""

    code = "flavor.unusable"


class BadFlavor(Invalid):
    """A create named a flavor that this project cannot see (Nova answers 400, not 404)."""

    code = "flavor.bad_reference"

    def __init__(self, flavor_id: str) -> None:
        super().__init__(f"Flavor {flavor_id} could not be found.")


# keypairs


class KeypairNotFound(NotFound):
    code = "keypair.not_found"

    def __init__(self, name: str, user_id: str) -> None:
        super().__init__(f"Keypair {name} not found for user {user_id}")


class KeypairExists(Conflict):
    code = "keypair.exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"Key pair '{name}' already exists.")


class BadKeypair(Invalid):
    """A create named a key pair that its user does not have (Nova answers 400)."""

    code = "keypair.bad_reference"


# services


class ServiceNotFound(NotFound):
    code = "service.not_found"

    def __init__(self, service_id: object) -> None:
        super().__init__(f"Service {service_id} could not be found.")


class ServiceInUse(Conflict):
    """Servers are there, or what they hold is."""

    code = "service.in_use"

    def __init__(self) -> None:
        super().__init__(
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )


class HostRenamed(Conflict):
    """An agent came back with another name than its compute id was registered under."""

    code = "service.host_renamed"


# host aggregates


class AggregateNotFound(NotFound):
    code = "aggregate.not_found"

    def __init__(self, aggregate_id: object) -> None:
        super().__init__(f"Aggregate {aggregate_id} could not be found.")


class AggregateExists(Conflict):
    code = "aggregate.exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"Aggregate {name} already exists.")


class AggregateChangeRefused(Invalid):
    code = "aggregate.change_refused"

    def __init__(self, action: str, aggregate_id: int, reason: str) -> None:
        super().__init__(f"Cannot {action} aggregate {aggregate_id}. Reason: {reason}.")


class AggregateNotEmpty(Invalid):
    code = "aggregate.not_empty"

    def __init__(self, aggregate_id: int) -> None:
        super().__init__(f"Cannot remove host from aggregate {aggregate_id}. Reason: Host aggregate is not empty.")


class AggregateHostExists(Conflict):
    code = "aggregate.host_exists"

    def __init__(self, aggregate_id: int, host: str) -> None:
        super().__init__(f"Aggregate {aggregate_id} already has host {host}.")


class AggregateHostNotFound(NotFound):
    code = "aggregate.host_not_found"

    def __init__(self, aggregate_id: int, host: str) -> None:
        super().__init__(f"Cannot remove host {host} in aggregate {aggregate_id}")


class AggregateHostRefused(Conflict):
    code = "aggregate.host_refused"

    def __init__(self, action: str, aggregate_id: int, reason: str) -> None:
        super().__init__(f"Cannot {action} aggregate {aggregate_id}. Reason: {reason}.")


class ComputeHostNotFound(NotFound):
    code = "host.not_found"

    def __init__(self, host: str) -> None:
        super().__init__(f"Compute host {host} could not be found.")


# hosts' keys


class HostNameTaken(Conflict):
    """A host name belongs to one service, and a service to one name and one node."""

    code = "host.name_taken"


class HostNodeTaken(Conflict):
    """The node that a new host is to have is another's."""

    code = "host.node_taken"


class HostNameInvalid(Invalid):
    code = "host.name_invalid"


class HostKeyInvalid(Invalid):
    code = "host.key_invalid"


class HostNotEnrolled(NotFound):
    code = "host.not_enrolled"

    def __init__(self, host: object) -> None:
        super().__init__(f"Host {host} is not enrolled.")
