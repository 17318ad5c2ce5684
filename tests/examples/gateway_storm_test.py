# SPDX-License-Identifier: Apache-2.0
"""The example gateway under many exchanges: bytes arrive unchanged, and no slot is ever lost.

    python3 tests/examples/gateway_storm_test.py PATH_OF_GATEWAY

Random ones print their seed; LIMPET_SEED repeats it.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import threading
import time
import unittest
from pathlib import Path

from gateway_case import GATEWAY, main
from scripted import PATIENCE, Engine, Exchange, Gateway, Headers

SEED = int(os.environ.get("LIMPET_SEED", time.time_ns() % 1_000_000_007))
DATA = Path(
    os.environ.get("LIMPET_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data")
)
EXCHANGES = 200
STORM = 2000
OWN = {"x-limpet-replica", "x-limpet-outcome", "x-limpet-key-source"}
FRAMING = {"host", "content-length", "transfer-encoding", "connection"}


def plain(headers: Headers, without: set[str]) -> Headers:
    """In the order of their names; only among fields of one name does it mean anything."""
    kept = [(name, value) for name, value in headers if name.lower() not in without]
    return sorted(kept, key=lambda header: header[0].lower())


def random_headers(random_: random.Random) -> Headers:
    """Names in odd cases, repeated, empty, long, with quotes and bytes beyond ASCII."""
    values = [
        "",
        "a",
        'W/"x, y"',
        "a=b; c",
        "\xe9\xff",
        "v" * 3000,
        "Mon, 01 Jan 2024 00:00:00 GMT",
    ]
    names = [
        "X-Odd",
        "x-oDD",
        "Accept",
        "X_under",
        "Cookie",
        "Set-Cookie",
        "X-Request-Id",
        "!#$%&'*",
    ]
    return [(random_.choice(names), random_.choice(values)) for _ in range(random_.randrange(12))]


def random_body(random_: random.Random) -> bytes:
    size = random_.choice([0, 1, 100, 4096, 16_384, 16_385, 70_000, 1 << 20])
    body = random_.randbytes(size)
    return random_.choice([body, gzip.compress(body), json.dumps({"a": body.hex()}).encode()])


def chunked(random_: random.Random, body: bytes) -> bytes:
    out = b""
    extension = random_.choice([b"", b";a=b", b';q="x y"'])
    while body:
        size = min(len(body), random_.choice([1, 3, 100, 4096, 16_384, 65_536, 200_000]))
        out += b"%X%b\r\n%b\r\n" % (size, extension, body[:size])
        body = body[size:]
    return out + b"0\r\n" + random_.choice([b"", b"X-Trailer: 1\r\n"]) + b"\r\n"


def cut(random_: random.Random, data: bytes, send: object) -> None:
    """Sends in pieces cut anywhere."""
    assert callable(send)
    while data:
        size = random_.choice([1, 5, 50, 1000, 20_000, len(data)]) if len(data) < 50_000 else 40_000
        send(data[:size])
        data = data[size:]


class BytesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.engine = Engine()
        self.gateway = Gateway(GATEWAY, self.engine.url)

    def tearDown(self) -> None:
        self.gateway.all_slots_free()
        self.gateway.terminate()
        self.assertEqual(self.gateway.wait(), 0)
        self.engine.stop()

    def check(self, target: str, headers: Headers, body: bytes, random_: random.Random) -> None:
        status = random_.choice(["200 OK", "200 Odd  reason", "201 Created", "400 Bad", "429 Slow"])
        answer_headers, answer = random_headers(random_), random_body(random_)
        way = random_.choice(["length", "chunked", "close"])

        def script(exchange: Exchange) -> None:
            framing = {"length": f"Content-Length: {len(answer)}", "close": "Connection: close"}
            lines = [f"HTTP/1.1 {status}", *(f"{n}: {v}" for n, v in answer_headers)]
            lines += [
                framing.get(way, "Transfer-Encoding: chunked"),
                "Connection: X-Hop",
                "X-Hop: 1",
            ]
            head = "\r\n".join([*lines, "", ""]).encode("latin-1")
            data = chunked(random_, answer) if way == "chunked" else answer
            cut(random_, head + data, exchange.send)
            if way == "close":
                raise ConnectionAbortedError

        self.engine.script = script
        with self.gateway.socket() as client:
            lines = [f"POST {target} HTTP/1.1", "Host: gateway", *(f"{n}: {v}" for n, v in headers)]
            lines += ["Connection: X-Mine, keep-alive", "X-Mine: 1", "TE: trailers"]
            as_chunks = random_.random() < 0.5
            lines.append(
                "Transfer-Encoding: chunked" if as_chunks else f"Content-Length: {len(body)}"
            )
            head = "\r\n".join([*lines, "", ""]).encode("latin-1")
            data = chunked(random_, body) if as_chunks else body
            cut(random_, head + data, client.sendall)
            response = http.client.HTTPResponse(client)
            response.begin()
            received = response.read()
        (seen,) = self.engine.seen
        self.engine.seen.clear()
        self.assertEqual((seen.method, seen.target, seen.version), ("POST", target, "HTTP/1.1"))
        self.assertEqual(plain(seen.headers, FRAMING), plain(headers, set()))
        self.assertEqual(seen.header("Host"), self.engine.url[7:])
        self.assertEqual(seen.body, body)
        self.assertEqual(f"{response.status} {response.reason}", status)
        got = [(n, v) for n, v in response.getheaders() if n.lower() not in OWN]
        self.assertEqual(plain(got, FRAMING), plain(answer_headers, set()))
        self.assertEqual(received, answer)

    def test_generated_exchanges_arrive_unchanged(self) -> None:
        random_ = random.Random(SEED)
        for number in range(EXCHANGES):
            with self.subTest(seed=SEED, number=number):
                headers = random_headers(random_)
                target = random_.choice(
                    ["/v1/chat/completions", "/v1/x?a=%20&b=[]", "/v1/a/../b;c"]
                )
                self.check(target, headers, random_body(random_), random_)

    def test_recorded_requests_arrive_unchanged(self) -> None:
        recordings = sorted((DATA / "agent_requests").glob("*.json"))
        if not recordings:
            self.skipTest(f"{DATA}/agent_requests is absent; set LIMPET_SHARED_DATA")
        random_ = random.Random(SEED)
        for recording in recordings:
            with self.subTest(seed=SEED, recording=recording.name):
                request = json.loads(recording.read_text())
                headers = [(n, v) for n, v in request["headers"] if n.lower() not in FRAMING]
                body = json.dumps(request["body"], separators=(",", ":"), ensure_ascii=False)
                self.check(request["target"], headers, body.encode(), random_)


class StormTest(unittest.TestCase):
    """Half of the requests break in some way; the others must not notice."""

    BROKEN = (
        *("die_at_once", "reset_at_once", "die_in_head", "die_in_stream", "die_in_body"),
        *("garbage", "unavailable", *("error_in_stream", "close_after", "stream", "silent") * 4),
    )

    def test_slots_come_back_and_nobody_gets_anothers_bytes(self) -> None:
        engines = [Engine() for _ in range(3)]
        gateway = Gateway(GATEWAY, *(e.url for e in engines))
        wrong: list[str] = []
        numbers = iter(range(STORM))
        answered = [0] * 8

        def client(worker: int) -> None:
            try:
                all_requests(worker)
            except Exception as error:  # a thread must not die unseen
                wrong.append(f"thread {worker}: {error!r}")

        def all_requests(worker: int) -> None:
            random_ = random.Random(SEED * 8 + worker)
            for number in numbers:
                if number % 2:
                    answered[worker] += whole(random_, number)
                else:
                    broken(random_, number)

        def request(number: int, script: str, body: bytes) -> bytes:
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nX-Script: {script}\r\n"
                f"X-Session-Id: {number % 50}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            return head.encode() + body

        def whole(random_: random.Random, number: int) -> int:
            """How many of two were answered; none has to be while all replicas are down."""
            body, ok = b"%d " % number * random_.choice([1, 100, 10_000]), 0
            with gateway.socket() as connection:
                for _ in range(2):
                    connection.sendall(request(number, "echo", body))
                    response = http.client.HTTPResponse(connection)
                    response.begin()
                    received = response.read()
                    if response.status == 200 and received == body:
                        ok += 1
                    elif response.status != 503:
                        wrong.append(f"{number}: {response.status} {received[:100]!r}")
            return ok

        def broken(random_: random.Random, number: int) -> None:
            script = random_.choice(self.BROKEN)
            with gateway.socket() as connection:
                data = request(number, script, b"{}")
                if random_.random() < 0.1:
                    connection.sendall(data[: random_.randrange(len(data))])
                    return
                connection.sendall(data)
                if script in ("stream", "silent"):
                    connection.settimeout(random_.choice([0.001, 0.05]))
                try:
                    while connection.recv(65536):
                        connection.settimeout(0.05)
                except OSError:
                    pass

        threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(8)]
        print(f"LIMPET_SEED={SEED}")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE * 10)
        self.assertEqual(wrong[:5], [])
        self.assertGreater(sum(answered), STORM // 4)
        gateway.all_slots_free()
        # Requests that are held end only when their client's hang-up has come to the engine.
        held = sum(x.header("X-Script") in ("stream", "silent") for e in engines for x in e.seen)
        self.assertGreater(held, 50)
        until = time.monotonic() + PATIENCE
        while any(e.running for e in engines):
            self.assertLess(time.monotonic(), until, "an engine was not told of a hang-up")
            time.sleep(0.01)
        # Whoever is well in the end serves every conversation.
        gateway.wait_until(lambda s: all(r["state"] == "up" for r in s["replicas"]))
        with gateway.socket() as connection:
            for number in range(50):
                connection.sendall(request(number, "echo", b"x"))
                response = http.client.HTTPResponse(connection)
                response.begin()
                self.assertEqual((response.status, response.read()), (200, b"x"))
        gateway.terminate()
        self.assertEqual(gateway.wait(), 0)
        for engine in engines:
            engine.stop()


if __name__ == "__main__":
    main(__doc__)
