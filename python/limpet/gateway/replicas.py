# SPDX-License-Identifier: Apache-2.0
"""What the gateway keeps of each replica beside the router's own counts.

A Target is one replica: what its operator wants of it, whether it is well, and the turns that it
serves now. An Endpoint is the server that one or more of them (data-parallel ranks) stand behind.
One event loop uses them; nothing here waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Literal

from yarl import URL

import limpet
from limpet.gateway.settings import ReplicaSettings

Wanted = Literal["up", "draining", "down"]
Health = Literal["ok", "unreachable", "hung"]
_KEPT_URLS = 256  # of paths that clients chose
_KEPT_READINGS = 5 * 60


class Flight:
    """One turn on its way: which task serves it, where, and when bytes last came back."""

    __slots__ = (
        "aborted", "began", "hung_up", "last_byte", "opened", "sending", "started", "target",
        "task",
    )  # fmt: skip

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.target: Target | None = None
        self.began = 0.0  # loop time at which the present attempt was sent
        self.last_byte = 0.0  # loop time of the last body byte; 0: none yet
        self.sending = False  # it is the client that is waited for
        self.opened = False  # whether a stream was begun for it while it waits at the gate
        self.started = False  # whether the client has been sent anything of an answer
        self.hung_up = False  # the client went away
        self.aborted = ""  # why the gateway ended it

    def hang_up(self) -> None:
        self.hung_up = True
        self.task.cancel()

    def abort(self, why: str) -> None:
        self.aborted = why
        self.task.cancel()

    def resume(self) -> str:
        """Why it was aborted; after this it can go on, as if it had not been cancelled."""
        why, self.aborted = self.aborted, ""
        if sys.version_info >= (3, 11):
            self.task.uncancel()
        return why


class Endpoint:
    """One base URL, the replicas behind it, and what its metrics page last said of itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.targets: list[Target] = []
        self.failures = 0  # probes or connections that failed, in a row
        self.reachable = True
        self.probe_at = 0.0  # loop time of the next probe
        self.probing = False
        self.scrape_at = 0.0  # loop time of the next scrape
        self.scraping = False
        self._urls: dict[bytes, URL] = {}

    def address(self, path_and_query: bytes) -> URL:
        """Of a path as the client spelled it."""
        url = self._urls.get(path_and_query)
        if url is None:
            url = URL(self.url + path_and_query.decode("latin-1"), encoded=True)
            if len(self._urls) < _KEPT_URLS:
                self._urls[path_and_query] = url
        return url

    def answered(self) -> None:
        """A connection worked."""
        self.failures = 0

    def failed(self) -> None:
        """A connection did not work; the next probe comes at once."""
        self.failures += 1
        self.doubted()

    def doubted(self) -> None:
        """It may be unwell: it is probed at once."""
        self.probe_at = 0.0

    @property
    def moved_at(self) -> float:
        """Loop time at which a byte of any turn last came from it."""
        return max((target.moved_at for target in self.targets), default=0.0)


class Target:
    """One replica."""

    def __init__(
        self, name: str, endpoint: Endpoint, rank: int | None, settings: ReplicaSettings
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.rank = rank
        self.settings = settings
        self.replica: limpet.Replica  # set by the pool that adds it to its router
        self.header = name.encode("latin-1", "replace")
        self.wanted: Wanted = "up"
        self.hung_since = 0.0  # loop time; 0: it is not
        self.leaving = False  # gone from the configuration, its turns are ending
        self.flights: set[Flight] = set()
        self.moved_at = 0.0  # loop time at which a byte of any turn last came from it
        self.worked_at = 0.0  # loop time of the page on which its work counters had moved
        self.work: bytes | None = None  # those counters on the last page
        self.try_at = 0.0  # loop time at which a hung one is tried again
        self.trying = False
        self.state: Wanted = "up"  # what the router was told
        # (loop time, prefix tokens asked, found): of the last five minutes
        self.readings: deque[tuple[float, float, float]] = deque()
        self.since: float | None = None  # unix time from which the engine's counters count

    @property
    def engine(self) -> str | None:
        """The label of its series on the endpoint's page."""
        return None if self.rank is None else str(self.settings.first_engine + self.rank)

    @property
    def health(self) -> Health:
        if not self.endpoint.reachable:
            return "unreachable"
        return "hung" if self.hung_since else "ok"

    @property
    def up(self) -> bool:
        return self.state != "down"

    def read(self, now: float, queries: float, hits: float) -> None:
        """Keeps a reading of the prefix counters; one that went down begins anew."""
        if self.readings and queries < self.readings[-1][1]:
            self.readings.clear()
        self.readings.append((now, queries, hits))
        while len(self.readings) > 2 and now - self.readings[1][0] >= _KEPT_READINGS:
            self.readings.popleft()

    def recent_hit_rate(self) -> float | None:
        """Prefix hits of the last five minutes, 0..1; None where nothing was asked."""
        if len(self.readings) < 2:
            return None
        (_, queries, hits), (_, queries_now, hits_now) = self.readings[0], self.readings[-1]
        return (hits_now - hits) / (queries_now - queries) if queries_now > queries else None
