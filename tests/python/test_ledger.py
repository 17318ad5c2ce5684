# SPDX-License-Identifier: Apache-2.0
"""The ledger and the timeline from Python; the classes themselves are tested in tests/ledger."""

from __future__ import annotations

import limpet
import pytest
from limpet import TurnClass


def usage(prompt: int, cached: int | None, completion: int = 0) -> limpet.Usage:
    return limpet.Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def test_a_conversation_is_cold_once_then_hits_and_a_miss_at_home_is_lost() -> None:
    router = limpet.Router(["a", "b"])
    ledger = limpet.Ledger()
    classes = []
    for said in (usage(1000, 0, 100), usage(1500, 1088), usage(2000, 0)):
        with router.route("k") as lease:
            classes.append(ledger.record(lease.decision, said).turn_class)
    assert classes == [TurnClass.cold, TurnClass.hit, TurnClass.lost]
    totals = ledger.totals()
    assert totals[TurnClass.lost].turns == 1
    assert totals[TurnClass.lost].computed_tokens == 1488  # 1,500 in whole blocks of 16
    assert set(totals) == set(TurnClass)
    assert ledger.conversations == 1


def test_totals_are_kept_for_each_replica() -> None:
    router = limpet.Router(["a", "b"])
    ledger = limpet.Ledger()
    lease = router.route("k")
    ledger.record(lease.decision, usage(1000, 0))
    home = lease.replica
    assert home is not None
    lease.finish()
    spilled = router.route("k", exclude=[home.name])
    recorded = ledger.record(spilled.decision, usage(1400, 0))
    assert recorded.turn_class is TurnClass.misrouted
    assert recorded.reusable_tokens == recorded.computed_tokens == 992
    assert ledger.totals(spilled.replica)[TurnClass.misrouted].computed_tokens == 992
    assert ledger.totals(home)[TurnClass.misrouted].turns == 0


def test_a_changed_prompt_has_diverged_where_its_prefix_is_known() -> None:
    ledger = limpet.Ledger()
    router = limpet.Router(["a"])
    decision = router.route("k").decision
    ledger.record(decision, usage(1000, 0), prefix=[1, 2])
    again = router.route("k").decision
    assert ledger.record(again, usage(1300, 0), prefix=[1, 9, 3]).turn_class is TurnClass.diverged


def test_thresholds_that_make_no_sense_are_refused_by_name_and_value() -> None:
    with pytest.raises(ValueError, match=r"hit_at_least = 1\.5"):
        limpet.Ledger(hit_at_least=1.5)
    with pytest.raises(ValueError, match="capacity"):
        limpet.Ledger(capacity=0)
    with pytest.raises(ValueError, match="block_tokens"):
        limpet.Ledger(block_tokens=-1)


def test_the_timeline_splits_prompts_second_by_second() -> None:
    router = limpet.Router(["a", "b"])
    timeline = limpet.Timeline()
    replica = router.route("k").replica
    assert replica is not None
    timeline.record(replica, usage(1000, 900), now=100.2)
    timeline.record(replica, usage(500, None), now=101.9)
    series = timeline.series(now=102.0, seconds=3)
    assert [(step.cached, step.computed) for step in series] == [(900, 100), (0, 500), (0, 0)]
    hour = timeline.last_hour(replica, now=102.0)
    assert (hour.cached, hour.computed) == (900, 600)
    assert hour.cached_share == pytest.approx(0.6)
    assert timeline.last_hour(replica, now=4000.0).cached == 0
