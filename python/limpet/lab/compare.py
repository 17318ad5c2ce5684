# SPDX-License-Identifier: Apache-2.0
"""Several steerings on the same engines: who is better, and is it more than noise.

Machines drift within the hour, so rounds are interleaved: at every step all modes run one after
the other, in an order that rotates from round to round, with the same session lengths. A difference
counts as real only where no run of one mode reaches a run of the other and the medians lie further
apart than the runs of either mode among themselves; with one round nothing counts as real.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from limpet.lab.ladder import Ladder, Step
from limpet.lab.steering import Steering, Target


@dataclass(frozen=True)
class Column:
    """A figure of a step: its name, its title, how it is printed and where it comes from."""

    name: str
    title: str
    form: str
    higher_is_better: bool | None
    source: str

    def text(self, value: float | None) -> str:
        return "-" if value is None else format(value, self.form)


COLUMNS = (
    Column("sessions_per_hour", "sessions/h", ",.0f", True, "sessions that ended in the step"),
    Column(
        "output_tokens_per_minute",
        "output tokens/min",
        ",.0f",
        True,
        "growth of vllm:generation_tokens_total",
    ),
    Column("ttfb_p50", "TTFB p50 s", ".2f", False, "first body byte at the client, median"),
    Column("ttfb_mean", "TTFB mean s", ".2f", False, "the same, mean"),
    Column("ttfb_p95", "TTFB p95 s", ".2f", False, "the same, 95th percentile"),
    Column(
        "replicas_busy",
        "replicas busy",
        ".2f",
        None,
        "engines with vllm:num_requests_running above 0, mean over the scrapes",
    ),
    Column(
        "prefix_hit_rate",
        "prefix hits",
        ".1%",
        True,
        "growth of vllm:prefix_cache_hits_total / of vllm:prefix_cache_queries_total",
    ),
    Column("stayed_home", "stayed home", ".1%", None, "later turns that went to their home"),
)


@dataclass(frozen=True)
class Plan:
    """What is run. `seconds` a step are the engines' time."""

    modes: tuple[str, ...]
    sessions: tuple[int, ...]
    seconds: float = 120.0
    rounds: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        if len(set(self.modes)) != len(self.modes) or not self.modes:
            raise ValueError(f"modes {', '.join(self.modes)}: each once, at least one")
        if (
            not self.sessions
            or min(self.sessions) < 1
            or len(set(self.sessions)) < len(self.sessions)
        ):
            raise ValueError(f"sessions {self.sessions}: positive numbers, each once")
        if self.seconds <= 0 or self.rounds < 1:
            raise ValueError("seconds and rounds must be positive")

    def runs(self) -> list[tuple[int, int, str]]:
        """(round, sessions, mode) in the order of play."""
        return [
            (round_, sessions, mode)
            for round_ in range(self.rounds)
            for sessions in self.sessions
            for mode in self._order(round_)
        ]

    def _order(self, round_: int) -> tuple[str, ...]:
        turn = round_ % len(self.modes)
        return self.modes[turn:] + self.modes[:turn]


@dataclass(frozen=True)
class Range:
    """The runs of one figure: median, lowest, highest. None where no run knew it."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Range:
        return Range(statistics.median(values), min(values), max(values))

    def differs_from(self, other: Range) -> bool:
        """Whether the two are further apart than either is wide (see the module)."""
        apart = self.low > other.high or other.low > self.high
        spread = max(self.high - self.low, other.high - other.low)
        return apart and abs(self.median - other.median) > spread


@dataclass
class Comparison:
    """The steps that were played, and what follows from them."""

    plan: Plan
    target: Target
    model: str
    steps: list[Step] = field(default_factory=list)

    def figure(self, column: Column, mode: str, sessions: int) -> Range | None:
        """The runs of a mode at a step."""
        values = [
            float(value)
            for step in self.steps
            if step.mode == mode and step.sessions == sessions
            if (value := getattr(step, column.name)) is not None
        ]
        return Range.of(values) if values else None

    def effect(self, column: Column, mode: str, baseline: str, sessions: int) -> int:
        """+1 where `mode` is really better than `baseline`, -1 where it is really worse, else 0."""
        a, b = self.figure(column, mode, sessions), self.figure(column, baseline, sessions)
        if self.plan.rounds < 2 or column.higher_is_better is None or a is None or b is None:
            return 0
        if not a.differs_from(b):
            return 0
        return 1 if (a.median > b.median) == column.higher_is_better else -1

    def advice(self) -> str:
        """What to set on this machine, in words."""
        baseline, *others = self.plan.modes
        if not others:
            return f"Only {baseline} was run: there is nothing to compare."
        if self.plan.rounds < 2:
            return "One round says nothing about noise: no difference is called real. Run three."
        return " ".join(self._advice(mode, baseline) for mode in others)

    def _advice(self, mode: str, baseline: str) -> str:
        judged = [c for c in COLUMNS if c.name in _JUDGED]
        better, mixed, worse = [], [], []
        for n in self.plan.sessions:
            effects = {self.effect(column, mode, baseline, n) for column in judged}
            if effects >= {1, -1}:
                mixed.append(n)
            elif 1 in effects:
                better.append(n)
            elif -1 in effects:
                worse.append(n)
        if not better and not worse and not mixed:
            return (
                f"Between {mode} and {baseline} no difference is larger than the run-to-run "
                "spread: leave things as they are, or measure longer."
            )
        parts = []
        if better:
            parts.append(
                f"better at {_list(better)} sessions ({self._gain(mode, baseline, better)})"
            )
        if worse:
            parts.append(f"worse at {_list(worse)}")
        if mixed:
            parts.append(f"better in one column and worse in another at {_list(mixed)}")
        what = _SETTING.get(mode, f"use {mode}")
        if not worse and not mixed:
            return f"{what[0].upper()}{what[1:]}: {mode} is {', '.join(parts)}, worse nowhere."
        if better and max(better) < min(worse + mixed):
            return (
                f"{what[0].upper()}{what[1:]} for up to {max(better)} sessions on these replicas: "
                f"{mode} is {', '.join(parts)}. Beyond that the conversations probably no longer "
                "fit the caches: add a replica, or hold turns back."
            )
        return f"No clear advice: {mode} is {', '.join(parts)}."

    def _gain(self, mode: str, baseline: str, at: list[int]) -> str:
        said = []
        for column in COLUMNS:
            changes = [
                f"{column.text(a.median)} -> {column.text(b.median)}"
                for n in at
                if column.name in _JUDGED and self.effect(column, mode, baseline, n)
                for a, b in [(self.figure(column, baseline, n), self.figure(column, mode, n))]
                if a and b
            ]
            if changes:
                name = column.title.removesuffix(" s")
                said.append(f"{name} {' and '.join(changes)}{column.title[len(name) :]}")
        return "; ".join(said)

    def as_json(self) -> dict[str, Any]:
        """All of it; with the single turns, in seconds since each step began."""
        return {
            "model": self.model,
            "endpoints": list(self.target.endpoints),
            "ranks": self.target.ranks,
            "modes": list(self.plan.modes),
            "sessions": list(self.plan.sessions),
            "seconds": self.plan.seconds,
            "rounds": self.plan.rounds,
            "seed": self.plan.seed,
            "advice": self.advice(),
            "figures": [
                {
                    "mode": mode,
                    "sessions": sessions,
                    **{
                        column.name: None if figure is None else vars(figure)
                        for column in COLUMNS
                        for figure in [self.figure(column, mode, sessions)]
                    },
                }
                for sessions in self.plan.sessions
                for mode in self.plan.modes
            ],
            "steps": [step.as_json() for step in self.steps],
        }


# A mode is judged by what its users feel and what the owner pays for; hits are the means.
_JUDGED = {"output_tokens_per_minute", "ttfb_p50", "ttfb_mean", "ttfb_p95"}
_SETTING = {"on": "switch affinity on", "gate": "switch affinity and the gate on"}


def _list(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


async def compare(
    ladder: Ladder, plan: Plan, steering: Callable[[str], Steering], salt: int | None = None
) -> AsyncIterator[tuple[Step, Comparison]]:
    """Plays the plan; yields after each run. `steering` makes a fresh one for a mode. Throws
    LadderError where an endpoint cannot be used."""
    result = Comparison(plan, ladder.target, await ladder.check())
    # Prompts differ from those of any earlier comparison on the same engines.
    first = time.time_ns() if salt is None else salt
    for number, (round_, sessions, mode) in enumerate(plan.runs()):
        step = await ladder.run(
            steering(mode), sessions, plan.seconds, plan.seed + round_, first + number
        )
        result.steps.append(step)
        yield step, result
