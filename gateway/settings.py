"""Settings: files of oslo.config, and what the command line says, made into what a process is built from.

A file that names an option or section which does not exist is refused: a misspelt setting would otherwise do nothing.
Which there are: `settings_table.py`. oslo.config is imported when settings are first read.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.settings_table import DEFAULT, OptionTable, options

if TYPE_CHECKING:
    from commands.log.kafka_options import KafkaOptions
    from gateway.options import Options, RoleOptions, StoreOptions, TlsOptions
    from gateway.roles import Role

Settings = Any  # oslo.config's ConfigOpts: `settings.api.max_limit`, `settings.shutdown_timeout`
STORE_IS_GIVEN = "--store postgresql://…, COMPUTE_LEDGER_STORE, or [database] connection in a --config-file"
KAFKA_IS_GIVEN = "--kafka HOST:PORT, COMPUTE_LEDGER_KAFKA, or [kafka] bootstrap_servers in a --config-file"


class SettingsInvalid(Exception):
    """One line that names the file, the section and the option."""


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
    from gateway.given import wrong_with_libvirt
    from gateway.options import Options

    uri = libvirt_uri or settings.libvirt.connection_uri
    if uri is not None:
        refuse(f"{'--libvirt-uri' if libvirt_uri else '[libvirt] connection_uri'} {uri}", wrong_with_libvirt(uri))
    quota = {opt.dest: getattr(settings.quota, opt.dest) for opt in options()["quota"]}
    quota["injected_file_path_bytes"] = quota.pop("injected_file_path_length")
    return Options(
        directory=directory,
        url=url,
        driver=driver,
        hosts=hosts,
        libvirt_uri=uri,
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
    from gateway.given import wrong_with_gateway, wrong_with_ip
    from gateway.options import AgentOptions, RoleOptions
    from gateway.roles import Role
    from gateway.tls_files import refuse_no_authority

    agent = None
    if Role.AGENT in roles:
        file = credential or settings.agent.credential
        listed = (url.strip() for url in (settings.agent.gateways or "").split(","))
        urls = tuple(gateways) or tuple(filter(None, listed))
        if file is None or not urls:
            raise SettingsInvalid("the role agent needs --credential FILE and --gateway URL, or [agent] in a file")
        for url in urls:
            refuse(f"{'--gateway' if gateways else '[agent] gateways'} {url}", wrong_with_gateway(url))
        ca_file = settings.agent.ca_file
        if ca_file is not None:
            refuse_no_authority("agent", ca_file)
        refuse(f"[DEFAULT] my_ip {settings.my_ip}", wrong_with_ip(settings.my_ip))
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
    from gateway.given import wrong_with_store
    from gateway.options import StoreOptions

    url = url or settings.database.connection
    if url is None:
        raise SettingsInvalid(f"there is no store: {STORE_IS_GIVEN}")
    refuse("the store's URL", wrong_with_store(url))
    return StoreOptions(url=url, vault_key_file=Path(settings.vault.key_file or directory / "vault.key"))


def kafka_options(settings: Settings, bootstrap: str | None = None) -> KafkaOptions:
    """Raises:
    SettingsInvalid
    """
    from commands.log.kafka_options import KafkaOptions, wrong_with_bootstrap
    from gateway.tls_files import refuse_no_authority, refuse_unusable

    kafka = settings.kafka
    bootstrap = bootstrap or kafka.bootstrap_servers
    if bootstrap is None:
        raise SettingsInvalid(f"there is no Kafka: {KAFKA_IS_GIVEN}")
    refuse("--kafka or [kafka] bootstrap_servers", wrong_with_bootstrap(bootstrap))
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


def refuse(what: str, wrong: str | None) -> None:
    """Raises:
    SettingsInvalid
    """
    if wrong is not None:
        raise SettingsInvalid(f"{what} {wrong}")


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
        if reason.startswith(("invalid literal", "could not convert")):
            reason = "not a number"
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
