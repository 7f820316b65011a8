"""How the ledger connects to Kafka: what an operator says, and what follows for each of kafka-python's clients.

Every setting of theirs that matters is set here, for their defaults are made for other uses: no consumer groups, no
commits, no topics made by being named, and nothing that waits longer than a few seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any

CONNECT_TIMEOUT_MS = 3000
REQUEST_TIMEOUT_MS = 4000
TOPIC_TIMEOUT_MS = 5000  # how long a topic is looked for that a message is for
DELIVERY_TIMEOUT_MS = 8000  # of a message, with all that is tried again
FETCH_WAIT_MS = 1000  # how long a broker holds a fetch that brings nothing; less than a request may take
LARGEST_MESSAGE = 8 * 1024 * 1024

ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|[^\s:/@,\[\]]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    bootstrap: str  # host:port, several separated by commas
    security_protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    ssl_cafile: str | None = None  # none: the system's certificate authorities
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    sasl_mechanism: str | None = None  # PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    replication_factor: int = 1
    min_insync_replicas: int = 1
    event_partitions: int = 6  # of `instances` and of `allocations`
    ledger_retention_s: int | None = None  # of topics with events; none: for ever

    def consumer(self) -> dict[str, Any]:
        return self.client() | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
            "allow_auto_create_topics": False,
            "enable_incremental_fetch_sessions": False,  # nothing to gain with few partitions, and a broker keeps few
            "fetch_max_wait_ms": FETCH_WAIT_MS,
            "max_partition_fetch_bytes": 1024 * 1024,
            "fetch_max_bytes": LARGEST_MESSAGE,
            "max_poll_records": 1000,
            "metadata_max_age_ms": 2000,  # a topic made anew under the same name shows there
            "metrics_enabled": False,
        }

    def producer(self) -> dict[str, Any]:
        return self.client() | {
            "acks": "all",
            "enable_idempotence": True,
            "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
            "max_block_ms": TOPIC_TIMEOUT_MS,
            "linger_ms": 0,
            "batch_size": 256 * 1024,
            "max_request_size": LARGEST_MESSAGE,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }

    def client(self) -> dict[str, Any]:
        """What all have in common; an admin needs no more."""
        return {
            "bootstrap_servers": [address.strip() for address in self.bootstrap.split(",")],
            "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
            "client_id": "compute-ledger",
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "retry_backoff_ms": 100,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 500,
            "security_protocol": self.security_protocol,
            "ssl_cafile": self.ssl_cafile,
            "ssl_certfile": self.ssl_certfile,
            "ssl_keyfile": self.ssl_keyfile,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
        }


def wrong_with_bootstrap(text: str) -> str | None:
    """What is wrong with the addresses of brokers that somebody gives, to be said after their name."""
    for address in text.split(","):
        if not _is_address(address.strip()):
            return f"is not HOST:PORT, or several with commas between (IPv6 as [ADDRESS]:PORT): {text!r}"
    return None


def _is_address(text: str) -> bool:
    found = ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        return False
    try:
        return found["ipv6"] is None or bool(IPv6Address(found["ipv6"]))
    except ValueError:
        return False
