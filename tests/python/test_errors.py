# SPDX-License-Identifier: Apache-2.0
"""Configuration that makes no sense is refused where it is made, with field and value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import limpet
import pytest

NAN = float("nan")
INFINITY = float("inf")

BAD_VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: limpet.Router(["a"], max_num_seqs=0), "max_num_seqs = 0"),
    (lambda: limpet.Router(["a"], max_num_seqs=-1), "max_num_seqs = -1"),
    (lambda: limpet.Router(["a"], max_num_seqs=2**32), "max_num_seqs = 4294967296"),
    (lambda: limpet.Router(["a", "a"]), 'name = "a"'),
    (lambda: limpet.Router([""]), 'name = ""'),
    (lambda: limpet.Router(live_window=NAN), "live_window = nan"),
    (lambda: limpet.Router(live_window=-1), "live_window = -1"),
    (lambda: limpet.Router(live_window=0.01), "live_window = 10000000"),
    (lambda: limpet.Router(reading_max_age=0), "reading_max_age = 0"),
    (lambda: limpet.Router(reading_max_age=1e300), "reading_max_age = 1e+300"),
    (lambda: limpet.Router(shared_prefix_tokens=-5), "shared_prefix_tokens = -5"),
    (lambda: limpet.Router(secret=b"short"), "secret = <5 bytes>"),
    (lambda: limpet.Router().add_replica("a", rank=-1), "rank = -1"),
    (lambda: limpet.Router().add_replica("a", max_num_seqs=0), "max_num_seqs = 0"),
    (lambda: limpet.Router().add_replica("a", kv_capacity_tokens=-1), "kv_capacity_tokens = -1"),
    (lambda: limpet.ShardedPins(capacity=0), "capacity = 0"),
    (lambda: limpet.ShardedPins(capacity=2**31), "capacity = 2147483648"),
    (lambda: limpet.ShardedPins(capacity=10**30), "capacity = 1" + "0" * 30),
    (lambda: limpet.ShardedPins(idle_ttl=0), "idle_ttl = 0"),
    (lambda: limpet.ShardedPins(idle_ttl=INFINITY), "idle_ttl = inf"),
    (lambda: limpet.Router(pins=limpet.ShardedPins(shards=3)), "shards = 3"),
    (lambda: limpet.Router(pins=limpet.ShardedPins(capacity=2, shards=4)), "shards = 4"),
    (lambda: limpet.LocalPins(capacity=-1), "capacity = -1"),
    (lambda: limpet.WeightedLoad(in_flight_weight=NAN), "in_flight_weight = nan"),
    (lambda: limpet.WeightedLoad(kv_usage_weight=-8), "kv_usage_weight = -8"),
    (lambda: limpet.WeightedLoad(live_weight=INFINITY), "live_weight = inf"),
    (lambda: limpet.SpillAbove(threshold=0), "threshold = 0"),
    (lambda: limpet.SpillAbove(threshold=2**32), "threshold = 4294967296"),
    (lambda: limpet.MoveIfCheaper(margin=0.5), "margin = 0.5"),
    (lambda: limpet.MoveIfCheaper(margin=INFINITY), "margin = inf"),
    (lambda: limpet.MoveIfCheaper(floor_tokens=2**32), "floor_tokens = 4294967296"),
    (lambda: limpet.MoveWhenFull(full=0), "full = 0"),
    (lambda: limpet.MoveWhenFull(full=0.5, room=0.6), "room = 0.6"),
    (lambda: limpet.MoveWhenFull(room=NAN), "room = nan"),
    (lambda: limpet.BoundedLoad(epsilon=0), "epsilon = 0"),
    (lambda: limpet.BoundedLoad(epsilon=NAN), "epsilon = nan"),
    (lambda: limpet.ManualClock(-1), "start = -1"),
    (lambda: limpet.ManualClock().advance(-0.5), "seconds = -0.5"),
    (lambda: limpet.ManualClock(9e9).advance(9e9), "seconds = 9000000000.0"),
    (lambda: limpet.Usage(prompt_tokens=-1), "prompt_tokens = -1"),
    (lambda: limpet.Usage(cached_tokens=2**63), "cached_tokens = 9223372036854775808"),
    (lambda: limpet.Reading(kv_usage=NAN), "kv_usage = nan"),
    (lambda: limpet.Router(["a"]).route("k", prompt_tokens=-1), "prompt_tokens = -1"),
    (lambda: limpet.Router(["a"]).rebalance(-1), "limit = -1"),
    (lambda: limpet.Router(["a"]).rebalance(1, idle=NAN), "idle = nan"),
]


@pytest.mark.parametrize(("make", "message"), BAD_VALUES, ids=[m for _, m in BAD_VALUES])
def test_a_bad_value_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def wrong(value: object) -> Any:
    """A value of the wrong type, past the type checker."""
    return value


BAD_TYPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: limpet.Router(wrong("gpu0")), "names must be a list of names, not str"),
    (lambda: limpet.Router(wrong([1])), "a name must be a str, not int"),
    (lambda: limpet.Router(max_num_seqs=wrong(1.5)), "max_num_seqs must be an int, not float"),
    (lambda: limpet.Router(max_num_seqs=wrong(True)), "max_num_seqs must be an int, not bool"),
    (lambda: limpet.Router(live_window=wrong("300")), "live_window must be a number, not str"),
    (lambda: limpet.Router(affinity=wrong("off")), "affinity must be a member of limpet.Affinity"),
    (lambda: limpet.Router(scorer=wrong(3)), "scorer must be a policy of limpet or an object"),
    (
        lambda: limpet.Router(scorer=wrong(limpet.LeastInFlight)),
        "scorer is the class LeastInFlight; pass an object of it: LeastInFlight()",
    ),
    (lambda: limpet.Router(pins=wrong(limpet.NeverSpill())), "a limpet._core.NeverSpill has no"),
    (lambda: limpet.Router(["a"]).route(wrong(7)), "key must be a str, bytes, KeyHash or None"),
    (lambda: limpet.Router(["a"]).route("k", parent=wrong(7)), "parent must be a str, bytes"),
    (lambda: limpet.Router(["a"]).route("k", exclude=wrong("ab")), "exclude must be a list"),
    (lambda: limpet.Router(["a"]).route("k", exclude=wrong([1])), "a name in exclude must be"),
    (lambda: limpet.Router(["a"]).route("k", client_pinned=wrong(0)), "client_pinned must be a"),
    (lambda: wrong(limpet.Router(["a"])).route("k", "p"), "route() takes one positional"),
    (lambda: wrong(limpet.Router(["a"])).route("k", key="k"), "route() got the key twice"),
    (lambda: wrong(limpet.Router(["a"])).plan("k", tokens=1), "plan() has no argument 'tokens'"),
    (lambda: limpet.Router(["a"]).commit(wrong(None)), "decision must be a limpet.Decision"),
    (lambda: limpet.Router(["a"]).observe("a", wrong(7)), "page must be a str or bytes, not int"),
    (lambda: limpet.Router(["a"]).route("k").finish(wrong(7)), "usage must be a limpet.Usage"),
    (lambda: wrong(limpet.Router(["a"]).route("k")).finish(tokens=1), "finish() takes one"),
    (lambda: limpet.Router(["a"]).hash(wrong(None)), "key must be a str or bytes"),
    (lambda: wrong(limpet.Reading)(kv=1.0), 'Reading has no figure "kv"'),
]


@pytest.mark.parametrize(("make", "message"), BAD_TYPES, ids=[m for _, m in BAD_TYPES])
def test_a_value_of_the_wrong_type_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


def test_the_secret_is_not_shown() -> None:
    with pytest.raises(ValueError, match="secret") as error:
        limpet.Router(secret=b"hunter2")
    assert "hunter2" not in str(error.value)


def test_a_lone_surrogate_has_no_bytes_to_hash() -> None:
    with pytest.raises(UnicodeEncodeError):
        limpet.Router(["a"]).route("\udc80")


def test_a_failed_call_takes_no_slot() -> None:
    router = limpet.Router(["a"])
    with pytest.raises(TypeError):
        router.route("k", exclude=wrong([1]))
    assert router.snapshot().replicas[0].in_flight == 0


def test_a_derived_router_that_forgot_its_base_says_so() -> None:
    class Mine(limpet.Router):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match="__init__"):
        Mine().route("k")
