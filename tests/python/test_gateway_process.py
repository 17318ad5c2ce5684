# SPDX-License-Identifier: Apache-2.0
"""The gateway as a process: its command line, its signals, its reload."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Client, engines, gateway, settings_for
from limpet.gateway.settings import PoolSettings, ReplicaSettings, Settings, SettingsError

toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")


async def limpet(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "limpet.cli", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200", **environment},
    )  # fmt: skip


async def outcome(*arguments: str) -> tuple[int | None, str, str]:
    process = await limpet(*arguments)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_serve_says_where_it_is_and_ends_with_zero_at_sigterm() -> None:
    finish = asyncio.Event()

    async def slow(seen: rigs.Seen, reply: rigs.Reply) -> None:
        if not seen.json.get("stream"):
            await rigs.answer(seen, reply)
            return
        await reply.stream()
        await reply.chunk(b"data: 1\n\n")
        await finish.wait()
        await reply.end()

    async with engines(1, slow) as (engine,):
        process = await limpet("serve", "--replica", engine.url, "--port", "0", "--admin-port", "0")
        assert process.stderr is not None
        assert process.stdout is not None
        said = b""
        while b"panel on" not in said:
            line = await asyncio.wait_for(process.stderr.readline(), 60)
            assert line, said
            said += line
        url = re.search(rb"serving on (\S+)/v1", said)
        panel = re.search(rb"panel on (\S+)/limpet/#token=(\S+)", said)
        assert url is not None
        assert panel is not None
        rig = rigs.Rig(url[1].decode(), panel[1].decode(), asyncio.Event())
        assert (await rig.turn("s")).status == 200
        assert (await rig.admin("/metrics", token=panel[2].decode())).status == 200
        async with Client(rig.url) as client:
            await client.send("POST", "/v1/completions", [], b'{"model": "m", "stream": true}')
            await client.head()
            assert await client.chunk() == b"data: 1\n\n"
            process.send_signal(signal.SIGTERM)
            finish.set()
            assert await client.chunk() == b""
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        assert err == b""
        lines = out.decode().splitlines()
        assert len(lines) == 2
        assert "outcome=placed class=cold" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to send to: --replica URL, or --config FILE"),
        (("--replica", "nonsense"), "url = 'nonsense': an address such as http://10.0.0.1:8000"),
        (("--config", "nowhere.toml"), "nowhere.toml: No such file or directory"),
        (("--replica", "http://a", "--replica", "http://a"), "'a': is there twice"),
    ],
)
async def test_a_wrong_command_line_ends_with_a_message_and_two(
    arguments: tuple[str, ...], says: str
) -> None:
    code, out, err = await outcome("serve", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


@toml
async def test_the_configuration_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    file.write_text('[[pool]]\n[[pool.replica]]\nurl = "http://127.0.0.1:1"\nranks = 2\n')
    code, _, err = await outcome("serve", "--config", str(file))
    assert code == 2
    assert "limpet.toml: [[pool]] 1: [[pool.replica]] 1: ranks = 2: no such key" in err


async def test_doctor_tells_a_well_engine_from_one_that_is_none() -> None:
    async with engines(1) as (engine,):
        engine.page += 'vllm:cache_config_info{enable_prefix_caching="True",engine="0"} 1.0\n'
        code, out, err = await outcome("doctor", engine.url)
        assert (code, err) == (0, "")
        for line in ("1 engine, all series there", "prefix caching", "0 of 100 tokens cached"):
            assert line in out

        engine.page = engine.page.replace('"True"', '"False"')
        engine.script = lambda _, reply: reply.whole(b'{"usage": {"prompt_tokens": 9}}')
        code, out, _ = await outcome("doctor", engine.url)
        assert code == 1
        assert "--enable-prefix-caching" in out
        assert "--enable-prompt-tokens-details" in out
    code, out, _ = await outcome("doctor", "--json", "http://127.0.0.1:1")
    assert code == 1
    assert '"verdict": "fail"' in out


async def test_explain_asks_a_gateway_that_runs() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        home = (await rig.turn("s")).header("x-limpet-replica")
        code, out, err = await outcome(
            "explain", "--session", "s", "--gateway", rig.admin_url, "--token", rigs.TOKEN
        )
        assert (code, err) == (0, "")
        assert f"sticky: {home} (home has room)" in out
        code, _, err = await outcome(
            "explain", "--session", "s", "--gateway", rig.admin_url, "--token", "wrong"
        )
        assert code == 2
        assert "401" in err


# Reload -------------------------------------------------------------------------------------------


def with_replicas(settings: Settings, *replicas: ReplicaSettings, **changes: Any) -> Settings:
    pool = dataclasses.replace(settings.pools[0], replicas=replicas, **changes)
    return dataclasses.replace(settings, pools=(pool,))


async def test_a_reload_changes_replicas_without_a_lost_request() -> None:
    async with engines(3) as fleet:
        a, b, c = (ReplicaSettings(engine.url, max_num_seqs=32) for engine in fleet)
        settings = settings_for(a, b)
        wanted = with_replicas(settings, b, c, threshold=5)
        hold = asyncio.Event()

        async def held(seen: rigs.Seen, reply: rigs.Reply) -> None:
            if seen.json.get("hold"):
                await hold.wait()
            await rigs.answer(seen, reply)

        for engine in fleet:
            engine.script = held
        async with gateway(settings, load=lambda: wanted) as rig:
            homes = {
                f"s{n}": (await rig.turn(f"s{n}")).header("x-limpet-replica") for n in range(8)
            }
            leaver = fleet[0]
            stays = next(s for s, home in homes.items() if home == fleet[1].name)
            leaves = next(s for s, home in homes.items() if home == leaver.name)
            count = len(leaver.requests)
            long = asyncio.create_task(rig.turn(leaves, hold=True))
            await leaver.got(count + 1)

            done = asyncio.Event()
            statuses = []

            async def traffic(session: str) -> None:
                while not done.is_set():
                    statuses.append((await rig.turn(session)).status)

            busy = [asyncio.create_task(traffic(session)) for session in homes]
            os.kill(os.getpid(), signal.SIGHUP)
            state = await rig.until(lambda s: s["spill_threshold"] == {"value": 5, "auto": False})
            rows = {row["name"]: row for row in state["replicas"]}
            assert rows.keys() == {engine.name for engine in fleet}
            assert (rows[leaver.name]["state"], rows[leaver.name]["leaving"]) == ("draining", True)
            new = [(await rig.turn(f"new{n}")).header("x-limpet-replica") for n in range(8)]
            assert leaver.name not in new
            assert fleet[2].name in new
            hold.set()
            assert (await long).status == 200
            done.set()
            await asyncio.gather(*busy)
            assert set(statuses) == {200}
            # Its last turn has ended: it is gone, and its conversations find another home.
            await rig.until(lambda s: len(s["replicas"]) == 2)
            assert (await rig.turn(leaves)).header("x-limpet-replica") != leaver.name
            assert (await rig.turn(stays)).header("x-limpet-replica") == fleet[1].name


async def test_a_reload_changes_pools_and_keys() -> None:
    async with engines(2) as (one, two):
        settings = settings_for(one)
        other = PoolSettings(name="other", models=("n",), replicas=(ReplicaSettings(two.url),))
        wanted = dataclasses.replace(
            settings, pools=(*settings.pools, other), keys=rigs.keys(a="ka")
        )
        current = [wanted]
        async with gateway(settings, load=lambda: current[0]) as rig:
            assert (await rig.ask({"model": "n"})).status == 404
            os.kill(os.getpid(), signal.SIGHUP)
            await rig.until(lambda _: True, "default")
            await asyncio.sleep(0)
            key = {"x-api-key": "ka"}
            assert (await rig.ask({"model": "n"}, headers=key)).status == 200
            assert (await rig.ask({"model": "n"})).status == 401
            current[0] = dataclasses.replace(wanted, pools=(other,))
            os.kill(os.getpid(), signal.SIGHUP)
            await rig.until(lambda _: True, "other")
            assert (await rig.ask({"model": "m"}, headers=key)).status == 404
            assert (await rig.ask({"model": "n"}, headers=key)).status == 200


async def test_a_reload_of_nonsense_keeps_what_there_is(caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Settings:
        raise SettingsError("limpet.toml: [server]: prt = 1: no such key")

    async with engines(1) as (engine,), gateway(settings_for(engine), load=load) as rig:
        os.kill(os.getpid(), signal.SIGHUP)
        assert (await rig.turn("s")).status == 200
        assert "kept as it was: limpet.toml: [server]: prt = 1" in caplog.text


async def test_a_replica_whose_settings_changed_is_replaced_once_its_turns_ended() -> None:
    async with engines(1) as (engine,):
        settings = settings_for(ReplicaSettings(engine.url, max_num_seqs=32))
        wanted = with_replicas(settings, ReplicaSettings(engine.url, max_num_seqs=64))
        hold = asyncio.Event()

        async def held(seen: rigs.Seen, reply: rigs.Reply) -> None:
            if seen.json.get("hold"):
                await hold.wait()
            await rigs.answer(seen, reply)

        engine.script = held
        async with gateway(settings, load=lambda: wanted) as rig:
            long = asyncio.create_task(rig.turn("s", hold=True))
            await engine.got(1)
            os.kill(os.getpid(), signal.SIGHUP)
            await rig.until(lambda s: s["replicas"][0]["leaving"])
            assert (await rig.turn("t")).status == 200  # nothing else is up, so it still serves
            hold.set()
            assert (await long).status == 200
            await rig.until(lambda s: s["spill_threshold"]["value"] == 16)
            assert (await rig.turn("s")).status == 200
