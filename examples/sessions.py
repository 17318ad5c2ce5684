# SPDX-License-Identifier: Apache-2.0
"""The sessions that replay.py plays: read from a recording, or generated.

The twin of sessions.hpp, whose preface describes a recording: equal files and equal seeds give
equal sessions. Times are whole milliseconds, so that both languages agree to the last digit.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

NONE = -1
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class Turn:
    source: int = NONE  # the earlier turn whose prompt this one continues: `from`
    kept: int = 0  # tokens that both prompts begin with
    prompt_tokens: int = 0
    output_tokens: int = 0
    think_ms: int = 0  # since the answer before it in its conversation
    service_ms: int = 0  # from being sent to being answered
    conversation: int = 0  # of Session.keys
    after: int = NONE  # a conversation's first turn is sent `delay_ms` after the sending of this
    delay_ms: int = 0  # one; NONE: with the session
    next: int = NONE  # of the same conversation
    begun: list[int] = field(default_factory=list)  # turns whose `after` is this one


@dataclass(slots=True)
class Session:
    """The main line and its sub-agents are conversations of their own; keys[0] is the main line."""

    name: str
    keys: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def conversation(self, agent: int) -> int:
        """The index of that agent's key; agent 0 is the main line."""
        key = f"{self.name}/agent-{agent}" if agent else self.name
        if key not in self.keys:
            self.keys.append(key)
        return self.keys.index(key)

    def link(self) -> None:
        """Fills in what follows from the order of the turns."""
        last: dict[int, int] = {}
        for i, turn in enumerate(self.turns):
            before = last.get(turn.conversation)
            if before is not None:
                self.turns[before].next = i
                turn.after = NONE
            elif turn.after != NONE:
                self.turns[turn.after].begun.append(i)
            last[turn.conversation] = i


def read_sessions(path: Path) -> list[Session]:
    """ValueError that names file and line for what is no recording."""
    sessions: list[Session] = []
    names: set[str] = set()
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    session = _read_session(json.loads(line, parse_constant=_refuse))
                    _require(session.name not in names, "two sessions have this name")
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}") from error
                names.add(session.name)
                sessions.append(session)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    _require(bool(sessions), f"{path}: holds no session")
    return sessions


def _read_session(line: object) -> Session:
    name, turns = _member(line, "session"), _member(line, "turns")
    _require(isinstance(name, str), "session is no text")
    _require(isinstance(turns, list), "turns is no list")
    session = Session(name)
    session.conversation(0)
    at = 0
    for i, recorded in enumerate(turns):
        try:
            before, at = at, _milliseconds(recorded, "at")
            _require(at >= before, "at goes back")
            turn = _read_turn(recorded, session)
        except ValueError as error:
            raise ValueError(f"turn {i}: {error}") from error
        turn.after = i - 1
        turn.delay_ms = at - before
        session.turns.append(turn)
    _require(bool(session.turns), "the session has no turns")
    session.link()
    return session


def _read_turn(recorded: object, session: Session) -> Turn:
    turn = Turn(
        kept=_tokens(recorded, "kept"),
        prompt_tokens=_tokens(recorded, "in"),
        output_tokens=_tokens(recorded, "out"),
        think_ms=_milliseconds(recorded, "think"),
        service_ms=_milliseconds(recorded, "api"),
    )
    assert isinstance(recorded, dict)
    agent = recorded.get("agent")
    turn.conversation = session.conversation(0 if agent is None else _tokens(recorded, "agent"))
    turn.source = _whole(recorded, "from")
    _require(NONE <= turn.source < len(session.turns), "from is no earlier turn")
    most = 0
    if turn.source != NONE:
        most = min(turn.prompt_tokens, session.turns[turn.source].prompt_tokens)
    _require(turn.kept <= most, "kept is more than both prompts can share")
    return turn


def _refuse(constant: str) -> NoReturn:
    """NaN and the infinities, which the standard library reads and JSON does not have."""
    raise ValueError(f"neither a value nor a number: {constant}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _member(value: object, name: str) -> Any:
    _require(isinstance(value, dict), "a value is of another kind than expected")
    assert isinstance(value, dict)
    _require(value.get(name) is not None, f'no member "{name}"')
    return value[name]


def _number(value: object, name: str) -> float:
    number = _member(value, name)
    _require(
        isinstance(number, (int, float)) and not isinstance(number, bool), f"{name}: no number"
    )
    return float(number)


def _whole(value: object, name: str) -> int:
    number = _number(value, name)
    _require(abs(number) <= 1e12 and number == math.floor(number), f"{name} is no whole number")
    return int(number)


def _tokens(value: object, name: str) -> int:
    number = _whole(value, name)
    _require(number >= 0, f"{name} is negative")
    return number


def _milliseconds(value: object, name: str) -> int:
    seconds = _number(value, name)
    _require(0 <= seconds <= 1e9, f"{name} is no time in seconds")
    return math.floor(seconds * 1000 + 0.5)


def mixed(value: int) -> int:
    """One well mixed 64-bit number from another: splitmix64's output function."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Quantiles:
    """A distribution known by quantiles, the logarithm of its values linear between them."""

    def __init__(self, *points: tuple[float, float]) -> None:
        self._points = points

    def at(self, probability: float) -> float:
        i = 1
        while i + 1 < len(self._points) and self._points[i][0] < probability:
            i += 1
        (p, low), (q, high) = self._points[i - 1 : i + 1]
        return low * math.pow(high / low, (probability - p) / (q - p))


class Generator:
    """Coding agents, drawn from quantiles of 710 recorded Claude Code sessions."""

    SHARED_TOKENS = 15_035  # tools and system text
    AGENT_TOKENS = 10_200  # a sub-agent's first prompt
    CONTEXT_LIMIT = 180_000
    BLOCK = 64  # tokens; prefixes are shared in whole ones
    SHARE_WITH_AGENTS = 0.025
    SHARE_AFTER_TOOL = 0.85

    TURNS = Quantiles((0, 3), (0.1, 7), (0.25, 18), (0.5, 46), (0.75, 94), (0.9, 160), (1, 560))
    AGENT_TURNS = Quantiles((0, 2), (0.1, 5), (0.5, 11), (0.9, 17), (1, 24))
    FIRST_MESSAGE = Quantiles((0, 240), (0.1, 1460), (0.5, 7270), (0.75, 89_400), (1, 150_000))
    ADDED = Quantiles((0, 60), (0.25, 372), (0.5, 704), (0.75, 1660), (0.9, 3910), (1, 30_000))
    OUTPUT = Quantiles((0, 40), (0.5, 216), (0.9, 898), (0.99, 3687), (1, 8000))
    AFTER_TOOL = Quantiles((0, 2), (0.5, 9), (0.75, 19), (0.9, 72), (0.99, 916), (1, 20_000))
    AFTER_HUMAN = Quantiles((0, 5), (0.5, 93), (0.75, 334), (0.9, 1247), (0.99, 6661), (1, 72_000))
    SPREAD = Quantiles((0, 0.3), (0.1, 0.54), (0.5, 1.02), (0.9, 1.47), (1, 3))  # of service time

    def __init__(self, seed: int) -> None:
        self._state = seed

    def sessions(self, count: int) -> list[Session]:
        sessions = []
        for i in range(count):
            session = Session(f"generated-{i}")
            turns = self._whole(self.TURNS)
            self._add_conversation(
                session, 0, turns, self.SHARED_TOKENS + self._whole(self.FIRST_MESSAGE)
            )
            if self._uniform() < self.SHARE_WITH_AGENTS:
                self._add_agents(session)
            session.link()
            sessions.append(session)
        return sessions

    def _add_conversation(
        self, session: Session, agent: int, turns: int, first_prompt: int
    ) -> None:
        conversation = session.conversation(agent)
        for i in range(turns):
            turn = Turn(prompt_tokens=first_prompt, conversation=conversation)
            if i > 0:
                turn.source = len(session.turns) - 1
                turn.kept = session.turns[-1].prompt_tokens // self.BLOCK * self.BLOCK
                turn.prompt_tokens = turn.kept + self._whole(self.ADDED)
                if turn.prompt_tokens > self.CONTEXT_LIMIT:
                    turn.kept = min(turn.kept, self.SHARED_TOKENS // self.BLOCK * self.BLOCK)
                    turn.prompt_tokens = first_prompt
                after_tool = self._uniform() < self.SHARE_AFTER_TOOL
                pause = self.AFTER_TOOL if after_tool else self.AFTER_HUMAN
                turn.think_ms = _rounded(pause.at(self._uniform()))
            turn.output_tokens = self._whole(self.OUTPUT)
            turn.service_ms = _rounded(
                (1.8 + turn.output_tokens / 60.0) * self.SPREAD.at(self._uniform())
            )
            session.turns.append(turn)

    def _add_agents(self, session: Session) -> None:
        main_line = len(session.turns)
        for agent in range(1, 2 + self._below(7)):
            first = len(session.turns)
            self._add_conversation(session, agent, self._whole(self.AGENT_TURNS), self.AGENT_TOKENS)
            session.turns[first].after = self._below(main_line)
            session.turns[first].delay_ms = _rounded(self.AFTER_HUMAN.at(self._uniform()))

    def _uniform(self) -> float:
        """splitmix64: the same numbers in C++ and Python."""
        number = mixed(self._state)
        self._state = (self._state + _GOLDEN) & _MASK
        return (number >> 11) * 2.0**-53

    def _below(self, bound: int) -> int:
        return int(self._uniform() * bound)

    def _whole(self, quantiles: Quantiles) -> int:
        return int(quantiles.at(self._uniform()))


def _rounded(seconds: float) -> int:
    """In whole milliseconds."""
    return math.floor(seconds * 1000 + 0.5)
