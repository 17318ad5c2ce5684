# SPDX-License-Identifier: Apache-2.0
"""Where turns go: home in calm, elsewhere when home is overloaded, failing or gone, and back."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Engine, engines, gateway, settings_for
from limpet.gateway.settings import PoolSettings, ReplicaSettings


async def test_calm_overload_kill_and_return() -> None:
    """The script of benchmarks.md: none of the measured peers stays home, spills and comes back."""
    hold: dict[str, asyncio.Event] = {}

    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        event = hold.get(seen.json.get("hold", ""))
        if event is not None:
            await event.wait()
        await rigs.answer(seen, reply)

    sessions = [f"session-{number}" for number in range(20)]
    async with (
        engines(3, script) as fleet,
        gateway(settings_for(*fleet, pool={"threshold": 4})) as rig,
    ):
        by_name = {engine.name: engine for engine in fleet}

        async def round_of_turns() -> dict[str, tuple[str | None, str | None]]:
            answers = {session: await rig.turn(session) for session in sessions}
            assert {answer.status for answer in answers.values()} == {200}
            return {
                session: (answer.header("x-limpet-replica"), answer.header("x-limpet-outcome"))
                for session, answer in answers.items()
            }

        # Calm: placed evenly, and every later turn goes home.
        first = await round_of_turns()
        home = {session: replica for session, (replica, _) in first.items()}
        counts = [list(home.values()).count(engine.name) for engine in fleet]
        assert max(counts) - min(counts) <= 1
        for _ in range(3):
            again = await round_of_turns()
            assert again == {session: (home[session], "sticky") for session in sessions}

        # Overload: four turns are held at one replica; it is the gateway's own count that says so.
        busy = home[sessions[0]]
        assert busy is not None
        at_home = [session for session in sessions if home[session] == busy]
        hold["on"] = asyncio.Event()
        before = len(by_name[busy].requests)
        held = [asyncio.create_task(rig.turn(session, hold="on")) for session in at_home[:4]]
        await by_name[busy].got(before + 4)
        overloaded = await round_of_turns()
        for session in sessions:
            replica, outcome = overloaded[session]
            if home[session] == busy:
                assert outcome == "spilled"
                assert replica != busy
            else:
                assert (replica, outcome) == (home[session], "sticky")
        hold.pop("on").set()
        assert [(await task).status for task in held] == [200] * 4
        assert await round_of_turns() == again  # everybody is home

        # Kill: nobody sees an error, and its sessions move for good.
        victim = by_name[busy]
        await victim.die()
        killed = await round_of_turns()
        await rig.until(lambda s: [r["state"] for r in s["replicas"]].count("down") == 1)
        moved = await round_of_turns()
        settled = await round_of_turns()
        for session in sessions:
            assert killed[session][0] != busy
            if home[session] != busy:
                assert settled[session] == (home[session], "sticky")
            else:
                assert settled[session] == (moved[session][0], "sticky")
        assert (await rig.replicas())[busy]["pins"] == 0

        # Return: it takes new conversations again, and those that moved stay where they are.
        await victim.start()
        await rig.until(lambda s: all(r["state"] == "up" for r in s["replicas"]))
        assert await round_of_turns() == settled
        new = [await rig.turn(f"new-{number}") for number in range(8)]
        assert [answer.header("x-limpet-replica") for answer in new].count(busy) == 8


async def test_a_failed_first_attempt_is_repeated_once_on_another_replica() -> None:
    for status in (502, 503, 504):

        async def failing(_: rigs.Seen, reply: rigs.Reply, status: int = status) -> None:
            await reply.whole(b'{"error": {}}', status)

        async with engines(3) as fleet, gateway(settings_for(*fleet)) as rig:
            home = (await rig.turn("s")).header("x-limpet-replica")
            next(e for e in fleet if e.name == home).script = failing
            answer = await rig.turn("s")
            assert (answer.status, answer.header("x-limpet-outcome")) == (200, "spilled")
            assert answer.header("x-limpet-replica") != home
            assert (await rig.replicas())[str(home)]["failed"] == 1
            for engine in fleet:
                engine.script = failing
            seen = sum(len(engine.requests) for engine in fleet)
            last = await rig.turn("s")  # the second answer is the client's, whatever it is
            assert (last.status, last.body) == (status, b'{"error": {}}')
            assert sum(len(engine.requests) for engine in fleet) == seen + 2


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
async def test_other_errors_of_an_engine_are_passed_on_as_they_are(status: int) -> None:
    async def failing(_: rigs.Seen, reply: rigs.Reply) -> None:
        await reply.whole(b'{"object": "error"}', status)

    async with engines(2, failing) as fleet, gateway(settings_for(*fleet)) as rig:
        answer = await rig.turn("s")
        assert (answer.status, answer.body) == (status, b'{"object": "error"}')
        assert sum(len(engine.requests) for engine in fleet) == 1


async def test_an_error_inside_a_stream_that_began_well_is_a_failure() -> None:
    async def failing(_: rigs.Seen, reply: rigs.Reply) -> None:
        await reply.stream()
        await reply.event({"error": {"message": "the engine died", "code": 500}})
        await reply.end()

    async with engines(1, failing) as (engine,), gateway(settings_for(engine)) as rig:
        answer = await rig.turn("s", stream=True)
        assert (answer.status, answer.complete) == (200, True)
        row = (await rig.replicas())[engine.name]
        assert (row["failed"], row["in_flight"], row["pins"]) == (1, 0, 0)


async def test_a_stale_pooled_connection_is_repeated_on_a_fresh_one_to_the_same_replica() -> None:
    async def once(_: rigs.Seen, reply: rigs.Reply) -> None:
        engine.script = rigs.answer
        reply.reset()  # as an engine whose idle time ran out while the request was on its way

    async with engines(1) as (engine,), gateway(settings_for(engine)) as rig:
        assert (await rig.turn("s")).status == 200
        engine.script = once
        answer = await rig.turn("s")
        assert (answer.status, answer.header("x-limpet-outcome")) == (200, "sticky")
        assert (await rig.replicas())[engine.name]["failed"] == 0
        assert len(engine.requests) == 3


async def test_a_replica_that_fails_on_a_fresh_connection_is_asked_only_once() -> None:
    async def reset(_: rigs.Seen, reply: rigs.Reply) -> None:
        reply.reset()

    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        first = await rig.turn("s")
        home = next(e for e in fleet if e.name == first.header("x-limpet-replica"))
        home.script = reset
        # The pooled connection, then a fresh one, then the other replica.
        assert (await rig.turn("s")).header("x-limpet-outcome") == "spilled"
        assert len(home.requests) == 3


async def test_affinity_off_leaves_the_turns_to_the_endpoints_in_turn() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        off = await rig.admin("/limpet/api/pools/default/affinity", {"affinity": "off"})
        assert off.json["affinity"] == "off"
        answers = [await rig.turn("s") for _ in range(6)]
        assert {answer.header("x-limpet-outcome") for answer in answers} == {"unrouted"}
        assert [len(engine.requests) for engine in fleet] == [3, 3]
        state = await rig.state()
        assert state["unrouted"] == 6
        assert state["last_hour"] == {"cached": 0, "computed": 600}


async def test_requests_that_are_no_turns_are_balanced() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        for path in ("/v1/embeddings", "/v1/rerank", "/v1/messages/count_tokens"):
            answer = await rig.ask({"model": "m", "input": "x"}, "s", path=path)
            assert answer.header("x-limpet-outcome") == "balanced"
            assert answer.header("x-limpet-key-source") == "none"
        assert all(row["pins"] == 0 for row in (await rig.replicas()).values())


async def test_a_form_names_its_model_too() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nother\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\xff\x00\r\n--b--'
    )
    async with engines(2) as (one, two):
        pools = tuple(
            PoolSettings(name=name, models=(name,), replicas=(ReplicaSettings(engine.url),))
            for name, engine in (("m", one), ("other", two))
        )
        async with gateway(settings_for(one, pools=pools)) as rig:
            two.script = lambda _, reply: reply.whole(b"{}")
            multipart = {"content-type": "multipart/form-data; boundary=b"}
            answer = await rig.ask(form, path="/v1/audio/transcriptions", headers=multipart)
            assert answer.header("x-limpet-replica") == two.name
            assert two.requests[0].body == form


# Data-parallel ranks ------------------------------------------------------------------------------


def ranks(engine: Engine, count: int = 2) -> ReplicaSettings:
    return ReplicaSettings(engine.url, name="gpu", data_parallel_size=count, max_num_seqs=32)


def rank_of(engine: Engine) -> bytes | None:
    return engine.requests[-1].header("x-data-parallel-rank")


async def test_a_rank_is_asked_for_by_header() -> None:
    async with engines(1) as (engine,), gateway(settings_for(ranks(engine))) as rig:
        seen = set()
        for session in ("a", "b"):
            for _ in range(2):
                answer = await rig.turn(session)
                rank = (rank_of(engine) or b"").decode()
                assert answer.header("x-limpet-replica") == f"gpu-rank{rank}"
            seen.add(rank)
        assert seen == {"0", "1"}


async def test_a_rank_that_the_client_names_is_honoured() -> None:
    async with engines(1) as (engine,), gateway(settings_for(ranks(engine))) as rig:
        home = (await rig.turn("s")).header("x-limpet-replica")
        other = "1" if home == "gpu-rank0" else "0"
        answer = await rig.ask({"model": "m"}, "s", headers={"X-Data-Parallel-Rank": other})
        assert answer.header("x-limpet-outcome") == "client_pinned"
        assert rank_of(engine) == other.encode()
        assert (await rig.turn("s")).header("x-limpet-replica") == home
        # One that does not exist is the engine's to refuse.
        answer = await rig.ask({"model": "m"}, "s", headers={"X-Data-Parallel-Rank": "7"})
        assert answer.header("x-limpet-outcome") == "unrouted"
        assert rank_of(engine) == b"7"


async def test_responses_cannot_be_steered_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with engines(1) as (engine,), gateway(settings_for(ranks(engine))) as rig:
        with caplog.at_level(logging.WARNING, "limpet.gateway"):
            for _ in range(3):
                answer = await rig.ask({"model": "m", "input": "x"}, "s", path="/v1/responses")
                assert answer.header("x-limpet-outcome") == "unrouted"
                assert answer.header("x-limpet-replica") is None
                assert rank_of(engine) is None
        assert sum("/v1/responses" in record.message for record in caplog.records) == 1
        assert (await rig.state())["unrouted"] == 3


async def test_responses_go_home_where_every_replica_is_a_server() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        asked = [await rig.ask({"model": "m", "input": "x"}, "s", path="/v1/responses")
                 for _ in range(2)]  # fmt: skip
        assert [a.header("x-limpet-outcome") for a in asked] == ["placed", "sticky"]


async def test_a_rank_header_means_nothing_where_there_are_no_ranks() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        answer = await rig.ask({"model": "m"}, "s", headers={"X-Data-Parallel-Rank": "1"})
        assert answer.header("x-limpet-outcome") == "placed"
        home = next(e for e in fleet if e.requests)
        assert rank_of(home) == b"1"
