# SPDX-License-Identifier: Apache-2.0
"""Replicas that die, hang, or are merely busy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import PAGE, Engine, engines, gateway, settings_for
from limpet.gateway.health import stalled
from limpet.gateway.replicas import Endpoint, Flight, Target
from limpet.gateway.settings import HealthSettings, ReplicaSettings, Timeouts

HANGS = HealthSettings(failures=2, interval=0.05, timeout=0.5, stall_after=0.4)


async def never(_: rigs.Seen, __: rigs.Reply) -> None:
    await asyncio.Event().wait()


async def head_and_never(_: rigs.Seen, reply: rigs.Reply) -> None:
    await reply.stream()
    await asyncio.Event().wait()


def row(state: Any, engine: Engine) -> Any:
    return next(r for r in state["replicas"] if r["name"] == engine.name)


@pytest.mark.parametrize("hang", [never, head_and_never])
async def test_a_hung_engine_loses_its_turns_its_sessions_and_new_ones(hang: rigs.Script) -> None:
    """It accepts, answers /health and /metrics, and never a token."""
    async with engines(2) as fleet, gateway(settings_for(*fleet, health=HANGS)) as rig:
        sessions = [f"s{number}" for number in range(10)]
        home = {s: (await rig.turn(s)).header("x-limpet-replica") for s in sessions}
        sick, well = fleet
        sick.script = hang
        answers = dict(zip(sessions, await asyncio.gather(*map(rig.turn, sessions)), strict=True))
        cut = {session for session, answer in answers.items() if not answer.complete}
        for session, answer in answers.items():
            if session in cut:
                assert home[session] == sick.name
            else:
                assert answer.header("x-limpet-replica") == well.name
        # A turn whose head was passed on is cut, all others are repeated.
        assert bool(cut) is (hang is head_and_never)
        state = await rig.state()
        assert (row(state, sick)["state"], row(state, sick)["health"]) == ("down", "hung")
        assert row(state, sick)["in_flight"] == 0
        for session in [*sessions, "new-1", "new-2"]:
            answer = await rig.turn(session)
            assert (answer.status, answer.header("x-limpet-replica")) == (200, well.name)
        assert row(await rig.state(), sick)["pins"] == 0
        # /health never failed; what brings it back is a turn that it answers.
        sick.script = rigs.answer
        await rig.until(lambda s: row(s, sick)["state"] == "up")
        assert (await rig.turn("newer")).header("x-limpet-replica") == sick.name


async def test_a_replica_that_serves_others_meanwhile_is_busy_not_hung() -> None:
    """One turn waits ten times as long as counts as hung, while bytes of another flow."""
    release = asyncio.Event()

    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        if seen.json.get("waits"):
            await release.wait()
            await rigs.answer(seen, reply)
            return
        await reply.stream()
        while not release.is_set():
            await reply.chunk(b"data: x\n\n")
            await asyncio.sleep(0.01)
        await reply.end()

    health = HealthSettings(failures=2, interval=0.05, timeout=0.5, stall_after=0.2)
    async with engines(1, script) as (e,), gateway(settings_for(e, health=health)) as rig:
        turns = [asyncio.create_task(rig.turn("a", waits=True)), asyncio.create_task(rig.turn("b"))]
        await e.got(2)
        await rig.until(lambda s: s["waiting"]["longest"] > 2.0)
        assert (await rig.state())["replicas"][0]["state"] == "up"
        release.set()
        assert [(await turn).status for turn in turns] == [200, 200]


async def test_a_replica_whose_counters_move_reads_a_long_prompt_and_is_not_hung() -> None:
    release = asyncio.Event()

    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        await release.wait()
        await rigs.answer(seen, reply)

    async with engines(1, script) as (e,), gateway(settings_for(e, health=HANGS)) as rig:
        turn = asyncio.create_task(rig.turn("a"))
        await e.got(1)
        queries = 0

        def works(state: Any) -> bool:
            nonlocal queries
            queries += 100
            e.page = PAGE.format(running=1, queries=queries, hits=0, generated=0)
            return bool(state["waiting"]["longest"] > 2.5)

        async def work() -> None:
            while not release.is_set():
                works({"waiting": {"longest": 0}})
                await asyncio.sleep(0.05)

        working = asyncio.create_task(work())
        await rig.until(works)
        assert (await rig.state())["replicas"][0]["state"] == "up"
        release.set()
        assert (await turn).status == 200
        await working


def test_the_rule_for_hung_replicas() -> None:
    target = Target("a", Endpoint("http://a"), None, ReplicaSettings("http://a"))
    assert not stalled(target, 1000.0, 30.0)  # idle, however long

    def sent(at: float) -> Flight:
        flight = Flight(None)  # type: ignore[arg-type]
        flight.began = at
        target.flights.add(flight)
        return flight

    first = sent(1000.0)
    first.sending = True  # its client does not read
    assert not stalled(target, 2000.0, 30.0)
    first.sending = False
    assert not stalled(target, 1029.9, 30.0)
    assert stalled(target, 1030.0, 30.0)
    assert not stalled(target, 1030.0, 0.0)  # switched off
    target.moved_at = 1010.0  # a byte of another turn, or of this one
    assert not stalled(target, 1039.9, 30.0)
    assert stalled(target, 1040.0, 30.0)
    target.worked_at = 1020.0  # the engine's own counters
    assert not stalled(target, 1049.9, 30.0)
    assert stalled(target, 1050.0, 30.0)
    sent(1045.0)  # more turns do not excuse it
    assert stalled(target, 1050.0, 30.0)
    target.hung_since = 1050.0  # known already
    assert not stalled(target, 1100.0, 30.0)


async def test_a_client_that_does_not_read_makes_nobody_hung() -> None:
    sent = 0

    async def flood(seen: rigs.Seen, reply: rigs.Reply) -> None:
        nonlocal sent
        if not seen.json.get("flood"):
            await rigs.answer(seen, reply)
            return
        await reply.stream()
        while True:
            await reply.chunk(b"x" * 65536)
            sent += 1

    seen, since = -1, 0.0

    def held_long_enough(state: Any) -> bool:
        """Nothing has been sent for several times as long as counts as hung."""
        nonlocal seen, since
        if seen != sent:
            seen, since = sent, state["now"]
        return bool(state["now"] - since > 5 * HANGS.stall_after)

    async with (
        engines(1, flood) as (engine,),
        gateway(settings_for(engine, health=HANGS)) as rig,
        rigs.Client(rig.url) as client,
    ):
        await client.send("POST", "/v1/completions", [], b'{"model": "m", "flood": true}')
        await client.head()
        client.pause()
        state = await rig.until(held_long_enough)
        assert (row(state, engine)["state"], row(state, engine)["in_flight"]) == ("up", 1)


async def test_an_endpoint_whose_health_fails_is_down_until_it_answers() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        fleet[0].healthy = False
        state = await rig.until(lambda s: row(s, fleet[0])["state"] == "down")
        assert row(state, fleet[0])["health"] == "unreachable"
        for number in range(4):
            assert (await rig.turn(f"s{number}")).header("x-limpet-replica") == fleet[1].name
        fleet[0].healthy = True
        await rig.until(lambda s: row(s, fleet[0])["state"] == "up")


async def test_an_operators_wish_outlives_health() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        await rig.switch(fleet[0].name, "drain")
        fleet[0].healthy = False
        await rig.until(lambda s: row(s, fleet[0])["state"] == "down")
        fleet[0].healthy = True
        await rig.until(lambda s: row(s, fleet[0])["state"] == "draining")


async def test_a_turn_without_a_byte_for_too_long_is_ended() -> None:
    timeouts = Timeouts(idle=0.2)
    async with engines(1, never) as (e,), gateway(settings_for(e, timeouts=timeouts)) as rig:
        answer = await rig.turn("s")
        assert answer.status == 504
        assert answer.json["error"]["code"] == "gateway_timeout"
        await rig.idle()


async def test_a_page_that_never_comes_delays_no_turn() -> None:
    async with engines(1) as (engine,):
        engine.mute = True
        async with gateway(settings_for(engine)) as rig:
            for _ in range(20):
                assert (await rig.turn("s")).status == 200
            row = (await rig.replicas())[engine.name]
            assert (row["state"], row["reading_age"]) == ("up", None)
