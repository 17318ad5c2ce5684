# SPDX-License-Identifier: Apache-2.0
"""`limpet engine`, as a process and as a command that is used wrongly; options from Python."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

import httpx
import pytest
from lab_client import DEADLINE, body, usage
from limpet import lab, sim
from limpet.cli import app
from typer.testing import CliRunner

CHAT = "/v1/chat/completions"


async def test_an_engine_in_a_process_of_its_own_serves_freezes_and_ends() -> None:
    async with (
        lab.EngineProcess("--data-parallel-size", "2", "--speed", "100") as engine,
        httpx.AsyncClient(base_url=engine.url, timeout=DEADLINE) as client,
    ):
        answer = await client.post(CHAT, json=body(CHAT, "hi"))
        assert usage(answer).completion_tokens == 8
        assert len((await client.get("/lab/stats")).json()["ranks"]) == 2
        engine.freeze()
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/health", timeout=0.2)
        engine.freeze(False)
        assert (await client.get("/health")).status_code == 200
        engine.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 0


async def test_an_engine_that_dies_of_a_fault_ends_its_process() -> None:
    async with (
        lab.EngineProcess() as engine,
        httpx.AsyncClient(base_url=engine.url, timeout=DEADLINE) as client,
    ):
        await client.post("/lab/fault", json={"kind": "die"})
        assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "abacus"], "profile = abacus: there are"),
        (["--speed", "0"], "speed = 0.0: must be above 0"),
        (["--data-parallel-size", "0"], "ranks = 0: must be 1 to 64"),
        (["--kv-tokens", "8"], "kv_tokens = 8: must be at least a block of 16"),
        (["--kv-tokens", "-1"], "kv_tokens = -1: must be"),
        (["--max-model-len", "99999"], "max_model_len = 99999: the cache of a rank holds 36000"),
        (["--port", "99999"], "less than or equal to 65535"),
        (["--host", "256.1.1.1"], "256.1.1.1:8000: "),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(app, ["engine", *arguments])
    assert ran.exit_code == 2
    assert message in " ".join(ran.output.split())


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = CliRunner().invoke(app, ["engine", "--port", str(port)])
    assert ran.exit_code == 2
    assert ran.output == f"limpet: 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    "options",
    [{"profile": "abacus"}, {"speed": float("nan")}, {"ranks": 65}, {"max_model_len": -1}],
)
async def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="="):
        await lab.Engine(**options).start()


async def test_a_profile_of_ones_own_is_served_unchanged() -> None:
    machine = sim.profiles()["cpu-core-82m"]
    machine.name = "mine"
    async with lab.Engine(profile=machine, model="theirs", kv_tokens=6_400) as engine:
        assert engine.core.model == "theirs"
        assert engine.core.server.capacity == 6_400
    assert (machine.name, machine.kv_tokens) == ("mine", 999 * 32)


async def test_engines_do_not_outlive_their_block() -> None:
    engine = lab.Engine(speed=10)
    with pytest.raises(RuntimeError, match="not been started"):
        _ = engine.core
    async with engine:
        assert engine.port > 0
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(engine.url)
    assert asyncio.all_tasks() == {asyncio.current_task()}
