"""That the benchmarks can be run, and tell numbers right; what they measure is nobody's test."""

from __future__ import annotations

import argparse
import os

import pytest

from tests.benchmarks import appends, lag, run
from tests.benchmarks.processes import busy_s, cpu_s, memory_mib
from tests.benchmarks.table import Table, percentiles

BUCKETS = {0.005: 10.0, 0.01: 50.0, 0.1: 98.0, 1800.0: 99.0, float("inf"): 100.0}
METRICS = """\
compute_ledger_event_age_seconds_bucket{consumer="build",le="0.005"} 3.0
compute_ledger_event_age_seconds_bucket{consumer="build",le="+Inf"} 4.0
compute_ledger_consumer_lag_positions{consumer="build"} 12.0
compute_ledger_events_handled_total{consumer="build"} 70.0
"""


@pytest.mark.parametrize("module", [run, appends, lag])
def test_arguments_have_defaults(module: object) -> None:
    parser: argparse.ArgumentParser = module.parser()  # type: ignore[attr-defined]
    assert all(value is not None for value in vars(parser.parse_args([])).values())


def test_deployments_and_drivers_are_chosen_by_name() -> None:
    chosen = run.parser().parse_args(["--deployments", "embedded", "--drivers", "fake,test", "--servers", "5"])
    assert (chosen.deployments, chosen.drivers, chosen.servers) == (("embedded",), ("fake", "test"), 5)


@pytest.mark.parametrize("arguments", [["--deployments", "other"], ["--drivers", ""]])
def test_what_is_not_there_cannot_be_chosen(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run.parser().parse_args(arguments)


def test_writers_are_a_list_of_numbers() -> None:
    assert appends.parser().parse_args(["--writers", "1,8"]).writers == (1, 8)


def test_a_row_of_one_column_stands_where_it_came_up() -> None:
    table = Table("title", ["one", "two"])
    table.add("one", "first", "1")
    table.add("one", "last", "2", aim="3")
    table.add("two", "first", "4")
    table.add("two", "between", "5")
    table.add("two", "last", "6")
    assert [line.split() for line in str(table).splitlines() if "-" not in line] == [
        ["title", "one", "two", "aim"],
        ["first", "1", "4"],
        ["between", "5"],
        ["last", "2", "6", "3"],
    ]


def test_nothing_is_told_twice() -> None:
    table = Table("title", ["one"])
    table.add("one", "first", "1")
    with pytest.raises(ValueError, match="told already"):
        table.add("one", "first", "2")


def test_percentiles_are_of_all_that_was_measured() -> None:
    assert percentiles([number / 1000 for number in range(1, 101)]) == "50.5 / 100.0 ms"


@pytest.mark.parametrize(
    ("share", "told"), [(0.1, "under 5 ms"), (0.5, "10 ms"), (0.74, "55 ms"), (0.995, "over 1800 s")]
)
def test_a_quantile_is_told_as_well_as_the_buckets_know_it(share: float, told: str) -> None:
    assert lag.quantile(BUCKETS, share) == told


def test_of_nothing_there_is_no_quantile() -> None:
    assert (lag.quantile({}, 0.5), lag.quantile({0.1: 0.0, float("inf"): 0.0}, 0.5)) == ("–", "–")


def test_processes_are_counted_together() -> None:
    before, both = lag.Counts(), lag.Counts()
    before.add(METRICS)
    both.add(METRICS)
    both.add(METRICS.replace("12.0", "2.0"))
    assert both.ages_since(before, "build") == {0.005: 3.0, float("inf"): 4.0}
    assert (both.lags, both.handled) == ({"build": 12}, {"build": 140})


def test_a_process_uses_time_and_memory() -> None:
    assert 0 < cpu_s(os.getpid()) < busy_s()
    assert memory_mib(os.getpid()) > 1
