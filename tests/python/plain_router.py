# SPDX-License-Identifier: Apache-2.0
"""The decision table as a slow plain model, for random histories that run beside the router.

It keeps every conversation and recounts everything at each question, so that no running count can
be wrong in it; it was written from the rule and shares nothing with the headers. Where the rule
leaves a tie to a hash or a rotation it answers with the set of equally good replicas. Times are
whole seconds and the live window is 64 of them, so that fading in 64 steps is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

LIVE_WINDOW = 64
FRESH_FOR = 15
TIME_TO_LIVE = 600


@dataclass
class Gauge:
    kv_usage: float
    at: int
    in_flight: int


@dataclass
class PlainReplica:
    max_num_seqs: int
    state: str = "up"
    in_flight: int = 0
    epoch: int = 0
    gauge: Gauge | None = None


@dataclass
class Conversation:
    home: str
    epoch: int
    last_active: int
    in_flight: int = 0
    uses: int = 0  # turns begun since it was pinned


@dataclass
class Answer:
    outcome: str
    replicas: set[str] = field(default_factory=set)


@dataclass
class PlainTurn:
    key: str | None = None
    parent: str | None = None
    client_pinned: str | None = None
    exclude: tuple[str, ...] = ()
    side_call: bool = False


class PlainRouter:
    def __init__(self, *, kv_weight: float = 0.0, live_weight: float = 0.25) -> None:
        self.kv_weight = kv_weight
        self.live_weight = live_weight
        self.now = 0
        self.affinity = True
        self.replicas: dict[str, PlainReplica] = {}
        self.conversations: dict[str, Conversation] = {}

    # Questions ------------------------------------------------------------------------------------

    def pinned(self, key: str | None) -> Conversation | None:
        """The conversation, unless its pin expired; its home may be gone all the same."""
        found = self.conversations.get(key) if key is not None else None
        if found and found.in_flight == 0 and self.now - found.last_active >= TIME_TO_LIVE:
            return None
        return found

    def is_current(self, conversation: Conversation) -> bool:
        home = self.replicas.get(conversation.home)
        return home is not None and home.epoch == conversation.epoch

    def live(self, name: str) -> int:
        return sum(
            conversation.home == name
            and self.is_current(conversation)
            and (conversation.in_flight > 0 or self.now - conversation.last_active < LIVE_WINDOW)
            for conversation in self.conversations.values()
        )

    def overloaded(self, name: str) -> bool:
        replica = self.replicas[name]
        return replica.in_flight >= max(1, replica.max_num_seqs // 4)

    def serving(self, exclude: Iterable[str]) -> list[str]:
        """Those that can take a turn: all that are up, or the draining ones where none is."""
        for state in ("up", "draining"):
            found = [n for n, r in self.replicas.items() if r.state == state and n not in exclude]
            if found:
                return found
        return []

    def fewest_in_flight(self, names: Iterable[str]) -> set[str]:
        names = list(names)
        least = min((self.replicas[n].in_flight for n in names), default=0)
        return {n for n in names if self.replicas[n].in_flight == least}

    def best(self, names: Iterable[str]) -> set[str]:
        names = list(names)
        # The gauges of those that are up, and of the draining ones where those stand in.
        states = {"up", *(self.replicas[n].state for n in names)}
        fresh = all(
            r.gauge is not None and self.now - r.gauge.at < FRESH_FOR
            for r in self.replicas.values()
            if r.state in states
        )

        def rank(name: str) -> tuple[int, int]:
            replica = self.replicas[name]
            usage = 0.0
            if fresh and replica.gauge is not None:
                usage = replica.gauge.kv_usage
                if replica.gauge.in_flight:
                    usage *= min(1.0, replica.in_flight / replica.gauge.in_flight)
            score = replica.in_flight + self.kv_weight * usage + self.live_weight * self.live(name)
            return round(score * 1000), self.live(name)

        lowest = min((rank(n) for n in names), default=(0, 0))
        return {n for n in names if rank(n) == lowest}

    # The decision table ---------------------------------------------------------------------------

    def decide(self, turn: PlainTurn) -> Answer:
        candidates = self.serving(turn.exclude)
        if not candidates:
            return Answer("refused")
        if not self.affinity:
            return Answer("unrouted")
        named = self.replicas.get(turn.client_pinned or "")
        if named and named.state in ("up", "draining") and turn.client_pinned not in turn.exclude:
            return Answer("client_pinned", {turn.client_pinned or ""})
        if turn.key is None:
            return Answer("balanced", self.fewest_in_flight(candidates))
        conversation = self.pinned(turn.key)
        if conversation is None or not self.is_current(conversation):
            if turn.side_call:
                return Answer("balanced", self.fewest_in_flight(candidates))
            return Answer("placed", self.place(turn, candidates))
        home = conversation.home
        serves = self.replicas[home].state in ("up", "draining")
        if turn.side_call:
            if serves and home not in turn.exclude and not self.overloaded(home):
                return Answer("sticky", {home})
            return Answer("balanced", self.fewest_in_flight(candidates))
        if not serves:
            return Answer("moved", self.best(candidates))
        if home in turn.exclude:
            return Answer("spilled", self.fewest_in_flight(candidates))
        if self.overloaded(home):
            fewest = self.fewest_in_flight(n for n in candidates if n != home)
            if any(self.replicas[n].in_flight < self.replicas[home].in_flight for n in fewest):
                return Answer("spilled", fewest)
        return Answer("sticky", {home})

    def place(self, turn: PlainTurn, candidates: list[str]) -> set[str]:
        parent = self.pinned(turn.parent)
        if parent and self.is_current(parent):
            beside = parent.home
            is_up = self.replicas[beside].state == "up"
            if is_up and beside not in turn.exclude and not self.overloaded(beside):
                return {beside}
        return self.best(candidates)

    # What happens ---------------------------------------------------------------------------------

    def begin(self, turn: PlainTurn, outcome: str, replica: str) -> PlainLease:
        """Books the answer that the router chose among the equally good ones."""
        self.replicas[replica].in_flight += 1
        lease = PlainLease(self, self.replicas[replica], outcome)
        if turn.key is None or turn.side_call or outcome == "client_pinned":
            return lease
        conversation = self.pinned(turn.key)
        if conversation is None:
            conversation = self.conversations[turn.key] = Conversation(replica, 0, self.now)
        if outcome in ("placed", "moved"):
            conversation.home = replica
            conversation.epoch = self.replicas[replica].epoch
            conversation.uses = conversation.in_flight
        conversation.in_flight += 1
        conversation.uses += 1
        conversation.last_active = self.now
        lease.key, lease.conversation = turn.key, conversation
        return lease

    def observe(self, name: str, kv_usage: float) -> None:
        replica = self.replicas[name]
        replica.gauge = Gauge(kv_usage, self.now, replica.in_flight)

    def restarted(self, name: str) -> None:
        self.replicas[name].epoch += 1
        self.replicas[name].gauge = None


@dataclass
class PlainLease:
    router: PlainRouter
    replica: PlainReplica
    outcome: str
    key: str | None = None
    conversation: Conversation | None = None

    def end(self, how: str) -> None:
        self.replica.in_flight -= 1
        conversation = self.conversation
        if conversation is None or self.key is None:
            return
        if self.router.conversations.get(self.key) is not conversation:
            return  # that stay of the conversation is over
        if how == "fail" and self.outcome == "placed" and conversation.uses == 1:
            del self.router.conversations[self.key]
            return
        conversation.in_flight -= 1
        conversation.last_active = self.router.now
