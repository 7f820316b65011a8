"""Settings: oslo.config files, with the section and option names of Nova (and Keystone) where the meaning is the same.

A file that names an option or section which does not exist is refused: a misspelt setting would otherwise do nothing.
oslo.config is imported when settings are first read.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commands.log.kafka_options import KafkaOptions
    from gateway.options import Options, RoleOptions, StoreOptions, TlsOptions
    from gateway.roles import Role

Settings = Any  # oslo.config's ConfigOpts: `settings.api.max_limit`, `settings.shutdown_timeout`
OptionTable = dict[str, list[Any]]  # by section

DEFAULT = "DEFAULT"


class SettingsInvalid(Exception):
    """One line that names the file, the section and the option."""


def options() -> OptionTable:
    """Every option there is."""
    from oslo_config import cfg

    def number(name: str, default: int, **more: Any) -> Any:
        return cfg.IntOpt(name, default=default, **more)

    def real(name: str, default: float, **more: Any) -> Any:
        return cfg.FloatOpt(name, default=default, **more)

    def flag(name: str, default: bool, **more: Any) -> Any:
        return cfg.BoolOpt(name, default=default, **more)

    def text(name: str, default: str | None, **more: Any) -> Any:
        return cfg.StrOpt(name, default=default, **more)

    return {
        DEFAULT: [
            real("cpu_allocation_ratio", 4.0, min=0.01, help="How many vCPUs a host may give away for each it has."),
            real("ram_allocation_ratio", 1.0, min=0.01, help="The same for memory."),
            real("disk_allocation_ratio", 1.0, min=0.01, help="The same for disk."),
            number("reserved_host_cpus", 0, min=0, help="vCPUs of each host that are not for guests."),
            number("reserved_host_memory_mb", 512, min=0, help="MiB of memory of each host that are not for guests."),
            number("reserved_host_disk_mb", 0, min=0, help="MiB of disk of each host that are not for guests."),
            text("default_availability_zone", "nova", help="The zone of hosts that are in no other."),
            text("default_schedule_zone", None, help="The zone of servers that ask for none; unset: any."),
            number("service_down_time", 60, min=1, help="Seconds without a sign of a host until it counts as down."),
            number("shutdown_timeout", 60, min=0, help="Seconds a guest has to shut down before its power is cut."),
            flag("force_config_drive", True, help="Give every server a config drive, asked for or not."),
            text("my_ip", "127.0.0.1", help="The address of an agent's host, as operators are shown it."),
        ],
        "api": [
            number("max_limit", 1000, min=1, help="The most items of one answer to a list."),
        ],
        "oslo_middleware": [
            number(
                "max_request_body_size",
                114_688,
                min=1024,
                deprecated_opts=[cfg.DeprecatedOpt("osapi_max_request_body_size", group=DEFAULT)],
                help="The most bytes of a request's body.",
            ),
            flag(
                "enable_proxy_headers_parsing",
                False,
                help="Build links from X-Forwarded-Proto and -Host; a proxy in front must set or drop these.",
            ),
        ],
        "quota": [
            number(name, default, min=-1, help=f"{words} of a project that has no quota of its own; -1: no limit.")
            for name, default, words in (
                ("instances", 10, "Servers"),
                ("cores", 20, "vCPUs"),
                ("ram", 51_200, "MiB of memory"),
                ("metadata_items", 128, "Metadata items of each server"),
                ("injected_files", 5, "Injected files of each server"),
                ("injected_file_content_bytes", 10_240, "Bytes of each injected file"),
                ("injected_file_path_length", 255, "Bytes of each injected file's path"),
                ("key_pairs", 100, "Key pairs of each user"),
                ("server_groups", 10, "Server groups"),
                ("server_group_members", 10, "Servers of each server group"),
            )
        ],
        "libvirt": [
            text("connection_uri", None, help="libvirt's URI; unset: qemu:///system, or test:///default."),
            text("virt_type", "auto", choices=["auto", "kvm", "qemu"], help="auto: kvm where the host has it."),
        ],
        "fake": [
            number("vcpus", 64, min=1, help="vCPUs of each simulated host."),
            number("memory_mib", 262_144, min=1, help="MiB of memory of each simulated host."),
            number("disk_gib", 4096, min=1, help="GiB of disk of each simulated host."),
        ],
        "image_cache": [
            number("max_gib", 100, min=1, help="GiB of images that each host keeps for the next server."),
        ],
        "standalone": [
            text("network_name", "private", help="The name of the one network."),
            text("network_bridge", None, help="The bridge that guests are plugged into; unset: QEMU's user network."),
            number("max_image_gib", 1024, min=1, help="GiB of the largest image that can be uploaded."),
        ],
        "token": [
            number("expiration", 3600, min=60, help="Seconds that a token of the standalone identity service lives."),
        ],
        "ssl": [
            text("cert_file", None, help="The gateway's certificate, with its chain; set: HTTPS only."),
            text("key_file", None, help="The private key of that certificate."),
        ],
        "metrics": [
            text("listen", None, help="HOST:PORT of /metrics, /healthz and /readyz; unset: no such address."),
        ],
        "database": [
            text("connection", None, secret=True, help="postgresql://…, with libpq's parameters; of roles only."),
        ],
        "vault": [
            text("key_file", None, help="The master key, the same for all roles; unset: DIR/vault.key."),
        ],
        "kafka": [
            text("bootstrap_servers", None, help="HOST:PORT of Kafka's brokers, with commas; of roles only."),
            text(
                "security_protocol",
                "PLAINTEXT",
                choices=["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
                help="How brokers are spoken to.",
            ),
            text("ssl_cafile", None, help="Who must have signed the brokers' certificates; unset: the system's."),
            text("ssl_certfile", None, help="This process's certificate, where brokers ask for one."),
            text("ssl_keyfile", None, help="The private key of that certificate."),
            text(
                "sasl_mechanism",
                "SCRAM-SHA-512",
                choices=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
                help="How this process logs in, with a protocol of SASL.",
            ),
            text("sasl_username", None, help="As whom."),
            text("sasl_password", None, secret=True, help="With which password."),
            number("replication_factor", 1, min=1, help="Copies of each partition of a topic that is made."),
            number("min_insync_replicas", 1, min=1, help="Copies that must have a message before it counts as sent."),
            number("event_partitions", 6, min=1, help="Partitions of `instances` and of `allocations`, when made."),
        ],
        "agent": [
            text("credential", None, help="The file that `compute-ledger host enroll` printed for this host."),
            text("gateways", None, help="Where payloads and images are fetched: URLs with commas, tried in turn."),
            text("ca_file", None, help="Who must have signed the gateways' certificates; unset: the system's."),
        ],
        "roles": [
            flag(
                "stand_by", True, help="Leave it to one process to be active; false: be active beside it, for drills."
            ),
        ],
    }


def load(files: Sequence[Path]) -> Settings:
    """The settings of these files, a later one winning over an earlier one; every value is checked now.

    Raises:
        SettingsInvalid
    """
    from oslo_config import cfg

    known = options()
    conf = cfg.ConfigOpts()
    for section, opts in known.items():
        conf.register_opts(opts, None if section == DEFAULT else section)
    for file in files:
        _refuse_unknown(file, known)
    try:
        conf([], project="compute-ledger", default_config_files=[str(file) for file in files], default_config_dirs=[])
    except cfg.Error as error:
        raise SettingsInvalid(_one_line(str(error))) from None
    for section, opts in known.items():
        for opt in opts:
            _refuse_bad_value(conf if section == DEFAULT else getattr(conf, section), section, opt.dest, files)
    return conf


def process_options(
    settings: Settings, *, directory: Path, url: str, driver: str, hosts: int, libvirt_uri: str | None = None
) -> Options:
    """What a process is built from; `libvirt_uri` wins over the file's.

    Raises:
        SettingsInvalid
    """
    from gateway.options import Options

    quota = {opt.dest: getattr(settings.quota, opt.dest) for opt in options()["quota"]}
    quota["injected_file_path_bytes"] = quota.pop("injected_file_path_length")
    return Options(
        directory=directory,
        url=url,
        driver=driver,
        hosts=hosts,
        libvirt_uri=libvirt_uri or settings.libvirt.connection_uri,
        virt_type=settings.libvirt.virt_type,
        bridge=settings.standalone.network_bridge,
        network_name=settings.standalone.network_name,
        zone=settings.default_availability_zone,
        force_config_drive=settings.force_config_drive,
        fake_vcpus=settings.fake.vcpus,
        fake_memory_mib=settings.fake.memory_mib,
        fake_disk_gib=settings.fake.disk_gib,
        cpu_allocation_ratio=settings.cpu_allocation_ratio,
        ram_allocation_ratio=settings.ram_allocation_ratio,
        disk_allocation_ratio=settings.disk_allocation_ratio,
        reserved_host_cpus=settings.reserved_host_cpus,
        reserved_host_memory_mib=settings.reserved_host_memory_mb,
        reserved_host_disk_gib=-(-settings.reserved_host_disk_mb // 1024),
        image_cache_bytes=settings.image_cache.max_gib << 30,
        image_size_bytes=settings.standalone.max_image_gib << 30,
        token_lifetime_s=settings.token.expiration,
        default_schedule_zone=settings.default_schedule_zone,
        service_down_after_s=settings.service_down_time,
        shutdown_timeout_s=settings.shutdown_timeout,
        max_limit=settings.api.max_limit,
        max_body_bytes=settings.oslo_middleware.max_request_body_size,
        trust_proxy=settings.oslo_middleware.enable_proxy_headers_parsing,
        quota_defaults=quota,
        tls=tls_options(settings),
    )


def tls_options(settings: Settings) -> TlsOptions | None:
    """Raises:
    SettingsInvalid: a certificate without its key, or the other way round, or one that cannot be used.
    """
    from gateway.options import TlsOptions
    from gateway.tls_files import refuse_unusable

    certificate, key = settings.ssl.cert_file, settings.ssl.key_file
    if (certificate is None) != (key is None):
        raise SettingsInvalid("[ssl] cert_file and key_file are set together, or not at all")
    if certificate is not None:
        refuse_unusable("ssl", certificate, key)
    return None if certificate is None else TlsOptions(certificate=Path(certificate), key=Path(key))


def role_options(
    settings: Settings,
    common: Options,
    roles: frozenset[Role],
    *,
    store: str | None = None,
    kafka: str | None = None,
    credential: Path | None = None,
    gateways: Sequence[str] = (),
) -> RoleOptions:
    """What a process of a distributed ledger is built from; what is given here wins over the files.

    Raises:
        SettingsInvalid: something that these roles need is not set.
    """
    from gateway.options import AgentOptions, RoleOptions
    from gateway.roles import Role

    agent = None
    if Role.AGENT in roles:
        file = credential or settings.agent.credential
        urls = tuple(gateways) or tuple(filter(None, (settings.agent.gateways or "").split(",")))
        if file is None or not urls:
            raise SettingsInvalid("the role agent needs --credential FILE and --gateway URL, or [agent] in a file")
        ca_file = settings.agent.ca_file
        agent = AgentOptions(
            credential=Path(file),
            gateways=urls,
            ca_file=None if ca_file is None else Path(ca_file),
            host_ip=settings.my_ip,
        )
    return RoleOptions(
        roles=roles,
        name=f"compute-ledger {','.join(sorted(roles))}/{os.getpid()}",
        common=common,
        kafka=kafka_options(settings, kafka),
        store=store_options(settings, common.directory, store) if roles - {Role.AGENT} else None,
        agent=agent,
        stand_by=settings.roles.stand_by,
    )


def store_options(settings: Settings, directory: Path, url: str | None = None) -> StoreOptions:
    """Raises:
    SettingsInvalid: there is no URL, or it is none of PostgreSQL's.
    """
    from gateway.options import StoreOptions

    url = url or settings.database.connection
    if url is None:
        raise SettingsInvalid("there is no store: --store postgresql://…, or [database] connection in a file")
    if not url.startswith(("postgresql://", "postgres://")):
        raise SettingsInvalid("the store is not a URL of PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    _refuse_unreadable(url)
    return StoreOptions(url=url, vault_key_file=Path(settings.vault.key_file or directory / "vault.key"))


def _refuse_unreadable(url: str) -> None:
    """Raises:
    SettingsInvalid: libpq cannot read it; what it says of that may hold the password.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        raise SettingsInvalid(
            "the store's URL cannot be read: in its password some characters must be written as %XX (a % as %25), and what "
            "follows a ? are libpq's parameters"
        ) from None


def kafka_options(settings: Settings, bootstrap: str | None = None) -> KafkaOptions:
    """Raises:
    SettingsInvalid
    """
    from commands.log.kafka_options import KafkaOptions
    from gateway.tls_files import refuse_no_authority, refuse_unusable

    kafka = settings.kafka
    bootstrap = bootstrap or kafka.bootstrap_servers
    if bootstrap is None:
        raise SettingsInvalid("there is no Kafka: --kafka HOST:PORT, or [kafka] bootstrap_servers in a file")
    sasl = kafka.security_protocol.startswith("SASL")
    if sasl and not (kafka.sasl_username and kafka.sasl_password):
        raise SettingsInvalid(f"[kafka] {kafka.security_protocol} needs sasl_username and sasl_password")
    if "SSL" in kafka.security_protocol.split("_"):
        if kafka.ssl_cafile is not None:
            refuse_no_authority("kafka", kafka.ssl_cafile)
        if kafka.ssl_certfile is not None:
            refuse_unusable("kafka", kafka.ssl_certfile, kafka.ssl_keyfile)
    return KafkaOptions(
        bootstrap=bootstrap,
        security_protocol=kafka.security_protocol,
        ssl_cafile=kafka.ssl_cafile,
        ssl_certfile=kafka.ssl_certfile,
        ssl_keyfile=kafka.ssl_keyfile,
        sasl_mechanism=kafka.sasl_mechanism if sasl else None,
        sasl_username=kafka.sasl_username,
        sasl_password=kafka.sasl_password,
        replication_factor=kafka.replication_factor,
        min_insync_replicas=kafka.min_insync_replicas,
        event_partitions=kafka.event_partitions,
    )


def sample() -> str:
    """A file with every option at its default, commented out."""
    lines = ["# Compute Ledger. Every option, at its default."]
    for section, opts in options().items():
        lines += ["", f"[{section}]"]
        for opt in opts:
            lines += ["", *_described(opt), f"#{opt.name} = {_written(opt.default)}"]
    return "\n".join(lines) + "\n"


def _refuse_unknown(file: Path, known: OptionTable) -> None:
    """Raises:
    SettingsInvalid
    """
    from oslo_config import cfg, iniparser

    sections: dict[str, dict[str, Any]] = {}
    try:
        cfg.ConfigParser(str(file), sections).parse()
    except iniparser.ParseError as error:  # the line itself may hold a password
        raise SettingsInvalid(f"{file}:{error.lineno}: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(_one_line(f"{file}: {getattr(error, 'strerror', None) or error}")) from None
    names = {section: set(_names(section, known)) for section in known}
    for section, values in sections.items():
        if section not in names:
            raise SettingsInvalid(f"{file}: there is no section [{section}]{_perhaps(section, names, '[{}]')}")
        for name in values:
            if name.replace("-", "_") not in names[section]:
                raise SettingsInvalid(f"{file}: [{section}] has no option {name}{_perhaps(name, names[section])}")


def _refuse_bad_value(group: Any, section: str, name: str, files: Sequence[Path]) -> None:
    """Raises:
    SettingsInvalid
    """
    from oslo_config import cfg

    try:
        value = getattr(group, name)
        reason = None if not isinstance(value, float) or math.isfinite(value) else "not a finite number"
    except ValueError as error:  # oslo.config's ConfigFileValueError is one
        reason = str(error).partition("is not valid: ")[2] or str(error)
    except cfg.Error:  # its message may hold a part of a password
        reason = "what follows a $ is taken for the name of an option; the character itself is written $$"
    if reason is not None:
        raise SettingsInvalid(_one_line(f"{_where(section, name, files)}: [{section}] {name}: {reason}"))


def _where(section: str, name: str, files: Sequence[Path]) -> str:
    """The files that set an option."""
    from oslo_config import cfg

    def sets(file: Path) -> bool:
        sections: dict[str, dict[str, Any]] = {}
        cfg.ConfigParser(str(file), sections).parse()
        return name in {option.replace("-", "_") for option in sections.get(section, {})}

    return ", ".join(str(file) for file in files if sets(file)) or ", ".join(map(str, files))


def _names(section: str, known: OptionTable) -> Iterator[str]:
    """Of the options of a section, the older names included that are still understood there."""
    for own, opts in known.items():
        for opt in opts:
            if own == section:
                yield opt.dest
            for older in opt.deprecated_opts:
                if (older.group or own) == section:
                    yield str(older.name)


def _perhaps(wrong: str, right: Sequence[str] | set[str] | dict[str, Any], form: str = "{}") -> str:
    close = difflib.get_close_matches(wrong, list(right), 1)
    return f" (perhaps {form.format(close[0])})" if close else ""


def _described(opt: Any) -> Iterator[str]:
    yield f"# {opt.help}"
    if getattr(opt.type, "choices", None):
        yield f"# One of: {', '.join(opt.type.choices)}."


def _written(default: Any) -> str:
    return "<None>" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def _one_line(message: str) -> str:
    return " ".join(message.split())
