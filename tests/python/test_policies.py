# SPDX-License-Identifier: Apache-2.0
"""Policies as objects: those of limpet, and those written in Python."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import limpet
import pytest
from limpet import Outcome, Verdict, policies


def in_flight(router: limpet.Router) -> list[int]:
    return [row.in_flight for row in router.snapshot().replicas]


def gauge(kv_usage: float) -> str:
    return f"vllm:kv_cache_usage_perc {kv_usage}\n"


# Policies of limpet -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (limpet.ShardedPins(), "ShardedPins(capacity=8192, idle_ttl=1800.0, shards=None)"),
        (
            limpet.ShardedPins(capacity=64, idle_ttl=2.5, shards=4),
            "ShardedPins(capacity=64, idle_ttl=2.5, shards=4)",
        ),
        (limpet.LocalPins(capacity=10), "LocalPins(capacity=10, idle_ttl=1800.0)"),
        (limpet.RendezvousPins(), "RendezvousPins()"),
        (
            limpet.WeightedLoad(live_weight=0.5, scale_gauge=False),
            "WeightedLoad(in_flight_weight=1.0, kv_usage_weight=0.0, live_weight=0.5, "
            "scale_gauge=False)",
        ),
        (limpet.LeastInFlight(), "LeastInFlight()"),
        (limpet.LeastPendingPrefill(), "LeastPendingPrefill()"),
        (limpet.TokensTimesBatch(), "TokensTimesBatch()"),
        (limpet.RoundRobin(), "RoundRobin()"),
        (limpet.PowerOfTwo(), "PowerOfTwo()"),
        (limpet.SpillAbove(), "SpillAbove(threshold=None)"),
        (limpet.SpillAbove(threshold=8), "SpillAbove(threshold=8)"),
        (limpet.AdjustableSpill(threshold=8), "AdjustableSpill(threshold=8)"),
        (limpet.MoveIfCheaper(), "MoveIfCheaper(margin=1.25, floor_tokens=2048)"),
        (limpet.MoveWhenFull(), "MoveWhenFull(full=0.95, room=0.9, threshold=None)"),
        (limpet.NeverSpill(), "NeverSpill()"),
        (limpet.BoundedLoad(), "BoundedLoad(epsilon=0.25)"),
        (limpet.VllmMetrics(), "VllmMetrics(model=None)"),
        (limpet.SglangMetrics(model="m"), "SglangMetrics(model='m')"),
        (limpet.LlamaCppMetrics(), "LlamaCppMetrics()"),
        (limpet.SteadyClock(), "SteadyClock()"),
    ],
)
def test_a_policy_shows_its_configuration(policy: object, text: str) -> None:
    assert repr(policy) == text


def test_configuration_can_be_read_back() -> None:
    pins = limpet.ShardedPins(capacity=100, idle_ttl=60, shards=2)
    assert (pins.capacity, pins.idle_ttl, pins.shards) == (100, 60.0, 2)
    local = limpet.LocalPins(capacity=5, idle_ttl=1.5)
    assert (local.capacity, local.idle_ttl) == (5, 1.5)
    load = limpet.WeightedLoad(in_flight_weight=2, kv_usage_weight=3, live_weight=4)
    assert (load.in_flight_weight, load.kv_usage_weight, load.live_weight) == (2.0, 3.0, 4.0)
    assert load.scale_gauge
    assert limpet.SpillAbove(threshold=3).threshold == 3
    assert limpet.SpillAbove().threshold is None
    rule = limpet.MoveWhenFull(full=0.8, room=0.7, threshold=9)
    assert (rule.full, rule.room, rule.threshold) == (0.8, 0.7, 9)
    cheaper = limpet.MoveIfCheaper(margin=2, floor_tokens=0)
    assert (cheaper.margin, cheaper.floor_tokens) == (2.0, 0)
    assert limpet.BoundedLoad(epsilon=0.5).epsilon == 0.5
    assert limpet.VllmMetrics(model="m").model == "m"


def test_an_adjustable_threshold_is_obeyed_by_a_router_that_runs() -> None:
    rule = limpet.AdjustableSpill(threshold=1)
    router = limpet.Router(["a", "b"], overflow=rule)
    with router.route("conversation"):
        assert router.plan("conversation").outcome is limpet.Outcome.spilled
        rule.threshold = 2
        assert router.plan("conversation").outcome is limpet.Outcome.sticky
        rule.threshold = None  # a quarter of the 256 that are assumed
        assert router.plan("conversation").outcome is limpet.Outcome.sticky
    assert rule.threshold is None
    with pytest.raises(ValueError, match="threshold = 0"):
        rule.threshold = 0


def test_two_routers_of_one_policy_object_share_no_pins() -> None:
    pins = limpet.ShardedPins()
    first, second = (limpet.Router(["a", "b"], pins=pins) for _ in range(2))
    first.route("conversation").finish()
    assert first.plan("conversation").outcome is Outcome.sticky
    assert second.plan("conversation").outcome is Outcome.placed


def test_pins_beyond_the_capacity_push_out_the_least_recently_active() -> None:
    router = limpet.Router(["a"], pins=limpet.LocalPins(capacity=2))
    for key in ("first", "second", "third"):
        router.route(key).finish()
    assert router.plan("first").outcome is Outcome.placed
    assert router.plan("second").outcome is Outcome.sticky
    assert router.snapshot().evicted == 1


def test_rendezvous_pins_agree_between_routers() -> None:
    routers = [limpet.Router(["a", "b", "c"], pins=limpet.RendezvousPins()) for _ in range(2)]
    homes = [[r.route(f"key {i}").replica.name for i in range(50)] for r in routers]
    assert homes[0] == homes[1]
    assert set(homes[0]) == {"a", "b", "c"}


def test_round_robin_places_in_turn_whatever_the_load() -> None:
    router = limpet.Router(["a", "b", "c"], scorer=limpet.RoundRobin())
    leases = [router.route(f"conversation {i}") for i in range(7)]
    assert [lease.replica.name for lease in leases] == ["a", "b", "c", "a", "b", "c", "a"]


def test_least_in_flight_sees_no_idle_conversation() -> None:
    router = limpet.Router(["a", "b"], scorer=limpet.LeastInFlight())
    busy = router.route("busy")
    free = next(name for name in ("a", "b") if name != busy.replica.name)
    for i in range(5):
        with router.route(f"conversation {i}") as lease:
            assert lease.replica.name == free


def test_power_of_two_never_places_on_the_busiest_of_three() -> None:
    router = limpet.Router(["a", "b", "c"], scorer=limpet.PowerOfTwo())
    held = [router.route(f"held {i}", client_pinned="b") for i in range(3)]
    for i in range(30):
        with router.route(f"conversation {i}") as lease:
            assert lease.replica.name != "b"
    del held


def test_the_gauge_counts_as_it_was_read_or_scaled() -> None:
    for scale, expected in ((True, 0.0), (False, 4.0)):
        scorer = limpet.WeightedLoad(kv_usage_weight=8, scale_gauge=scale)
        router = limpet.Router(["a", "b"], scorer=scorer)
        lease = router.route("conversation")
        for name in ("a", "b"):
            router.observe(name, gauge(0.5))
        lease.finish()
        rows = {row.name: row for row in router.explain("another").rows}
        assert rows[lease.replica.name].terms["kv_usage"] == expected


def test_never_spill_stays_home() -> None:
    router = limpet.Router(["a", "b"], max_num_seqs=4, overflow=limpet.NeverSpill())
    leases = [router.route("conversation") for _ in range(20)]
    assert sorted(in_flight(router)) == [0, 20]
    del leases


def test_bounded_load_keeps_every_replica_near_the_mean() -> None:
    router = limpet.Router(["a", "b"], overflow=limpet.BoundedLoad(epsilon=0.25))
    leases = [router.route("conversation") for _ in range(20)]
    # Bound before turn 20: ceil(1.25 * 20 / 2) = 13 at home.
    assert max(in_flight(router)) <= 13
    del leases


def test_move_when_full_leaves_an_over_full_home_for_good() -> None:
    router = limpet.Router(overflow=limpet.MoveWhenFull(full=0.9, room=0.8))
    for name in ("a", "b"):
        router.add_replica(name, kv_capacity_tokens=1000)
    home = router.route("big", prompt_tokens=400).replica.name
    router.route("bigger", client_pinned=home).finish()
    lease = router.route("other", parent="big", prompt_tokens=600)
    assert lease.replica.name == home  # beside its parent: 1000 of 1000 tokens live there
    lease.finish()
    moved = router.route("big", prompt_tokens=450)
    assert moved.outcome is Outcome.moved
    assert moved.replica.name != home


def test_least_pending_prefill_places_where_least_is_to_be_read() -> None:
    router = limpet.Router(["a", "b"], scorer=limpet.LeastPendingPrefill())
    longer = router.route("long", prompt_tokens=9000)
    for key in ("one", "two", "three"):
        lease = router.route(key, prompt_tokens=1000)
        assert lease.replica.name != longer.replica.name
        lease.first_byte()
    row = next(
        r
        for r in router.explain(
            "next",
        ).rows
        if r.name == longer.replica.name
    )
    assert row.load.pending_prefill_tokens == 9000
    assert row.terms == {"pending_prefill_tokens": 9000.0, "uncached_tokens": 0.0}
    longer.first_byte()
    assert [row.pending_prefill_tokens for row in router.snapshot().replicas] == [0, 0]


def test_tokens_times_batch_lets_a_fork_join_a_busier_parent() -> None:
    router = limpet.Router(
        ["a", "b"], scorer=limpet.TokensTimesBatch(), overflow=limpet.SpillAbove(threshold=1)
    )
    parent = router.route("parent", prompt_tokens=4000)
    fork = router.plan("fork", parent="parent", prompt_tokens=7000)  # 3,000 x 2 against 7,000
    assert fork.replica is not None
    assert fork.replica.name == parent.replica.name
    longer = router.plan("fork", parent="parent", prompt_tokens=9000)  # 5,000 x 2 against 9,000
    assert longer.replica is not None
    assert longer.replica.name != parent.replica.name


def test_move_if_cheaper_leaves_a_queue_for_good() -> None:
    router = limpet.Router(["a", "b"], overflow=limpet.MoveIfCheaper())
    home = router.route("conversation", prompt_tokens=9000).replica.name
    cold = [router.route(None, client_pinned=home, prompt_tokens=10_000) for _ in range(2)]
    cold[0].first_byte()
    assert router.plan("conversation", prompt_tokens=9400).outcome is Outcome.sticky
    cold.append(router.route(None, client_pinned=home, prompt_tokens=10_000))
    moved = router.route("conversation", prompt_tokens=9400)
    assert moved.outcome is Outcome.moved
    assert moved.replica.name != home


def test_metrics_of_other_engines_are_read_by_their_parsers() -> None:
    pages: dict[policies.MetricsParser, str] = {
        limpet.SglangMetrics(): "sglang:num_running_reqs 2\nsglang:token_usage 0.5\n",
        limpet.LlamaCppMetrics(): "llamacpp:requests_processing 2\n",
        limpet.VllmMetrics(): "vllm:num_requests_running 2\n",
    }
    for metrics, page in pages.items():
        router = limpet.Router(["a"], metrics=metrics)
        assert router.observe("a", page) is limpet.ParseStatus.ok
        assert router.snapshot().replicas[0].running == 2.0
        readings = metrics.parse(page.encode())
        assert isinstance(readings, list)
        assert [reading.running for reading in readings] == [2.0]
        assert metrics.parse(b"other 1\n") is limpet.ParseStatus.no_engine
        assert metrics.parse(b"{{{") is limpet.ParseStatus.malformed


def test_a_model_reads_its_own_series_alone() -> None:
    page = (
        b'vllm:num_requests_running{model_name="one"} 1\n'
        b'vllm:num_requests_running{model_name="two"} 2\n'
    )
    readings = limpet.VllmMetrics(model="two").parse(page)
    assert isinstance(readings, list)
    assert [(r.model, r.running, r.kv_usage) for r in readings] == [("two", 2.0, None)]


# Policies in Python -------------------------------------------------------------------------------


class Prefer:
    """Places on one replica, and elsewhere only when that is not to be had."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id: limpet.ReplicaId | None = None
        self.asked = 0

    def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext, /) -> float:
        self.asked += 1
        assert 0 <= context.position < context.candidates
        return 0.0 if load.replica == self.id else 1.0 + load.in_flight


class MoveAway:
    """Leaves a home with a turn in flight for good, to the first of the others."""

    def overloaded(self, home: limpet.ReplicaLoad, /) -> bool:
        return home.in_flight > 0

    def decide(self, view: limpet.OverflowView, /) -> Verdict:
        assert view.home.in_flight > 0
        return Verdict.move.to(view.others[0].replica) if view.others else Verdict.stay


class DictPins:
    """The four primitives over a dict."""

    def __init__(self) -> None:
        self.pins: dict[limpet.KeyHash, limpet.Home] = {}

    def find(self, key: limpet.KeyHash, _now: float, /) -> limpet.Home | None:
        return self.pins.get(key)

    def pin(self, key: limpet.KeyHash, home: limpet.Home, _now: float, /) -> limpet.Home:
        return self.pins.setdefault(key, home)

    def repin(
        self, key: limpet.KeyHash, expected: limpet.Home, desired: limpet.Home, _now: float, /
    ) -> limpet.Home:
        if self.pins.setdefault(key, desired) == expected:
            self.pins[key] = desired
        return self.pins[key]

    def unpin(self, key: limpet.KeyHash, expected: limpet.Home, /) -> bool:
        return self.pins.get(key) == expected and self.pins.pop(key) is not None


class Words:
    """A page is "running waiting"."""

    def parse(self, page: bytes, /) -> list[limpet.Reading] | limpet.ParseStatus:
        if page == b"bad":
            return limpet.ParseStatus.malformed
        if not page:
            return []
        running, waiting = map(float, page.split())
        return [limpet.Reading(engine="0", running=running, waiting=waiting)]


class Ticks:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def test_the_protocols_describe_both_kinds() -> None:
    assert isinstance(Prefer("a"), policies.LoadScorer)
    assert isinstance(limpet.WeightedLoad(), policies.LoadScorer)
    assert isinstance(MoveAway(), policies.OverflowRule)
    assert isinstance(limpet.SpillAbove(), policies.OverflowRule)
    assert isinstance(DictPins(), policies.PinStore)
    assert isinstance(Words(), policies.MetricsParser)
    assert isinstance(limpet.VllmMetrics(), policies.MetricsParser)
    assert isinstance(Ticks(), policies.Clock)
    assert isinstance(limpet.ManualClock(), policies.Clock)


def test_a_scorer_in_python_places() -> None:
    scorer = Prefer("b")
    router = limpet.Router(["a", "b", "c"], scorer=scorer)
    scorer.id = router.explain("x").rows[1].load.replica
    assert all(router.route(f"conversation {i}").replica.name == "b" for i in range(5))
    assert router.plan("conversation 0").outcome is Outcome.sticky


def test_a_scorer_may_build_on_one_of_limpet() -> None:
    class Doubled(limpet.WeightedLoad):
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext) -> float:
            return 2 * super().score(load, context)

    router = limpet.Router(["a"], scorer=Doubled())
    lease = router.route("conversation")
    assert router.explain("another").rows[0].score == 2.5  # one in flight, one live, doubled
    lease.finish()


def test_an_overflow_rule_in_python_moves() -> None:
    router = limpet.Router(["a", "b"], overflow=MoveAway())
    first = router.route("conversation")
    moved = router.route("conversation")
    assert moved.outcome is Outcome.moved
    assert moved.replica is not first.replica


def test_a_policy_in_python_sees_what_is_to_be_read() -> None:
    seen: list[tuple[int, int, int]] = []

    class Watches:
        def overloaded(self, home: limpet.ReplicaLoad, /) -> bool:
            return home.pending_prefill_tokens > 0

        def decide(self, view: limpet.OverflowView, /) -> Verdict:
            seen.append(
                (view.home.pending_prefill_tokens, view.uncached_at_home, view.uncached_elsewhere)
            )
            return limpet.MoveIfCheaper(floor_tokens=0).decide(view)

    class FewestToRead:
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext, /) -> float:
            return load.pending_prefill_tokens + context.uncached_tokens

    router = limpet.Router(["a", "b"], scorer=FewestToRead(), overflow=Watches())
    with router.route("conversation", prompt_tokens=900) as lease:
        home = lease.replica.name
    cold = router.route(None, client_pinned=home, prompt_tokens=5000)
    assert router.plan("conversation", prompt_tokens=1000).outcome is Outcome.moved
    assert seen == [(5000, 100, 1000)]
    assert router.plan("new", prompt_tokens=10).replica.name != home  # type: ignore[union-attr]
    cold.finish()


def test_an_overflow_rule_may_ask_one_of_limpet() -> None:
    class Logged:
        def __init__(self) -> None:
            self.inner = limpet.BoundedLoad(epsilon=0.25)
            self.verdicts: list[Verdict] = []

        def overloaded(self, home: limpet.ReplicaLoad, /) -> bool:
            return self.inner.overloaded(home)

        def decide(self, view: limpet.OverflowView, /) -> Verdict:
            self.verdicts.append(self.inner.decide(view))
            return self.verdicts[-1]

    rule = Logged()
    asked = limpet.Router(["a", "b"], overflow=rule)
    plain = limpet.Router(["a", "b"], overflow=limpet.BoundedLoad(epsilon=0.25))
    held = []
    for _ in range(12):
        held.append((asked.route("conversation"), plain.route("conversation")))
        assert held[-1][0].replica.name == held[-1][1].replica.name
    assert {verdict.action for verdict in rule.verdicts} == {"stay", "spill"}


def test_a_pin_store_in_python_is_the_memory() -> None:
    pins = DictPins()
    router = limpet.Router(["a", "b"], pins=pins)
    with router.route("conversation") as lease:
        home = lease.replica
        assert lease.outcome is Outcome.placed
    assert pins.pins[router.hash("conversation")].replica == home.id
    assert router.route("conversation").outcome is Outcome.sticky
    other = next(r.id for r in router.snapshot().replicas if r.id != home.id)
    pins.pins[router.hash("conversation")] = limpet.Home(other, 0)
    assert router.route("conversation").replica is not home
    router.set_down(next(r.name for r in router.snapshot().replicas if r.id == other))
    assert router.route("conversation").outcome is Outcome.moved
    assert pins.pins[router.hash("conversation")].replica == home.id
    assert router.rebalance(5) == 0


def test_a_parser_in_python_reads_pages() -> None:
    router = limpet.Router(["a"], metrics=Words())
    assert router.observe("a", "3 4") is limpet.ParseStatus.ok
    row = router.snapshot().replicas[0]
    assert (row.running, row.waiting) == (3.0, 4.0)
    assert router.observe("a", b"bad") is limpet.ParseStatus.malformed
    assert router.observe("a", b"") is limpet.ParseStatus.no_engine


def test_a_clock_in_python_is_the_time() -> None:
    clock = Ticks()
    router = limpet.Router(["a"], clock=clock)
    router.route("conversation").finish()
    clock.time += 1799.0
    assert router.plan("conversation").outcome is Outcome.sticky
    clock.time += 1.0
    assert router.plan("conversation").outcome is Outcome.placed


class Raises:
    """Every method of every policy, raising once it is armed."""

    def __init__(self, error: BaseException | None = None, **answers: Any) -> None:
        self.error = error
        self.answers = answers
        self.armed = False
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.__dict__["answers"]:
            raise AttributeError(name)

        def method(*_: object) -> Any:
            self.asked.append(name)
            if self.armed and self.error is not None:
                raise self.error
            return self.answers[name]

        return method


POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("scorer", {"score": 1.0}),
    ("overflow", {"overloaded": True, "decide": Verdict.stay}),
    ("clock", {"now": 5.0}),
    ("pins", {"find": None, "pin": None, "repin": None, "unpin": False}),
]


@pytest.mark.parametrize(("field", "answers"), POLICIES, ids=[field for field, _ in POLICIES])
@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), KeyboardInterrupt("stop")])
def test_what_a_policy_raises_reaches_the_caller_and_leaves_nothing(
    field: str, answers: dict[str, Any], error: BaseException
) -> None:
    policy = Raises(error, **answers)
    arguments: dict[str, Any] = {field: policy}
    router = limpet.Router(["a", "b"], **arguments)
    if field == "overflow":
        router.route("conversation").finish()
    policy.armed = True
    before = str(router.snapshot()) if field != "clock" else ""
    for method in (router.route, router.plan, router.explain):
        with pytest.raises(type(error)) as raised:
            method("conversation")
        assert raised.value is error
    policy.armed = False
    assert in_flight(router) == [0, 0]
    assert sum(row.pins for row in router.snapshot().replicas) == (field == "overflow")
    if before:
        assert str(router.snapshot()) == before


def test_a_store_that_fails_to_pin_leaves_no_slot_taken() -> None:
    class Broken(DictPins):
        def pin(self, key: limpet.KeyHash, home: limpet.Home, _now: float, /) -> limpet.Home:
            raise OSError(f"the store is down: {bytes(key).hex()} to {home}")

    router = limpet.Router(["a"], pins=Broken())
    decision = router.plan("conversation")
    with pytest.raises(OSError, match="the store is down"):
        router.route("conversation")
    with pytest.raises(OSError, match="the store is down"):
        router.commit(decision)
    assert in_flight(router) == [0]


def test_a_parser_that_raises_changes_nothing() -> None:
    class Broken(Words):
        def parse(self, page: bytes, /) -> list[limpet.Reading] | limpet.ParseStatus:
            raise ValueError(f"cannot read {page!r}")

    router = limpet.Router(["a"], metrics=Broken())
    with pytest.raises(ValueError, match="cannot read"):
        router.observe("a", "1 2")
    assert router.snapshot().bad_readings == 1
    assert router.route("conversation").outcome is Outcome.placed


def test_a_clock_that_raises_does_not_keep_the_slot() -> None:
    clock = Raises(ZeroDivisionError("oops"), now=5.0)
    router = limpet.Router(["a"], clock=clock)
    lease = router.route("conversation")
    clock.armed = True
    with pytest.raises(ZeroDivisionError):
        lease.finish()
    clock.armed = False
    assert not lease.held
    assert in_flight(router) == [0]


def test_a_clock_that_raises_while_a_lease_is_dropped_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda args: seen.append(args.exc_type))
    clock = Raises(ZeroDivisionError("oops"), now=5.0)
    router = limpet.Router(["a"], clock=clock)
    lease = router.route("conversation")
    clock.armed = True
    del lease
    gc.collect()
    clock.armed = False
    assert seen == [ZeroDivisionError]
    assert in_flight(router) == [0]
    assert router.plan("conversation").outcome is Outcome.sticky


@pytest.mark.parametrize(
    ("field", "answers", "message"),
    [
        ("scorer", {"score": float("nan")}, "score() = nan"),
        ("scorer", {"score": "low"}, "score() must be a number, not str"),
        ("overflow", {"overloaded": 1, "decide": None}, "overloaded() must be a bool, not int"),
        ("overflow", {"overloaded": True, "decide": "stay"}, "decide() must be a Verdict, not str"),
        ("clock", {"now": -1.0}, "now() = -1.0"),
        ("pins", {"find": 3, "pin": 0, "repin": 0, "unpin": 0}, "find() must be a Home or None"),
    ],
)
def test_an_answer_that_makes_no_sense_is_named(
    field: str, answers: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {field: Raises(**answers)}
    router = limpet.Router(["a", "b"], **arguments)
    with pytest.raises((TypeError, ValueError)) as raised:
        for _ in range(2):
            router.route("conversation")
    assert message in str(raised.value)


def test_a_sticky_turn_asks_the_scorer_nothing() -> None:
    scorer = Prefer("a")
    router = limpet.Router(["a", "b"], scorer=scorer)
    router.route("conversation").finish()
    asked = scorer.asked
    assert asked == 2  # one score a replica: planning and committing ask once
    router.route("conversation").finish()
    assert scorer.asked == asked


def test_a_verdict_may_name_its_replica() -> None:
    there = limpet.ReplicaId(3, 1)
    assert Verdict.spill.to(there) == Verdict.spill.to(limpet.ReplicaId(3, 1))
    assert Verdict.spill.to(there).target == there
    assert Verdict.stay.target is None
    assert (Verdict.stay.action, Verdict.move.action) == ("stay", "move")
    assert len({Verdict.stay, Verdict.spill, Verdict.move, Verdict.move.to(there)}) == 4
    assert repr(Verdict.move.to(there)) == "Verdict.move.to(ReplicaId(3, 1))"
    assert repr(Verdict.stay) == "Verdict.stay"


def test_homes_and_ids_are_values() -> None:
    home = limpet.Home(limpet.ReplicaId(1, 2), 3)
    assert home == limpet.Home(limpet.ReplicaId(1, 2), 3)
    assert (home.replica.slot, home.replica.version, home.generation) == (1, 2, 3)
    assert len({home, limpet.Home(limpet.ReplicaId(1, 2), 4)}) == 2
    assert repr(home) == "Home(ReplicaId(1, 2), 3)"
