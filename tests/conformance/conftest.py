"""A ledger with something of everything in it, for those who judge its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.environment import Unavailable
from tests.conformance.judge import NovaSchemas, nova_schemas
from tests.support.http_client import User
from tests.support.ledger_process import LedgerProcess, running_ledger


@pytest.fixture(scope="session")
def schemas() -> NovaSchemas:
    try:
        return nova_schemas()
    except Unavailable as unavailable:
        pytest.skip(f"Nova's schemas cannot be had: {unavailable}")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    with running_ledger(Path(tmp_path_factory.mktemp("conformance")), driver="fake", hosts=2) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def admin(furnished: LedgerProcess) -> Iterator[User]:
    with User(furnished, "admin") as user:
        yield user
