"""What a field of an event may show: plain, personal, or sealed. Read by `domain/serialization.py`.

Plain is the default. A personal field is encrypted from the first record under the key of its *subject*, the user whose
data it is; destroy the key and the field reads as erased for ever, with nothing else changed. A sealed field is only a
reference to a payload in the vault (a password, user data): the value is never in an event at all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Personal:
    """Mark of a personal field; `subject` names the field of the same event that holds the user's id."""

    subject: str = "user_id"


@dataclass(frozen=True, slots=True)
class Sealed:
    """Mark of a reference into the vault."""


PERSONAL = Personal()
SEALED = Sealed()
ERASED = "[erased]"
