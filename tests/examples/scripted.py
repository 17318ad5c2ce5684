# SPDX-License-Identifier: Apache-2.0
"""Engines that do what a test says, byte by byte, and the example gateway as a process.

An Engine hands each request to `script`, by default the one that the header X-Script names, else
`echo`. Scripts write to the socket themselves, so they can send what no HTTP library would.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 30  # seconds that anything may take on a busy machine

Headers = list[tuple[str, str]]


class Exchange:
    """One request at an engine, and the way to answer it."""

    def __init__(self, engine: Engine, connection: socket.socket, head: bytes, body: bytes) -> None:
        self.engine = engine
        self.connection = connection
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = line.split(" ")
        self.headers: Headers = [(f.split(": ", 1)[0], f.partition(": ")[2]) for f in fields]
        self.body = body

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, body: bytes, status: str = "200 OK", headers: Headers | None = None) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers or [])
        start = f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n"
        self.send(start.encode("latin-1") + body)

    def begin_stream(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        self.send(b"Transfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def wait_for_hang_up(self) -> None:
        """Until the other side has closed; sets engine.hung_up. engine.go_on ends it as well."""
        self.connection.settimeout(0.02)
        while not self.engine.go_on.is_set():
            try:
                if self.connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.connection.settimeout(PATIENCE)
        if not self.engine.go_on.is_set():
            self.engine.hung_up.release()
            raise ConnectionAbortedError

    def reset(self) -> None:
        """Closes with RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionAbortedError


Script = Callable[[Exchange], None]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 24}


def echo(exchange: Exchange) -> None:
    exchange.answer(exchange.body, headers=[("Content-Type", "application/json")])


def usage(exchange: Exchange) -> None:
    exchange.answer(json.dumps({"usage": USAGE}).encode())


def stream(exchange: Exchange) -> None:
    """Holds after the first event."""
    exchange.begin_stream()
    exchange.chunk(b"data: first\n\n")
    exchange.engine.streaming.release()
    exchange.wait_for_hang_up()
    exchange.chunk(b"data: [DONE]\n\n")
    exchange.chunk(b"")


def silent(exchange: Exchange) -> None:
    exchange.engine.streaming.release()
    exchange.wait_for_hang_up()
    exchange.answer(b"late")


def die_at_once(_: Exchange) -> None:
    raise ConnectionAbortedError


def reset_at_once(exchange: Exchange) -> None:
    exchange.reset()


def die_in_head(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
    raise ConnectionAbortedError


def die_in_stream(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.chunk(b"data: first\n\n")
    raise ConnectionAbortedError


def die_in_body(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    raise ConnectionAbortedError


def garbage(exchange: Exchange) -> None:
    exchange.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    raise ConnectionAbortedError


def unavailable(exchange: Exchange) -> None:
    exchange.answer(b'{"error": "not now"}', "503 Service Unavailable", [("X-Whose", "engine")])


def error_in_stream(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.chunk(b'data: {"error": {"message": "engine died", "code": 500}}\n\n')
    exchange.chunk(b"")


def close_after(exchange: Exchange) -> None:
    """Promises to keep the connection, and closes it."""
    echo(exchange)
    raise ConnectionAbortedError


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        *(echo, usage, stream, silent, die_at_once, reset_at_once, die_in_head, die_in_stream),
        *(die_in_body, garbage, unavailable, error_in_stream, close_after),
    )
}


def by_header(exchange: Exchange) -> None:
    SCRIPTS[exchange.header("X-Script") or "echo"](exchange)


class Engine:
    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.script: Script = by_header
        self.healthy = True
        self.seen: list[Exchange] = []  # requests, probes not among them
        self.streaming = threading.Semaphore(0)  # up with each stream that holds
        self.hung_up = threading.Semaphore(0)  # up with each that the other side closed
        self.go_on = threading.Event()  # holding streams may end
        self.connections: set[socket.socket] = set()
        self.running: set[Exchange] = set()  # those whose script has not ended
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """As if it was killed."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while exchange := self._read(connection, reader):
                    if exchange.target == "/health":
                        exchange.answer(b"", "200 OK" if self.healthy else "500 No")
                    elif exchange.target == "/metrics":
                        exchange.answer(b"vllm:num_requests_running 0\n")
                    else:
                        self.seen.append(exchange)
                        self.running.add(exchange)
                        try:
                            self.script(exchange)
                        finally:
                            self.running.discard(exchange)
        except (OSError, ValueError):
            pass
        finally:
            self.connections.discard(connection)

    def _read(self, connection: socket.socket, reader: Any) -> Exchange | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return None
            head += line
        exchange = Exchange(self, connection, head[:-4], b"")
        exchange.body = reader.read(int(exchange.header("Content-Length") or 0))
        return exchange


class Gateway:
    """The example gateway as a process."""

    def __init__(self, binary: Path, *replicas: str, options: tuple[str, ...] = ()) -> None:
        named = [word for replica in replicas for word in ("--replica", replica)]
        self.process = subprocess.Popen(
            [str(binary), "--listen", "127.0.0.1:0", "--threads", "2", *named, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.log = ""
        self.connections: list[http.client.HTTPConnection] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    def connect(self) -> http.client.HTTPConnection:
        """Closed when the gateway has ended."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self.connections.append(connection)
        return connection

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def snapshot(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/limpet/snapshot")
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return found

    def wait_until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first snapshot of which `true` holds."""
        until = time.monotonic() + PATIENCE
        while not true(snapshot := self.snapshot()):
            if time.monotonic() > until:
                raise AssertionError(f"not in {PATIENCE} s: {snapshot}\n{self.log}")
            time.sleep(0.01)
        return snapshot

    def all_slots_free(self) -> dict[str, Any]:
        return self.wait_until(lambda s: all(r["in_flight"] == 0 for r in s["replicas"]))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self.process.stdout is not None and self.process.stderr is not None
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        for connection in self.connections:
            connection.close()
        return code


def ask(
    connection: http.client.HTTPConnection,
    script: str = "echo",
    session: str | None = None,
    body: bytes = b'{"messages":[]}',
    headers: dict[str, str] | None = None,
    target: str = "/v1/chat/completions",
) -> http.client.HTTPResponse:
    own = {"Content-Type": "application/json", "X-Script": script}
    if session is not None:
        own["X-Limpet-Conversation-Id"] = session
    connection.request("POST", target, body, own | (headers or {}))
    return connection.getresponse()
