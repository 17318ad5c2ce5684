# SPDX-License-Identifier: Apache-2.0
"""What a routed turn costs from Python, beside the cheapest call that pybind11 can make.

    python benchmarks/python/call_cost.py [--limit RATIO]

Each figure is the fastest of many short rounds in ns a call, the loop included, all of them taken
in turn in one process, so that a slow moment of the machine hits every row alike. `empty function`
is the floor: a module's function without arguments that does nothing. `empty method` is one on an
object, which is what route() is. Not measured: contention, many replicas, policies in Python beyond
the one row. Fails when route + finish costs more than RATIO (default 8) empty functions.
"""

from __future__ import annotations

import argparse
import sys
import timeit

import limpet
from limpet import _core

ROUNDS = 300
CALLS = 1000
SUBJECT = "route + finish, sticky"
FLOOR = "empty function"


class FewestInFlight:
    """The least that a policy in Python does."""

    def score(self, load: limpet.ReplicaLoad, _context: limpet.ScoreContext, /) -> float:
        return load.in_flight


def new_router(scorer: FewestInFlight | None = None) -> limpet.Router:
    router = limpet.Router([f"gpu{i}" for i in range(4)], max_num_seqs=64, scorer=scorer)
    router.route("conversation").finish()
    return router


def measured() -> dict[str, float]:
    router, scripted = new_router(), new_router(scorer=FewestInFlight())
    usage = limpet.Usage(prompt_tokens=1000, cached_tokens=900, completion_tokens=10)
    statements = {
        FLOOR: "empty()",
        "empty method": "instant.now()",
        SUBJECT: "router.route(key).finish()",
        "route + finish with usage": "router.route(key).finish(usage)",
        "with route: pass": "with router.route(key): pass",
        "route + finish, balanced": "router.route(None).finish()",
        "first turn": "router.route(new).fail()",
        "first turn, scorer in Python": "scripted.route(new).fail()",
        "plan": "router.plan(key)",
        "snapshot, 4 replicas": "router.snapshot()",
    }
    names = {
        "empty": _core._empty,
        "instant": limpet.ManualClock(),
        "router": router,
        "scripted": scripted,
        "key": "conversation",
        "new": "another",  # fail() takes the pin of a first turn away, so every turn is one
        "usage": usage,
    }
    timers = {name: timeit.Timer(code, globals=names) for name, code in statements.items()}
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(CALLS) / CALLS * 1e9)

    # All of it was real: every turn counted, none left in flight.
    rows = router.snapshot().replicas
    assert sum(row.sticky for row in rows) == 3 * ROUNDS * CALLS
    assert sum(row.balanced for row in rows) == ROUNDS * CALLS
    assert sum(row.placed for row in rows) == ROUNDS * CALLS + 1
    assert sum(row.in_flight for row in rows) == 0
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=float, default=8.0, help="empty functions a turn may cost")
    limit = parser.parse_args().limit
    best = measured()
    print(f"limpet {limpet.__version__}, Python {sys.version.split()[0]}")
    for name, cost in best.items():
        print(f"{name:34} {cost:8.0f} ns {cost / best[FLOOR]:7.1f} x {FLOOR}")
    ratio = best[SUBJECT] / best[FLOOR]
    print(f"{SUBJECT}: {ratio:.1f} empty functions, limit {limit:g}")
    return 0 if ratio <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
