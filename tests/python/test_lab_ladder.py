# SPDX-License-Identifier: Apache-2.0
"""The ladder against simulated engines: its sessions are what they are said to be, its figures are
the engines' counters, and an endpoint that cannot be used is named."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from limpet.lab import Engine
from limpet.lab.compare import Plan, compare
from limpet.lab.ladder import Ladder, Shape, Step
from limpet.lab.steering import LadderError, Steering, Target, steering

SMALL = Shape(system=160, first=200, first_spread=20, new=40, turns=4, output=16)
BLOCK = 16


def engine(**options: Any) -> Engine:
    return Engine(**{"speed": 100.0, "block_tokens": BLOCK, "ranks": 2} | options)


async def step(
    mode: str, url: str, *, sessions: int = 2, seconds: float = 60.0, seed: int = 1, salt: int = 0
) -> Step:
    target = Target((url,), ranks=2)
    ladder = Ladder(target, shape=SMALL, speed=100.0)
    return await ladder.run(steering(mode, target), sessions, seconds, seed, salt)


async def test_every_turn_resends_the_history_and_finds_it_at_home() -> None:
    async with engine() as served:
        played = await step("on", served.url)
    assert played.requests == len(played.turns) > 8
    by_session: dict[str, list[Any]] = {}
    for turn in played.turns:
        by_session.setdefault(turn.session, []).append(turn)
    for turns in by_session.values():
        assert [turn.turn for turn in turns] == list(range(len(turns)))
        assert 160 + 180 <= turns[0].prompt_tokens <= 160 + 220
        assert len({turn.replica for turn in turns}) == 1
        for before, after in itertools.pairwise(turns):
            assert after.prompt_tokens == before.prompt_tokens + 16 + 40
            assert after.outcome == "sticky"
            # All that was read and written before, in whole blocks; the last token of an answer
            # is never fed back, so its block may be missing.
            known = before.prompt_tokens + 15
            assert after.cached_tokens == known // BLOCK * BLOCK
    assert played.stayed_home == 1.0


async def test_the_figures_are_the_engines_counters() -> None:
    async with engine() as served:
        played = await step("off", served.url)
        stats = served.stats()
    assert stats["finished"] == played.requests
    before, after = played.counters["generation_tokens"]
    assert played.output_tokens_per_minute == (after - before) * 60 / 60.0
    asked = sum(turn.prompt_tokens for turn in played.turns)
    found = sum(turn.cached_tokens or 0 for turn in played.turns)
    # Turns that were in flight at the end of the step ended after its counters were read.
    assert played.counters["prefix_cache_queries"][1] <= asked
    assert played.prefix_hit_rate == pytest.approx(found / asked, abs=0.05)
    assert {turn.outcome for turn in played.turns} == {"unrouted"}
    assert played.stayed_home is None
    assert 0 < played.replicas_busy <= 2


async def test_a_seed_gives_the_same_sessions_and_a_salt_other_tokens() -> None:
    async with engine() as served:
        first = await step("on", served.url, salt=1)
        again = await step("on", served.url, salt=2)

    def lengths(played: Step) -> dict[str, int]:
        # The session's name without its salt.
        return {
            turn.session.rsplit(".", 1)[0]: turn.prompt_tokens
            for turn in played.turns
            if turn.turn == 0
        }

    both = lengths(first).keys() & lengths(again).keys()
    assert len(both) > 2
    assert {s: lengths(first)[s] for s in both} == {s: lengths(again)[s] for s in both}
    # Only the system prompt, whose tokens are the same in all runs, is found by a first turn.
    assert all(turn.cached_tokens == 160 for turn in again.turns if turn.turn == 0)


async def test_the_time_to_first_byte_is_the_engines_time() -> None:
    async with engine(profile="rtxpro6000-llama31-8b", ranks=1) as served:
        target = Target((served.url,))
        ladder = Ladder(target, shape=SMALL, speed=100.0)
        played = await ladder.run(Steering(target), 1, 20.0, seed=1)
    for turn in played.turns:
        assert turn.sent < turn.first <= turn.end


async def test_a_comparison_plays_all_runs_and_judges_them() -> None:
    async with engine() as served:
        target = Target((served.url,), ranks=2)
        ladder = Ladder(target, shape=SMALL, speed=100.0)
        plan = Plan(("off", "on"), (1, 2), seconds=10.0, rounds=2)
        steps = []
        async for played, result in compare(ladder, plan, lambda m: steering(m, target), salt=1):
            steps.append((played.mode, played.sessions, played.seed))
            assert result.steps[-1] is played
            assert result.model == "a4000-qwen3-4b"
    assert steps == [(mode, n, 1 + round_) for round_, n, mode in plan.runs()]


def refuse(what: Callable[[], Any], said: str) -> None:
    with pytest.raises(LadderError, match=said):
        asyncio.run(what())


def test_an_endpoint_that_cannot_be_used_is_named() -> None:
    refuse(lambda: Ladder(Target(("http://127.0.0.1:1",))).check(), "127.0.0.1:1.* does not answer")

    async def wrong_model() -> None:
        async with engine() as served:
            await Ladder(Target((served.url,), model="other")).check()

    refuse(wrong_model, "does not serve other: a4000-qwen3-4b")

    async def too_short() -> None:
        async with engine(max_model_len=8000) as served:
            await Ladder(Target((served.url,))).check()

    refuse(too_short, "max_model_len 8000 is below a session's 14486")

    async def no_vllm() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await Ladder(Target((f"http://127.0.0.1:{port}",))).check()

    refuse(no_vllm, "is no list of models: 'hello'")

    async def dies() -> None:
        async with engine(speed=20.0) as served:
            served.fault("cut", count=1, chunks=2)
            await step("on", served.url)

    refuse(dies, "in the middle of a turn|without token ids")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "limpet.cli", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)


def test_limpet_demo_measures_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = run(
        *("demo", "--sessions", "2", "--seconds", "30", "--rounds", "1", "--speed", "10"),
        *("--report", str(report), "--no-keep"),
    )
    assert done.returncode == 0, done.stderr
    assert "panel:" in done.stderr
    record = json.loads(report.with_suffix(".json").read_text())
    assert [row["mode"] for row in record["steps"]] == ["off", "on"]
    assert all(turn["outcome"] == "unrouted" for turn in record["steps"][0]["turns"])
    later = [turn for turn in record["steps"][1]["turns"] if turn["turn"] > 0]
    assert later
    assert all(turn["outcome"] == "sticky" for turn in later)
    assert "<table>" in report.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "http://127.0.0.1:1", "--report", "{}/r.html"], "does not answer"),
        (["compare", "http://127.0.0.1:1", "--modes", "off,fast"], "mode fast: there are off"),
        (["compare", "http://127.0.0.1:1", "--sessions", "four"], "--sessions four"),
        (["compare", "http://127.0.0.1:1", "--report", "/no/such/r.html"], "there is no folder"),
        (["demo", "--sessions", "0"], "sessions"),
        (["demo", "--balancer", "best"], "balancer = best"),
    ],
)
def test_bad_input_says_what_is_wrong_and_exits_with_2(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = run(*(argument.format(tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_the_command_line_comes_up_without_the_packages_of_the_lab() -> None:
    without = "import sys; sys.modules.update(dict.fromkeys(('aiohttp', 'plotly', 'uvicorn')))"
    for command in ("compare http://127.0.0.1:1", "demo"):
        run_it = f"from limpet.cli import main; sys.argv[1:] = {command.split()!r}; main()"
        done = subprocess.run(
            [sys.executable, "-c", f"{without}; {run_it}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert "needs aiohttp: pip install 'limpet[lab" in " ".join(done.stderr.split())
