"""Every option of a configuration file, with the names of Nova (and Keystone) where the meaning is the same."""

from __future__ import annotations

from typing import Any

OptionTable = dict[str, list[Any]]  # by section

DEFAULT = "DEFAULT"


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
            real(
                "cpu_allocation_ratio",
                4.0,
                min=0.01,
                max=10000,
                help="How many vCPUs a host may give away for each it has.",
            ),
            real("ram_allocation_ratio", 1.0, min=0.01, max=10000, help="The same for memory."),
            real("disk_allocation_ratio", 1.0, min=0.01, max=10000, help="The same for disk."),
            number("reserved_host_cpus", 0, min=0, help="vCPUs of each host that are not for guests."),
            number("reserved_host_memory_mb", 512, min=0, help="MiB of memory of each host that are not for guests."),
            number("reserved_host_disk_mb", 0, min=0, help="MiB of disk of each host that are not for guests."),
            text("default_availability_zone", "nova", help="The zone of hosts that are in no other."),
            text("default_schedule_zone", None, help="The zone of servers that ask for none; unset: any."),
            number(
                "service_down_time",
                60,
                min=25,
                help="Seconds without a sign of a host, which gives one every 10, until it is down.",
            ),
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
