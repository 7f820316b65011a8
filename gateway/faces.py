"""Every HTTP face of a ledger, put together: which operations are built, which services a site has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.app import Shell, compute_app
from gateway.availability_zones import AvailabilityZones
from gateway.backend import Backend
from gateway.extensions import Extensions
from gateway.external_events import ExternalEvents
from gateway.flavor_extras import FlavorExtras
from gateway.flavors import Flavors
from gateway.host_aggregates import HostAggregates
from gateway.hypervisors import Hypervisors
from gateway.instance_actions import InstanceActions
from gateway.keypairs import Keypairs
from gateway.limits import Limits
from gateway.options import Options
from gateway.os_hosts import OsHosts
from gateway.policy import Policy
from gateway.quota_sets import QuotaSets
from gateway.request import Handler, HandlerKey
from gateway.server_action import ServerActions
from gateway.server_consoles import ServerConsoles
from gateway.server_create import CreateSettings, ServerCreate
from gateway.server_diagnostics import ServerDiagnostics
from gateway.server_groups import ServerGroups
from gateway.server_ips import ServerIps
from gateway.server_metadata import ServerMetadata
from gateway.server_password import ServerPassword
from gateway.server_tags import ServerTags
from gateway.servers import Servers
from gateway.services import Services
from gateway.site import App
from gateway.standalone.glance import glance
from gateway.standalone.keystone import keystone
from gateway.standalone.links import Links
from gateway.standalone.neutron import neutron
from gateway.tenant_usage import TenantUsage
from gateway.usage_audit import UsageAudit


class Served(Protocol):
    """What the faces reach, whatever deployment it is part of."""

    @property
    def options(self) -> Options: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def identity(self) -> StandaloneIdentity: ...
    @property
    def images(self) -> StandaloneImages: ...
    @property
    def networks(self) -> StandaloneNetworks: ...


def handlers(served: Served) -> Mapping[HandlerKey, Handler]:
    """Every operation that is built."""
    backend, options = served.backend, served.options
    max_limit = options.max_limit
    create = CreateSettings(
        force_config_drive=options.force_config_drive,
        default_zone=options.default_schedule_zone,
        metadata_items=options.quota_defaults["metadata_items"],
    )
    rooms = (
        Servers(backend, max_limit),
        ServerCreate(backend, served.images, served.networks, create),
        ServerActions(backend, options.shutdown_timeout_s),
        ServerMetadata(backend),
        ServerTags(backend),
        ServerIps(backend),
        ServerPassword(backend),
        ServerDiagnostics(backend),
        ServerConsoles(backend),
        Extensions(),
        Flavors(backend, max_limit),
        FlavorExtras(backend, served.identity),
        Keypairs(backend, max_limit),
        QuotaSets(backend, served.identity, options.quota_defaults),
        Limits(backend, options.quota_defaults),
        Services(backend),
        OsHosts(backend),
        AvailabilityZones(backend),
        HostAggregates(backend),
        ServerGroups(backend, max_limit),
        TenantUsage(backend, max_limit),
        UsageAudit(backend),
        ExternalEvents(backend),
        Hypervisors(backend, max_limit),
        InstanceActions(backend, max_limit),
    )
    return {key: handler for room in rooms for key, handler in room.handlers().items()}


def services(served: Served) -> dict[str, App]:
    """By the first segment of their paths."""
    options = served.options
    links = Links(trust_proxy=options.trust_proxy)
    shell = Shell(
        identity=served.identity,
        policy=Policy(options.directory),
        links=links,
        max_body_bytes=options.max_body_bytes,
    )
    return {
        "identity": keystone(served.identity, links),
        "image": glance(served.images, served.identity, links),
        "network": neutron(served.networks, served.identity, links),
        "compute": compute_app(shell, handlers(served)),
    }
