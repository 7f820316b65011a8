"""identity.toml: read again when it changes; while it cannot be read, what it said before stays in force.

Several processes may change it, one at a time.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from commands.neighbours.standalone.accounts import Accounts, AccountsInvalid, parse, to_toml
from commands.neighbours.standalone.lock_file import locked
from commands.neighbours.standalone.private_file import stamp_of, write_private

log = logging.getLogger(__name__)


class AccountsFile:
    def __init__(self, path: Path, lock_file: Path) -> None:
        """Raises:
        AccountsInvalid: the file cannot be used.
        """
        self._path = path
        self._lock_file = lock_file
        self._lock = Lock()
        self._stamp = stamp_of(path)
        self._accounts = self._read()

    def current(self) -> Accounts:
        """The accounts as the file has them; as it last had them while it cannot be read."""
        if stamp_of(self._path) != self._stamp:
            with self._lock:
                self._reread()
        return self._accounts

    def change(self, alter: Callable[[Accounts], Accounts]) -> Accounts:
        """Write what `alter` makes of the accounts.

        Raises:
            AccountsInvalid: the file as it is now cannot be used, and is left as it is for its editor.
        """
        with locked(self._lock_file):
            after = alter(self._read())
            text = to_toml(after)
            parse(text)  # what cannot be read back is not written
            written = write_private(self._path, text.encode())
            with self._lock:
                self._accounts, self._stamp = after, written  # in this order: `current` looks at the stamp first
            return after

    def _reread(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        try:
            self._accounts = self._read()
        except AccountsInvalid as error:
            log.error("%s; what it said before stays in force", error)
        else:
            log.info("%s was read again", self._path)
        self._stamp = stamp  # a bad file is complained of once, not with every request

    def _read(self) -> Accounts:
        try:
            if self._path.stat().st_mode & 0o077:
                self._path.chmod(0o600)  # an editor may have made it anew
            return parse(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, AccountsInvalid) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # says nothing of the file: what changed there is not to be missed for it
            raise AccountsInvalid(f"{self._path}: {error}") from None
