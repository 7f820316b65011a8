"""Measures a ledger from outside, as its clients see it, and prints a table. Asserts nothing about time.

    python -m tests.benchmarks.run [--deployments embedded,distributed] [--drivers fake,test] [--servers N] [--events N]

Each gets a fresh directory and processes of its own; the clients are threads of this one. Beside it: `appends.py` for the
store alone, `lag.py` for consumers under a steady load.
"""

from __future__ import annotations

import argparse
from functools import partial

from tests.benchmarks import measures
from tests.benchmarks.deployments import DEPLOYMENTS, GATEWAYS, HOSTS
from tests.benchmarks.table import Table, load, machine, some_of

HOW = (
    "times are p50 / p99; the clients share the machine, and ask for one server every 2 ms; an event's time is when its "
    "transaction began; memory is what is resident, of PostgreSQL its processes' shares; distributed: "
    f"{GATEWAYS} gateways in turn, every other role twice (who stands by costs memory too), {HOSTS} hosts"
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tests.benchmarks.run", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--deployments", type=some_of(*DEPLOYMENTS), default=tuple(DEPLOYMENTS))
    made.add_argument("--drivers", type=some_of("fake", "test"), default=("fake",))
    made.add_argument("--servers", type=int, default=200, help="that 16 clients make in one round")
    made.add_argument("--events", type=int, default=20_000, help="to rebuild views from; 0: leave that out")
    return made


def main() -> None:
    chosen = parser().parse_args()
    columns = {(d, driver): f"{d}, {driver}" for driver in chosen.drivers for d in chosen.deployments}
    table, load_before = Table("Compute Ledger", list(columns.values())), load()
    for (deployment, driver), column in columns.items():
        show: measures.Show = partial(table.add, column)
        with DEPLOYMENTS[deployment](driver) as running:
            measures.start(running, show)
            measures.memory(running, show)
            measures.at_rest(running, show)
            measures.one_at_a_time(running, show)
            measures.many_clients(running, show, chosen.servers)
            measures.reads(running, show)
            measures.deletes(running, show)
            if chosen.events:
                measures.rebuild(running, show, chosen.events)
            measures.memory_at_the_end(running, show)
    print(f"\n{table}\n\n{machine()}, load {load_before} before; {HOW}")


if __name__ == "__main__":
    main()
