# SPDX-License-Identifier: Apache-2.0
"""Every way in which a turn can end gives its slot back, once, and tells the engine."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
from collections import Counter

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Client, Engine, engines, gateway, settings_for
from limpet.gateway.settings import HealthSettings, ServerSettings

# How a turn is broken, by whom, and when.
WHOLE = "whole"
STREAM = "stream"
BROKEN = (
    "client resets before the head",
    "client leaves before the head",
    "client resets in the stream",
    "client leaves in the stream",
    "engine resets before the head",
    "engine resets in the head",
    "engine resets in the stream",
    "engine breaks off its body",
    "engine answers 500",
    "engine answers 503",
    "engine talks rubbish",
)
TURNS = 2000
LEARNED: list[float] = []  # s from a client's leaving to its engine's knowing


async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
    """Does what the request says, and always names the request in its answer."""
    how, mark = seen.json["how"], seen.json["mark"].encode()
    if how == WHOLE:
        await reply.whole(json.dumps({"mark": seen.json["mark"], "usage": rigs.usage()}).encode())
    elif how.endswith("before the head") and how.startswith("client"):
        await asyncio.Event().wait()
    elif how.startswith("client") or how == STREAM:
        await reply.stream()
        await reply.chunk(b"data: %s\n\n" % mark)
        if how != STREAM:
            await asyncio.Event().wait()
        await reply.event({"choices": [], "usage": rigs.usage()})
        await reply.end()
    elif how == "engine resets before the head":
        reply.reset()
    elif how == "engine resets in the head":
        await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
        reply.reset()
    elif how == "engine resets in the stream":
        await reply.stream()
        await reply.chunk(b"data: %s\n\n" % mark)
        reply.reset()
    elif how == "engine breaks off its body":
        await reply.head(200, "Content-Length: 1000")
        await reply.raw(mark)
        reply.writer.close()
    elif how == "engine talks rubbish":
        await reply.raw(b"\x16\x03\x01rubbish\r\n\r\n")
        reply.writer.close()
    else:
        await reply.whole(mark, int(how[-3:]))


async def one(
    rig: rigs.Rig, fleet: list[Engine], number: int, how: str, stats: Counter[str]
) -> None:
    mark = f"<{number}>"
    body = json.dumps({"model": "m", "how": how, "mark": mark, "stream": True}).encode()
    session = f"s{number % 150}"
    async with Client(rig.url) as client, rigs.deadline():
        await client.send(
            "POST", "/v1/chat/completions", [(b"x-session-id", session.encode())], body
        )
        if how.startswith("client"):
            seen = await arrived(fleet, mark)
            if how.endswith("in the stream"):
                await client.head()
                assert await client.chunk() == b"data: %s\n\n" % mark.encode()
            client.reset() if "resets" in how else client.writer.close()
            left = asyncio.get_running_loop().time()
            await seen.gone.wait()
            LEARNED.append(asyncio.get_running_loop().time() - left)
            stats["cancelled"] += 1
            return
        answer = await client.answer()
        if how in (WHOLE, STREAM):
            assert answer.complete
            assert answer.status == 200
        if answer.status == 200 and answer.body:  # a reset can take what came before it along
            # Nobody got another's bytes.
            assert mark.encode() in answer.body
            assert answer.body.count(b"<") == 1
        if how in ("engine resets in the stream", "engine breaks off its body"):
            assert not answer.complete
        stats[f"{how}: {answer.status}"] += 1


async def arrived(fleet: list[Engine], mark: str, how: str = "") -> rigs.Seen:
    """The request of this mark as it arrived at an engine, once it has."""
    while True:
        for engine in fleet:
            for seen in reversed(engine.requests):
                if mark.encode() in seen.body and how.encode() in seen.body:
                    return seen
        await asyncio.sleep(0.002)


async def test_two_thousand_turns_half_of_them_broken_leave_nothing_behind() -> None:
    seed = int(os.environ.get("LIMPET_SEED", "20261130"))
    print(f"seed {seed}")
    draw = random.Random(seed)
    hows = [draw.choice(BROKEN) if n % 2 else draw.choice([WHOLE, STREAM]) for n in range(TURNS)]
    stats: Counter[str] = Counter()
    # No replica goes down: what is broken is turns, and each must be given back by itself.
    health = HealthSettings(failures=10**6, interval=0.05, timeout=0.5, stall_after=0)
    async with engines(3, script) as fleet, gateway(settings_for(*fleet, health=health)) as rig:
        queue = list(enumerate(hows))

        async def worker() -> None:
            while queue:
                number, how = queue.pop()
                await one(rig, fleet, number, how, stats)

        LEARNED.clear()
        await asyncio.gather(*(worker() for _ in range(12)))
        state = await rig.idle()
        assert sum(stats.values()) == TURNS
        assert stats["cancelled"] == sum(how.startswith("client") for how in hows)
        assert state["waiting"]["turns"] == 0
        # The promise is a second for each. Clients, gateway and engines share one loop here, so on
        # a busy machine it is the median that says how the gateway does.
        assert statistics.median(LEARNED) < 1.0
        counted = sum(
            row[name]
            for row in state["replicas"]
            for name in ("placed", "sticky", "spilled_in", "moved")
        )
        # Every attempt was counted once: the turns, and the repeats.
        assert counted == TURNS + state["retried"]
        assert state["decisions"][0]["id"] == counted


async def test_an_engine_that_dies_takes_no_slot_and_no_pin_with_it() -> None:
    async with engines(3, script) as fleet, gateway(settings_for(*fleet)) as rig:
        stats: Counter[str] = Counter()
        for number in range(30):
            await one(rig, fleet, number, WHOLE, stats)
        hows = ["client leaves before the head", "client leaves in the stream"] * 15
        waiting = [
            asyncio.create_task(rig.ask({"model": "m", "how": how, "mark": f"<{n}>"}, f"s{n}"))
            for n, how in enumerate(hows)
        ]
        for number in range(30):
            await arrived(fleet, f'"mark": "<{number}>"', "client")
        dead = fleet[0]
        lost = sum(b"client" in seen.body for seen in dead.requests)
        await dead.die()
        state = await rig.until(
            lambda s: any(r["name"] == dead.name and r["state"] == "down" for r in s["replicas"])
        )
        row = next(r for r in state["replicas"] if r["name"] == dead.name)
        assert row["in_flight"] == 0
        assert lost > 0
        for number in range(30):  # each conversation's next turn finds a replica that lives
            answer = await rig.ask({"model": "m", "how": WHOLE, "mark": "<>"}, f"s{number}")
            assert answer.status == 200
            assert answer.header("x-limpet-replica") != dead.name
        assert (await rig.replicas())[dead.name]["pins"] == 0
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await rig.idle()


async def test_a_prompt_is_pending_until_the_first_byte_of_its_answer() -> None:
    go, end = asyncio.Event(), asyncio.Event()

    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        if "waits" not in seen.json:
            await rigs.answer(seen, reply)  # 105 tokens: what a turn is taken for from now on
            return
        await go.wait()
        await reply.stream()
        await reply.chunk(b"data: 1\n\n")
        await end.wait()
        await reply.end()

    async with engines(1, script) as (engine,), gateway(settings_for(engine)) as rig:
        await rig.turn("first")

        async def pending() -> tuple[int, int]:
            (row,) = (await rig.replicas()).values()
            return row["in_flight"], row["pending_prefill_tokens"]

        async with Client(rig.url) as client:
            body = json.dumps({"model": "m", "waits": True}).encode()
            await client.send("POST", "/v1/completions", [(b"x-session-id", b"second")], body)
            await engine.got(2)
            assert await pending() == (1, 105)
            go.set()
            await client.head()
            assert await client.chunk() == b"data: 1\n\n"
            await rig.until(lambda state: state["replicas"][0]["pending_prefill_tokens"] == 0)
            assert await pending() == (1, 0)
            end.set()
            assert await client.chunk() == b""


async def test_at_sigterm_streams_end_and_what_does_not_is_cut_at_the_deadline() -> None:
    finish = asyncio.Event()

    async def slow(seen: rigs.Seen, reply: rigs.Reply) -> None:
        await reply.stream()
        await reply.chunk(b"data: 1\n\n")
        await (finish if seen.json["ends"] else asyncio.Event()).wait()
        await reply.chunk(b"data: 2\n\n")
        await reply.end()

    async with engines(1, slow) as (engine,):
        server = ServerSettings(port=0, access_log="off", drain_seconds=0.5)
        async with gateway(settings_for(engine, server=server)) as rig:
            good, bad, idle = Client(rig.url), Client(rig.url), Client(rig.url)
            async with good, bad, idle:
                for client, ends in ((good, True), (bad, False)):
                    body = json.dumps({"model": "m", "ends": ends}).encode()
                    await client.send("POST", "/v1/completions", [], body)
                    await client.head()
                    assert await client.chunk() == b"data: 1\n\n"
                rig.stop.set()
                assert await idle.reader.read() == b""  # a connection without a request is closed
                with pytest.raises(ConnectionError):  # and a new one refused
                    await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))
                finish.set()
                assert await good.chunk() == b"data: 2\n\n"
                assert await good.chunk() == b""
                assert await bad.reader.read() == b""  # without the end of a chunked body
        assert [seen.gone.is_set() for seen in engine.requests] == [False, True]
