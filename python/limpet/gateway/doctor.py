# SPDX-License-Identifier: Apache-2.0
"""What `limpet doctor` asks an engine, and what it says should be changed.

Facts come from /version, /v1/models, the metrics page, and two turns of one token with the same
prompt, once for each data-parallel rank. Other traffic at the same time can blur which rank a turn
was counted by, so a rank is only called ignored where its own counter did not move at all.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import dataclass
from typing import Literal

from yarl import URL

import limpet
from limpet.gateway.models import NoEngine, ask_models
from limpet.gateway.settings import endpoint_of
from limpet.gateway.upstream import Unreachable, Upstream

_WORDS = ("limpet", "rock", "tide", "shell", "wave", "sand", "salt", "kelp", "foam", "gull")
_NEEDED = ("running", "waiting", "kv_usage", "prefix_queries", "prefix_hits")


@dataclass
class Check:
    name: str
    verdict: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


async def examine(urls: list[str], timeout: float, key: str) -> dict[str, list[Check]]:
    """The checks of each endpoint. SettingsError for an address that is none."""
    endpoints = [endpoint_of(url) for url in urls]
    upstream = Upstream(timeout)
    try:
        results = await asyncio.gather(
            *(_Patient(upstream, url, timeout, key).checks() for url in endpoints)
        )
    finally:
        await upstream.close()
    return dict(zip(endpoints, results, strict=True))


class _Patient:
    def __init__(self, upstream: Upstream, url: str, timeout: float, key: str) -> None:
        self.upstream = upstream
        self.url = url
        self.timeout = timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.key = key
        self.page = b""

    async def checks(self) -> list[Check]:
        try:
            models = await ask_models(self.upstream, self.url, self.timeout, self.key)
        except Unreachable as error:
            return [Check("reachable", "fail", str(error), "start it, or correct the address")]
        except NoEngine as error:
            advice = "this is no OpenAI-compatible engine"
            if error.status in (401, 403):
                advice = "give its key: --api-key"
            return [Check("engine", "fail", str(error), advice)]
        names = [model["id"] for model in models]
        if not names:
            return [Check("models", "fail", "it serves no model", "load one")]
        found = [Check("models", "ok", ", ".join(names)), await self._version()]
        readings = await self._readings()
        if isinstance(readings, Check):
            return [*found, readings]
        found += [self._metrics(readings), self._caching()]
        found.append(await self._details(names[0]))
        if len(readings) > 1:
            found.append(await self._ranks(names[0], readings))
        return found

    async def _get(self, path: str) -> tuple[int, bytes]:
        status, _, body = await self.upstream.ask(URL(self.url + path), self.timeout, self.headers)
        return status, body

    async def _version(self) -> Check:
        try:
            status, body = await self._get("/version")
            version = json.loads(body)["version"] if status == 200 else None
        except (Unreachable, ValueError, TypeError, KeyError):
            version = None
        if not isinstance(version, str):
            return Check("version", "warn", "it does not say", "only vLLM has been tested")
        numbers = re.match(r"v?(\d+)\.(\d+)", version)
        if numbers and (int(numbers[1]), int(numbers[2])) < (0, 15):
            return Check("version", "warn", f"vLLM {version}", "0.15 or newer answers a wrong rank "
                         "with 400, not 500; 0.24 or newer reports cached tokens of 0")  # fmt: skip
        return Check("version", "ok", f"vLLM {version}")

    async def _readings(self) -> list[limpet.Reading] | Check:
        advice = "vLLM serves /metrics unless started with --disable-log-stats"
        try:
            status, self.page = await self._get("/metrics")
        except Unreachable as error:
            return Check("metrics", "fail", str(error), advice)
        if status != 200:
            return Check("metrics", "fail", f"GET /metrics answers {status}", advice)
        for parser in (limpet.VllmMetrics(), limpet.SglangMetrics(), limpet.LlamaCppMetrics()):
            readings = parser.parse(self.page)
            if isinstance(readings, list) and readings:
                return readings
        return Check("metrics", "fail", "no series of a known engine on the page", advice)

    def _metrics(self, readings: list[limpet.Reading]) -> Check:
        missing = sorted({name for r in readings for name in _NEEDED if getattr(r, name) is None})
        engines = f"{len(readings)} engine{'s' * (len(readings) > 1)}"
        if missing:
            return Check("metrics", "warn", f"{engines}; not there: {', '.join(missing)}",
                         "routing then goes by the gateway's own counts")  # fmt: skip
        return Check("metrics", "ok", f"{engines}, all series there")

    def _caching(self) -> Check:
        said = re.search(rb'enable_prefix_caching="(\w+)"', self.page)
        if said is None:
            return Check(
                "prefix caching", "warn", "the page does not say", "see to it that it is on"
            )
        if said[1].lower() in (b"true", b"1"):
            return Check("prefix caching", "ok", "on")
        return Check("prefix caching", "fail", "off", "start it with --enable-prefix-caching: "
                     "without, there is nothing to come home to")  # fmt: skip

    async def _turn(self, model: str, prompt: str, rank: str = "") -> limpet.Usage | str:
        """The usage of a turn of one token, or what went wrong."""
        headers = {"Content-Type": "application/json", **self.headers}
        if rank:
            headers["X-data-parallel-rank"] = rank
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 1}).encode()
        address = URL(self.url + "/v1/completions")
        try:
            answer = await asyncio.wait_for(
                self.upstream.post(address, headers, body), self.timeout
            )
            text = await asyncio.wait_for(answer.read(), self.timeout)
        except Unreachable as error:
            return str(error)
        except asyncio.TimeoutError:
            return f"no answer within {self.timeout:g} s"
        if answer.status != 200:
            return f"POST /v1/completions answers {answer.status}"
        return limpet.Usage.parse(text) or "its answer states no usage"

    async def _details(self, model: str) -> Check:
        prompt = _prompt()
        await self._turn(model, prompt)
        usage = await self._turn(model, prompt)
        name = "prompt token details"
        if isinstance(usage, str):
            return Check(name, "fail", usage, "the engine should answer a turn of one token")
        if usage.cached_tokens is None:
            return Check(name, "fail", "usage does not say how many tokens were cached",
                         "start vLLM with --enable-prompt-tokens-details")  # fmt: skip
        return Check(name, "ok", f"{usage.cached_tokens} of {usage.prompt_tokens} tokens cached "
                     "when a prompt was repeated")  # fmt: skip

    async def _ranks(self, model: str, readings: list[limpet.Reading]) -> Check:
        name = "data-parallel ranks"
        ignored = []
        for rank in range(len(readings)):
            before = await self._readings()
            answer = await self._turn(model, _prompt(), str(rank))
            after = await self._readings()
            if isinstance(answer, str):
                return Check(name, "fail", f"rank {rank}: {answer}", "")
            if isinstance(before, Check) or isinstance(after, Check):
                return Check(name, "warn", "the metrics page came and went", "try again")
            label = readings[rank].engine
            moved = [
                (new.prompt_tokens or 0) > (old.prompt_tokens or 0)
                for old, new in zip(before, after, strict=False)
                if new.engine == label
            ]
            if not any(moved):
                ignored.append(str(rank))
        if ignored:
            return Check(name, "fail", f"X-data-parallel-rank ignored: {', '.join(ignored)}",
                         "needs vLLM's own API server, with --data-parallel-size")  # fmt: skip
        return Check(name, "ok", f"{len(readings)} honoured: "
                     f"limpet serve --data-parallel-size {len(readings)}")  # fmt: skip


def _prompt() -> str:
    """One that no cache holds, some blocks long."""
    return " ".join(random.choices(_WORDS, k=200))
