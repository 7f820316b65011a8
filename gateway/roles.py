"""The roles that the processes of a distributed ledger play."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a process of a distributed ledger does."""

    GATEWAY = "gateway"  # any number: HTTP
    MANAGERS = "managers"  # of each manager one active: build, orders, deadlines
    PROJECTIONS = "projections"  # the views of one machine's gateways; each process has its own, all are live
    RELAY = "relay"  # one active: from the store to Kafka
    INBOX = "inbox"  # one active: reports into the store
    AGENT = "agent"  # one a host


NOT_AGENT = frozenset(Role) - {Role.AGENT}
USED_BY = {  # options of `up` that not every process uses
    "listen": frozenset({Role.GATEWAY}),
    "hosts": frozenset[Role](),  # the embedded ledger alone
    "driver": frozenset({Role.AGENT}),
    "libvirt_uri": frozenset({Role.AGENT}),
    "credential": frozenset({Role.AGENT}),
    "gateway": frozenset({Role.AGENT}),
    "store": NOT_AGENT,
}


class RoleNeeds(Exception):
    """A role was asked for that cannot be played; the message says what it lacks."""
