# SPDX-License-Identifier: Apache-2.0
"""Whether replicas are well: probes, broken connections, and engines that hang.

Unreachable: so many probes of /health or connections in a row failed; a probe that works ends it.
A probe that times out does not count while bytes still come from the endpoint: it is busy.

Hung: a replica that serves turns, of none of which a byte came for `stall_after` seconds, counted
from when the oldest was sent, while the counters of its work on the metrics page stood still too.
So one that reads a long prompt, or serves others first, is never taken for hung. It is set down,
its turns are ended (those that have not begun are repeated elsewhere), and a small turn of the
gateway's own tries it until one is answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import suppress

from yarl import URL

from limpet.gateway.gateway import Gateway
from limpet.gateway.headers import RANK
from limpet.gateway.models import NoEngine, ask_models
from limpet.gateway.pool import Pool
from limpet.gateway.replicas import Endpoint, Target
from limpet.gateway.scraper import Scraper
from limpet.gateway.upstream import Unreachable

log = logging.getLogger("limpet.gateway")

_TICK = 0.25  # s, at most
_TRIAL_TIMEOUT = 10.0  # s, at most


class Monitor:
    """Watches all replicas of a gateway: run() it as a task."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.scraper = Scraper(gateway)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while True:
                settings = self.gateway.settings
                try:
                    self.step(self.gateway.loop.time())
                except Exception:
                    log.exception("watching the replicas failed")
                tick = min(_TICK, settings.health.interval / 4, settings.metrics.interval / 4)
                if settings.health.stall_after:
                    tick = min(tick, settings.health.stall_after / 4)
                await asyncio.sleep(tick)
        finally:
            for task in self._tasks:
                task.cancel()

    def step(self, now: float) -> None:
        """What is due at loop time `now`. Starts tasks, waits for none."""
        settings = self.gateway.settings
        self.gateway.sweep()
        for pool in self.gateway.pools.values():
            for endpoint in list(pool.endpoints.values()):
                if now >= endpoint.probe_at and not endpoint.probing:
                    endpoint.probing = True
                    endpoint.probe_at = now + settings.health.interval * random.uniform(0.9, 1.1)
                    self._start(self._probe(pool, endpoint))
                if now >= endpoint.scrape_at and not endpoint.scraping and endpoint.reachable:
                    endpoint.scraping = True
                    endpoint.scrape_at = now + settings.metrics.interval * random.uniform(0.9, 1.1)
                    self._start(self.scraper.scrape(pool, endpoint))
                self._judge(pool, endpoint)
            for target in list(pool.targets.values()):
                if stalled(target, now, settings.health.stall_after):
                    self._hangs(pool, target, now)
                elif target.hung_since and now >= target.try_at and not target.trying:
                    target.trying = True
                    self._start(self._try(pool, target))
            for flight in list(pool.flights):
                quiet = now - max(flight.began, flight.last_byte)
                if quiet >= settings.timeouts.idle and not flight.sending and not flight.aborted:
                    flight.abort("no byte came in time")

    def _start(self, work: object) -> None:
        task: asyncio.Task[None] = self.gateway.loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Reachable ------------------------------------------------------------------------------------

    async def _probe(self, pool: Pool, endpoint: Endpoint) -> None:
        timeout = self.gateway.settings.health.timeout
        try:
            status, _, _ = await self.gateway.upstream.ask(URL(endpoint.url + "/health"), timeout)
            well = status < 500  # an engine without /health answers 404
        except Unreachable as error:
            busy = self.gateway.loop.time() - endpoint.moved_at < timeout
            if error.slow and busy:
                return
            well = False
        finally:
            endpoint.probing = False
        if well:
            endpoint.failures = 0
            if not endpoint.reachable:
                endpoint.reachable = True
                self._refresh(pool, endpoint)
        else:
            endpoint.failures += 1
            self._judge(pool, endpoint)

    def _judge(self, pool: Pool, endpoint: Endpoint) -> None:
        if endpoint.reachable and endpoint.failures >= self.gateway.settings.health.failures:
            endpoint.reachable = False
            self._refresh(pool, endpoint)
            for target in endpoint.targets:
                end_flights(target, "it does not answer any more")

    def _refresh(self, pool: Pool, endpoint: Endpoint) -> None:
        for target in endpoint.targets:
            pool.refresh(target)
        self._start(pool.tell())

    # Hung -----------------------------------------------------------------------------------------

    def _hangs(self, pool: Pool, target: Target, now: float) -> None:
        target.hung_since = now
        target.try_at = now + self.gateway.settings.health.interval
        pool.refresh(target)
        end_flights(target, "it accepts turns and answers none")
        self._start(pool.tell())

    async def _try(self, pool: Pool, target: Target) -> None:
        settings = self.gateway.settings.health
        try:
            well = await self._serves(pool, target, min(settings.stall_after, _TRIAL_TIMEOUT))
        finally:
            target.trying = False
            target.try_at = self.gateway.loop.time() + settings.interval
        if well:
            target.hung_since = 0.0
            pool.refresh(target)
            await pool.tell()

    async def _serves(self, pool: Pool, target: Target, timeout: float) -> bool:
        """Whether a turn of one token is answered. One that takes no such turn gets a chance."""
        upstream = self.gateway.upstream
        url = target.endpoint.url
        headers = {"Authorization": f"Bearer {pool.upstream_key}"} if pool.upstream_key else {}
        if target.rank is not None:
            headers[RANK.decode()] = str(target.rank)
        model = next(iter(pool.settings.models), "")
        if not model:
            with suppress(Unreachable, NoEngine):
                models = await ask_models(upstream, url, timeout, pool.upstream_key)
                model = models[0]["id"] if models else ""
        shared = {"model": model, "max_tokens": 1}
        for path, rest in (
            ("/v1/completions", {"prompt": "."}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "."}]}),
        ):
            body = json.dumps({**shared, **rest}).encode()
            try:
                status = await upstream.try_turn(URL(url + path), headers, body, timeout)
            except Unreachable:
                return False
            if status < 400:
                return True
            if status >= 500:
                return False
        return True


def end_flights(target: Target, why: str) -> None:
    for flight in list(target.flights):
        if not flight.aborted:
            flight.abort(why)


def stalled(target: Target, now: float, stall_after: float) -> bool:
    """Whether nothing has come from a replica that has had something to do for that long."""
    if not stall_after or target.hung_since:
        return False
    # A client that does not read holds its engine back, which is not the engine's fault.
    waiting = [flight.began for flight in target.flights if not flight.sending]
    if not waiting:
        return False
    oldest = min(waiting)
    return now - max(oldest, target.moved_at, target.worked_at) >= stall_after
