"""Choose nodes for one request: filter, check, weigh; say why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commands.instance.schedule import Choice
from commands.scheduling.columns import Columns
from domain.instance.events import Candidate, FilterResult, SchedulingReason
from domain.scheduling.filters import FILTERS
from domain.scheduling.request_spec import RequestSpec

ALTERNATES = 3  # the best and two more (Nova's [scheduler] max_attempts)
CANDIDATES_RECORDED = 5


@dataclass(frozen=True, slots=True)
class Placed:
    choices: tuple[Choice, ...]  # the best first; none: no valid host
    row: int  # of the best, −1 where there is none
    reason: SchedulingReason


def choose(spec: RequestSpec, columns: Columns) -> Placed:
    """The best hosts for a request as the columns stand, and what each filter left."""
    alive = np.ones(len(columns), dtype=bool)
    results = []
    for name, passing in columns.passing(spec):
        alive &= passing
        results.append(FilterResult(filter=name, hosts_left=int(alive.sum())))
    rows = np.flatnonzero(alive)
    weights = columns.weights(rows, spec.group) if len(rows) else np.zeros(0)
    best_first = np.argsort(-weights, kind="stable")
    choices: list[tuple[int, Choice, float]] = []
    rejected = 0
    for row, weight in zip(rows[best_first], weights[best_first], strict=True):
        host = columns.host_state(int(row))
        if not all(rule(spec, host) for _, rule in FILTERS):
            rejected += 1
            continue
        choice = Choice(
            host=host.host,
            node_id=host.node_id,
            service_id=host.service_id,
            availability_zone=host.availability_zone,
        )
        choices.append((int(row), choice, float(weight)))
        if len(choices) >= max(ALTERNATES, CANDIDATES_RECORDED):
            break
    if rejected and not choices:
        results[-1] = FilterResult(filter=results[-1].filter, hosts_left=0)
    reason = SchedulingReason(
        hosts_considered=len(columns),
        filters=tuple(results),
        candidates=tuple(Candidate(host=c.host, weight=round(w, 6)) for _, c, w in choices[:CANDIDATES_RECORDED]),
    )
    return Placed(tuple(c for _, c, _ in choices[:ALTERNATES]), choices[0][0] if choices else -1, reason)


def no_valid_host(reason: SchedulingReason) -> str:
    """The fault a user sees, with the filter that left nothing (Nova's NoValidHost)."""
    culprit = next((f.filter for f in reason.filters if f.hosts_left == 0), "")
    why = (
        f"{culprit}: 0 of {reason.hosts_considered} hosts left" if reason.hosts_considered else "no host is registered"
    )
    return f"No valid host was found. There are not enough hosts available. ({why})"
