# SPDX-License-Identifier: Apache-2.0
"""Reads the engines' metrics pages, for the router, the panel and the watch for hung engines.

Every endpoint is asked by itself, with jitter and a timeout, in a task of its own: no request waits
for a page, and one that does not come leaves the last reading with its age.
"""

from __future__ import annotations

import re

from yarl import URL

import limpet
from limpet.gateway.gateway import Gateway
from limpet.gateway.pool import Pool
from limpet.gateway.replicas import Endpoint
from limpet.gateway.upstream import Unreachable

# Series that move only when an engine works, not when something merely arrives.
_WORK = re.compile(
    rb"^(?:vllm[:_](?:generation_tokens|prompt_tokens|iteration_tokens|kv_cache_usage_perc"
    rb"|gpu_cache_usage_perc|prefix_cache_|num_preemptions)"
    rb"|sglang[:_](?:generation_tokens|prompt_tokens|token_usage|num_used_tokens|gen_throughput)"
    rb"|llamacpp[:_](?:prompt_tokens|tokens_predicted|n_decode|kv_cache))[^\n]*",
    re.MULTILINE,
)
_START = re.compile(rb"^process_start_time_seconds(?:\{[^}\n]*\})? ([0-9.eE+]+)", re.MULTILINE)


class Scraper:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def scrape(self, pool: Pool, endpoint: Endpoint) -> None:
        try:
            status, _, page = await self.gateway.upstream.ask(
                URL(endpoint.url + "/metrics"), self.gateway.settings.metrics.timeout
            )
        except Unreachable:
            return
        finally:
            endpoint.scraping = False
        if status == 200:
            take(pool, endpoint, page, self.gateway.loop.time())


def take(pool: Pool, endpoint: Endpoint, page: bytes, now: float) -> None:
    """Feeds a page that came at loop time `now`."""
    if pool.router.observe(endpoint.url, page) is not limpet.ParseStatus.ok:
        return
    work = _WORK.findall(page)
    start = _START.search(page)
    rows = {row.name: row for row in pool.router.snapshot().replicas}
    for target in endpoint.targets:
        label = None if target.engine is None else f'engine="{target.engine}"'.encode()
        mine = b"\n".join(line for line in work if label is None or label in line)
        if target.work is not None and mine != target.work:
            target.worked_at = now
        target.work = mine
        if start is not None:
            target.since = float(start[1])
        row = rows[target.name]
        if row.prefix_queries is not None and row.prefix_hits is not None:
            target.read(now, row.prefix_queries, row.prefix_hits)
