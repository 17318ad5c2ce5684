# SPDX-License-Identifier: Apache-2.0
"""The simulated server in real time: requests go in, tokens come out when the simulator's clock,
which is the event loop's times `speed`, says so.

It knows no HTTP: app.py does. Everything happens on the event loop that was running when it was
made; not thread-safe. The simulator decides what happens when, so a loop that is late makes tokens
come later, never otherwise.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from limpet import sim
from limpet._core import LiveServer
from limpet.lab import text

FAULTS = ("none", "die", "hang", "slow", "500", "cut")

# Wake at most so often: what several steps brought meanwhile leaves in one piece, as vLLM's own
# output collector does when its reader is behind.
_SHORTEST_SLEEP = 0.002


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `limpet engine` is told. ValueError for what makes no sense."""

    profile: str | sim.EngineProfile = "a4000-qwen3-4b"
    model: str = ""  # served name; "": the profile's
    ranks: int = 1  # data-parallel ranks behind one port
    # Who gives a rank to requests that name none: vllm-lb (mid 2026 on), vllm-lb-4w (until 0.14) or
    # vllm-lb-blind (between, dense models: it saw no counts, and went round the ranks).
    balancer: str = "vllm-lb"
    speed: float = 1.0  # how much faster than the real machine
    kv_tokens: int = 0  # of each rank; 0: the profile's
    block_tokens: int = 0
    max_num_seqs: int = 0
    max_model_len: int = 0  # 0: 32,768, or what the cache holds if that is less
    prompt_tokens_details: bool = True  # usage says how many prompt tokens were cached
    # Ids and times of answers follow from the request alone: equal requests, equal bytes.
    reproducible: bool = False

    def machine(self) -> sim.EngineProfile:
        if isinstance(self.profile, str):
            known = sim.profiles()
            if self.profile not in known:
                raise ValueError(f"profile = {self.profile}: there are {', '.join(known)}")
            machine = known[self.profile]
        else:
            machine = sim.EngineProfile(self.profile)
        for name in ("kv_tokens", "block_tokens", "max_num_seqs", "max_model_len"):
            value = getattr(self, name)
            if not 0 <= value < 2**31:
                raise ValueError(f"{name} = {value}: must be 0 to {2**31 - 1}")
            if value and name != "max_model_len":
                setattr(machine, name, value)
        machine.name = self.model or machine.name
        return machine


@dataclass(eq=False)
class Turn:
    """A request in the engine. `changed` is set whenever anything below has changed."""

    id: int
    label: str  # the id that the client sees
    path: str
    prompt: bytes
    answer: bytes
    changed: asyncio.Event
    rank: int | None = None  # None: not yet told
    generated: int = 0
    cached: int = 0
    finished: bool = False

    @property
    def prompt_tokens(self) -> int:
        return text.count(self.prompt)


@dataclass
class Fault:
    kind: str = "none"  # one of FAULTS
    rank: int | None = None  # hang: only this one
    factor: float = 1.0  # slow
    count: int = 0  # 500, cut: how many requests are left
    chunks: int = 0  # cut: after so many


@dataclass
class Stats:
    requests: Counter[str] = field(default_factory=Counter)  # by path
    refused: Counter[str] = field(default_factory=Counter)  # by status
    finished: int = 0
    aborted: int = 0
    # The last ones: which, where, how far it had come, when (Unix time), how long after the
    # disconnect was noticed.
    aborts: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=10_000))


class Core:
    def __init__(self, options: Options) -> None:
        self.options = options
        machine = options.machine()
        if not (0 < options.speed < math.inf):
            raise ValueError(f"speed = {options.speed}: must be above 0")
        if not 1 <= options.ranks <= 64:
            raise ValueError(f"ranks = {options.ranks}: must be 1 to 64")
        self.model = machine.name
        self.server = LiveServer(machine, options.ranks, options.balancer)
        self.max_model_len = min(options.max_model_len or 32_768, self.server.capacity)
        if options.max_model_len > self.server.capacity:
            raise ValueError(
                f"max_model_len = {options.max_model_len}: the cache of a rank holds "
                f"{self.server.capacity} tokens"
            )
        self.started = time.time()
        self.stats = Stats()
        self.fault = Fault()
        self.turns: dict[int, Turn] = {}
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._next_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._fault_ends: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """The simulator's clock, s."""
        return (self._loop.time() - self._began) * self.options.speed

    def submit(
        self,
        label: str,
        path: str,
        prompt: bytes,
        output_tokens: int,
        rank: int | None,
        changed: asyncio.Event,
    ) -> Turn:
        """Requires that it fits max_model_len, and that the rank exists."""
        self._next_id += 1
        turn = Turn(self._next_id, label, path, prompt, text.answer(prompt, output_tokens), changed)
        self.server.submit(turn.id, prompt + turn.answer, turn.prompt_tokens, rank, self.now())
        self.turns[turn.id] = turn
        self._wake_when_due()
        return turn

    def abort(self, turn: Turn, noticed: float) -> None:
        """Nobody waits for that answer any more, as was noticed at that time.monotonic()."""
        if self.turns.pop(turn.id, None) is None:
            return
        self.server.abort(turn.id, self.now())
        self.stats.aborted += 1
        self.stats.aborts.append(
            {
                "id": turn.label,
                "path": turn.path,
                "rank": turn.rank,
                "prompt_tokens": turn.prompt_tokens,
                "generated": turn.generated,
                "at": time.time(),
                "seconds": time.monotonic() - noticed,
            }
        )
        self._wake_when_due()

    def metrics(self) -> str:
        self._advance()
        return self.server.metrics(self.started)

    def set_fault(self, fault: Fault, seconds: float = 0) -> None:
        """From now on; the last one ends. It ends by itself after `seconds`, if above 0."""
        now = self.now()
        if self._fault_ends:
            self._fault_ends.cancel()
            self._fault_ends = None
        self.server.slow(fault.factor)
        for rank in range(self.options.ranks):
            hangs = fault.kind == "hang" and fault.rank in (None, rank)
            self.server.hang(rank, hangs, now)
        self.fault = fault
        if seconds > 0:
            self._fault_ends = self._loop.call_later(seconds, self.set_fault, Fault())
        self._wake_when_due()

    def takes(self, kind: str) -> bool:
        """Whether the fault is of that kind, has a request left, and now one fewer."""
        if self.fault.kind != kind or self.fault.count <= 0:
            return False
        self.fault.count -= 1
        return True

    def shown(self) -> dict[str, Any]:
        """What /lab/stats says."""
        self._advance()
        ranks = []
        for rank in range(self.options.ranks):
            running, waiting, blocks = self.server.gauges(rank)
            ranks.append({"running": running, "waiting": waiting, "blocks_in_use": blocks})
        return {
            "requests": dict(self.stats.requests),
            "refused": dict(self.stats.refused),
            "finished": self.stats.finished,
            "aborted": self.stats.aborted,
            "in_flight": len(self.turns),
            "ranks": ranks,
            "fault": self.fault.kind,
            "aborts": list(self.stats.aborts),
        }

    def stop(self) -> None:
        """Everybody who waits is woken, and finds `stopping`."""
        self.stopping = True
        for handle in (self._timer, self._fault_ends):
            if handle:
                handle.cancel()
        self._wake(self.turns.values())

    def _advance(self) -> None:
        changed = set()
        for number, rank, generated, cached, finished in self.server.advance(self.now()):
            turn = self.turns[number]
            turn.rank, turn.generated, turn.cached = rank, generated, cached
            changed.add(turn)
            if finished:
                turn.finished = True
                self.stats.finished += 1
                del self.turns[number]
        self._wake(changed)

    @staticmethod
    def _wake(turns: Iterable[Turn]) -> None:
        for turn in turns:
            turn.changed.set()

    def _on_time(self) -> None:
        self._timer = None
        self._advance()
        self._wake_when_due(_SHORTEST_SLEEP)

    def _wake_when_due(self, at_least: float = 0) -> None:
        due = self.server.next_at
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if due == math.inf or self.stopping:
            return
        at = max(self._began + due / self.options.speed, self._loop.time() + at_least)
        self._timer = self._loop.call_at(at, self._on_time)
