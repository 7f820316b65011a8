"""Views as their readers see them: every row of every table, whatever generation is shown."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from projections.catalogue import VIEWS


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        names = [table for make in VIEWS.values() for table in make().tables]
        return {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}
