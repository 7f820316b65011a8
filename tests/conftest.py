"""Fixtures that every test may ask for, and how much Hypothesis may try."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.hypervisors import guest_images, libvirtd
from tests.support.ledger import Ledger
from tests.support.region import region

settings.register_profile(
    "desk", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("ci", parent=settings.get_profile("desk"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One host, two flavors, at rest."""
    made = Ledger(tmp_path).with_flavors()
    made.settle()
    yield made
    made.close()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, ("alpha", "beta")).with_flavors()
    made.settle()
    yield made
    made.close()


__all__ = ["guest_images", "libvirtd", "region"]
