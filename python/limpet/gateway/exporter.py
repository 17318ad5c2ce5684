# SPDX-License-Identifier: Apache-2.0
"""The gateway's own /metrics: Prometheus text, names with limpet_, ratios as two counters.

Labels are pool, replica, class, status: never a tenant's session, key or prompt.
"""

from __future__ import annotations

from collections.abc import Iterable

from limpet.gateway.pool import TTFB_BUCKETS, Pool

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[str, dict[str, object], float | None]  # suffix, labels, value

_GAUGES = (
    ("in_flight", "Turns that the gateway has on the replica."),
    ("pending_prefill_tokens", "Prompt tokens that it presumably still has to read."),
    ("live_conversations", "Conversations with a turn in the last 300 s."),
    ("pins", "Conversations whose home it is."),
    ("running", "Turns running, as the engine said."),
    ("waiting", "Turns waiting, as the engine said."),
    ("kv_usage", "KV cache in use, 0..1, as the engine said."),
    ("reading_age", "Seconds since the engine last said."),
)
_TURNS = (
    "sticky", "placed", "spilled_in", "spilled_out", "moved", "balanced", "client_pinned", "failed",
)  # fmt: skip


def page(pools: Iterable[Pool]) -> str:
    families: dict[str, tuple[str, str, list[_Sample]]] = {}

    def add(
        name: str,
        kind: str,
        text: str,
        labels: dict[str, object],
        value: float | None,
        suffix: str = "",
    ) -> None:
        families.setdefault(name, (kind, text, []))[2].append((suffix, labels, value))

    for pool in pools:
        here: dict[str, object] = {"pool": pool.name}
        snapshot = pool.router.snapshot()
        for row in snapshot.replicas:
            on = {**here, "replica": row.name}
            for name, text in _GAUGES:
                add(f"replica_{name}", "gauge", text, on, getattr(row, name))
            add("replica_up", "gauge", "1 where it takes turns of its conversations, else 0.", on,
                row.state.value != "down")  # fmt: skip
            for name in _TURNS:
                add("replica_turns_total", "counter", "Turns by what was decided of them.",
                    {**on, "outcome": name}, getattr(row, name))  # fmt: skip
            add("prefix_queries_total", "counter", "Prompt tokens looked up, as the engine said.",
                on, row.prefix_queries)  # fmt: skip
            add("prefix_hits_total", "counter", "Of those, found in its prefix cache.",
                on, row.prefix_hits)  # fmt: skip
        add("refused_total", "counter", "Turns that no replica could take.", here,
            snapshot.refused + pool.no_replica)  # fmt: skip
        add("unrouted_total", "counter", "Turns left to the engine's own balancer.", here,
            snapshot.unrouted + pool.unsteered)  # fmt: skip
        add("retries_total", "counter", "Turns sent to a second replica.", here, pool.retries)
        add("readings_total", "counter", "Metrics pages read.", here, snapshot.readings)
        add("bad_readings_total", "counter", "Metrics pages that made no sense.", here,
            snapshot.bad_readings)  # fmt: skip
        add("affinity", "gauge", "1 where conversations are sent home.", here,
            snapshot.affinity.value == "on")  # fmt: skip
        add("awaiting_first_byte", "gauge", "Turns sent that have no byte of an answer.", here,
            len(pool.awaiting))  # fmt: skip
        if pool.gate is not None:
            gate = pool.gate.snapshot()
            add("gate_waiting", "gauge", "Turns that wait at the gate.", here, gate.waiting)
            add("gate_longest_wait_seconds", "gauge", "Of those, the longest.", here,
                gate.longest_wait)  # fmt: skip
            add("gate_residents", "gauge", "Conversations inside.", here, gate.residents)
            add(
                "gate_open", "gauge", "1 where a replica's KV capacity is unknown.", here, gate.open
            )
            for name in ("passed", "waited", "refused", "cancelled"):
                add("gate_turns_total", "counter", "Turns by what became of them at the gate.",
                    {**here, "end": name}, getattr(gate, name))  # fmt: skip
        hour = pool.timeline.last_hour()
        add("hour_cached_tokens", "gauge", "Prompt tokens of the last hour read from cache.", here,
            hour.cached)  # fmt: skip
        add("hour_computed_tokens", "gauge", "Prompt tokens of the last hour computed.", here,
            hour.computed)  # fmt: skip
        for turn_class, total in pool.ledger.totals().items():
            labels = {**here, "class": turn_class.value}
            add("turns_total", "counter", "Finished turns by class.", labels, total.turns)
            add("missed_tokens_total", "counter", "Prompt tokens that a hit would have saved.",
                labels, total.computed_tokens)  # fmt: skip
        for status, count in sorted(pool.answers.items()):
            add("answers_total", "counter", "Answers of engines passed on.",
                {**here, "status": status}, count)  # fmt: skip
        text = "Seconds to the first byte of an answer's body."
        below = 0
        for bound, count in zip((*TTFB_BUCKETS, "+Inf"), pool.ttfb_counts, strict=True):
            below += count
            add("ttfb_seconds", "histogram", text, {**here, "le": bound}, below, "_bucket")
        add("ttfb_seconds", "histogram", text, here, pool.ttfb_sum, "_sum")
        add("ttfb_seconds", "histogram", text, here, below, "_count")

    lines = []
    for name, (kind, text, samples) in families.items():
        lines += [f"# HELP limpet_{name} {text}", f"# TYPE limpet_{name} {kind}"]
        for suffix, labels, value in samples:
            if value is not None:
                inside = ",".join(f'{label}="{_escaped(of)}"' for label, of in labels.items())
                lines.append(f"limpet_{name}{suffix}{{{inside}}} {float(value):.15g}")
    return "\n".join(lines) + "\n"


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
