# SPDX-License-Identifier: Apache-2.0
"""Scripted engines, a gateway in front of them, and a client that sees bytes.

An Engine is a raw asyncio server: what it answers to a POST is a coroutine of the test's, which may
send odd chunks, cut, reset or wait for ever. It keeps what arrived, byte for byte, and when each
client went away. The gateway is the whole one, with its sockets, in the test's own event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from limpet.gateway import server
from limpet.gateway.settings import (
    AdminSettings,
    HealthSettings,
    KeySettings,
    Limits,
    MetricsSettings,
    PoolSettings,
    ReplicaSettings,
    ServerSettings,
    Settings,
    Timeouts,
)

if TYPE_CHECKING:
    from typing_extensions import Self

TOKEN = "admin-token"
DEADLINE = 20.0  # s until a wait for an event fails the test

PAGE = """\
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.0
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {queries}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {generated}
process_start_time_seconds 1700000000
"""


@contextlib.asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    """Fails the test where what is inside does not end."""
    task = asyncio.current_task()
    assert task is not None
    late = False

    def end() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(DEADLINE, end)
    try:
        yield
    except asyncio.CancelledError:
        if late:
            raise AssertionError(f"not within {DEADLINE:g} s") from None
        raise
    finally:
        timer.cancel()


@dataclasses.dataclass
class Seen:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    gone: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def header(self, name: str) -> bytes | None:
        return next((value for key, value in self.headers if key == name.encode()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, *headers: str) -> None:
        await self.raw("\r\n".join([f"HTTP/1.1 {status} X", *headers, "", ""]).encode("latin-1"))

    async def whole(self, body: bytes, status: int = 200, *headers: str) -> None:
        headers = headers or ("Content-Type: application/json",)
        await self.head(status, *headers, f"Content-Length: {len(body)}")
        await self.raw(body)

    async def stream(self) -> None:
        await self.head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, payload: Any) -> None:
        await self.chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Seen, Reply], Awaitable[None]]


def usage(prompt: int = 100, cached: int = 0, completion: int = 5) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


async def answer(seen: Seen, reply: Reply) -> None:
    """What an engine says on a good day: whole, or a stream of three events if asked for."""
    if not seen.json.get("stream"):
        await reply.whole(json.dumps({"object": "chat.completion", "usage": usage()}).encode())
        return
    await reply.stream()
    for number in range(3):
        await reply.event({"choices": [{"delta": {"content": str(number)}}]})
    await reply.event({"choices": [], "usage": usage()})
    await reply.chunk(b"data: [DONE]\n\n")
    await reply.end()


class Engine:
    def __init__(self, script: Script = answer) -> None:
        self.script = script
        self.requests: list[Seen] = []
        self.arrived = asyncio.Condition()
        self.healthy = True
        self.mute = False  # whether its metrics page never comes
        self.models = ["m"]
        self.page = PAGE.format(running=0, queries=0, hits=0, generated=0)
        self.connections: set[asyncio.StreamWriter] = set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> Engine:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, limit=1 << 26
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def die(self) -> None:
        """As a killed process: nothing listens, every connection is reset."""
        assert self._server is not None
        self._server.close()
        for writer in list(self.connections):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def got(self, count: int) -> None:
        """Once it has seen so many turns."""
        async with deadline(), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections.add(writer)
        try:
            begun: bytes | None = b""
            while begun is not None:
                begun = await self._one(begun, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self.connections.discard(writer)
            writer.close()

    async def _one(
        self, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Serves a request; what has come of the next one, or None where the connection ended."""
        head = begun + await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        method, target, _ = first.decode().split(" ")
        length = next((int(v) for n, v in headers if n.lower() == b"content-length"), 0)
        seen = Seen(method, target, headers, await reader.readexactly(length))
        reply = Reply(writer)
        if method == "GET":
            await self._get(target, reply)
            return b""
        async with self.arrived:
            self.requests.append(seen)
            self.arrived.notify_all()
        script = asyncio.ensure_future(self.script(seen, reply))
        more = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([script, more], return_when=asyncio.FIRST_COMPLETED)
            if not script.done() and not await more:
                seen.gone.set()
                return None
            await script
            if writer.is_closing():
                return None
            return await more if more.done() else b""
        finally:
            script.cancel()
            more.cancel()
            await asyncio.gather(script, more, return_exceptions=True)

    async def _get(self, target: str, reply: Reply) -> None:
        if target == "/health":
            await reply.whole(b"", 200 if self.healthy else 503)
        elif target == "/v1/models":
            data = [{"id": model, "object": "model"} for model in self.models]
            await reply.whole(json.dumps({"object": "list", "data": data}).encode())
        elif target == "/metrics" and self.mute:
            await asyncio.Event().wait()
        elif target == "/metrics":
            await reply.whole(self.page.encode(), 200, "Content-Type: text/plain")
        else:
            await reply.whole(b"{}", 404)


@contextlib.asynccontextmanager
async def engines(count: int, script: Script = answer) -> AsyncIterator[list[Engine]]:
    started = [await Engine(script).start() for _ in range(count)]
    try:
        yield started
    finally:
        for engine in started:
            await engine.die()


# The gateway --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    complete: bool = True

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((v.decode("latin-1") for n, v in self.headers if n.lower() == wanted), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, byte for byte."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            self.host, self.port, limit=1 << 26
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1".encode(), b"host: gateway"]
        lines += [name + b": " + value for name, value in headers]
        lines.append(b"content-length: %d" % len(body))
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        return int(first.split(b" ")[1]), headers

    async def chunk(self) -> bytes:
        """One chunk of a chunked body; b"" at its end."""
        size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def answer(self) -> Answer:
        async with deadline():
            status, headers = await self.head()
            named = {name.lower(): value for name, value in headers}
            parts = []
            try:
                if named.get(b"transfer-encoding") == b"chunked":
                    while part := await self.chunk():
                        parts.append(part)
                else:
                    parts.append(
                        await self.reader.readexactly(int(named.get(b"content-length", b"0")))
                    )
            except asyncio.IncompleteReadError as error:
                return Answer(status, headers, b"".join([*parts, error.partial]), complete=False)
            except ConnectionError:
                return Answer(status, headers, b"".join(parts), complete=False)
            return Answer(status, headers, b"".join(parts))

    def reset(self) -> None:
        self.writer.transport.abort()

    def pause(self) -> None:
        """Reads no more, as a client that is slow."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]


class Rig:
    def __init__(self, url: str, admin_url: str, stop: asyncio.Event) -> None:
        self.url = url
        self.admin_url = admin_url
        self.stop = stop

    async def ask(
        self,
        body: Any,
        session: str | None = None,
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> Answer:
        """One request on a connection of its own."""
        sent = {"content-type": "application/json", **(headers or {})}
        if session is not None:
            sent["x-session-id"] = session
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with Client(self.url) as client:
            await client.send(method, path, [(n.encode(), v.encode()) for n, v in sent.items()],
                              data)  # fmt: skip
            return await client.answer()

    async def turn(self, session: str | None = None, **more: Any) -> Answer:
        message = {"role": "user", "content": f"hello {session}"}
        return await self.ask({"model": "m", "messages": [message], **more}, session)

    async def admin(self, path: str, body: Any = None, *, token: str = TOKEN) -> Answer:
        async with Client(self.admin_url) as client:
            await client.send(
                "GET" if body is None else "POST",
                path,
                [(b"authorization", f"Bearer {token}".encode())],
                b"" if body is None else json.dumps(body).encode(),
            )
            return await client.answer()

    async def state(self, pool: str = "default") -> Any:
        answer = await self.admin(f"/limpet/api/pools/{pool}")
        assert answer.status == 200, answer.body
        return answer.json

    async def replicas(self, pool: str = "default") -> dict[str, Any]:
        return {row["name"]: row for row in (await self.state(pool))["replicas"]}

    async def switch(self, replica: str, action: str, pool: str = "default") -> None:
        path = f"/limpet/api/pools/{pool}/replicas/{quote(replica, safe='')}/{action}"
        assert (await self.admin(path, {})).status == 200

    async def until(self, condition: Callable[[Any], bool], pool: str = "default") -> Any:
        """The first state of the pool that fulfils `condition`, off the feed of events."""
        async with deadline(), Client(self.admin_url) as client:
            authorization = [(b"authorization", f"Bearer {TOKEN}".encode())]
            await client.send("GET", f"/limpet/api/pools/{pool}/events", authorization)
            await client.head()
            for _ in itertools.count():
                event = await client.chunk()
                state = json.loads(event.partition(b"data: ")[2])
                if condition(state):
                    return state
            raise AssertionError

    async def idle(self, pool: str = "default") -> Any:
        """Once no replica has a turn in flight."""
        return await self.until(
            lambda state: not any(row["in_flight"] for row in state["replicas"]), pool
        )


QUICK = HealthSettings(failures=2, interval=0.05, timeout=0.5, stall_after=0)


def settings_for(*fleet: Engine | ReplicaSettings, **changes: Any) -> Settings:
    """Settings of one pool, with everything that takes time made short. `changes`: whole tables."""
    replicas = tuple(
        ReplicaSettings(one.url, max_num_seqs=32) if isinstance(one, Engine) else one
        for one in fleet
    )
    pool = changes.pop("pool", {})
    settings = Settings(
        server=ServerSettings(port=0, access_log="off", drain_seconds=5.0),
        admin=AdminSettings(port=0),
        health=QUICK,
        metrics=MetricsSettings(interval=0.05, timeout=0.5),
        timeouts=Timeouts(),
        limits=Limits(),
        pools=(PoolSettings(models=("m",), replicas=replicas, **pool),),
    )
    return dataclasses.replace(settings, **changes)


def keys(**tenants: str) -> tuple[KeySettings, ...]:
    """tenant="key"."""
    from limpet.gateway.request import digest_of  # noqa: PLC0415

    return tuple(KeySettings(digest_of(key.encode()), name) for name, key in tenants.items())


@contextlib.asynccontextmanager
async def gateway(
    settings: Settings, load: Callable[[], Settings] | None = None
) -> AsyncIterator[Rig]:
    listening: asyncio.Future[server.Ready] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(
        server.serve(settings, TOKEN, load=load, ready=listening.set_result, stop=stop)
    )
    task.add_done_callback(lambda _: listening.done() or listening.cancel())
    await asyncio.wait([listening])
    if task.done():
        await task
    where = listening.result()
    try:
        yield Rig(where.url, where.admin_url, stop)
    finally:
        stop.set()
        await task
