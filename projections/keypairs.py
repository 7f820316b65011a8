"""Key pairs by user and name."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from domain.identifiers import category_of
from domain.keypair import KeypairCreated, KeypairDeleted
from domain.recorded import RecordedEvent
from projections.render import precise


class KeypairsView:
    name = "keypairs"
    form = 1
    tables: Sequence[str] = ("keypairs",)

    def create(self, tables: dict[str, str]) -> list[str]:
        table = tables["keypairs"]
        return [
            f"CREATE TABLE {table} (user_id TEXT, keypair_id INTEGER, name TEXT NOT NULL, type TEXT NOT NULL, "
            "public_key TEXT NOT NULL, fingerprint TEXT NOT NULL, created_at TEXT NOT NULL, "
            "PRIMARY KEY (user_id, keypair_id)) WITHOUT ROWID",
            f"CREATE INDEX {table}_name ON {table} (user_id, name)",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        table = tables["keypairs"]
        for record in records:
            if category_of(record.stream) != "keypair":
                continue
            match record.event:
                case KeypairCreated() as made:
                    db.execute(
                        f"INSERT INTO {table} VALUES (?,?,?,?,?,?,?)",
                        (
                            made.user_id,
                            made.keypair_id,
                            made.name,
                            made.type,
                            made.public_key,
                            made.fingerprint,
                            precise(record.time),
                        ),
                    )
                case KeypairDeleted() as gone:
                    db.execute(
                        f"DELETE FROM {table} WHERE user_id = ? AND keypair_id = ?", (gone.user_id, gone.keypair_id)
                    )
