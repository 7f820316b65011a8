"""What stops a start, or a command on a directory, with one clear line instead of a traceback."""

from __future__ import annotations

from commands.event_store import StoreUnavailable
from commands.log.port import LogUnavailable
from commands.neighbours.standalone.accounts import AccountsInvalid
from commands.neighbours.standalone.tokens import TokenKeyInvalid
from commands.records import RecordDamaged
from commands.vault import NotBegun, VaultDamaged
from domain.serialization import UnknownEventType
from gateway.directory_lock import DirectoryInUse
from gateway.hosts import DriverChanged
from gateway.policy import PolicyInvalid
from gateway.roles import RoleNeeds
from hostagent.agent_api import AgentApiError
from hostagent.drivers.protocol import DriverError
from hostagent.host_key import CredentialInvalid
from hostagent.journal import HostIdentityChanged, JournalDamaged
from projections.rebuild import AlreadyRebuilding, UnknownView

REFUSALS: tuple[type[Exception], ...] = (
    AccountsInvalid,
    AgentApiError,
    AlreadyRebuilding,
    CredentialInvalid,
    DirectoryInUse,
    DriverChanged,
    DriverError,
    HostIdentityChanged,
    JournalDamaged,
    LogUnavailable,
    NotBegun,
    OSError,
    PolicyInvalid,
    RecordDamaged,
    RoleNeeds,
    StoreUnavailable,
    TokenKeyInvalid,
    UnknownEventType,
    UnknownView,
    VaultDamaged,
)
