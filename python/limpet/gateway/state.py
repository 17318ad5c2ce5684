# SPDX-License-Identifier: Apache-2.0
"""The documents of the admin API: what the panel draws. README.md has the contract.

Counts are those of the router's snapshot; nothing here is counted a second time. Times are unix
seconds, ages seconds, ratios 0..1, unknown is null.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import limpet
from limpet.gateway.pool import Decided, Pool
from limpet.gateway.replicas import Target

READING_MAX_AGE = 15.0  # s; the router's own limit


def pools(all_pools: dict[str, Pool]) -> dict[str, Any]:
    return {
        "pools": [
            {"name": pool.name, "models": [*pool.settings.models, *pool.settings.aliases]}
            for pool in all_pools.values()
        ]
    }


def state(pool: Pool, loop_now: float) -> dict[str, Any]:
    snapshot = pool.router.snapshot()
    gate = None if pool.gate is None else pool.gate.snapshot()
    hour = pool.timeline.last_hour()
    keyed = [sum(getattr(r, n) for r in snapshot.replicas) for n in ("sticky", "spilled_in",
             "moved")]  # fmt: skip
    return {
        "pool": pool.name,
        "now": time.time(),
        "reading_max_age": READING_MAX_AGE,
        "affinity": snapshot.affinity.value,
        "spill_threshold": threshold(pool),
        "sticky_share": keyed[0] / sum(keyed) if sum(keyed) else None,
        "refused": snapshot.refused + pool.no_replica,
        "unrouted": snapshot.unrouted + pool.unsteered,
        "retried": pool.retries,
        "replicas": [_replica(row, pool.targets[row.name]) for row in snapshot.replicas],
        "last_hour": {"cached": hour.cached, "computed": hour.computed},
        "classes": [
            {
                "class": turn_class.value,
                "turns": total.turns,
                "computed_tokens": total.computed_tokens,
            }
            for turn_class, total in pool.ledger.totals().items()
        ],
        "decisions": [decision(decided) for decided in pool.decisions],
        "waiting": _waiting(pool, gate, loop_now),
        "gate": None if gate is None else dataclasses.asdict(gate),
    }


def _waiting(pool: Pool, gate: limpet.GateSnapshot | None, loop_now: float) -> dict[str, Any]:
    """Turns that the client has no byte of, by what they wait for."""
    waits = [loop_now - flight.began for flight in pool.awaiting]
    longest = max(waits, default=0.0)
    reasons = {"first byte": len(waits)} if waits else {}
    turns = len(waits)
    if gate is not None:
        turns += gate.waiting
        longest = max(longest, gate.longest_wait)
        if gate.waiting:
            reasons["room in the caches (gate)"] = gate.waiting
    return {"turns": turns, "longest": longest, "reasons": reasons}


def _replica(row: limpet.ReplicaSnapshot, target: Target) -> dict[str, Any]:
    asked, found = row.prefix_queries, row.prefix_hits
    return {
        "name": row.name,
        "endpoint": row.endpoint,
        "rank": row.rank,
        "state": row.state.value,
        "wanted": target.wanted,
        "health": target.health,
        "leaving": target.leaving,
        "max_num_seqs": row.max_num_seqs,
        "in_flight": row.in_flight,
        "pending_prefill_tokens": row.pending_prefill_tokens,
        "live_conversations": row.live_conversations,
        "pins": row.pins,
        "sticky": row.sticky,
        "placed": row.placed,
        "spilled_in": row.spilled_in,
        "spilled_out": row.spilled_out,
        "moved": row.moved,
        "balanced": row.balanced,
        "client_pinned": row.client_pinned,
        "failed": row.failed,
        "restarts": row.restarts,
        "running": row.running,
        "waiting": row.waiting,
        "kv_usage": row.kv_usage,
        "prefix_queries": asked,
        "prefix_hits": found,
        "prefix_hit_rate": found / asked if asked and found is not None else None,
        "prefix_hit_since": target.since,
        "prefix_hit_rate_5m": target.recent_hit_rate(),
        "reading_age": row.reading_age,
    }


def threshold(pool: Pool) -> dict[str, Any]:
    """The turns in flight from which a replica spills; null where its replicas differ."""
    value = pool.spill.threshold
    if value is not None:
        return {"value": value, "auto": False}
    # As AutoThreshold in include/limpet/overflow/spill_above.hpp: 256 where it is unknown.
    each = {max(1, (target.settings.max_num_seqs or 256) // 4) for target in pool.targets.values()}
    return {"value": each.pop() if len(each) == 1 else None, "auto": True}


def decision(decided: Decided) -> dict[str, Any]:
    made = decided.decision
    usage = decided.usage
    return {
        "id": decided.id,
        "at": decided.at,
        "kind": decided.kind,
        "outcome": decided.outcome,
        "reason": made.reason.value if made is not None else "its engine cannot be steered",
        "replica": made.replica.name if made is not None and made.replica is not None else None,
        "home": made.home.name if made is not None and made.home is not None else None,
        "class": decided.turn_class,
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "cached_tokens": usage.cached_tokens if usage is not None else None,
    }


def explained(decided: Decided) -> dict[str, Any]:
    """A decision with its explanation as it was when it was made; no rows where none was kept."""
    kept = decided.explanation
    return {**(explanation(kept) if kept else {"rows": []}), **decision(decided)}


def explanation(found: limpet.Explanation) -> dict[str, Any]:
    made = found.decision
    return {
        "outcome": made.outcome.value,
        "reason": made.reason.value,
        "replica": made.replica.name if made.replica is not None else None,
        "gauges_fresh": found.gauges_fresh,
        "rows": [
            {
                "name": row.name,
                "standing": row.standing.value,
                "home": row.home,
                "overloaded": row.overloaded,
                "in_flight": row.load.in_flight,
                "live_conversations": row.load.live_conversations,
                "kv_usage": row.load.kv_usage if row.reading_age is not None else None,
                "reading_age": row.reading_age,
                "score": row.score,
                "terms": row.terms,
            }
            for row in found.rows
        ],
    }


def timeline(pool: Pool, seconds: int) -> dict[str, Any]:
    steps = pool.timeline.series(seconds=seconds)
    return {
        "now": time.time(),
        "cached": [step.cached for step in steps],
        "computed": [step.computed for step in steps],
    }
