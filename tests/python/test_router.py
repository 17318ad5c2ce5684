# SPDX-License-Identifier: Apache-2.0
"""The router as a Python program meets it: construction, turns, replicas, views."""

from __future__ import annotations

import limpet
import pytest
from limpet import Outcome, Reason, ReplicaState


@pytest.fixture
def clock() -> limpet.ManualClock:
    return limpet.ManualClock()


@pytest.fixture
def router(clock: limpet.ManualClock) -> limpet.Router:
    return limpet.Router(["gpu0", "gpu1"], max_num_seqs=32, clock=clock)


def row(router: limpet.Router, name: str) -> limpet.ReplicaSnapshot:
    return next(row for row in router.snapshot().replicas if row.name == name)


def gauge(kv_usage: float) -> str:
    return f'vllm:kv_cache_usage_perc{{engine="0"}} {kv_usage}\n'


# Turns --------------------------------------------------------------------------------------------


def test_a_conversation_is_placed_once_and_then_goes_home(router: limpet.Router) -> None:
    with router.route("conversation-key") as lease:
        assert lease.outcome is Outcome.placed
        home = lease.replica
        assert home.name in ("gpu0", "gpu1")
    for _ in range(5):
        with router.route("conversation-key") as lease:
            assert lease.outcome is Outcome.sticky
            assert lease.replica is home


def test_equal_replicas_take_new_conversations_in_turn(router: limpet.Router) -> None:
    leases = [router.route(f"conversation {i}") for i in range(10)]
    assert {r.name: r.in_flight for r in router.snapshot().replicas} == {"gpu0": 5, "gpu1": 5}
    for lease in leases:
        lease.finish()
    assert [r.in_flight for r in router.snapshot().replicas] == [0, 0]


def test_a_turn_without_a_key_is_balanced(router: limpet.Router) -> None:
    assert router.route(None).outcome is Outcome.balanced
    assert router.route(key=None).outcome is Outcome.balanced
    assert router.route().outcome is Outcome.balanced


@pytest.mark.parametrize(
    "key", ["", b"", "ключ", "k" * 1_000_000, b"\x00\xff\x00", "a\x00b", bytes(range(256)) * 1000]
)
def test_any_text_and_any_bytes_are_a_key(router: limpet.Router, key: str | bytes) -> None:
    first = router.route(key)
    first.finish()
    assert first.outcome is Outcome.placed
    second = router.route(key)
    assert (second.outcome, second.replica) == (Outcome.sticky, first.replica)


def test_text_and_its_utf8_bytes_are_one_key(router: limpet.Router) -> None:
    router.route("ключ").finish()
    assert router.route("ключ".encode()).outcome is Outcome.sticky
    assert router.hash("ключ") == router.hash("ключ".encode())


def test_a_key_hashed_once_names_the_same_conversation(router: limpet.Router) -> None:
    hashed = router.hash("conversation")
    router.route("conversation").finish()
    assert router.route(hashed).outcome is Outcome.sticky
    assert len(bytes(hashed)) == 16
    assert len({hashed, router.hash("conversation"), router.hash("another")}) == 2


def siphash_1_3_128(secret: bytes, key: bytes) -> bytes:
    """SipHash with one compression and three finishing rounds, as its authors describe it."""
    mask = 2**64 - 1

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & mask

    k0, k1 = (int.from_bytes(secret[i : i + 8], "little") for i in (0, 8))
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[b] = rotated(v[b], left) ^ v[a]
                v[a] = rotated(v[a], 32)
                if a == 0:
                    v[c] = (v[c] + v[d]) & mask
                    v[d] = rotated(v[d], right) ^ v[c]
                else:
                    v[c] = (v[c] + v[d]) & mask
                    v[d] = rotated(v[d], right) ^ v[c]

    whole = len(key) // 8 * 8
    words = [int.from_bytes(key[i : i + 8], "little") for i in range(0, whole, 8)]
    words.append(int.from_bytes(key[whole:], "little") | (len(key) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(3)
    high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(3)
    return high.to_bytes(8, "big") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "big")


@pytest.mark.parametrize("secret", [bytes(16), bytes(range(16)), b"\xff" * 16])
def test_keys_are_hashed_with_the_secret(secret: bytes) -> None:
    router = limpet.Router(secret=secret)
    for key in (b"", b"key", b"12345678", b"a longer key \x00 with a tail"):
        assert bytes(router.hash(key)) == siphash_1_3_128(secret, key)


def test_a_child_is_placed_beside_its_parent(router: limpet.Router) -> None:
    with router.route("parent") as parent:
        home = parent.replica
    for i in range(3):
        child = router.route(f"child {i}", parent="parent")
        assert child.replica is home
        assert child.decision.reason is Reason.parent_home


def test_an_independent_child_goes_where_there_is_least_load(clock: limpet.ManualClock) -> None:
    router = limpet.Router(["gpu0", "gpu1"], clock=clock, parent_hint=limpet.ParentHint.independent)
    parent = router.route("parent")
    assert router.route("child", parent="parent").replica is not parent.replica


def test_with_parent_makes_parent_and_child_one_conversation() -> None:
    router = limpet.Router(["gpu0", "gpu1"], parent_hint=limpet.ParentHint.with_parent)
    parent = router.route("parent")
    child = router.route("child", parent="parent")
    assert (child.outcome, child.replica) == (Outcome.sticky, parent.replica)


def test_the_client_may_name_the_replica(router: limpet.Router) -> None:
    for name in ("gpu1", "gpu0", "gpu1"):
        lease = router.route("conversation", client_pinned=name)
        assert (lease.outcome, lease.replica.name) == (Outcome.client_pinned, name)
    # A name that nobody has is as if it had not been said.
    assert router.route("conversation", client_pinned="gpu9").outcome is Outcome.placed


def test_an_excluded_home_spills_and_keeps_its_pin(router: limpet.Router) -> None:
    with router.route("conversation") as lease:
        home = lease.replica
    with router.route("conversation", exclude=[home.name, "gone"]) as lease:
        assert lease.outcome is Outcome.spilled
        assert lease.replica is not home
        assert lease.decision.home is home
    assert router.route("conversation").replica is home


def test_a_side_call_follows_the_pin_and_makes_none(router: limpet.Router) -> None:
    assert router.route("conversation", side_call=True).outcome is Outcome.balanced
    assert router.route("conversation").outcome is Outcome.placed
    assert router.route("conversation", side_call=True).outcome is Outcome.sticky


def test_an_overloaded_home_spills_to_a_replica_with_fewer_turns(router: limpet.Router) -> None:
    first = router.route("conversation")
    held = [router.route("conversation") for _ in range(7)]  # 8 = 32 / 4 in flight at home
    spilled = router.route("conversation")
    assert (spilled.outcome, spilled.decision.reason) == (
        Outcome.spilled,
        Reason.home_overloaded,
    )
    assert spilled.replica is not first.replica
    assert row(router, first.replica.name).spilled_out == 1
    assert row(router, spilled.replica.name).spilled_in == 1
    del held


def test_no_replica_refuses_and_does_not_raise() -> None:
    router = limpet.Router()
    lease = router.route("conversation")
    assert not lease
    assert lease.replica is None
    assert lease.outcome is Outcome.refused
    lease.finish()
    assert router.snapshot().refused == 1


def test_without_affinity_turns_are_unrouted(router: limpet.Router) -> None:
    assert router.affinity is limpet.Affinity.on
    router.set_affinity(limpet.Affinity.off)
    lease = router.route("conversation")
    assert (lease.outcome, lease.replica) == (Outcome.unrouted, None)
    assert router.snapshot().affinity is limpet.Affinity.off
    router.set_affinity(limpet.Affinity.on)
    assert router.route("conversation").outcome is Outcome.placed


def test_a_plan_changes_nothing_and_commits_to_what_it_said(router: limpet.Router) -> None:
    plans = [router.plan("conversation") for _ in range(3)]
    assert plans[0] == plans[1] == plans[2]
    assert len(set(plans)) == 1
    assert row(router, "gpu0").placed == row(router, "gpu1").placed == 0
    decision = plans[0]
    lease = router.commit(decision)
    assert (lease.outcome, lease.replica) == (Outcome.placed, decision.replica)
    assert lease.replica.name == row(router, lease.replica.name).name
    assert row(router, lease.replica.name).in_flight == 1


def test_a_decision_says_what_was_decided_and_why(router: limpet.Router) -> None:
    decision = router.route("conversation", prompt_tokens=1200).decision
    assert decision.outcome is Outcome.placed
    assert decision.reason is Reason.no_pin
    assert decision.reason.value == "no pin: first turn, expired or evicted"
    assert decision.home is decision.replica
    assert decision.previous is None
    assert decision.key == router.hash("conversation")
    assert (decision.in_flight_seen, decision.prompt_tokens) == (0, 1200)
    assert not decision.side_call
    assert router.plan(None).key is None
    assert "placed on 'gpu" in repr(decision)


def test_a_decision_of_another_router_is_refused(router: limpet.Router) -> None:
    other = limpet.Router(["gpu0"])
    with pytest.raises(ValueError, match="another router"):
        router.commit(other.plan("conversation"))


# Time ---------------------------------------------------------------------------------------------


def test_a_pin_expires_when_its_conversation_was_idle_too_long(
    router: limpet.Router, clock: limpet.ManualClock
) -> None:
    router.route("conversation").finish()
    clock.advance(1799.0)
    router.route("conversation").finish()
    clock.advance(1799.0)
    assert router.plan("conversation").outcome is Outcome.sticky
    clock.advance(1.0)
    assert router.plan("conversation").outcome is Outcome.placed


def test_a_conversation_is_live_for_a_window_after_its_last_turn(clock: limpet.ManualClock) -> None:
    router = limpet.Router(["gpu0"], clock=clock, live_window=64.0)
    router.route("conversation").finish()
    clock.advance(63.0)
    assert row(router, "gpu0").live_conversations == 1
    clock.advance(1.0)
    assert row(router, "gpu0").live_conversations == 0
    assert row(router, "gpu0").pins == 1


def test_the_clock_is_the_callers(clock: limpet.ManualClock) -> None:
    assert clock.now() == 0.0
    clock.advance(30.0)
    clock.advance(0.25)
    assert clock.now() == 30.25
    assert repr(clock) == "ManualClock(30.25)"
    assert limpet.ManualClock(5).now() == 5.0
    assert limpet.SteadyClock().now() <= limpet.SteadyClock().now()


# Replicas -----------------------------------------------------------------------------------------


def test_a_replica_is_what_it_was_configured_as() -> None:
    router = limpet.Router()
    plain = router.add_replica("gpu0")
    assert (plain.name, plain.endpoint, plain.rank, plain.engine) == ("gpu0", "gpu0", None, None)
    assert (plain.max_num_seqs, plain.kv_capacity_tokens) == (None, None)
    full = router.add_replica(
        "gpu2",
        endpoint="http://10.0.0.3:8000/",
        rank=1,
        engine="3",
        max_num_seqs=32,
        kv_capacity_tokens=48_000,
    )
    assert (full.endpoint, full.rank, full.engine) == ("http://10.0.0.3:8000", 1, "3")
    assert (full.max_num_seqs, full.kv_capacity_tokens) == (32, 48_000)
    assert repr(full) == "Replica('gpu2', endpoint='http://10.0.0.3:8000', rank=1)"
    assert repr(router) == "<Router of 2 replicas>"


def test_the_first_names_share_max_num_seqs() -> None:
    router = limpet.Router((f"gpu{i}" for i in range(3)), max_num_seqs=16)
    assert [r.max_num_seqs for r in router.snapshot().replicas] == [16, 16, 16]
    assert [r.max_num_seqs for r in limpet.Router(["a"]).snapshot().replicas] == [None]


def test_a_draining_replica_keeps_its_own_and_takes_no_new_ones(router: limpet.Router) -> None:
    with router.route("conversation") as lease:
        home = lease.replica
    router.drain(home.name)
    assert row(router, home.name).state is ReplicaState.draining
    assert router.route("conversation").replica is home
    assert all(router.route(f"new {i}").replica is not home for i in range(4))


def test_a_conversation_moves_when_its_home_is_down(router: limpet.Router) -> None:
    with router.route("conversation") as lease:
        home = lease.replica
    router.set_down(home.name)
    moved = router.route("conversation")
    assert moved.outcome is Outcome.moved
    assert moved.decision.previous is home
    router.set_up(lease.replica.name)
    assert router.route("conversation").replica is moved.replica


def test_a_restart_forgets_the_pins_of_that_replica(router: limpet.Router) -> None:
    leases = [router.route(f"conversation {i}") for i in range(4)]
    router.restarted("gpu0")
    for i, lease in enumerate(leases):
        wanted = Outcome.placed if lease.replica.name == "gpu0" else Outcome.sticky
        assert router.plan(f"conversation {i}").outcome is wanted
    assert row(router, "gpu0").restarts == 1


def test_a_removed_replica_frees_its_name_and_its_leases_still_end(router: limpet.Router) -> None:
    leases = [router.route(f"conversation {i}") for i in range(2)]
    on_gpu0 = next(lease for lease in leases if lease.replica.name == "gpu0")
    old = on_gpu0.replica
    router.remove("gpu0")
    assert [r.name for r in router.snapshot().replicas] == ["gpu1"]
    new = router.add_replica("gpu0")
    assert new.id != old.id
    on_gpu0.finish()
    assert on_gpu0.replica is old
    assert row(router, "gpu0").in_flight == 0


@pytest.mark.parametrize("change", ["drain", "set_down", "set_up", "restarted", "remove"])
def test_an_unknown_name_raises_and_says_which_there_are(
    router: limpet.Router, change: str
) -> None:
    with pytest.raises(KeyError, match="no replica is named 'gpu9'; there are gpu0, gpu1"):
        getattr(router, change)("gpu9")
    with pytest.raises(KeyError, match="there are none"):
        getattr(limpet.Router(), change)("gpu9")


def test_rebalance_moves_idle_conversations_to_a_new_replica(
    router: limpet.Router, clock: limpet.ManualClock
) -> None:
    for i in range(12):
        router.route(f"conversation {i}").finish()
    busy = router.route("conversation 0")
    clock.advance(400.0)
    router.add_replica("gpu2", max_num_seqs=32)
    assert router.rebalance(3) == 3
    assert row(router, "gpu2").pins == 3
    assert router.rebalance(100, idle=300.0) == 1  # four each
    assert router.plan("conversation 0").replica is busy.replica
    assert router.rebalance(100, idle=500.0) == 0


# Readings and views -------------------------------------------------------------------------------


def test_a_metrics_page_feeds_the_replicas_behind_its_endpoint(clock: limpet.ManualClock) -> None:
    router = limpet.Router(clock=clock)
    router.add_replica("rank0", endpoint="http://10.0.0.1:8000", rank=0, engine="0")
    router.add_replica("rank1", endpoint="http://10.0.0.1:8000", rank=1, engine="1")
    page = (
        'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
        'vllm:num_requests_waiting{engine="1",model_name="m"} 2\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25\n'
    )
    assert router.observe("http://10.0.0.1:8000", page) is limpet.ParseStatus.ok
    assert router.observe("http://10.0.0.1:8000/", page.encode()) is limpet.ParseStatus.ok
    clock.advance(2.5)
    rank0, rank1 = router.snapshot().replicas
    assert (rank0.running, rank0.waiting, rank0.kv_usage) == (3.0, None, None)
    assert (rank1.running, rank1.waiting, rank1.kv_usage) == (None, 2.0, 0.25)
    assert (rank0.reading_age, rank1.reading_age) == (2.5, 2.5)
    assert router.snapshot().readings == 2


@pytest.mark.parametrize("page", [b"\x00\xff{{{", "vllm:kv_cache_usage_perc 0.", "<html>no</html>"])
def test_a_page_that_does_not_parse_changes_nothing(
    router: limpet.Router, page: str | bytes
) -> None:
    assert router.observe("gpu0", gauge(0.5)) is limpet.ParseStatus.ok
    assert router.observe("gpu0", page) is not limpet.ParseStatus.ok
    assert row(router, "gpu0").kv_usage == 0.5
    assert router.snapshot().bad_readings == 1


def test_an_unread_replica_has_no_gauges(router: limpet.Router) -> None:
    gpu0 = row(router, "gpu0")
    for name in ("running", "waiting", "kv_usage", "prefix_queries", "prefix_hits", "reading_age"):
        assert getattr(gpu0, name) is None
    assert gpu0.kv_capacity_tokens is None
    assert gpu0.rank is None
    assert gpu0.engine is None


def test_a_snapshot_counts_turns_by_outcome_and_tokens(router: limpet.Router) -> None:
    with router.route("conversation", prompt_tokens=1000) as lease:
        name = lease.replica.name
        assert row(router, name).in_flight_tokens == 1000
        lease.finish(limpet.Usage(prompt_tokens=1100, cached_tokens=0, completion_tokens=50))
    router.route("conversation").fail()
    home = row(router, name)
    assert (home.placed, home.sticky, home.failed, home.pins) == (1, 1, 1, 1)
    assert (home.live_tokens, home.in_flight_tokens, home.live_conversations) == (1150, 0, 1)
    assert (home.moved, home.balanced, home.client_pinned, home.spilled_in) == (0, 0, 0, 0)


def test_a_snapshot_is_a_copy(router: limpet.Router) -> None:
    before = router.snapshot()
    lease = router.route("conversation")
    assert [r.in_flight for r in before.replicas] == [0, 0]
    assert "2 replicas" in repr(before)
    assert lease.replica.name in str(router.snapshot())


def test_an_explanation_has_a_row_a_replica_and_is_a_table(router: limpet.Router) -> None:
    router.add_replica("gpu2")
    router.set_down("gpu2")
    with router.route("conversation") as lease:
        home = lease.replica.name
    explanation = router.explain("conversation")
    assert explanation.decision == router.plan("conversation")
    assert not explanation.gauges_fresh
    rows = {row.name: row for row in explanation.rows}
    assert rows[home].standing is limpet.Standing.chosen
    assert rows[home].home
    assert rows["gpu2"].standing is limpet.Standing.down
    assert rows["gpu2"].score is None
    assert rows[home].score == 0.25  # the conversation is live there
    assert rows[home].terms == {"in_flight": 0.0, "kv_usage": 0.0, "live_conversations": 0.25}
    assert rows[home].load.live_conversations == 1
    table = str(explanation)
    assert all(name in table for name in ("gpu0", "gpu1", "gpu2", "sticky"))
    assert len(table.splitlines()) >= 4


def test_turn_arguments_are_the_same_for_route_plan_and_explain(router: limpet.Router) -> None:
    for method in (router.route, router.plan, router.explain):
        method(
            "key",
            parent="parent",
            client_pinned=None,
            exclude=(),
            prompt_tokens=0,
            side_call=False,
        )
