# SPDX-License-Identifier: Apache-2.0
"""The admission gate in the gateway: who waits, what is shown of it, and how a wait ends."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Client, Rig, engines, gateway, settings_for
from limpet.gateway.gateway import Gateway
from limpet.gateway.settings import GateSettings

# Each prompt has some 18 tokens by the gateway's guess and 100 by the engine's word: room for one.
TIGHT = GateSettings(enabled=True, kv_capacity_tokens=30, grace=0.0, shared_prefix_tokens=0)


class Held:
    """An engine's script: turns of the sessions in `keep` are answered when `go` is set."""

    def __init__(self, status: int = 200) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        self.seen: list[str] = []
        self.status = status

    async def __call__(self, seen: rigs.Seen, reply: rigs.Reply) -> None:
        session = (seen.header("x-session-id") or b"").decode()
        self.seen.append(session)
        if session == "first":
            self.began.set()
            await self.go.wait()
        if session == "broken":
            await reply.whole(b'{"error": {"message":\n"no"}}', 500)
            return
        await rigs.answer(seen, reply)


@asynccontextmanager
async def held(
    gate: GateSettings = TIGHT, **server: Any
) -> AsyncIterator[tuple[Rig, Held, asyncio.Task[rigs.Answer]]]:
    """A gateway whose only place is taken by the session `first`."""
    script = Held()
    async with engines(1, script) as fleet:
        settings = settings_for(*fleet, pool={"gate": gate})
        settings = dataclasses.replace(
            settings, server=dataclasses.replace(settings.server, **server)
        )
        async with gateway(settings) as rig:
            first = asyncio.create_task(rig.turn("first"))
            async with rigs.deadline():
                await script.began.wait()
            yield rig, script, first
            script.go.set()
            assert (await first).status == 200


def waiting(turns: int) -> Any:
    return lambda state: state["gate"]["waiting"] == turns


async def test_a_conversation_waits_while_the_caches_are_full_and_is_let_in_afterwards() -> None:
    async with held() as (rig, script, first):
        second = asyncio.create_task(rig.turn("second"))
        state = await rig.until(waiting(1))
        # One turn waits for the gate, the one inside for its first byte.
        assert state["waiting"]["turns"] == 2
        assert state["waiting"]["reasons"] == {"first byte": 1, "room in the caches (gate)": 1}
        assert state["gate"]["residents"] == 1
        assert state["decisions"][0]["outcome"] == "waiting"
        metrics = (await rig.admin("/metrics")).body.decode()
        assert 'limpet_gate_waiting{pool="default"} 1' in metrics
        assert script.seen == ["first"]
        script.go.set()
        assert (await second).status == 200
        assert (await first).status == 200
        assert script.seen == ["first", "second"]
        state = await rig.idle()
        assert state["gate"]["waiting"] == 0
        assert state["gate"]["waited"] == 1
        assert state["decisions"][0]["outcome"] == "placed"


async def test_a_turn_of_a_conversation_that_is_inside_passes_at_once() -> None:
    async with held() as (rig, script, _):
        waits = asyncio.create_task(rig.turn("second"))
        await rig.until(waiting(1))
        again = asyncio.create_task(rig.turn("first"))
        await rig.until(lambda state: state["replicas"][0]["in_flight"] == 2)
        script.go.set()
        assert (await again).status == 200
        assert (await waits).status == 200


async def test_turns_beyond_the_cap_are_refused_at_once_and_told_when_to_come_back() -> None:
    async with held(dataclasses.replace(TIGHT, max_waiting=1)) as (rig, script, _):
        waits = asyncio.create_task(rig.turn("second"))
        await rig.until(waiting(1))
        refused = await rig.turn("third")
        assert refused.status == 429
        assert int(refused.header("retry-after") or 0) >= 1
        assert refused.json["error"]["code"] == "too_many_waiting"
        script.go.set()
        assert (await waits).status == 200
        assert "third" not in script.seen


async def test_a_turn_that_has_waited_too_long_is_refused() -> None:
    async with held(dataclasses.replace(TIGHT, deadline=0.05)) as (rig, script, _):
        refused = await rig.turn("second")
        assert refused.status == 503
        assert refused.header("retry-after")
        assert refused.json["error"]["code"] == "gate_refused"
        assert script.seen == ["first"]


async def test_a_client_that_hangs_up_leaves_the_queue() -> None:
    async with held() as (rig, script, _):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        async with Client(rig.url) as client:
            await client.send("POST", "/v1/chat/completions", [(b"x-session-id", b"gone")], body)
            await rig.until(waiting(1))
            client.reset()
            state = await rig.until(waiting(0))
        assert state["gate"]["cancelled"] == 1
        script.go.set()
        assert (await rig.turn("second")).status == 200
        assert "gone" not in script.seen


async def stream_that_waits(rig: Rig, script: Held, session: bytes) -> bytes:
    """What a stream brings that is kept by comments until the place is free, without them."""
    comment = b": keep-alive\n\n"
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    async with Client(rig.url) as client, rigs.deadline():
        await client.send("POST", "/v1/chat/completions", [(b"x-session-id", session)],
                          json.dumps(body).encode())  # fmt: skip
        status, headers = await client.head()
        assert status == 200
        assert (b"content-type", b"text/event-stream; charset=utf-8") in headers
        assert await client.chunk() == comment
        script.go.set()
        text = b""
        while chunk := await client.chunk():
            text += chunk
    return text.replace(comment, b"")


async def test_comments_keep_the_client_of_a_stream_that_waits() -> None:
    async with held(keepalive_comment=0.02) as (rig, script, _):
        events = await stream_that_waits(rig, script, b"second")
        assert events.startswith(b'data: {"choices": [{"delta": {"content": "0"}}]}\n\n')
        assert events.endswith(b"data: [DONE]\n\n")


async def test_an_error_after_comments_is_an_event_of_the_stream() -> None:
    async with held(keepalive_comment=0.02) as (rig, script, _):
        event = await stream_that_waits(rig, script, b"broken")
        assert event == b'data: {"error": {"message": "no"}}\n\n'
        assert not any(row["in_flight"] for row in (await rig.idle())["replicas"])


async def test_no_gate_unless_it_is_switched_on() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        assert (await rig.turn("s")).status == 200
        assert (await rig.state())["gate"] is None


async def test_a_reload_says_that_another_gate_takes_a_restart() -> None:
    async with engines(1) as fleet:
        running = Gateway(settings_for(*fleet))
        try:
            assert running.apply(settings_for(*fleet)) == []
            assert running.apply(settings_for(*fleet, pool={"gate": TIGHT})) == [
                "pool default: gate"
            ]
        finally:
            await running.close()
