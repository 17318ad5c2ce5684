# SPDX-License-Identifier: Apache-2.0
"""The simulated server under clients that hang up, ranks that are named, and faults on demand."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import limpet
import pytest
from lab_client import DEADLINE, FORMS, SLOWLY, Held, body, said, serving, until, usage
from limpet import lab

PROMPT = "engine server class beta gamma " * 200
CHAT = "/v1/chat/completions"
RANK = "X-data-parallel-rank"


def idle(engine: lab.Engine) -> bool:
    stats = engine.stats()
    nothing = {"running": 0, "waiting": 0, "blocks_in_use": 0}
    return stats["in_flight"] == 0 and all(rank == nothing for rank in stats["ranks"])


# Ranks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FORMS)
async def test_a_named_rank_serves_except_for_responses(path: str) -> None:
    async with serving(ranks=2) as (engine, client):
        served = []
        for number in range(4):
            asked = body(path, f"{number}" * 400, 1)
            await client.post(path, json=asked, headers={RANK: "1"})
            page = limpet.VllmMetrics().parse(engine.core.metrics().encode())
            assert isinstance(page, list)
            served.append([reading.prompt_tokens or 0 for reading in page])
    if path == "/v1/responses":  # goes round the ranks, as without the header
        assert served[-1][0] > 0 and served[-1][1] > 0
    else:
        assert all(first == 0 for first, _ in served)
        assert served[-1][1] > served[0][1] > 0


async def test_each_rank_has_a_cache_of_its_own() -> None:
    async with serving(ranks=2) as (_, client):
        cached = []
        for rank in (0, 0, 1, 1, 0):  # as recorded in dp2_asc1_header.txt
            answer = await client.post(CHAT, json=body(CHAT, PROMPT), headers={RANK: str(rank)})
            cached.append(usage(answer).cached_tokens)
    assert cached == [0, 1_552, 0, 1_552, 1_552]


async def test_without_the_header_a_conversation_goes_round_the_ranks() -> None:
    async with serving(ranks=2) as (_, client):
        sent = [await client.post(CHAT, json=body(CHAT, PROMPT)) for _ in range(4)]
    assert [usage(answer).cached_tokens for answer in sent] == [0, 0, 1_552, 1_552]


async def test_a_rank_that_is_none() -> None:
    async with serving(ranks=2) as (_, client):
        for rank in ("2", "-1"):
            answer = await client.post(CHAT, json=body(CHAT, "hi"), headers={RANK: rank})
            assert answer.status_code == 400
            assert (
                answer.json()["error"]["message"]
                == f"data_parallel_rank {rank} is out of range [0, 2)."
            )
        answer = await client.post(CHAT, json=body(CHAT, "hi"), headers={RANK: "abc"})
        assert answer.status_code == 200


# Clients that hang up ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", FORMS)
async def test_headers_of_a_stream_come_before_anything_is_computed(path: str) -> None:
    async with serving() as (engine, client):
        engine.fault("hang")
        async with client.stream("POST", path, json=body(path, PROMPT, stream=True)) as answer:
            assert answer.status_code == 200
            assert engine.stats()["in_flight"] == 1
        await until(lambda: idle(engine))


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("when", ["on the way", "in its prefill", "streaming", "whole"])
async def test_who_hangs_up_aborts_the_request(path: str, when: str) -> None:
    asked = body(path, "hi", 1_000, stream=when != "whole", ignore_eos=True)
    async with serving(speed=SLOWLY) as (engine, client):
        clock = Held(engine)
        # A client of its own, whose connection closes with it.
        async with httpx.AsyncClient(base_url=engine.url, timeout=DEADLINE) as other:
            request = other.build_request("POST", path, json=asked, headers={"X-Request-Id": "me"})
            sent = asyncio.create_task(other.send(request, stream=True))
            await until(lambda: engine.stats()["in_flight"] == 1)
            [turn] = engine.core.turns.values()
            if when != "on the way":
                clock.go()
                assert engine.stats()["ranks"][0]["running"] == 1
            while turn.generated < (7 if when == "streaming" else 0):
                clock.go()
            if when == "whole":
                sent.cancel()
            else:
                await (await sent).aclose()
        await until(lambda: engine.stats()["aborted"] == 1)
        assert idle(engine)
        [aborted] = engine.stats()["aborts"]
        assert (aborted["path"], aborted["id"][-2:]) == (path, "me")
        assert aborted["generated"] == turn.generated
        assert aborted["seconds"] < 0.5
        # Nobody else is disturbed.
        answer = asyncio.create_task(client.post(path, json=body(path, "hi")))
        await until(lambda: engine.stats()["in_flight"] == 1)
        clock.go(clock.at + 1e3)
        assert usage(await answer).completion_tokens == 8


async def test_a_client_that_is_gone_before_its_request_was_read_costs_nothing() -> None:
    async with serving() as (engine, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{"
        )
        await writer.drain()
        await until(lambda: engine.stats()["requests"] == {CHAT: 1})
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
        assert idle(engine) and engine.stats()["aborted"] == 0


# Faults ------------------------------------------------------------------------------------------


async def test_an_engine_that_hangs_answers_health_and_metrics_but_says_nothing() -> None:
    async with serving() as (engine, client):
        assert (await client.post("/lab/fault", json={"kind": "hang"})).json() == {"fault": "hang"}
        waiting = asyncio.create_task(client.post(CHAT, json=body(CHAT, PROMPT)))
        await until(lambda: engine.stats()["ranks"][0]["waiting"] == 1)
        assert (await client.get("/health")).status_code == 200
        assert (
            'num_requests_running{engine="0",model_name="a4000-qwen3-4b"} 0.0'
            in (await client.get("/metrics")).text
        )
        assert not waiting.done()
        await client.post("/lab/fault", json={"kind": "none"})
        assert usage(await waiting).completion_tokens == 8


async def test_one_rank_can_hang_alone() -> None:
    async with serving(ranks=2) as (engine, client):
        engine.fault("hang", rank=0)
        waiting = asyncio.create_task(client.post(CHAT, json=body(CHAT, "hi"), headers={RANK: "0"}))
        await until(lambda: engine.stats()["ranks"][0]["waiting"] == 1)
        other = await client.post(CHAT, json=body(CHAT, "hi"), headers={RANK: "1"})
        assert other.status_code == 200
        assert not waiting.done()
        waiting.cancel()
        await until(lambda: engine.stats()["aborted"] == 1)
        assert idle(engine)


async def test_a_fault_ends_by_itself() -> None:
    async with serving() as (engine, client):
        engine.fault("hang", seconds=0.05)
        assert usage(await client.post(CHAT, json=body(CHAT, "hi"))).completion_tokens == 8
        assert engine.stats()["fault"] == "none"


async def test_so_many_requests_fail() -> None:
    async with serving() as (engine, client):
        engine.fault("500", count=2)
        sent = [await client.post(CHAT, json=body(CHAT, "hi")) for _ in range(3)]
        assert [answer.status_code for answer in sent] == [500, 500, 200]
        assert sent[0].json()["error"]["type"] == "InternalServerError"
        assert engine.stats()["refused"] == {"500": 2}


@pytest.mark.parametrize("path", FORMS)
async def test_a_stream_is_cut_after_so_many_events(path: str) -> None:
    async with serving() as (engine, client):
        whole = await client.post(path, json=body(path, "hi", stream=True))
        for chunks in (0, 1, 2, 3):
            engine.fault("cut", chunks=chunks)
            got = b""
            with pytest.raises(httpx.TransportError):
                async with client.stream("POST", path, json=body(path, "hi", stream=True)) as cut:
                    async for chunk in cut.aiter_raw():
                        got += chunk
            # A reset may overtake what was sent before it.
            assert got.count(b"\n\n") <= chunks
        after = await client.post(path, json=body(path, "hi", stream=True))
        assert said(path, after) == said(path, whole)
        assert idle(engine)


async def test_a_whole_answer_is_cut_in_the_middle() -> None:
    async with serving() as (engine, client):
        engine.fault("cut", count=2)
        for _ in range(2):
            with pytest.raises(httpx.TransportError):
                await client.post(CHAT, json=body(CHAT, "hi"))
        assert (await client.post(CHAT, json=body(CHAT, "hi"))).status_code == 200


async def test_a_slow_engine_takes_so_many_times_as_long() -> None:
    taken = []
    for factor in (1.0, 5.0):
        async with serving(profile="cpu-core-82m", speed=0.001) as (engine, _):
            engine.fault("slow", factor=factor)
            core = engine.core
            core.submit("x", CHAT, b"hi  " * 64, 1, None, asyncio.Event())
            arrives = core.server.next_at
            core.server.advance(arrives)
            taken.append(core.server.next_at - arrives)
    assert taken[1] == pytest.approx(5 * taken[0])


async def test_an_engine_that_dies_breaks_connections_and_comes_back_empty() -> None:
    async with serving(ranks=2, speed=1.0) as (engine, client):
        first = engine.core
        await client.get("/health")  # leaves an idle connection
        asked = body(CHAT, PROMPT, 1_000, stream=True)
        async with client.stream("POST", CHAT, json=asked) as answer:
            await until(lambda: engine.stats()["ranks"][0]["running"] == 1)
            engine.fault("die")
            await asyncio.wait_for(engine.dead.wait(), DEADLINE)
            with pytest.raises(httpx.TransportError):
                await answer.aread()
        with pytest.raises(httpx.ConnectError):
            await client.get("/health")
        assert engine.gone.is_set()
        assert first.turns == {}

        url = engine.url
        await engine.restart()
        assert engine.url == url
        assert (await client.get("/health")).status_code == 200
        assert engine.core.started > first.started
        assert engine.stats()["requests"] == {}


async def test_an_engine_that_dies_for_a_while() -> None:
    async with serving() as (engine, client):
        engine.fault("die", seconds=0.05)
        await asyncio.wait_for(engine.dead.wait(), DEADLINE)
        await until(lambda: not engine.dead.is_set())
        assert not engine.gone.is_set()
        assert (await client.post(CHAT, json=body(CHAT, "hi"))).status_code == 200


async def test_a_stopped_engine_leaves_nothing_behind() -> None:
    async with serving(speed=0.01) as (engine, client):
        sent = [
            asyncio.create_task(client.post(CHAT, json=body(CHAT, "hi", stream=number % 2 == 0)))
            for number in range(6)
        ]
        await until(lambda: engine.stats()["in_flight"] == 6)
        core = engine.core
        await engine.stop()
        await engine.stop()
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            assert isinstance(answer, httpx.TransportError)
        assert core.turns == {}
        assert core.stats.aborted == 6


BAD: list[tuple[Any, str]] = [
    ([], "kind must be one of none, die, hang, slow, 500, cut"),
    ({"kind": "sulk"}, "kind must be one of"),
    ({"kind": "hang", "rank": 2}, "rank = 2: there are 2"),
    ({"kind": "slow", "factor": 0}, "factor = 0: must be a number, at least 0.001"),
    ({"kind": "500", "count": "x"}, "count = 'x': must be a number, at least 1"),
    ({"kind": "none", "secnds": 1}, "secnds: there are chunks, count"),
]


@pytest.mark.parametrize(("fault", "message"), BAD)
async def test_a_fault_that_makes_no_sense_is_refused(fault: Any, message: str) -> None:
    async with serving(ranks=2) as (engine, client):
        answer = await client.post("/lab/fault", json=fault)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(message)
        assert engine.stats()["fault"] == "none"


async def test_many_at_once_each_get_their_own() -> None:
    async with serving(ranks=2) as (engine, client):
        texts = [f"conversation {number}. " * 30 for number in range(60)]
        alone = {}
        for each in texts[:3]:
            answer = await client.post(CHAT, json=body(CHAT, each, 40))
            alone[each] = said(CHAT, answer)
        sent = await asyncio.gather(
            *(
                client.post(CHAT, json=body(CHAT, each, 40, stream=number % 2 == 0))
                for number, each in enumerate(texts)
            )
        )
        answers = [said(CHAT, answer) for answer in sent]
        assert len(set(answers)) == 60
        assert answers[:3] == [alone[each] for each in texts[:3]]
        assert idle(engine)
        assert engine.stats()["finished"] == 63
