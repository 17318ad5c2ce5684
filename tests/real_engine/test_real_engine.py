# SPDX-License-Identifier: Apache-2.0
"""The gateway before a real vLLM on CPU cores: what a simulated engine cannot vouch for.

Run by run.sh, which names the engine's folder in LIMPET_REAL_ENGINE. Expected figures come from the
engines' own counters and from the answers as json reads them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import limpet
import pytest

FOLDER = os.environ.get("LIMPET_REAL_ENGINE", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="run by tests/real_engine/run.sh")

SCRIPT = Path(__file__).with_name("engine.sh")
TOKEN = "token of the tests"
STALL_AFTER = 8.0


@dataclass(frozen=True)
class Server:
    url: str
    group: int


@contextmanager
def server(port: int, cores: str, *options: str) -> Iterator[Server]:
    command = ["bash", str(SCRIPT), "start", FOLDER, str(port), cores, *options]
    started = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    group = int(started.stdout)
    try:
        yield Server(f"http://127.0.0.1:{port}", group)
    finally:
        subprocess.run(["bash", str(SCRIPT), "stop", str(group)], check=True)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Server]:
    with server(18101, "0|1", "--data-parallel-size", "2", "--api-server-count", "1") as started:
        yield started


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with server(18103, "0") as one, server(18104, "1") as two:
        yield one, two


class Gateway:
    """`limpet serve` as a process, and what can be asked of it."""

    def __init__(self, url: str, admin: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._admin = admin
        self._http = http

    async def ask(
        self, path: str, body: dict[str, Any], session: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {"x-session-id": session} if session else {}
        async with self._http.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, dict(answer.headers), await answer.read()

    async def chat(self, session: str, text: str, **rest: Any) -> tuple[str, dict[str, Any]]:
        """The replica that answered, and the answer."""
        messages = [{"role": "user", "content": text}]
        body = {"model": "tiny", "messages": messages, "max_tokens": 4, **rest}
        status, headers, answer = await self.ask("/v1/chat/completions", body, session)
        assert status == 200, answer
        return headers["x-limpet-replica"], json.loads(answer)

    async def pool(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{self._admin}/limpet/api/pools/default"
        async with self._http.get(url, headers=headers) as answer:
            assert answer.status == 200
            found: dict[str, Any] = await answer.json()
            return found

    async def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in (await self.pool())["replicas"]}

    async def in_flight(self) -> int:
        return sum(row["in_flight"] for row in (await self.pool())["replicas"])


@asynccontextmanager
async def gateway(tmp_path: Path, urls: list[str], ranks: int = 1) -> AsyncIterator[Gateway]:
    replicas = "".join(
        f'[[pool.replica]]\nurl = "{url}"\ndata_parallel_size = {ranks}\nmax_num_seqs = 32\n'
        for url in urls
    )
    config = tmp_path / "limpet.toml"
    config.write_text(
        f'[server]\nport = 0\naccess_log = "off"\n[admin]\nport = 0\ntoken = "{TOKEN}"\n'
        f"[health]\ninterval = 0.5\nstall_after = {STALL_AFTER}\n[metrics]\ninterval = 0.5\n"
        f'[[pool]]\nname = "default"\n{replicas}'
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "limpet.cli", "serve", "--config", str(config)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    found: dict[str, str] = {}
    while len(found) < 2:
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        assert line, f"limpet serve ended: {said}"
        said += line
        if match := re.search(r"(serving|panel) on (http://[^/\s]+)", line):
            found[match[1]] = match[2]
    drain = asyncio.create_task(process.stderr.read())
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http:
            yield Gateway(found["serving"], found["panel"], http)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        await drain


async def page(url: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(url + "/metrics") as answer:
        return await answer.text()


def gauge(text: str, name: str, engine: int = 0) -> float:
    """The sum of a series over its other labels."""
    found = re.findall(rf'^vllm:{name}\{{engine="{engine}"[^}}]*\}} (\S+)', text, re.MULTILINE)
    return sum(map(float, found))


def workers(group: int) -> list[int]:
    """The engine cores and workers behind a front end."""
    found = subprocess.run(
        ["pgrep", "-g", str(group), "-f", "VLLM::"], check=True, stdout=subprocess.PIPE, text=True
    )
    return [int(pid) for pid in found.stdout.split()]


async def until(what: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Waits for a state that another process is about to reach."""

    async def poll() -> None:
        while not await what():  # noqa: ASYNC110 (its changes cannot be awaited)
            await asyncio.sleep(0.1)

    await asyncio.wait_for(poll(), seconds)


async def test_a_conversation_stays_on_its_rank_as_the_ranks_own_counters_say(
    ranks: Server, tmp_path: Path
) -> None:
    async with gateway(tmp_path, [ranks.url], ranks=2) as front:
        before = await page(ranks.url)
        turns: Counter[str] = Counter()
        for session in range(4):
            homes = set()
            for turn in range(3):
                replica, _ = await front.chat(f"session-{session}", f"{session} " * 40 * (turn + 1))
                homes.add(replica)
                turns[replica] += 1
            assert len(homes) == 1
        after = await page(ranks.url)
        assert len(turns) == 2
        for engine in (0, 1):
            served = gauge(after, "request_success_total", engine) - gauge(
                before, "request_success_total", engine
            )
            assert turns[f"127.0.0.1:18101-rank{engine}"] == served


async def test_a_warm_prefix_is_found_at_home(ranks: Server, tmp_path: Path) -> None:
    async with gateway(tmp_path, [ranks.url], ranks=2) as front:
        text = "the same long text once more, " * 60
        _, first = await front.chat("warm", text)
        _, second = await front.chat("warm", text)
        prompt = second["usage"]["prompt_tokens"]
        assert prompt == first["usage"]["prompt_tokens"]
        # Whole blocks of 32 tokens, and never the last token of the prompt.
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == (prompt - 1) // 32 * 32
        classes = {row["class"]: row["turns"] for row in (await front.pool())["classes"]}
        assert classes.get("hit") == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "messages", "responses"])
async def test_usage_is_what_the_answer_says(
    ranks: Server, tmp_path: Path, path: str, stream: bool
) -> None:
    text = "count these words, please"
    body: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "stream": stream}
    if path == "completions":
        body["prompt"] = text
    elif path == "responses":
        body["input"] = text
        body["max_output_tokens"] = body.pop("max_tokens")
    else:
        body["messages"] = [{"role": "user", "content": text}]
    if stream and "completions" in path:
        body["stream_options"] = {"include_usage": True}
    async with gateway(tmp_path, [ranks.url], ranks=2) as front:
        status, _, answer = await front.ask(f"/v1/{path}", body)
    assert status == 200, answer
    scanner = limpet.UsageScanner()
    scanner.feed(answer)
    usage = scanner.usage if stream else limpet.Usage.parse(answer)
    assert usage is not None
    said = re.findall(rb'"(?:completion_tokens|output_tokens)": ?(\d+)', answer)
    assert usage.completion_tokens == int(said[-1])
    asked = re.findall(rb'"(?:prompt_tokens|input_tokens)": ?(\d+)', answer)
    assert usage.prompt_tokens == max(map(int, asked))


async def test_the_panels_figures_are_the_engines_own(ranks: Server, tmp_path: Path) -> None:
    async with gateway(tmp_path, [ranks.url], ranks=2) as front:
        await front.chat("figures", "some text " * 50)
        text = await page(ranks.url)

        async def read() -> bool:
            rows = (await front.pool())["replicas"]
            return [row["prefix_queries"] for row in rows] == [
                gauge(text, "prefix_cache_queries_total", engine) for engine in (0, 1)
            ]

        await until(read, 10)


async def test_a_client_that_hangs_up_ends_the_engines_work(ranks: Server, tmp_path: Path) -> None:
    async with gateway(tmp_path, [ranks.url], ranks=2) as front:
        body = {
            "model": "tiny",
            "prompt": "go on for long",
            "max_tokens": 8000,
            "ignore_eos": True,
            "stream": True,
        }

        async def running() -> float:
            text = await page(ranks.url)
            return sum(gauge(text, "num_requests_running", engine) for engine in (0, 1))

        async with aiohttp.ClientSession() as http:
            async with http.post(front.url + "/v1/completions", json=body) as answer:
                await answer.content.readline()
                assert await front.in_flight() == 1
                answer.close()

            async def idle() -> bool:
                return await running() == 0 and await front.in_flight() == 0

            await until(idle, 5)


async def test_a_stopped_engine_gets_nothing_new_and_its_sessions_move(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """Its front end goes on answering /health and shows an idle engine."""
    stopped, other = pair
    names = {s.url: s.url.removeprefix("http://") for s in pair}
    async with gateway(tmp_path, [stopped.url, other.url]) as front:
        sessions = [f"session-{i}" for i in range(6)]
        home = {s: (await front.chat(s, f"hello from {s}"))[0] for s in sessions}
        moved = [s for s in sessions if home[s] == names[stopped.url]]
        assert 0 < len(moved) < len(sessions)
        cores = workers(stopped.group)
        for core in cores:
            os.kill(core, signal.SIGSTOP)
        try:
            async with aiohttp.ClientSession() as http, http.get(stopped.url + "/health") as answer:
                assert answer.status == 200
            # The turn that finds it out is itself repeated elsewhere: nothing of it had been sent.
            found_out = front.chat(moved[0], "are you there")
            replica, _ = await asyncio.wait_for(found_out, STALL_AFTER + 30)
            assert replica == names[other.url]
            assert (await front.states())[names[stopped.url]] == "down"
            for session in moved:
                assert (await front.chat(session, "and now"))[0] == names[other.url]
        finally:
            for core in cores:
                os.kill(core, signal.SIGCONT)

        async def back() -> bool:
            return (await front.states())[names[stopped.url]] == "up"

        await until(back, 60)


async def test_a_killed_engine_loses_its_sessions_to_the_other(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    killed, other = pair
    names = {s.url: s.url.removeprefix("http://") for s in pair}
    async with gateway(tmp_path, [killed.url, other.url]) as front:
        sessions = [f"session-{i}" for i in range(6)]
        home = {s: (await front.chat(s, f"hello from {s}"))[0] for s in sessions}
        assert set(home.values()) == set(names.values())
        os.killpg(killed.group, signal.SIGKILL)
        for session in sessions:
            replica, _ = await front.chat(session, "still there")
            assert replica == names[other.url]

        async def down() -> bool:
            return (await front.states())[names[killed.url]] == "down"

        await until(down, 10)
        assert await front.in_flight() == 0
