"""What is refused is counted each time and said now and then."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry, Counter

from commands.refused import Refused


def test_the_same_is_said_once_in_ten_seconds_with_how_often_it_was(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    counter = Counter("things_refused", "In this test.", ["reason"], registry=CollectorRegistry())
    refused = Refused("report", counter, lambda: now)
    caplog.set_level(logging.INFO)

    for _ in range(100):
        refused.note("revoked", "alpha", "its key is revoked")
    refused.note("revoked", "beta", "another host")
    refused.note("unsigned", "", "another reason")
    now = 11.0
    refused.note("revoked", "alpha", "its key is revoked")

    assert [record.getMessage() for record in caplog.records] == [
        "report of host alpha refused, revoked: its key is revoked",
        "report of host beta refused, revoked: another host",
        "report refused, unsigned: another reason",
        "report of host alpha refused, revoked: its key is revoked (and 99 more since)",
    ]
    assert counter.labels("revoked")._value.get() == 102


def test_a_line_is_never_endless_and_neither_is_what_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter("things_refused", "In this test.", ["reason"], registry=CollectorRegistry())
    refused = Refused("report", counter, lambda: 0.0)

    for number in range(10_050):
        refused.note("not_yours", f"host-{number}", "x" * 100_000)

    assert len(caplog.records[0].getMessage()) < 600
    assert len(refused._said) <= 10_000
