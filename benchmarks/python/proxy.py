# SPDX-License-Identifier: Apache-2.0
"""What the gateway costs, beside a plain aiohttp pass-through of the same shape, in one run.

    python benchmarks/python/proxy.py [--rounds 5] [--seconds 2] [--streams 1000]

Two fake engines answer at once; each proxy is one process with uvloop; clients send chat requests
of some 1 KiB with a session header on connections that stay open. Rounds go direct, pass-through,
gateway, direct, and so on; a figure is the median of its rounds, its spread beside it. Where there
are two cores the proxies have one and clients and engines the other. The pass-through reads the
body, forwards it and passes the answer on in chunks: no decision, pins, usage, health or log.

Checked: every answer's status and body; that every request reached an engine. Not measured: a
network, TLS, real engines, contention for a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvloop
from aiohttp import web

CONNECTIONS = 32
LATENCY_REQUESTS = 400
PROMPT = "tide " * 200
USAGE = {
    "prompt_tokens": 300,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 288},
}
ANSWER = json.dumps(
    {"id": "x", "choices": [{"message": {"role": "assistant", "content": "y" * 700}}],
     "usage": USAGE}
).encode()  # fmt: skip
HOP = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "upgrade"}


# The two ends ------------------------------------------------------------------------------------


class FakeEngine(asyncio.Protocol):
    """Answers a request at once, or begins a stream that never ends."""

    served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, rest = self.data.partition(b"\r\n\r\n")
        if not end:
            return
        lowered = head.lower()
        at = lowered.find(b"content-length: ")
        length = int(lowered[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(rest) < length:
            return
        self.data = rest[length:]
        if head.startswith(b"POST") and b'"stream": true' in rest:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
            )
            return
        body = ANSWER
        if head.startswith(b"POST"):
            FakeEngine.served += 1
        elif b"/served" in head:
            body = b"%d" % FakeEngine.served
        elif b"/v1/models" in head:
            body = b'{"object": "list", "data": [{"id": "m"}]}'
        elif b"/metrics" in head:
            body = b'vllm:num_requests_running{engine="0"} 0\n'
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )


class Clients(asyncio.Protocol):
    """One connection that sends its request again as soon as the answer is there."""

    def __init__(self, request: bytes, until: float, count: int, latencies: list[float]) -> None:
        self.request, self.until, self.left, self.latencies = request, until, count, latencies
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.next()

    def next(self) -> None:
        self.data = b""
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end or not (body.endswith(b"0\r\n\r\n") or len(body) >= len(ANSWER)):
            return
        if not head.startswith(b"HTTP/1.1 200") or ANSWER not in self.data:
            self.done.set_exception(RuntimeError(f"a wrong answer: {self.data[:300]!r}"))
            self.transport.close()
            return
        now = time.perf_counter()
        self.latencies.append(now - self.sent)
        self.left -= 1
        if self.left == 0 or now >= self.until:
            self.transport.close()
            self.done.set_result(None)
        else:
            self.next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the proxy closed the connection"))


def request_of(session: str, **more: Any) -> bytes:
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": PROMPT}], **more}
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"User-Agent: bench\r\nAccept: */*\r\nx-session-id: {session}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(port: int, connections: int, seconds: float, count: int = -1) -> list[float]:
    """Latencies in s of the requests that so many clients made."""
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = []
    for number in range(connections):
        client = functools.partial(Clients, request_of(f"s{number}"), until, count, latencies)
        made.append(await loop.create_connection(client, "127.0.0.1", port))
    await asyncio.gather(*(client.done for _, client in made))
    return latencies


# The rival ---------------------------------------------------------------------------------------


async def pass_through(port: int, engines: list[str]) -> None:
    session = aiohttp.ClientSession(
        auto_decompress=False, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
    )
    turn = 0

    async def forward(request: web.Request) -> web.StreamResponse:
        nonlocal turn
        turn += 1
        body = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        address = engines[turn % len(engines)] + request.path_qs
        async with session.post(address, headers=headers, data=body) as answer:
            passed = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            out = web.StreamResponse(status=answer.status, headers=passed)
            out.content_length = answer.content_length
            await out.prepare(request)
            async for chunk in answer.content.iter_any():
                await out.write(chunk)
            await out.write_eof()
            return out

    application = web.Application()
    application.router.add_post("/{path:.*}", forward)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def engine(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(FakeEngine, "127.0.0.1", port)
    await server.serve_forever()


# The measurement ---------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def process(port: int, cpu: int | None, *arguments: str) -> Iterator[int]:
    """Runs until the block ends; yields its pid once `port` is open."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen([sys.executable, *arguments], stdout=said, stderr=said)
        try:
            if cpu is not None:
                os.sched_setaffinity(child.pid, {cpu})
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                if child.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    raise SystemExit(f"{arguments} did not start: {said.read()!r}")
                time.sleep(0.05)
            yield child.pid
        finally:
            child.terminate()
            child.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def served(ports: list[int]) -> int:
    async with aiohttp.ClientSession() as session:
        texts = [
            await (await session.get(f"http://127.0.0.1:{port}/served")).text() for port in ports
        ]
    return sum(map(int, texts))


async def hold_streams(port: int, pid: int, count: int) -> tuple[float, float]:
    """Resident MB of the process before and with so many streams open."""
    before = resident_mb(pid)
    writers = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_of(f"stream-{number}", stream=True))
        writers.append((reader, writer))
    for reader, _ in writers:
        await reader.readuntil(b"data: 1\n\n")
    after = resident_mb(pid)
    for _, writer in writers:
        writer.close()
    return before, after


def shown(values: list[float], scale: float = 1.0) -> str:
    middle = statistics.median(values) * scale
    return f"{middle:9.1f}  [{min(values) * scale:.1f}, {max(values) * scale:.1f}]"


async def measure(rounds: int, seconds: float, streams: int) -> int:
    cpus = sorted(os.sched_getaffinity(0))
    proxy_cpu, other_cpu = (cpus[0], cpus[1]) if len(cpus) > 1 else (None, None)
    if other_cpu is not None:
        os.sched_setaffinity(0, {other_cpu})
    engine_ports = [free_port(), free_port()]
    ports = {"direct": engine_ports[0], "pass-through": free_port(), "gateway": free_port()}
    urls = [f"http://127.0.0.1:{port}" for port in engine_ports]
    replicas = [part for url in urls for part in ("--replica", url)]
    with contextlib.ExitStack() as stack:
        for port in engine_ports:
            stack.enter_context(process(port, other_cpu, __file__, "--engine", str(port)))
        pids = {
            "pass-through": stack.enter_context(
                process(ports["pass-through"], proxy_cpu, __file__, "--pass-through",
                        str(ports["pass-through"]), *urls)
            ),
            "gateway": stack.enter_context(
                process(ports["gateway"], proxy_cpu, "-m", "limpet.cli", "serve", *replicas,
                        "--model", "m", "--access-log", "off", "--port", str(ports["gateway"]),
                        "--admin-port", "0")
            ),
        }  # fmt: skip
        rate: dict[str, list[float]] = {name: [] for name in ports}
        cost: dict[str, list[float]] = {name: [] for name in pids}
        p50: dict[str, list[float]] = {name: [] for name in ports}
        for port in ports.values():
            await load(port, CONNECTIONS, 0.3)
        before, made = await served(engine_ports), 0
        for _ in range(rounds):
            for name, port in ports.items():
                used = cpu_seconds(pids[name]) if name in pids else 0.0
                began = time.perf_counter()
                latencies = await load(port, CONNECTIONS, seconds)
                rate[name].append(len(latencies) / (time.perf_counter() - began))
                if name in pids:
                    cost[name].append((cpu_seconds(pids[name]) - used) / len(latencies))
                alone = await load(port, 1, 60.0, LATENCY_REQUESTS)
                p50[name].append(statistics.median(alone))
                made += len(latencies) + len(alone)
        if await served(engine_ports) - before != made:
            raise SystemExit("not every request reached an engine")
        small, large = await hold_streams(ports["gateway"], pids["gateway"], streams)

    versions = f"Python {platform.python_version()}, aiohttp {aiohttp.__version__}"
    print(f"{versions}, {len(cpus)} cores, {rounds} rounds; median [least, most]")
    for name in ports:
        print(f"{name:14} {shown(rate[name])} requests/s at {CONNECTIONS} connections")
    for name in pids:
        print(f"{name:14} {shown(cost[name], 1e6)} us of CPU a request")
    for name in ports:
        print(f"{name:14} {shown(p50[name], 1e6)} us p50 on one connection")
    middle = {name: statistics.median(values) for name, values in p50.items()}
    shares = [a / b for a, b in zip(rate["gateway"], rate["pass-through"], strict=True)]
    added = [
        (g - d) / (p - d)
        for g, p, d in zip(p50["gateway"], p50["pass-through"], p50["direct"], strict=True)
        if p > d
    ]
    share = statistics.median(shares)
    slower = (middle["gateway"] - middle["direct"]) / (middle["pass-through"] - middle["direct"])
    cpu = statistics.median(cost["gateway"]) / statistics.median(cost["pass-through"])
    ratios = f"{share:.2f} [{min(shares):.2f}, {max(shares):.2f}]"
    print(f"requests/s, gateway over pass-through: {ratios} (at least 0.60)")
    print(f"CPU a request, gateway over pass-through: {cpu:.2f}")
    ratios = f"{slower:.2f} [{min(added):.2f}, {max(added):.2f}]"
    print(f"added p50, gateway over pass-through: {ratios} (at most 1.50)")
    print(f"{streams} open streams: {large:.0f} MB resident, {small:.0f} before (below 400)")
    return int(share < 0.6 or slower > 1.5 or large >= 400)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pass-through", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        uvloop.run(engine(arguments.engine))
    elif arguments.pass_through:
        port, *engines = arguments.pass_through
        uvloop.run(pass_through(int(port), engines))
    else:
        return uvloop.run(measure(arguments.rounds, arguments.seconds, arguments.streams))
    return 0


if __name__ == "__main__":
    sys.exit(main())
