"""What an operator chooses for one process, embedded or one of many; `settings.py` makes it of files and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from commands.log.kafka_options import KafkaOptions
from domain.quota import DEFAULT_LIMITS
from gateway.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    url: str = field(repr=False)  # postgresql://…, perhaps with a password
    vault_key_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Of the gateway's own listener."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    credential: Path  # what `host enroll` printed
    gateways: tuple[str, ...]  # https://HOST:PORT, tried in turn
    ca_file: Path | None = None
    host_ip: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Names and defaults as in `settings.py`."""

    directory: Path
    url: str  # where clients reach the site
    driver: str = "fake"  # "fake", "test" or "libvirt"
    hosts: int = 1
    libvirt_uri: str | None = None
    virt_type: str = "auto"
    bridge: str | None = None
    network_name: str = "private"
    zone: str = "nova"
    force_config_drive: bool = True
    fake_vcpus: int = 64
    fake_memory_mib: int = 262_144
    fake_disk_gib: int = 4096
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_cpus: int = 0
    reserved_host_memory_mib: int = 512
    reserved_host_disk_gib: int = 0
    image_cache_bytes: int = 100 * 1024**3
    image_size_bytes: int = 1 << 40
    token_lifetime_s: int = 3600
    default_schedule_zone: str | None = None
    service_down_after_s: int = 60
    shutdown_timeout_s: int = 60
    max_limit: int = 1000
    max_body_bytes: int = 114_688
    trust_proxy: bool = False
    quota_defaults: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)
    tls: TlsOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """A process of a distributed ledger."""

    roles: frozenset[Role]
    name: str  # shown by PostgreSQL, and in logs
    common: Options
    kafka: KafkaOptions
    store: StoreOptions | None = None  # every role but the agent's needs it
    agent: AgentOptions | None = None
    stand_by: bool = True  # False: be active beside others, for drills
