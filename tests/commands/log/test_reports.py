"""Reports and beats read as they were sent, and nothing else is taken for one: they come from other machines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from commands.log.reports import Beat, decode_beat, decode_report, encode_beat, encode_report
from commands.log.signed import read_envelope
from commands.reports import HostReport, ObservationReport, OutcomeReport, Report
from domain.instance.state import PowerState
from domain.resources import VCPU, Inventory
from tests.support.samples import sample

_host = sample(HostReport)
HOST = replace(_host, facts=replace(_host.facts, cpu_info="{}", inventories={VCPU: Inventory(total=8, max_unit=8)}))
OUTCOME = replace(sample(OutcomeReport), power_state=PowerState.RUNNING)
OBSERVATION = replace(sample(ObservationReport), power_state=PowerState.CRASHED)
BEAT = sample(Beat)


@pytest.mark.parametrize("report", [HOST, OUTCOME, OBSERVATION])
def test_a_report_reads_as_it_was_sent(report: Report) -> None:
    assert decode_report(encode_report(report)) == report


def test_a_beat_reads_as_it_was_sent() -> None:
    assert decode_beat(encode_beat(BEAT)) == BEAT


def altered(report: Report, *path: str, to: Any) -> bytes:
    body = orjson.loads(encode_report(report))
    part = body["report"]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    return orjson.dumps(body)


@pytest.mark.parametrize(
    ("report", "path", "to"),
    [
        (HOST, ["epoch"], "1"),
        (HOST, ["epoch"], True),
        (HOST, ["epoch"], 0),
        (HOST, ["epoch"], 2**60),
        (HOST, ["host"], 7),
        (HOST, ["host"], None),
        (HOST, ["host_ip"], {"a": 1}),
        (HOST, ["node_id"], "not a uuid"),
        (HOST, ["facts"], []),
        (HOST, ["facts", "cpu_info"], "no JSON"),
        (HOST, ["facts", "cpu_info"], "x" * 100_000),
        (HOST, ["facts", "traits"], "abc"),
        (HOST, ["facts", "traits"], [1]),
        (HOST, ["facts", "traits"], ["T"] * 5000),
        (HOST, ["facts", "hypervisor_version"], 1.5),
        (HOST, ["facts", "inventories"], []),
        (HOST, ["facts", "inventories", VCPU, "step_size"], 0),
        (HOST, ["facts", "inventories", VCPU, "total"], -1),
        (HOST, ["facts", "inventories", VCPU, "total"], 2**40),
        (HOST, ["facts", "inventories", VCPU, "allocation_ratio"], 1e300),
        (HOST, ["facts", "inventories", VCPU, "allocation_ratio"], -1.0),
        (HOST, ["facts", "inventories", VCPU, "allocation_ratio"], "1"),
        (OUTCOME, ["task_revision"], None),
        (OUTCOME, ["succeeded"], 1),
        (OUTCOME, ["act"], "explode"),
        (OUTCOME, ["power_state"], 999),
        (OUTCOME, ["message"], ["a"]),
        (OBSERVATION, ["power_state"], -1),
        (OBSERVATION, ["generation"], "3"),
    ],
)
def test_a_report_that_nobody_could_count_with_is_none(report: Report, path: list[str], to: Any) -> None:
    """Recorded, it would stop whoever does: the scheduler, a view, a list of all hypervisors."""
    with pytest.raises(ValueError):  # noqa: PT011 (what it says differs)
        decode_report(altered(report, *path, to=to))


def test_a_report_of_a_newer_agent_may_say_more() -> None:
    assert decode_report(altered(OUTCOME, "more", to="than we know")) == OUTCOME


def test_a_report_is_not_endless() -> None:
    body = orjson.loads(encode_report(OUTCOME)) | {"padding": "x" * 600_000}
    with pytest.raises(ValueError, match="bytes"):
        decode_report(orjson.dumps(body))


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
READERS: list[Callable[[bytes], Any]] = [decode_report, decode_beat, read_envelope]


@pytest.mark.parametrize("read", READERS)
@for_all(value=json | st.fixed_dictionaries({"type": json, "report": json, "signature": json, "service": json}))
def test_whatever_else_comes_is_refused_as_such(read: Callable[[bytes], Any], value: Any) -> None:
    with suppress(ValueError):
        read(orjson.dumps(value))


@pytest.mark.parametrize("cls", [HostReport, OutcomeReport, ObservationReport])
@for_all(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(cls: type, data: st.DataObject) -> None:
    good = {HostReport: HOST, OutcomeReport: OUTCOME, ObservationReport: OBSERVATION}[cls]
    body = orjson.loads(encode_report(good))
    field = data.draw(st.sampled_from(sorted(body["report"])))
    body["report"][field] = data.draw(json)
    try:
        report = decode_report(orjson.dumps(body))
    except ValueError:
        return
    assert decode_report(encode_report(report)) == report
