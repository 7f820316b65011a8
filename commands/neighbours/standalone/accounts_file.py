"""identity.toml: read again when it changes; while it cannot be read, what it said before stays in force."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from commands.neighbours.standalone.accounts import Accounts, AccountsInvalid, parse, to_toml
from commands.neighbours.standalone.private_file import write_private

log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]  # time of the last write, size, inode


class AccountsFile:
    def __init__(self, path: Path) -> None:
        """Raises:
        AccountsInvalid: the file cannot be used.
        """
        self._path = path
        self._lock = Lock()
        self._stamp = self._stamp_now()
        self._accounts = self._read()

    def current(self) -> Accounts:
        """The accounts as the file has them; as it last had them while it cannot be read."""
        if self._stamp_now() != self._stamp:
            with self._lock:
                self._reread()
        return self._accounts

    def change(self, alter: Callable[[Accounts], Accounts]) -> Accounts:
        """Write what `alter` makes of the accounts.

        Raises:
            AccountsInvalid: the file as it is now cannot be used, and is left as it is for its editor.
        """
        with self._lock:
            before = self._read()
            after = alter(before)
            text = to_toml(after)
            parse(text)  # what cannot be read back is not written
            write_private(self._path, text.encode())
            self._stamp = self._stamp_now()
            self._accounts = after
            return after

    def _reread(self) -> None:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp  # a bad file is complained of once, not with every request
        try:
            self._accounts = self._read()
        except AccountsInvalid as error:
            log.error("%s; what it said before stays in force", error)
        else:
            log.info("%s was read again", self._path)

    def _read(self) -> Accounts:
        try:
            if self._path.stat().st_mode & 0o077:
                self._path.chmod(0o600)  # an editor may have made it anew
            return parse(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, AccountsInvalid) as error:
            raise AccountsInvalid(f"{self._path}: {error}") from None

    def _stamp_now(self) -> Stamp:
        try:
            status = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return (status.st_mtime_ns, status.st_size, status.st_ino)
