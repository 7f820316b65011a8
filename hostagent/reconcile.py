"""Pure: what is wanted × what is observed × what the journal knows → what to do next for one guest.

Planning again after the action was taken plans nothing more. Absence from what is wanted never destroys anything; only a
purge order does. A guest that nobody asked to start is not started: its user may have shut it down.
"""

from __future__ import annotations

from dataclasses import dataclass

from commands.orders import Act, Order, WantedPower
from domain.instance.state import PowerState
from hostagent.drivers.protocol import ObservedGuest
from hostagent.journal import Entry


@dataclass(frozen=True, slots=True)
class Perform:
    """Call the driver for the pending request, then report."""

    act: Act


@dataclass(frozen=True, slots=True)
class Report:
    """The request is settled; say so (again)."""

    outcome: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """The request cannot be met by this host."""

    act: Act
    message: str


@dataclass(frozen=True, slots=True)
class Enforce:
    """No request is pending, but the guest runs though it is wanted off: cut its power."""


@dataclass(frozen=True, slots=True)
class Observe:
    """No request is pending, and the guest's power is not what the ledger knows: tell it."""

    power_state: int


Action = Perform | Report | Fail | Enforce | Observe

_OFF = (PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.NO_STATE)


@dataclass(frozen=True, slots=True)
class RefusedOrder:
    reason: str  # a key of `REFUSED`
    message: str


REFUSED = {  # which orders are not taken, in words
    "incarnation": "of another ledger",
    "epoch": "of older sessions",
    "replaced": "of a session of this host that another agent opened",
    "ended": "for guests whose time here is over",
    "generation": "that are older than one already taken",
}


def refuses(order: Order, entry: Entry, epoch: int, session: str = "", incarnation: str = "") -> RefusedOrder | None:
    """Why an order is not taken: it is another ledger's, of an older host session, older than one already taken, of a
    residency that has ended; or of a newer session, which another agent has opened in this one's place. `incarnation`:
    of the ledger that this host belongs to; empty: whichever gives it orders."""
    if incarnation and order.incarnation != incarnation:
        return RefusedOrder("incarnation", f"it is of ledger {order.incarnation}, and this host is {incarnation}'s")
    if order.epoch < max(epoch, entry.epoch):
        return RefusedOrder("epoch", f"epoch {order.epoch} is older than {max(epoch, entry.epoch)}")
    if order.epoch > epoch or (order.session and session and order.session != session):
        return RefusedOrder("replaced", f"epoch {order.epoch} is of a session of this host that another agent opened")
    if entry.ended is not None and order.generation <= entry.generation:
        return RefusedOrder("ended", f"the guest's time here ended with generation {entry.generation}")
    if order.generation < entry.generation:
        return RefusedOrder("generation", f"generation {order.generation} is lower than {entry.generation}")
    return None


def reconcile(order: Order, observed: ObservedGuest | None, entry: Entry) -> Action | None:
    """The one thing to do for this guest, or nothing."""
    if observed is None and entry.purged and order.act not in (Act.SPAWN, Act.PURGE) and entry.outcome is not None:
        return Report(entry.outcome)  # a delete that the ledger knows only to have failed has been done since
    if order.act is not None:
        if entry.settled_revision >= order.task_revision:
            return Report(entry.outcome) if entry.outcome is not None else None
        if observed is None and order.act not in (Act.SPAWN, Act.PURGE):
            return Fail(order.act, "the hypervisor does not hold this guest")
        return Perform(order.act)
    power_state = PowerState.NO_STATE if observed is None else observed.power_state
    if order.wanted is WantedPower.OFF and power_state not in _OFF:
        return Enforce()
    return Observe(power_state) if power_state != order.power_state else None
