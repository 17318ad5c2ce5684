# SPDX-License-Identifier: Apache-2.0
"""One pool: a router, the replicas it chooses from, and what became of their turns.

choose() is the decision for one attempt and returns a Choice, which must be ended exactly once:
finish(), cancel() or fail(). The last hundred decisions keep their explanation as it was when they
were made. One event loop uses a pool; nothing here waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import limpet
from limpet.gateway.replicas import Endpoint, Flight, Target, Wanted
from limpet.gateway.settings import PoolSettings, ReplicaSettings

log = logging.getLogger("limpet.gateway")

_PARSERS: dict[str, type] = {
    "vllm": limpet.VllmMetrics,
    "sglang": limpet.SglangMetrics,
    "llamacpp": limpet.LlamaCppMetrics,
}
_KEPT_DECISIONS = 100
_ALWAYS_EXPLAINED = 16  # replicas up to which an explanation costs less than 10 us
_EXPLAINED_EVERY = 0.01  # s, in larger pools
TTFB_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class Ask:
    """What is known of a turn before it is routed."""

    key: limpet.KeyHash | None = None
    parent: limpet.KeyHash | None = None
    side_call: bool = False
    kind: str = "main"
    rank: int | None = None  # named by the client
    steerable: bool = True  # whether its endpoint honours the rank header


class Decided:
    """One decision, for the panel."""

    __slots__ = ("at", "decision", "explanation", "id", "kind", "outcome", "turn_class", "usage")

    def __init__(self, number: int, kind: str, outcome: str) -> None:
        self.id = number
        self.at = time.time()
        self.kind = kind
        self.outcome = outcome
        self.decision: limpet.Decision | None = None
        self.explanation: limpet.Explanation | None = None
        self.turn_class: str | None = None
        self.usage: limpet.Usage | None = None


class Choice:
    """Where one attempt goes, with the slot it holds there. Ended once; more ends do nothing."""

    __slots__ = ("_open", "decided", "endpoint", "lease", "outcome", "pool", "target")

    def __init__(
        self,
        pool: Pool,
        lease: limpet.Lease | limpet.GateTicket | None,
        target: Target | None,
        endpoint: Endpoint | None,
        decided: Decided,
    ) -> None:
        self.pool = pool
        self.lease = lease  # None: refused, or the engine's own balancer decides
        self.target = target  # None: that of a rank behind the endpoint which nobody chose
        self.endpoint = endpoint  # None: refused
        self.decided = decided
        self.outcome = decided.outcome
        self._open = True

    def finish(
        self, usage: limpet.Usage | None, prefix: list[int] | None = None
    ) -> limpet.TurnClass | None:
        """The turn was answered; returns what it was to the prefix cache, where that is known."""
        if not self._end():
            return None
        if self.lease is not None:
            self.lease.finish(usage)
        if usage is None or self.endpoint is None:
            return None
        self._count(usage)
        self.decided.usage = usage
        if self.decided.decision is None:
            return None
        recorded = self.pool.ledger.record(self.decided.decision, usage, prefix or [])
        self.decided.turn_class = recorded.turn_class.value
        return recorded.turn_class

    def cancel(self, usage: limpet.Usage | None = None) -> None:
        """The turn ended early, by its client or with an answer that read nothing."""
        if not self._end():
            return
        if usage is not None and usage.prompt_tokens:
            self._count(usage)
        if self.lease is not None:
            self.lease.cancel()

    def fail(self) -> None:
        """Its replica failed it."""
        if self._end() and self.lease is not None:
            self.lease.fail()

    def _end(self) -> bool:
        was_open, self._open = self._open, False
        return was_open

    def _count(self, usage: limpet.Usage) -> None:
        # A turn that an engine's own balancer placed counts for the pool; which of the ranks it
        # was is unknown, and nothing shows the timeline of one rank.
        if self.endpoint is not None:
            target = self.target or self.endpoint.targets[0]
            self.pool.timeline.record(target.replica, usage)


class Pool:
    def __init__(self, settings: PoolSettings, secret: bytes) -> None:
        self.settings = settings
        self.name = settings.name
        self.spill = limpet.AdjustableSpill(threshold=settings.threshold)
        self.router = limpet.Router(
            pins=limpet.ShardedPins(capacity=settings.pins),
            overflow=self.spill,
            metrics=_PARSERS[settings.kind](),
            secret=secret,
        )
        self.gate = (
            limpet.WorkingSetGate(self.router, **settings.gate.options())
            if settings.gate.enabled
            else None
        )
        self.ledger = limpet.Ledger(block_tokens=settings.block_tokens)
        self.timeline = limpet.Timeline()
        self.targets: dict[str, Target] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.decisions: deque[Decided] = deque(maxlen=_KEPT_DECISIONS)
        self.decided = 0  # so many ever
        self.unsteered = 0  # sent to an endpoint without a decision
        self.no_replica = 0  # of those, refused
        self.retries = 0
        self.flights: set[Flight] = set()
        self.awaiting: set[Flight] = set()  # those of them without a byte yet
        self.pending: list[ReplicaSettings] = []  # to be added once others of these names left
        self.answers: dict[int, int] = {}  # by status
        self.ttfb_counts = [0] * (len(TTFB_BUCKETS) + 1)
        self.ttfb_sum = 0.0
        self.changed = asyncio.Condition()  # notified when an operator changed something
        self.upstream_key = os.environ.get(settings.api_key_env, "")
        self._turn = 0  # of endpoints, for turns without a decision
        self._explained_at = 0.0
        self._said_unsteered = False
        for replica in settings.replicas:
            self.add(replica)

    # Membership -----------------------------------------------------------------------------------

    def add(self, settings: ReplicaSettings) -> None:
        """Adds the replicas behind one endpoint."""
        endpoint = self.endpoints.get(settings.url)
        if endpoint is None:
            endpoint = self.endpoints[settings.url] = Endpoint(settings.url)
        ranked = settings.data_parallel_size > 1
        for rank, name in enumerate(settings.names()):
            target = Target(name, endpoint, rank if ranked else None, settings)
            target.replica = self.router.add_replica(
                name,
                endpoint=settings.url,
                rank=target.rank,
                engine=target.engine,
                max_num_seqs=settings.max_num_seqs,
            )
            self.targets[name] = target
            endpoint.targets.append(target)

    def leave(self, target: Target) -> None:
        """Its turns may end; then forget() it."""
        target.leaving = True
        self.want(target, "draining")

    def forget(self, target: Target) -> None:
        del self.targets[target.name]
        target.endpoint.targets.remove(target)
        if not target.endpoint.targets:
            del self.endpoints[target.endpoint.url]
        self.router.remove(target.name)

    def want(self, target: Target, wanted: Wanted) -> None:
        """What the operator wants of a replica; its health may say otherwise."""
        target.wanted = wanted
        self.refresh(target)

    def refresh(self, target: Target) -> None:
        """Tells the router of a replica what its operator and its health together say."""
        state: Wanted = target.wanted if target.health == "ok" else "down"
        if state == target.state:
            return
        log.warning("pool %s: %s is %s (%s)", self.name, target.name, state, target.health)
        target.state = state
        change = {
            "up": self.router.set_up,
            "draining": self.router.drain,
            "down": self.router.set_down,
        }
        change[state](target.name)

    @property
    def open(self) -> bool:
        """Whether any replica can take a turn."""
        return any(target.up for target in self.targets.values())

    # Decisions ------------------------------------------------------------------------------------

    def choose(self, ask: Ask, exclude: tuple[str, ...] = ()) -> Choice:
        """The decision, at once."""
        asked = self._ask(ask, exclude)
        if isinstance(asked, Choice):
            return asked
        decided, arguments = asked
        return self._chosen(decided, self.router.route(ask.key, **arguments), exclude)

    async def admit(self, ask: Ask, exclude: tuple[str, ...], prompt_tokens: int) -> Choice:
        """choose(), once the gate lets the turn in. limpet.GateRefusedError where it does not."""
        if self.gate is None:
            return self.choose(ask, exclude)
        asked = self._ask(ask, exclude)
        if isinstance(asked, Choice):
            return asked
        decided, arguments = asked
        decided.outcome = "waiting"
        ticket = self.gate.enter(ask.key, prompt_tokens=prompt_tokens, **arguments)
        try:
            await ticket
        except limpet.GateRefusedError:
            decided.outcome = "refused"
            raise
        if ticket.replica is not None and ticket.replica.name not in self.targets:
            ticket.fail()  # it was removed meanwhile
            return await self.admit(ask, exclude, prompt_tokens)
        choice = self._chosen(decided, ticket, exclude)
        if choice.lease is None:
            ticket.cancel()
        return choice

    def _ask(self, ask: Ask, exclude: tuple[str, ...]) -> Choice | tuple[Decided, dict[str, Any]]:
        """What the router is to be asked; a Choice where it is not."""
        ranks = len(self.targets) > len(self.endpoints)
        if ranks and not ask.steerable:
            if not self._said_unsteered:
                self._said_unsteered = True
                log.warning(
                    "pool %s: its engines do not let /v1/responses choose a data-parallel rank; "
                    "such turns go unrouted to the engine's own balancer",
                    self.name,
                )
            return self._unrouted(ask, exclude)
        pinned = None
        if ask.rank is not None and ranks:
            named = [t.name for t in self.targets.values() if t.rank == ask.rank]
            if len(named) != 1:  # none, or one an endpoint: the engine answers for the header
                return self._unrouted(ask, exclude)
            pinned = named[0]

        arguments: dict[str, Any] = {
            "parent": ask.parent,
            "client_pinned": pinned,
            "exclude": exclude,
            "side_call": ask.side_call,
        }
        decided = self._decided(ask, "")
        explained = len(self.targets) <= _ALWAYS_EXPLAINED
        if not explained:
            now = time.monotonic()
            explained = now - self._explained_at >= _EXPLAINED_EVERY
            self._explained_at = now if explained else self._explained_at
        if explained:
            decided.explanation = self.router.explain(ask.key, **arguments)
        return decided, arguments

    def _chosen(
        self,
        decided: Decided,
        lease: limpet.Lease | limpet.GateTicket,
        exclude: tuple[str, ...],
    ) -> Choice:
        decided.decision = lease.decision
        decided.outcome = lease.outcome.value
        if lease.outcome is limpet.Outcome.unrouted:  # affinity is off
            return self._forward(decided, exclude)
        if lease.outcome is limpet.Outcome.refused:
            return Choice(self, None, None, None, decided)
        target = self.targets[lease.replica.name]
        return Choice(self, lease, target, target.endpoint, decided)

    def _decided(self, ask: Ask, outcome: str) -> Decided:
        self.decided += 1
        decided = Decided(self.decided, ask.kind, outcome)
        self.decisions.appendleft(decided)
        return decided

    def _unrouted(self, ask: Ask, exclude: tuple[str, ...]) -> Choice:
        self.unsteered += 1
        return self._forward(self._decided(ask, "unrouted"), exclude)

    def _forward(self, decided: Decided, exclude: tuple[str, ...]) -> Choice:
        """To the endpoints in turn; behind each, the engine's own balancer decides."""
        endpoints = [
            endpoint
            for endpoint in self.endpoints.values()
            if any(t.state == "up" and t.name not in exclude for t in endpoint.targets)
        ] or [e for e in self.endpoints.values() if any(t.up for t in e.targets)]
        if not endpoints:
            self.no_replica += 1
            decided.outcome = "refused"
            return Choice(self, None, None, None, decided)
        self._turn += 1
        endpoint = endpoints[self._turn % len(endpoints)]
        # A server of one replica is that replica, whoever chose it.
        target = endpoint.targets[0] if len(endpoint.targets) == 1 else None
        return Choice(self, None, target, endpoint, decided)

    def others(self, endpoint: Endpoint, target: Target | None) -> tuple[str, ...]:
        """Names to exclude after `endpoint` failed a turn; () where nobody else can take it."""
        behind = tuple(t.name for t in endpoint.targets)
        if any(t.up and t.endpoint is not endpoint for t in self.targets.values()):
            return behind
        if target is not None and any(t.up and t is not target for t in endpoint.targets):
            return (target.name,)
        return ()

    # What became of turns -------------------------------------------------------------------------

    def first_byte(self, seconds: float) -> None:
        self.ttfb_sum += seconds
        for number, bound in enumerate(TTFB_BUCKETS):
            if seconds <= bound:
                self.ttfb_counts[number] += 1
                return
        self.ttfb_counts[-1] += 1

    async def tell(self) -> None:
        """Wakes whoever watches the pool."""
        async with self.changed:
            self.changed.notify_all()

    def decision(self, number: int) -> Decided | None:
        return next((d for d in self.decisions if d.id == number), None)

    def __repr__(self) -> str:
        return f"<Pool {self.name} of {len(self.targets)} replicas>"
