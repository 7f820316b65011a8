"""What happens to the fake hypervisor from outside, from any process: power switched behind the driver's
back, calls that fail, guests that vanish; and what it remembers, for tests to judge. See `fake.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from hostagent.drivers.fake_state import connect, guest_of, record, transaction


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """`time_ns` is the machine's monotonic clock: comparable between processes."""

    time_ns: int
    instance_id: InstanceId
    did: str  # "create", "boot", "cut", "pause", "unpause", "suspend", "resume", "set_password", "destroy"
    power_state: int  # afterwards
    from_outside: bool


def switch_power(directory: Path, instance_id: InstanceId, power: PowerState) -> None:
    """Change a guest's power behind the driver's back. An absent guest raises DriverError."""
    text = str(instance_id)
    with closing(connect(directory)) as database, transaction(database):
        guest_of(database, text)
        boots = int(power == PowerState.RUNNING)
        database.execute("UPDATE guests SET power = ?, boots = boots + ? WHERE instance_id = ?", (power, boots, text))
        did = {PowerState.RUNNING: "boot", PowerState.SHUTDOWN: "cut"}.get(power, power.name.lower())
        record(database, text, did, power, from_outside=True)


def ignore_power_button(directory: Path, instance_id: InstanceId) -> None:
    """Make a guest one that never shuts down when asked, so that its power has to be cut."""
    with closing(connect(directory)) as database:
        database.execute("UPDATE guests SET ignores_button = 1 WHERE instance_id = ?", (str(instance_id),))


def lose_guest(directory: Path, instance_id: InstanceId) -> None:
    """Make a guest vanish, as if an operator had undefined it."""
    with closing(connect(directory)) as database, transaction(database):
        database.execute("DELETE FROM guests WHERE instance_id = ?", (str(instance_id),))
        record(database, str(instance_id), "destroy", PowerState.NO_STATE, from_outside=True)


def add_stranger(directory: Path, name: str) -> None:
    """Add a guest that is not the ledger's."""
    with closing(connect(directory)) as database:
        database.execute("INSERT OR IGNORE INTO strangers VALUES (?)", (name,))


def fail_next(
    directory: Path, call: str, message: str = "told to fail", *, times: int = 1, unreachable: bool = False
) -> None:
    """Make the next `times` calls of the driver's method `call` raise before they do anything."""
    with closing(connect(directory)) as database:
        database.execute("INSERT OR REPLACE INTO faults VALUES (?, ?, ?, ?)", (call, message, unreachable, times))


def heal(directory: Path) -> None:
    """Forget every failure that is still due."""
    with closing(connect(directory)) as database:
        database.execute("DELETE FROM faults")


def history(directory: Path) -> list[HistoryEntry]:
    """All that was ever done to guests here, oldest first."""
    with closing(connect(directory)) as database:
        rows = database.execute(
            "SELECT time_ns, instance_id, did, power, from_outside FROM history ORDER BY sequence"
        ).fetchall()
    return [
        HistoryEntry(time_ns, InstanceId(UUID(text)), did, power, bool(from_outside))
        for time_ns, text, did, power, from_outside in rows
    ]


def creates(directory: Path) -> dict[InstanceId, int]:
    """How often each guest was made; once is right, unless it was destroyed in between."""
    counted: dict[InstanceId, int] = {}
    for entry in history(directory):
        if entry.did == "create":
            counted[entry.instance_id] = counted.get(entry.instance_id, 0) + 1
    return counted


def ran_twice(directories: Iterable[Path]) -> set[InstanceId]:
    """Guests that were running on two of these hypervisors of one machine at the same time, ever."""
    entries = sorted(
        ((entry, directory) for directory in directories for entry in history(directory)),
        key=lambda pair: pair[0].time_ns,
    )
    running: dict[InstanceId, set[Path]] = {}
    twice = set()
    for entry, directory in entries:
        places = running.setdefault(entry.instance_id, set())
        if entry.power_state in (PowerState.RUNNING, PowerState.PAUSED):
            places.add(directory)
        else:
            places.discard(directory)
        if len(places) > 1:
            twice.add(entry.instance_id)
    return twice
