# SPDX-License-Identifier: Apache-2.0
"""Many Python threads on one router: counts come out exact."""

from __future__ import annotations

import threading
from collections.abc import Callable

import limpet
import pytest


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "pins", [limpet.ShardedPins(), limpet.LocalPins(), limpet.RendezvousPins()]
)
def test_turns_readings_and_changes_from_many_threads_leave_no_count_behind(
    pins: limpet.ShardedPins | limpet.LocalPins | limpet.RendezvousPins,
) -> None:
    router = limpet.Router([f"gpu{i}" for i in range(4)], max_num_seqs=8, pins=pins)
    page = "vllm:kv_cache_usage_perc 0.5\n" * 500

    def work(number: int) -> None:
        for i in range(400):
            lease = router.route(f"conversation {i % 23}", prompt_tokens=i)
            if i % 20 == number:
                router.observe("gpu0", page)
                router.snapshot()
                router.set_down("gpu3")
                router.rebalance(5, idle=0)
                router.set_up("gpu3")
            (lease.finish, lease.cancel, lease.fail)[i % 3]()

    in_threads(6, work)
    rows = router.snapshot().replicas
    assert [(row.in_flight, row.in_flight_tokens) for row in rows] == [(0, 0)] * 4
    assert sum(row.placed + row.sticky + row.spilled_in + row.moved for row in rows) == 6 * 400


def test_a_lease_may_end_in_another_thread() -> None:
    router = limpet.Router(["gpu0"])
    leases = [router.route(f"conversation {i}") for i in range(60)]

    def work(number: int) -> None:
        for lease in leases[number % 2 :]:
            lease.finish()

    in_threads(6, work)
    assert router.snapshot().replicas[0].in_flight == 0


def test_policies_in_python_are_asked_by_many_threads() -> None:
    class Scorer:
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext, /) -> float:
            return load.in_flight / context.candidates

    router = limpet.Router(["gpu0", "gpu1"], scorer=Scorer(), pins=limpet.RendezvousPins())

    def work(number: int) -> None:
        for i in range(200):
            with router.route(f"conversation {number} {i}"):
                pass

    in_threads(4, work)
    assert [row.in_flight for row in router.snapshot().replicas] == [0, 0]


def test_new_replicas_join_while_turns_are_routed() -> None:
    router = limpet.Router(["gpu0"])

    def work(number: int) -> None:
        for i in range(50):
            if number == 0:
                router.add_replica(f"extra{i}")
            lease = router.route(f"conversation {number} {i}")
            assert lease.replica.name == repr(lease).split("'")[1]
            if number == 0 and i % 2:
                router.remove(f"extra{i}")
            lease.finish()

    in_threads(4, work)
    rows = router.snapshot().replicas
    assert len(rows) == 26
    assert all(row.in_flight == 0 for row in rows)
