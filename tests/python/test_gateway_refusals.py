# SPDX-License-Identifier: Apache-2.0
"""What the gateway says no to: in the protocol's own error shape, and without hanging."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Client, Engine, engines, gateway, settings_for
from limpet.gateway.settings import (
    Limits,
    PoolSettings,
    ReplicaSettings,
    ServerSettings,
    SettingsError,
    Timeouts,
)


def openai(answer: rigs.Answer) -> tuple[int, str, str]:
    """Status, code and message of an error as OpenAI's API shapes it."""
    assert answer.complete
    assert answer.header("content-type") == "application/json"
    error = answer.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return answer.status, error["code"], error["message"]


async def test_a_model_that_no_pool_serves_is_404_in_the_protocols_shape() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        status, code, message = openai(await rig.ask({"model": "nope", "messages": []}))
        assert (status, code) == (404, "model_not_found")
        assert "'nope'" in message
        anthropic = await rig.ask({"model": "nope", "messages": []}, path="/v1/messages")
        assert anthropic.status == 404
        assert anthropic.json["type"] == "error"
        assert anthropic.json["error"]["type"] == "not_found_error"
        assert fleet[0].requests == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"hello", 400, "invalid_json"),
        (b'{"messages": [', 400, "invalid_json"),
        (b"[1]", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b'{"messages": [], "model": 3}', 400, "invalid_model"),
    ],
)
async def test_a_body_without_sense_is_400(body: bytes, status: int, code: str) -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        assert openai(await rig.ask(body))[:2] == (status, code)
        assert (await rig.turn()).status == 200


async def test_a_body_without_a_model_goes_to_the_only_pool_and_is_400_where_there_are_two() -> (
    None
):
    async with engines(2) as (one, two):
        async with gateway(settings_for(one)) as rig:
            assert (await rig.ask({"messages": []})).status == 200
        pools = [
            PoolSettings(name=name, models=(name,), replicas=(ReplicaSettings(engine.url),))
            for name, engine in (("a", one), ("b", two))
        ]
        async with gateway(settings_for(one, pools=tuple(pools))) as rig:
            assert openai(await rig.ask({"messages": []}))[:2] == (400, "missing_model")
            assert (await rig.ask({"model": "b"})).header("x-limpet-replica") == two.name


async def test_paths_and_methods_that_are_not_served_say_so() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        for path in ("/", "/limpet/", "/limpet/api/pools", "/metrics", "/v1x"):
            assert openai(await rig.ask(b"", path=path, method="GET"))[:2] == (404, "not_found")
        assert openai(await rig.ask(b"", path="/v1/files", method="GET"))[0] == 405
        assert openai(await rig.ask(b"", method="DELETE"))[0] == 405


async def test_a_body_over_the_limit_is_413_whether_announced_or_not() -> None:
    limits = Limits(body_bytes=100_000)
    async with engines(1) as fleet, gateway(settings_for(*fleet, limits=limits)) as rig:
        async with Client(rig.url) as client:  # announced: not a byte of it is waited for
            client.writer.write(
                b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 104857600\r\n\r\n"
            )
            answer = await client.answer()
            assert answer.status == 413
            assert answer.json["error"]["type"] == "request_too_large"
        async with Client(rig.url) as client:  # in chunks, without an end
            client.writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for _ in range(20):
                client.writer.write(b"2000\r\n" + b"x" * 8192 + b"\r\n")
            assert openai(await client.answer())[:2] == (413, "body_too_large")
        exact = b'{"model": "m", "x": "' + b"y" * (100_000 - 23) + b'"}'
        assert len(exact) == 100_000
        assert (await rig.ask(exact)).status == 200
        assert fleet[0].requests[0].body == exact


async def test_a_hundred_megabytes_that_are_sent_all_the_same_get_their_413() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig, Client(rig.url) as client:
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 104857600\r\n\r\n"
        )
        block = b"x" * (1 << 20)
        for _ in range(100):
            client.writer.write(block)
            await client.writer.drain()
        assert openai(await client.answer())[:2] == (413, "body_too_large")
        assert fleet[0].requests == []


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"x-%d: %s\r\n" % (n, b"y" * 100) for n in range(1000)),  # many
        b"x-long: " + b"y" * 100_000 + b"\r\n",  # one
    ],
)
async def test_headers_over_the_limit_are_431(head: bytes) -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        async with Client(rig.url) as client:
            client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
            assert openai(await client.answer())[:2] == (431, "headers_too_large")
        async with Client(rig.url) as client:  # and without an end
            client.writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + head)
            assert openai(await client.answer())[:2] == (431, "headers_too_large")
            assert await client.reader.read() == b""


async def test_a_body_that_does_not_come_is_408() -> None:
    timeouts = Timeouts(request_body=0.1)
    async with (
        engines(1) as fleet,
        gateway(settings_for(*fleet, timeouts=timeouts)) as rig,
        Client(rig.url) as client,
    ):
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{"
        )
        assert openai(await client.answer())[:2] == (408, "timeout")


async def test_a_header_that_cannot_be_passed_on_is_refused_by_name() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig, Client(rig.url) as client:
        await client.send("POST", "/v1/completions", [(b"x-odd", b"caf\xe9")], b'{"model": "m"}')
        status, code, message = openai(await client.answer())
        assert (status, code) == (400, "bad_header")
        assert "'x-odd'" in message


async def test_more_requests_of_a_tenant_at_a_time_than_allowed_are_429() -> None:
    release = asyncio.Event()

    async def held(seen: rigs.Seen, reply: rigs.Reply) -> None:
        await release.wait()
        await rigs.answer(seen, reply)

    settings = {"limits": Limits(concurrent_per_tenant=2), "keys": rigs.keys(a="ka", b="kb")}
    async with engines(1, held) as (engine,), gateway(settings_for(engine, **settings)) as rig:
        body = {"model": "m"}
        a, b = ({"authorization": f"Bearer {key}"} for key in ("ka", "kb"))
        first = [asyncio.create_task(rig.ask(body, headers=a)) for _ in range(2)]
        await engine.got(2)
        third = await rig.ask(body, headers=a)
        assert openai(third)[:2] == (429, "too_many_requests")
        assert third.header("retry-after") == "1"
        other = asyncio.create_task(rig.ask(body, headers=b))  # another tenant has its own
        await engine.got(3)
        release.set()
        assert [(await task).status for task in [*first, other]] == [200, 200, 200]
        assert (await rig.ask(body, headers=a)).status == 200


async def test_more_waiting_turns_than_allowed_are_429() -> None:
    release = asyncio.Event()

    async def held(seen: rigs.Seen, reply: rigs.Reply) -> None:
        await release.wait()
        await rigs.answer(seen, reply)

    limits = Limits(waiting=1)
    async with engines(1, held) as (engine,), gateway(settings_for(engine, limits=limits)) as rig:
        first = asyncio.create_task(rig.turn())
        await engine.got(1)
        assert openai(await rig.turn())[:2] == (429, "too_many_waiting")
        release.set()
        assert (await first).status == 200


async def test_without_a_replica_that_is_up_turns_are_503_with_retry_after() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        for engine in fleet:
            await rig.switch(engine.name, "down")
        for session in ("a", None):
            answer = await rig.turn(session)
            assert openai(answer)[:2] == (503, "no_replica")
            assert int(answer.header("retry-after") or "") >= 1
        messages = await rig.ask({"model": "m"}, path="/v1/messages")
        assert messages.json["error"]["type"] == "overloaded_error"
        assert (await rig.ask(b"", path="/health", method="GET")).status == 503
        assert (await rig.state())["refused"] == 3
        await rig.switch(fleet[0].name, "up")
        assert (await rig.turn("a")).status == 200
        assert (await rig.ask(b"", path="/health", method="GET")).status == 200


# At the start ------------------------------------------------------------------------------------


async def started(*fleet: Engine | ReplicaSettings, **changes: object) -> str:
    """The message with which the gateway refuses to start."""
    with pytest.raises(SettingsError) as error:
        async with gateway(settings_for(*fleet, **changes)):
            pass
    return str(error.value)


async def test_an_endpoint_that_is_no_engine_stops_the_start() -> None:
    async def website(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 X\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def ssh(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    for what, says in (
        (website, "answers GET /v1/models with 404 text/html: this is no OpenAI-compatible"),
        (ssh, "is no engine: its answer is no HTTP"),
    ):
        async with await asyncio.start_server(what, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert says in await started(ReplicaSettings(f"http://127.0.0.1:{port}"))


async def test_a_port_that_is_taken_stops_the_start() -> None:
    async with engines(1) as (engine,), gateway(settings_for(engine)) as rig:
        port = int(rig.url.rpartition(":")[2])
        for table in ("server", "admin"):
            settings = settings_for(engine)
            taken = {table: type(getattr(settings, table))(port=port)}
            assert f"127.0.0.1:{port}: Address already in use" in await started(engine, **taken)
        assert (await rig.turn()).status == 200


async def test_a_replica_that_is_the_gateway_itself_stops_the_start() -> None:
    async with engines(1) as (engine,):
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as free:
            port = free.sockets[0].getsockname()[1]
        itself = ReplicaSettings(f"http://localhost:{port}")
        message = await started(engine, itself, server=ServerSettings(port=port, access_log="off"))
        assert message == f"http://localhost:{port} is the gateway itself"


async def test_an_engine_that_is_not_there_yet_is_down_until_it_is() -> None:
    async with engines(1) as (late,):
        await late.die()
        async with gateway(settings_for(late)) as rig:
            assert (await rig.turn()).status == 503
            row = (await rig.replicas())[late.name]
            assert (row["state"], row["health"]) == ("down", "unreachable")
            await late.start()
            await rig.until(lambda state: state["replicas"][0]["state"] == "up")
            assert (await rig.turn()).status == 200
