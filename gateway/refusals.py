"""What stops a start, or a command on a directory, with one clear line instead of a traceback."""

from __future__ import annotations

from commands.event_store import StoreUnavailable
from commands.neighbours.standalone.accounts import AccountsInvalid
from commands.neighbours.standalone.tokens import TokenKeyInvalid
from commands.records import RecordDamaged
from commands.vault import VaultDamaged
from domain.serialization import UnknownEventType
from gateway.embedded import DirectoryInUse, DriverChanged
from gateway.policy import PolicyInvalid
from hostagent.agent import HostIdentityChanged
from hostagent.drivers.protocol import DriverError
from hostagent.journal import JournalDamaged
from projections.rebuild import AlreadyRebuilding, UnknownView

REFUSALS: tuple[type[Exception], ...] = (
    AccountsInvalid,
    AlreadyRebuilding,
    DirectoryInUse,
    DriverChanged,
    DriverError,
    HostIdentityChanged,
    JournalDamaged,
    OSError,
    PolicyInvalid,
    RecordDamaged,
    StoreUnavailable,
    TokenKeyInvalid,
    UnknownEventType,
    UnknownView,
    VaultDamaged,
)
