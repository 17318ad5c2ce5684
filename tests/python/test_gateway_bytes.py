# SPDX-License-Identifier: Apache-2.0
"""What passes the gateway arrives as it was sent, both ways, but for the headers that are named."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import Client, engines, gateway, settings_for
from limpet.gateway.request import without_billing_line
from limpet.gateway.settings import ServerSettings

# As gateway.md names them: hop-by-hop, what Connection lists, and what the gateway says itself.
HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"x-hop",
}  # fmt: skip
OURS = [b"x-limpet-replica", b"x-limpet-outcome", b"x-limpet-key-source"]
DATA = Path(os.environ.get("LIMPET_SHARED_DATA", "../shared/data"))
Headers = list[tuple[bytes, bytes]]


def passing(headers: Headers, *also_gone: bytes) -> Headers:
    gone = HOP | set(also_gone)
    return [(name.lower(), value) for name, value in headers if name.lower() not in gone]


class Exchange:
    """One request and one answer, drawn from a seed."""

    def __init__(self, draw: random.Random) -> None:
        self.path = draw.choice(
            ["/v1/chat/completions", "/v1/messages?beta=true", "/v1/responses", "/v1/embeddings",
             "/v1/completions?a=%2F+b&c=%C3%A9", "/v1/od%2Fd/path//x"]
        )  # fmt: skip
        self.request = self._request(draw)
        self.sent: Headers = [(b"Content-Type", b"application/json")]
        self.sent += draw.sample(
            [
                (b"X-Empty", b""),
                (b"x-twice", b"one"),
                (b"x-twice", b"two"),
                (b"X-MiXeD-cAsE", b'Value; q=0.5, "quoted"'),
                (b"x-utf8", "caf\u00e9 \u65e5\u672c".encode()),
                (b"x-long", b"y" * 8000),
                (b"Accept-Encoding", b"br, gzip;q=0.1"),
                (b"Connection", b"keep-alive, X-Hop"),
                (b"X-Hop", b"between us two"),
                (b"TE", b"trailers"),
                (b"Cookie", b"a=b; c=d"),
                (b"Authorization", b"Bearer of-the-engine"),
                (b"x-request-id", b"%d" % draw.getrandbits(60)),
                (b"User-Agent", b"odd/1.0 (!)"),
                (b"x-session-id", b"s%d" % draw.randrange(5)),
            ],
            k=draw.randrange(12),
        )
        self.status = draw.choice([200] * 6 + [201, 400, 404, 422, 429, 500])
        self.answer = self._answer(draw)
        self.headers: Headers = [(b"Content-Type", b"text/event-stream; charset=utf-8")]
        if draw.random() < 0.3:
            self.answer = gzip.compress(self.answer)
            self.headers.append((b"Content-Encoding", b"gzip"))
        self.headers += draw.sample(
            [
                (b"Set-Cookie", b"a=1"),
                (b"Set-Cookie", b"b=2; Path=/"),
                (b"Date", b"Mon, 30 Nov 2026 00:21:04 GMT"),
                (b"server", b"uvicorn"),
                (b"X-Latin", b"caf\xe9"),
                (b"X-Long", b"z" * 30_000),
                (b"Vary", b"Origin"),
                (b"X-Hop", b"engine's"),
                (b"Connection", b"X-Hop"),
                (b"ETag", b'"x"'),
            ],
            k=draw.randrange(8),
        )
        self.framing = draw.choice(["length", "chunked", "close"])
        self.cuts = sorted(draw.randrange(len(self.answer) + 1) for _ in range(draw.randrange(9)))

    @staticmethod
    def _request(draw: random.Random) -> bytes:
        size = draw.choice([0, 10, 1000, 50_000, 1 << 20])
        content = "".join(draw.choices('ab\u00e9\u65e5"\\ \n', k=size))
        document: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        items = [("model", "m"), ("stream", True), ("x", 1e-7), *document.items()]
        draw.shuffle(items)
        spaces = draw.choice([(",", ":"), (", ", ": "), (" ,\n", " : ")])
        text = json.dumps(dict(items), separators=spaces, ensure_ascii=draw.random() < 0.5)
        return draw.choice(["", " \r\n"]).encode() + text.encode()

    @staticmethod
    def _answer(draw: random.Random) -> bytes:
        if draw.random() < 0.3:
            return draw.randbytes(draw.choice([0, 1, 1000, 1 << 20]))
        return b"".join(
            b'data: {"choices": [{"text": "%s"}]}\n\n' % ("\u00e9" * draw.randrange(40)).encode()
            for _ in range(draw.randrange(100))
        )

    async def play(self, reply: rigs.Reply) -> None:
        headers = b"".join(b"%s: %s\r\n" % header for header in self.headers)
        await reply.raw(b"HTTP/1.1 %d Odd Reason\r\n" % self.status + headers)
        parts = [self.answer[a:b] for a, b in zip([0, *self.cuts], [*self.cuts, None], strict=True)]
        if self.framing == "length":
            await reply.raw(b"Content-Length: %d\r\n\r\n" % len(self.answer))
        elif self.framing == "chunked":
            await reply.raw(b"Transfer-Encoding: chunked\r\n\r\n")
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part]
            parts.append(b"0\r\n\r\n")
        else:
            await reply.raw(b"\r\n")
        for part in parts:
            await reply.raw(part)
            await asyncio.sleep(0)
        if self.framing == "close":
            reply.writer.close()


async def test_two_hundred_drawn_exchanges_pass_unchanged_both_ways() -> None:
    seed = int(os.environ.get("LIMPET_SEED", "20261130"))
    print(f"seed {seed}")
    draw = random.Random(seed)
    exchanges = [Exchange(draw) for _ in range(200)]
    current: dict[int, Exchange] = {}

    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        number = int(seen.header("x-number") or b"-1")
        await current[number].play(reply)

    async with engines(2, script) as fleet, gateway(settings_for(*fleet)) as rig:

        async def some(numbers: range) -> None:
            async with Client(rig.url) as client:
                for number in numbers:
                    exchange = current[number] = exchanges[number]
                    sent = [*exchange.sent, (b"x-number", b"%d" % number)]
                    await client.send("POST", exchange.path, sent, exchange.request)
                    answer = await client.answer()
                    assert answer.complete
                    assert answer.status == exchange.status
                    assert answer.body == exchange.answer, number
                    got = passing(answer.headers, b"content-length")
                    assert got[: -len(OURS)] == passing(exchange.headers)
                    assert [name for name, _ in got[-len(OURS) :]] == OURS

        await asyncio.gather(*(some(range(start, 200, 4)) for start in range(4)))
        arrived = {int(s.header("x-number") or b""): s for e in fleet for s in e.requests}
        assert sum(len(engine.requests) for engine in fleet) == len(arrived) == 200
        for number, exchange in enumerate(exchanges):
            seen = arrived[number]
            assert (seen.method, seen.target) == ("POST", exchange.path)
            assert seen.body == exchange.request
            assert seen.header("Content-Length") == b"%d" % len(exchange.request)
            wanted = passing([*exchange.sent, (b"x-number", b"%d" % number)])
            assert passing(seen.headers, b"host", b"content-length") == wanted
        await rig.idle()


async def test_what_real_agents_sent_arrives_as_they_sent_it() -> None:
    files = sorted((DATA / "agent_requests").glob("*.json"))
    if not files:
        pytest.skip(f"no recorded requests in {DATA}: set LIMPET_SHARED_DATA")
    pool = {"aliases": ("local-model",)}
    async with engines(2) as fleet, gateway(settings_for(*fleet, pool=pool)) as rig:
        for file in files:
            recorded = json.loads(file.read_text())
            body = json.dumps(recorded["body"], separators=(",", ":")).encode()
            headers = [(n.encode(), v.encode()) for n, v in recorded["headers"]]
            headers = [h for h in headers if h[0].lower() not in (b"host", b"content-length")]
            async with Client(rig.url) as client:
                await client.send("POST", recorded["target"], headers, body)
                answer = await client.answer()
            assert answer.status == 200
            seen = next(s for e in fleet for s in e.requests if s.body == body)
            assert seen.target == recorded["target"]
            assert passing(seen.headers, b"host", b"content-length") == passing(headers)
            assert answer.header("x-limpet-key-source") != "none"


async def test_what_a_real_vllm_answered_arrives_and_its_usage_is_read() -> None:
    folder = DATA / "vllm_0.32" / "responses"
    files = [f for f in sorted(folder.glob("*_single.txt")) if "disconnect" not in f.name]
    if not files:
        pytest.skip(f"no recorded answers in {DATA}: set LIMPET_SHARED_DATA")
    async with engines(1) as (engine,), gateway(settings_for(engine)) as rig:
        for file in files:
            raw = file.read_bytes()
            path = raw.split(b"\n", 1)[0].split(b" ")[1].decode()
            after = raw.split(b"\n--- HTTP ", 1)[1]
            status = int(after[:3])
            head, _, body = after.split(b"\n", 1)[1].partition(b"\n}\n\n")
            headers = {k.lower(): v for k, v in json.loads(head + b"}").items()}
            length = headers.get("content-length")
            body = body.rstrip(b"\n") if length is None else body[: int(length)]

            async def replay(
                _: rigs.Seen,
                reply: rigs.Reply,
                status: int = status,
                headers: dict[str, str] = headers,
                body: bytes = body,
            ) -> None:
                await reply.head(status, *(f"{name}: {value}" for name, value in headers.items()))
                if "content-length" in headers:
                    await reply.raw(body.ljust(int(headers["content-length"])))
                else:
                    for at in range(0, len(body), 97):
                        await reply.chunk(body[at : at + 97])
                    await reply.end()

            engine.script = replay
            answer = await rig.ask({"model": "m", "input": "x", "prompt": "x"}, path=path)
            assert answer.status == status
            assert answer.body.rstrip() == body.rstrip()
            if status == 200:
                latest = (await rig.state())["decisions"][0]
                assert latest["prompt_tokens"] in range(1600, 2100)
                assert latest["cached_tokens"] in range(1600, latest["prompt_tokens"])


async def test_each_chunk_leaves_as_soon_as_it_comes() -> None:
    go = asyncio.Queue[None]()

    async def script(_: rigs.Seen, reply: rigs.Reply) -> None:
        await reply.stream()
        for number in range(5):
            await go.get()
            await reply.chunk(b"data: %d\n\n" % number)
        await reply.end()

    async with (
        engines(1, script) as (engine,),
        gateway(settings_for(engine)) as rig,
        rigs.deadline(),
        Client(rig.url) as client,
    ):
        await client.send("POST", "/v1/completions", [], b'{"model": "m", "stream": true}')
        await client.head()  # with not a byte of the body sent
        for number in range(5):
            go.put_nowait(None)
            assert await client.chunk() == b"data: %d\n\n" % number
        assert await client.chunk() == b""


async def test_a_slow_client_holds_its_engine_back() -> None:
    passed = 0

    async def script(_: rigs.Seen, reply: rigs.Reply) -> None:
        nonlocal passed
        await reply.stream()
        for _number in range(4096):  # 256 MB
            await reply.chunk(b"x" * 65536)
            passed += 65536
        await reply.end()

    async with engines(1, script) as (engine,), gateway(settings_for(engine)) as rig:
        async with Client(rig.url) as client:
            await client.send("POST", "/v1/completions", [], b'{"model": "m"}')
            await client.head()
            client.pause()
            before = -1
            while before != passed:  # until all buffers between the two are full
                before = passed
                for _ in range(200):
                    await asyncio.sleep(0.001)
            assert passed < 32 << 20
        await rig.idle()


async def test_comments_bridge_the_wait_for_the_first_token_where_asked_for() -> None:
    go = asyncio.Event()

    async def script(_: rigs.Seen, reply: rigs.Reply) -> None:
        await reply.stream()
        await go.wait()
        await reply.chunk(b"data: 1\n\n")
        await reply.end()

    server = ServerSettings(port=0, access_log="off", keepalive_comment=0.02)
    async with (
        engines(1, script) as (engine,),
        gateway(settings_for(engine, server=server)) as rig,
        rigs.deadline(),
        Client(rig.url) as client,
    ):
        await client.send("POST", "/v1/completions", [], b'{"model": "m", "stream": true}')
        await client.head()
        assert [await client.chunk() for _ in range(3)] == [b": keep-alive\n\n"] * 3
        go.set()
        rest = b""
        while part := await client.chunk():
            rest += part
        assert rest.replace(b": keep-alive\n\n", b"") == b"data: 1\n\n"


async def test_the_headers_of_limpet_can_be_switched_off() -> None:
    server = ServerSettings(port=0, access_log="off", response_headers=False)
    async with engines(1) as (engine,), gateway(settings_for(engine, server=server)) as rig:
        assert not any(name.startswith(b"x-limpet") for name, _ in (await rig.turn("s")).headers)


# The billing line ---------------------------------------------------------------------------------

LINE = '{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=abc;"}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"system": [LINE, {"a": 1}], "x": 1}', '{"system": [ {"a": 1}], "x": 1}'),
        ('{"x":{"system":[1]},"system":[LINE]}', '{"x":{"system":[1]},"system":[]}'),
        ('{ "messages" : ["}\\"{"] ,\n "system" :\t[ LINE\n,\n7] }',
         '{ "messages" : ["}\\"{"] ,\n "system" :\t[\n7] }'),
    ],
)  # fmt: skip
def test_a_leading_billing_block_is_cut_out_and_nothing_else(before: str, after: str) -> None:
    body = before.replace("LINE", LINE).encode()
    assert without_billing_line(body).decode() == after


@pytest.mark.parametrize(
    "body",
    [
        '{"system": "x-anthropic-billing-header: a"}',
        '{"system": [{"type": "text", "text": "see x-anthropic-billing-header"}]}',
        '{"system": [{"type": "text", "text": "first"}, LINE]}',
        '{"messages": [{"content": [LINE]}]}',
        '{"system": [LINE',
        '["system", LINE]',
        '{"system": {}, "x": "x-anthropic-billing-header"}',
    ],
)  # fmt: skip
def test_every_other_body_stays_as_it_is(body: str) -> None:
    sent = body.replace("LINE", LINE).encode()
    assert without_billing_line(sent) == sent


async def test_the_billing_line_is_stripped_only_where_configured() -> None:
    text = '{"model": "m", "system": [LINE, {"type": "text", "text": "be"}]}'
    body = text.replace("LINE", LINE).encode()
    for strip in (False, True):
        server = ServerSettings(port=0, access_log="off", strip_billing_line=strip)
        async with engines(1) as (engine,), gateway(settings_for(engine, server=server)) as rig:
            assert (await rig.ask(body, path="/v1/messages")).status == 200
            assert (b"billing" in engine.requests[0].body) is not strip
