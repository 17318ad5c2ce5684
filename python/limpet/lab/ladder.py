# SPDX-License-Identifier: Apache-2.0
"""The load ladder: simulated coding agents in a closed loop against real endpoints.

Each of N users plays one session after the other, turn by turn: a system prompt that all sessions
share, a first message, then tool results; every turn resends the whole history. Prompts are token
ids, so that a turn's prompt is exactly the one before, its answer and the new tokens, and what a
prefix cache can reuse is known. The shape is that of the published ladder by default. First-byte
times are the client's; tokens and hits are the engines' own counters, read before and after.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import aiohttp

import limpet
from limpet.lab.steering import LadderError, Steering, Target


@dataclass(frozen=True)
class Shape:
    """What one session asks for, in tokens; the published ladder by default."""

    system: int = 3500
    first: int = 7300
    first_spread: int = 150
    new: int = 400
    turns: int = 6
    output: int = 256
    # Token ids are drawn from [100, vocabulary): above most special tokens, below any model's end.
    vocabulary: int = 8000

    @property
    def longest(self) -> int:
        """The prompt and the answer of a session's last turn."""
        first = self.system + self.first + self.first_spread + self.output
        return first + (self.turns - 1) * (self.new + self.output)


@dataclass(frozen=True)
class Turn:
    """One request as the client saw it. Times are seconds since the step began."""

    session: str
    turn: int
    sent: float
    first: float
    end: float
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    replica: str | None
    outcome: str


@dataclass(frozen=True)
class Step:
    """One step of one run: so many sessions at once under one steering. Times are seconds, rates
    shares of 1; None is unknown. `counters` are the engines' own, (before, after), summed."""

    mode: str
    sessions: int
    seed: int
    seconds: float
    sessions_per_hour: float
    output_tokens_per_minute: float
    ttfb_p50: float
    ttfb_mean: float
    ttfb_p95: float
    replicas_busy: float
    prefix_hit_rate: float | None
    stayed_home: float | None
    requests: int
    counters: dict[str, tuple[float, float]]
    turns: tuple[Turn, ...] = field(repr=False, default=())

    def as_json(self) -> dict[str, object]:
        """Everything, for json.dumps."""
        return asdict(self)


_COUNTERS = ("prefix_cache_queries", "prefix_cache_hits", "generation_tokens", "num_preemptions")
_SAMPLE = re.compile(
    rf"^vllm[:_](?:({'|'.join(_COUNTERS)})_total|(num_requests_running))(?:\{{.*\}})? (\S+)",
    re.MULTILINE,
)


def read_page(page: str) -> tuple[dict[str, float], int]:
    """The counters of a metrics page, summed over its engines, and how many engines are busy."""
    sums: dict[str, float] = {}
    busy = 0
    for counter, running, value in _SAMPLE.findall(page):
        if running:
            busy += float(value) > 0
        else:
            sums[counter] = sums.get(counter, 0.0) + float(value)
    return sums, busy


def _counters(pages: list[tuple[str, bytes]]) -> dict[str, float]:
    total = dict.fromkeys(_COUNTERS, 0.0)
    for _, page in pages:
        for name, value in read_page(page.decode(errors="replace"))[0].items():
            total[name] += value
    return total


class Ladder:
    """The ladder against one target; run() plays one step. `speed` is how much faster than time
    the engines run (embedded ones can): all times given and reported are the engines'."""

    def __init__(
        self,
        target: Target,
        *,
        shape: Shape | None = None,
        scrape_interval: float = 2.0,
        speed: float = 1.0,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.target = target
        self.shape = shape or Shape()
        self._scrape_interval = scrape_interval
        self.speed = speed
        self.on_turn = on_turn
        self._model = target.model

    async def check(self) -> str:
        """Throws LadderError unless every endpoint answers, serves the model and its metrics, and
        its context holds the longest turn. Returns the model."""
        async with self._client() as http:
            model = await self._find_model(http)
            for endpoint, page in await self._pages(http):
                if "prefix_cache_queries" not in read_page(page.decode(errors="replace"))[0]:
                    raise LadderError(
                        f"{endpoint}/metrics has no vllm:prefix_cache_queries_total: no vLLM, or "
                        "its prefix caching or its metrics are off"
                    )
            return model

    async def run(
        self, steering: Steering, sessions: int, seconds: float, seed: int, salt: int = 0
    ) -> Step:
        """One step. Sessions of one seed have the same lengths under every steering; `salt` changes
        their tokens, so that no run finds in a cache what another has left there."""
        await steering.start()
        async with self._client() as http:
            model = await self._find_model(http)
            pages = await self._pages(http)
            before = _counters(pages)
            # Whoever steers has seen the engines before the first turn comes, as a gateway has.
            for endpoint, page in pages:
                steering.observe(endpoint, page)
            players = _Players(self, http, steering, model, sessions, seconds, seed, salt)
            busy: list[int] = []
            watcher = asyncio.create_task(self._watch(http, steering, busy))
            users = [asyncio.create_task(players.user()) for _ in range(sessions)]
            try:
                await asyncio.wait(
                    users, timeout=seconds / self.speed, return_when=asyncio.FIRST_EXCEPTION
                )
                after = _counters(await self._pages(http))
                seen = list(busy)
                # What is in flight is let go to its end: the tail of the step must not be cut off.
                await asyncio.gather(*users)
            finally:
                for task in (watcher, *users):
                    task.cancel()
                await asyncio.gather(watcher, *users, return_exceptions=True)
        counters = {name: (value, after.get(name, value)) for name, value in before.items()}
        return _summary(steering.name, sessions, seed, seconds, players, seen, counters)

    def _client(self) -> aiohttp.ClientSession:
        # vLLM closes an idle connection after 5 s; a new one for each turn is never a stale one.
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            headers=self.target.headers(),
            read_bufsize=1 << 20,
        )

    async def _find_model(self, http: aiohttp.ClientSession) -> str:
        for endpoint in self.target.endpoints:
            url = endpoint + "/v1/models"
            try:
                async with http.get(url) as answer:
                    text = await answer.text()
                    models = {m["id"]: m for m in json.loads(text)["data"]}
            except (aiohttp.ClientError, OSError) as error:
                raise LadderError(f"{url} does not answer: {error}") from error
            except (ValueError, KeyError, TypeError) as error:
                raise LadderError(f"{url} is no list of models: {text[:200]!r}") from error
            self._model = self._model or next(iter(models), None)
            if self._model not in models:
                raise LadderError(f"{endpoint} does not serve {self._model}: {', '.join(models)}")
            length = models[self._model].get("max_model_len")
            if length is not None and length < self.shape.longest:
                raise LadderError(
                    f"{endpoint}: max_model_len {length} is below a session's "
                    f"{self.shape.longest} tokens; ask for shorter ones"
                )
        assert self._model is not None
        return self._model

    async def _pages(self, http: aiohttp.ClientSession) -> list[tuple[str, bytes]]:
        async def page(endpoint: str) -> tuple[str, bytes]:
            async with http.get(endpoint + "/metrics") as answer:
                return endpoint, await answer.read()

        try:
            return list(await asyncio.gather(*map(page, self.target.endpoints)))
        except (aiohttp.ClientError, OSError) as error:
            raise LadderError(f"no metrics: {error}") from error

    async def _watch(
        self, http: aiohttp.ClientSession, steering: Steering, busy: list[int]
    ) -> None:
        while True:
            pages = await self._pages(http)
            for endpoint, page in pages:
                steering.observe(endpoint, page)
            busy.append(sum(read_page(page.decode(errors="replace"))[1] for _, page in pages))
            await asyncio.sleep(self._scrape_interval / self.speed)


class _Players:
    """The users of one step, and what they have seen."""

    def __init__(
        self,
        ladder: Ladder,
        http: aiohttp.ClientSession,
        steering: Steering,
        model: str,
        sessions: int,
        seconds: float,
        seed: int,
        salt: int,
    ) -> None:
        self.turns: list[Turn] = []
        self.completed = 0
        self._ladder, self._http, self._steering, self._model = ladder, http, steering, model
        self._seconds = seconds
        self._name = f"{seed}.{sessions}"
        self._salt = salt
        self._started = 0
        self._t0 = time.monotonic()
        ids = range(100, ladder.shape.vocabulary)
        self._ids = ids
        self._system = random.Random(7).choices(ids, k=ladder.shape.system)

    def _now(self) -> float:
        return (time.monotonic() - self._t0) * self._ladder.speed

    async def user(self) -> None:
        """One session after the other, until the time is up."""
        shape = self._ladder.shape
        while self._now() < self._seconds:
            session = f"{self._name}.{self._started}"
            self._started += 1
            lengths = random.Random(session)
            tokens = random.Random(f"{self._salt} {session}")
            first = shape.first + lengths.randint(-shape.first_spread, shape.first_spread)
            prompt = self._system + tokens.choices(self._ids, k=first)
            for index in range(shape.turns):
                if self._now() >= self._seconds:
                    return
                answer = await self._turn(f"{session}.{self._salt}", index, prompt)
                prompt = prompt + answer + tokens.choices(self._ids, k=shape.new)
            self.completed += self._now() < self._seconds

    async def _turn(self, session: str, index: int, prompt: list[int]) -> list[int]:
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": self._ladder.shape.output,
            "ignore_eos": True,
            "temperature": 1.0,
            "stream": True,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }
        sent = self._now()
        first: float | None = None
        answer: list[int] = []
        scanner = limpet.UsageScanner()
        async with self._steering.turn(session, len(prompt)) as route:
            url = route.endpoint + "/v1/completions"
            try:
                async with self._http.post(url, json=body, headers=route.headers) as reply:
                    if reply.status != 200:
                        raise LadderError(f"{url}: {reply.status} {(await reply.text())[:300]}")
                    route.answered(reply.headers)
                    async for line in reply.content:
                        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                            continue
                        if first is None:
                            first = self._now()
                        scanner.feed(line + b"\n")
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise LadderError(f"{url}: {event['error']}")
                        for choice in event.get("choices", []):
                            answer += choice.get("token_ids") or []
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise LadderError(f"{url}, in the middle of a turn: {error!r}") from error
            usage = route.usage = scanner.usage
        if first is None or not answer:
            raise LadderError(f"{url}: a stream without token ids (return_token_ids)")
        turn = Turn(
            session=session,
            turn=index,
            sent=round(sent, 4),
            first=round(first, 4),
            end=round(self._now(), 4),
            prompt_tokens=len(prompt),
            cached_tokens=None if usage is None else usage.cached_tokens,
            completion_tokens=len(answer),
            replica=route.replica,
            outcome=route.outcome,
        )
        self.turns.append(turn)
        if self._ladder.on_turn:
            self._ladder.on_turn(turn)
        return answer


def _summary(
    mode: str,
    sessions: int,
    seed: int,
    seconds: float,
    players: _Players,
    busy: list[int],
    counters: dict[str, tuple[float, float]],
) -> Step:
    grown = {name: after - before for name, (before, after) in counters.items()}
    waits = sorted(turn.first - turn.sent for turn in players.turns)
    later = [t.outcome == "sticky" for t in players.turns if t.turn > 0 and t.outcome != "unrouted"]
    asked = grown["prefix_cache_queries"]
    return Step(
        mode=mode,
        sessions=sessions,
        seed=seed,
        seconds=seconds,
        sessions_per_hour=players.completed * 3600 / seconds,
        output_tokens_per_minute=grown["generation_tokens"] * 60 / seconds,
        ttfb_p50=waits[len(waits) // 2],
        ttfb_mean=statistics.fmean(waits),
        ttfb_p95=waits[int(0.95 * len(waits))],
        replicas_busy=statistics.fmean(busy) if busy else 0.0,
        prefix_hit_rate=grown["prefix_cache_hits"] / asked if asked else None,
        stayed_home=sum(later) / len(later) if later else None,
        requests=len(waits),
        counters=counters,
        turns=tuple(players.turns),
    )
