# SPDX-License-Identifier: Apache-2.0
"""A slot is returned exactly once, however its turn ends and whatever else is gone by then."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref

import limpet
import pytest
from limpet import Outcome


@pytest.fixture
def router() -> limpet.Router:
    return limpet.Router(["gpu0", "gpu1"], max_num_seqs=32)


def in_flight(router: limpet.Router) -> int:
    return sum(row.in_flight for row in router.snapshot().replicas)


def failed(router: limpet.Router) -> int:
    return sum(row.failed for row in router.snapshot().replicas)


@pytest.mark.parametrize("end", ["finish", "cancel", "fail"])
def test_the_first_ending_counts_and_the_others_do_nothing(router: limpet.Router, end: str) -> None:
    lease = router.route("conversation")
    assert in_flight(router) == 1
    getattr(lease, end)()
    assert not lease.held
    for other in (lease.fail, lease.finish, lease.cancel):
        other()
    assert in_flight(router) == 0
    assert failed(router) == (1 if end == "fail" else 0)


def test_a_first_byte_ends_the_prefill_and_not_the_turn(router: limpet.Router) -> None:
    lease = router.route("conversation", prompt_tokens=700)
    pending = [row.pending_prefill_tokens for row in router.snapshot().replicas]
    assert sorted(tokens for tokens in pending if tokens is not None) == [0, 700]
    lease.first_byte()
    lease.first_byte()
    assert lease.held
    assert [row.pending_prefill_tokens for row in router.snapshot().replicas] == [0, 0]
    lease.finish()
    lease.first_byte()
    assert [row.pending_prefill_tokens for row in router.snapshot().replicas] == [0, 0]


def test_with_finishes_at_the_end_of_the_block(router: limpet.Router) -> None:
    with router.route("conversation") as lease:
        assert in_flight(router) == 1
    assert not lease.held
    assert in_flight(router) == 0
    assert failed(router) == 0


def test_an_exception_in_with_cancels_and_passes(router: limpet.Router) -> None:
    with pytest.raises(RuntimeError, match="hang-up"), router.route("conversation") as lease:
        raise RuntimeError("hang-up")
    assert not lease.held
    assert failed(router) == 0
    assert router.plan("conversation").outcome is Outcome.sticky  # the pin stays


def test_fail_in_with_blames_the_replica(router: limpet.Router) -> None:
    with pytest.raises(ConnectionError), router.route("conversation") as lease:
        try:
            raise ConnectionError
        except ConnectionError:
            lease.fail()
            raise
    assert failed(router) == 1
    assert router.plan("conversation").outcome is Outcome.placed  # its first turn's pin is gone


async def test_a_cancelled_task_returns_its_slot(router: limpet.Router) -> None:
    async def serve() -> None:
        with router.route("conversation"):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    assert in_flight(router) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert in_flight(router) == 0
    assert failed(router) == 0


def test_a_lease_that_is_dropped_is_cancelled(router: limpet.Router) -> None:
    lease = router.route("conversation")
    del lease
    gc.collect()
    assert in_flight(router) == 0
    assert router.plan("conversation").outcome is Outcome.sticky


def test_a_lease_keeps_its_router_alive() -> None:
    class Scorer:
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext, /) -> float:
            return float(load.in_flight + context.position)

    scorer = Scorer()
    alive = weakref.ref(scorer)
    router = limpet.Router(["gpu0"], scorer=scorer)
    lease = router.route("conversation")
    del router, scorer
    gc.collect()
    assert alive() is not None
    assert lease.replica.name == "gpu0"
    lease.finish(limpet.Usage(prompt_tokens=10))
    assert lease.decision.replica is lease.replica
    del lease
    gc.collect()
    assert alive() is None


def test_a_router_that_its_policy_refers_to_is_collected() -> None:
    class Scorer:
        router: limpet.Router | None = None

        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext, /) -> float:
            return float(load.in_flight + context.position)

    scorer = Scorer()
    alive = weakref.ref(scorer)
    scorer.router = limpet.Router(["gpu0"], scorer=scorer)
    scorer.router.route("conversation").finish()
    del scorer
    gc.collect()
    assert alive() is None


def test_decisions_replicas_and_snapshots_outlive_the_router() -> None:
    router = limpet.Router(["gpu0"])
    decision, snapshot = router.plan("conversation"), router.snapshot()
    replica = router.route("conversation").replica
    explanation = router.explain("conversation")
    del router
    gc.collect()
    assert decision.replica is replica
    assert snapshot.replicas[0].name == "gpu0"
    assert explanation.rows[0].name == "gpu0"
    assert str(explanation)


def test_many_leases_leave_no_object_behind(router: limpet.Router) -> None:
    def run() -> None:
        for i in range(1000):
            with router.route(f"conversation {i % 10}", prompt_tokens=5) as lease:
                _ = lease.decision, lease.replica, repr(lease)

    run()
    gc.collect()
    before = sys.getrefcount(router), len(gc.get_objects())
    run()
    gc.collect()
    assert sys.getrefcount(router) == before[0]
    assert abs(len(gc.get_objects()) - before[1]) < 50


def test_usage_says_what_the_engine_said() -> None:
    usage = limpet.Usage(prompt_tokens=11_043, cached_tokens=10_752, completion_tokens=256)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (
        11_043,
        10_752,
        256,
    )
    assert limpet.Usage().cached_tokens is None
    assert usage == limpet.Usage(prompt_tokens=11_043, cached_tokens=10_752, completion_tokens=256)
    assert len({usage, limpet.Usage()}) == 2
    assert repr(limpet.Usage(prompt_tokens=3)) == (
        "Usage(prompt_tokens=3, cached_tokens=None, completion_tokens=0)"
    )


def test_a_lease_is_made_by_a_router_alone() -> None:
    with pytest.raises(TypeError, match="cannot create"):
        limpet.Lease()


def test_repr_says_where_the_turn_is(router: limpet.Router) -> None:
    lease = router.route("conversation")
    assert repr(lease) == f"<Lease placed on {lease.replica.name!r}, held>"
    lease.finish()
    assert repr(lease) == f"<Lease placed on {lease.replica.name!r}, ended>"
    assert repr(limpet.Router().route("conversation")) == "<Lease refused, ended>"
