# SPDX-License-Identifier: Apache-2.0
"""Plays sessions through one router in virtual time, for replay.py.

The twin of playback.hpp, whose preface says by which rules. Every figure is a whole number, so that
both languages agree to the last digit.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import limpet
from sessions import NONE, Session, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

_SEND, _ANSWER = 0, 1
_OUTCOME_NUMBERS = {outcome: number for number, outcome in enumerate(limpet.Outcome)}


@dataclass(slots=True)
class Settings:
    replicas: int
    concurrent: int  # sessions at a time
    ramp_ms: int  # over which the first of them start, evenly spread
    max_num_seqs: int  # of each replica
    idle_ttl_s: int  # of the pins; 0: for ever, as the replicas remember
    seed: int


@dataclass(slots=True)
class Tally:
    """What came of a run, in whole numbers: milliseconds, tokens, turns."""

    turns: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0  # of those, read before by the replica that got the turn
    later_turns: int = 0  # turns that are not their conversation's first
    at_home: int = 0  # of those, sent to where the conversation was placed
    spills: int = 0
    placed_again: int = 0  # later turns that found no pin, or were moved
    end_ms: int = 0
    met: list[int] = field(default_factory=list)  # [n]: turns sent while n others were in flight
    in_flight_ms: list[int] = field(default_factory=list)  # of each replica: turns x time
    fullest_in_flight_ms: int = 0  # of whichever was the fullest
    spread_in_flight_ms: int = 0  # of the fullest, were they always spread evenly
    fingerprint: int = 0xCBF29CE484222325  # of every replica and outcome, in order

    def median_met(self) -> int:
        seen = 0
        for others, turns in enumerate(self.met):
            seen += turns
            if 2 * seen >= self.turns:
                return others
        return 0

    def reused_percent(self) -> float:
        return 100.0 * (self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0)

    def home_percent(self) -> float:
        return 100.0 * (self.at_home / self.later_turns if self.later_turns else 0.0)

    def imbalance(self) -> float:
        return self._over_mean(max(self.in_flight_ms))

    def momentary(self) -> float:
        return self._over_mean(self.fullest_in_flight_ms)

    def floor(self) -> float:
        return self._over_mean(self.spread_in_flight_ms)

    def _over_mean(self, in_flight_ms: int) -> float:
        fleet = sum(self.in_flight_ms)
        return in_flight_ms * len(self.in_flight_ms) / fleet if fleet else 0.0


class ReadPrompts:
    """What each replica has read of one session's prompts."""

    def __init__(self, session: Session) -> None:
        self._turns = session.turns
        # Of each replica that was sent any: the prefix of each prompt that it has read.
        self._longest: dict[int, list[int]] = {}

    def reusable(self, turn: int, replica: int) -> int:
        """The tokens of the turn's prompt that the replica has read: the longest prefix shared with
        any prompt it was sent. Two prompts share what every step between them along `from` keeps.
        """
        longest = self._longest.get(replica)
        if longest is None:
            return 0
        shared = self._turns[turn].prompt_tokens
        most = min(shared, longest[turn])
        while self._turns[turn].source != NONE and most < shared:
            shared = min(shared, self._turns[turn].kept)
            turn = self._turns[turn].source
            most = max(most, min(shared, longest[turn]))
        return most

    def read(self, turn: int, replica: int) -> None:
        """The replica reads the turn's prompt, and with it the beginnings of those it continues."""
        if replica not in self._longest:
            self._longest[replica] = [0] * len(self._turns)
        longest = self._longest[replica]
        shared = longest[turn] = self._turns[turn].prompt_tokens
        while self._turns[turn].source != NONE:
            shared = min(shared, self._turns[turn].kept)
            turn = self._turns[turn].source
            if longest[turn] >= shared:
                return
            longest[turn] = shared


class Running:
    """A session that has begun."""

    def __init__(self, session: Session) -> None:
        self.read = ReadPrompts(session)
        self.homes: list[int | None] = [None] * len(session.keys)
        self.leases: dict[int, tuple[limpet.Lease, int]] = {}  # and the replica, of each turn
        self.answered = 0


class Playback:
    """`ask` says what the policy under test tells the router of a turn, given its key."""

    def __init__(
        self,
        sessions: list[Session],
        settings: Settings,
        ask: Callable[[str], dict[str, Any]],
        pins: limpet.LocalPins | limpet.RendezvousPins,
        overflow: limpet.NeverSpill | limpet.SpillAbove,
    ) -> None:
        names = [f"replica{i}" for i in range(settings.replicas)]
        self._clock = limpet.ManualClock()
        self._router = limpet.Router(
            names,
            max_num_seqs=settings.max_num_seqs,
            pins=pins,
            overflow=overflow,
            clock=self._clock,
        )
        self._index = {name: i for i, name in enumerate(names)}
        self._sessions = sessions
        self._ask = ask
        self._running: dict[int, Running] = {}
        self._in_flight = [0] * settings.replicas
        self._others = 0
        self._events: list[tuple[int, int, int, int, int]] = []
        self._order = 0
        self._next_session = 0
        self._now = 0
        self._tally = Tally(in_flight_ms=[0] * settings.replicas)
        for i in range(settings.concurrent):
            self._begin_session(settings.ramp_ms * i // settings.concurrent)

    def run(self, progress: Callable[[int], None]) -> Tally:
        while self._events:
            at, _, what, session, turn = heapq.heappop(self._events)
            self._pass_time(at)
            if what == _SEND:
                self._send(session, turn)
                if self._tally.turns % 1024 == 0:
                    progress(self._tally.turns)
            else:
                self._answer(session, turn)
        self._tally.end_ms = self._now
        return self._tally

    def _begin_session(self, at: int) -> None:
        number = self._next_session
        if number == len(self._sessions):
            return
        self._next_session += 1
        self._running[number] = Running(self._sessions[number])
        self._foresee(at, _SEND, number, 0)

    def _foresee(self, at: int, what: int, session: int, turn: int) -> None:
        # Events of one moment happen in the order in which they were foreseen.
        heapq.heappush(self._events, (at, self._order, what, session, turn))
        self._order += 1

    def _pass_time(self, until: int) -> None:
        passed = until - self._now
        if passed == 0:
            return
        in_flight_ms = self._tally.in_flight_ms
        for i, turns in enumerate(self._in_flight):
            in_flight_ms[i] += turns * passed
        self._tally.fullest_in_flight_ms += max(self._in_flight) * passed
        replicas = len(self._in_flight)
        self._tally.spread_in_flight_ms += (self._others + replicas - 1) // replicas * passed
        self._now = until
        self._clock.advance(passed / 1000)

    def _send(self, number: int, index: int) -> None:
        session = self._sessions[number]
        turn = session.turns[index]
        running = self._running[number]
        asked = self._ask(session.keys[turn.conversation])
        parent = session.name if turn.conversation else None
        lease = self._router.route(parent=parent, prompt_tokens=turn.prompt_tokens, **asked)
        assert lease.replica is not None
        replica = self._index[lease.replica.name]

        self._count(lease.outcome, replica, turn, running)
        self._tally.reused_tokens += running.read.reusable(index, replica)
        running.read.read(index, replica)
        if self._others == len(self._tally.met):
            self._tally.met.append(0)
        self._tally.met[self._others] += 1
        self._others += 1
        self._in_flight[replica] += 1
        running.leases[index] = (lease, replica)
        self._foresee(self._now + turn.service_ms, _ANSWER, number, index)
        for begun in turn.begun:
            self._foresee(self._now + session.turns[begun].delay_ms, _SEND, number, begun)

    def _count(self, outcome: limpet.Outcome, replica: int, turn: Turn, running: Running) -> None:
        tally = self._tally
        home = running.homes[turn.conversation]
        pinned_anew = outcome in (limpet.Outcome.placed, limpet.Outcome.moved)
        tally.turns += 1
        tally.prompt_tokens += turn.prompt_tokens
        tally.spills += outcome is limpet.Outcome.spilled
        if home is not None:
            tally.later_turns += 1
            tally.at_home += home == replica
            tally.placed_again += pinned_anew
        if home is None or pinned_anew:
            running.homes[turn.conversation] = replica
        said = replica << 4 | _OUTCOME_NUMBERS[outcome]
        tally.fingerprint = (tally.fingerprint ^ said) * 0x100000001B3 & (1 << 64) - 1  # FNV-1a

    def _answer(self, number: int, index: int) -> None:
        session = self._sessions[number]
        turn = session.turns[index]
        running = self._running[number]
        lease, replica = running.leases.pop(index)
        self._others -= 1
        self._in_flight[replica] -= 1
        lease.finish(
            limpet.Usage(prompt_tokens=turn.prompt_tokens, completion_tokens=turn.output_tokens)
        )
        if turn.next != NONE:
            pause = session.turns[turn.next].think_ms
            self._foresee(self._now + pause, _SEND, number, turn.next)
        running.answered += 1
        if running.answered == len(session.turns):
            del self._running[number]
            self._begin_session(self._now)
