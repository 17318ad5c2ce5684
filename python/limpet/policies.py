# SPDX-License-Identifier: Apache-2.0
"""What a policy written in Python must be able to do: the concepts of the C++ library as protocols.

An object with these methods is given to Router by keyword. Each question is then a Python call,
some microseconds where a policy of limpet takes nanoseconds: fine to try an idea out, then write it
in C++.

What a method raises reaches the caller of route(), plan(), explain(), observe() or snapshot(), and
no lease is taken. With a policy in Python a turn is planned first and then committed, so where
several threads race, a decision may rest on loads that are a moment old; counts are exact all the
same. Several threads may be in one method at a time. The laws are those of
include/limpet/concepts.hpp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from limpet._core import (
    Home,
    KeyHash,
    OverflowView,
    ParseStatus,
    Reading,
    ReplicaLoad,
    ScoreContext,
    Verdict,
)

__all__ = ["Clock", "LoadScorer", "MetricsParser", "OverflowRule", "PinStore"]


@runtime_checkable
class LoadScorer(Protocol):
    """Where a new conversation is placed: the lowest score wins, compared at three decimals."""

    def score(self, load: ReplicaLoad, context: ScoreContext, /) -> float:
        """A function of its arguments alone; not NaN; never lower for one more turn in flight."""
        ...


@runtime_checkable
class OverflowRule(Protocol):
    """When a conversation leaves home."""

    def overloaded(self, home: ReplicaLoad, /) -> bool:
        """Asked at every turn. False: the turn goes home and decide() is not called."""
        ...

    def decide(self, view: OverflowView, /) -> Verdict:
        """Stay, spill (this turn alone) or move (for good)."""
        ...


@runtime_checkable
class MetricsParser(Protocol):
    """Reads an engine's metrics page."""

    def parse(self, page: bytes, /) -> Iterable[Reading] | ParseStatus:
        """One Reading an engine, or why there are none. The page is foreign: expect anything."""
        ...


@runtime_checkable
class PinStore(Protocol):
    """Which replica each conversation is pinned to. `now` is the router's clock in seconds.

    Each write returns the pin that holds afterwards, so that two first turns of one conversation
    agree.
    """

    def find(self, key: KeyHash, now: float, /) -> Home | None:
        """The pin, if there is one that has not expired."""
        ...

    def pin(self, key: KeyHash, home: Home, now: float, /) -> Home:
        """Pins the conversation unless it is pinned already."""
        ...

    def repin(self, key: KeyHash, expected: Home, desired: Home, now: float, /) -> Home:
        """Changes the pin if it is `expected`, makes it where there is none."""
        ...

    def unpin(self, key: KeyHash, expected: Home, /) -> bool:
        """Removes the pin if it is `expected`; whether it did."""
        ...


@runtime_checkable
class Clock(Protocol):
    """The router's time."""

    def now(self) -> float:
        """Seconds since any moment, never going back: time.monotonic, for instance."""
        ...
