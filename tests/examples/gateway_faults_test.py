# SPDX-License-Identifier: Apache-2.0
"""The example gateway when engines fail and when clients send what is no request.

python3 tests/examples/gateway_faults_test.py PATH_OF_GATEWAY
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading

from gateway_case import GatewayTest, main
from scripted import PATIENCE, SCRIPTS, Engine, ask


class FailureTest(GatewayTest):
    def test_a_turn_that_a_replica_fails_goes_to_another_once(self) -> None:
        for script in ("die_at_once", "reset_at_once", "die_in_head", "garbage", "unavailable"):
            with self.subTest(script=script):
                _, home, _ = self.turn(session=script)
                bad, good = self.engine(home), self.other(self.engine(home))
                good.script = lambda exchange: exchange.answer(b"good")
                status, replica, outcome = self.turn(script, session=script)
                self.assertEqual((status, replica, outcome), (200, good.url, "spilled"))
                self.assertEqual(bad.seen[-1].body, good.seen[-1].body)
                self.assertEqual(self.turn(session=script)[1:], (home, "sticky"))
                del good.script
                good.script = bad.script

    def test_nor_does_a_rank_hold_it_where_there_are_none(self) -> None:
        self.engines[0].script = SCRIPTS["die_at_once"]
        for _ in range(4):
            self.assertEqual(self.turn(headers={"X-Data-Parallel-Rank": "0"})[0], 200)
        self.assertTrue(self.engines[0].seen)

    def test_what_both_fail_is_told_in_the_words_of_the_protocol(self) -> None:
        connection = self.gateway.connect()
        response = ask(connection, "die_at_once")
        error = json.loads(response.read())["error"]
        self.assertEqual((response.status, error["type"]), (502, "server_error"))
        response = ask(connection, "die_at_once", target="/v1/messages")
        answer = json.loads(response.read())
        self.assertEqual((answer["type"], answer["error"]["type"]), ("error", "api_error"))
        self.assertEqual(sum(len(e.seen) for e in self.engines), 4)

    def test_an_engines_own_503_is_passed_on_where_nobody_does_better(self) -> None:
        response = ask(self.gateway.connect(), "unavailable")
        self.assertEqual((response.status, response.read()), (503, b'{"error": "not now"}'))
        self.assertEqual(response.headers["X-Whose"], "engine")

    def test_a_connection_that_the_engine_closed_is_no_failure(self) -> None:
        connection = self.gateway.connect()
        for _ in range(10):
            response = ask(connection, "close_after", session="a")
            response.read()
            self.assertEqual(response.status, 200)
        replicas = self.gateway.snapshot()["replicas"]
        self.assertEqual(sum(r["failed"] for r in replicas), 0)
        self.assertEqual(sum(r["sticky"] for r in replicas), 9)

    def test_conversations_leave_a_dead_replica_and_new_ones_come_when_it_is_back(self) -> None:
        sessions = [f"s{i}" for i in range(8)]
        homes = {s: self.turn(session=s)[1] for s in sessions}
        dead = self.engine(homes["s0"])
        alive = self.other(dead)
        dead.stop()
        for _ in range(2):
            for session in sessions:
                self.assertEqual(self.turn(session=session)[:2], (200, alive.url))
        self.gateway.wait_until(lambda s: {r["state"] for r in s["replicas"]} == {"up", "down"})
        for session in sessions:
            self.assertEqual(self.turn(session=session)[1], alive.url)
        self.assertEqual([self.row(dead)["pins"], self.row(alive)["pins"]], [0, 8])
        self.engines.append(Engine(dead.port))
        self.gateway.wait_until(lambda s: {r["state"] for r in s["replicas"]} == {"up"})
        self.assertIn(dead.url, {self.turn(session=f"new{i}")[1] for i in range(8)})
        self.engines.remove(dead)

    def test_an_engine_that_says_it_is_ill_gets_nothing(self) -> None:
        for engine in self.engines:
            engine.healthy = False
        self.gateway.wait_until(lambda s: {r["state"] for r in s["replicas"]} == {"down"})
        connection = self.gateway.connect()
        response = ask(connection, target="/v1/messages")
        self.assertEqual(json.loads(response.read())["error"]["type"], "overloaded_error")
        self.assertEqual((response.status, response.headers["Retry-After"]), (503, "1"))
        connection.request("GET", "/health")
        self.assertEqual(connection.getresponse().status, 503)


class PatienceTest(GatewayTest):
    options = ("--patience", "1")

    def test_a_replica_that_keeps_silent_is_given_up(self) -> None:
        _, home, _ = self.turn(session="a")
        self.engine(home).script = lambda exchange: exchange.wait_for_hang_up()
        status, replica, outcome = self.turn(session="a")
        self.assertEqual((status, outcome), (200, "spilled"))
        self.assertNotEqual(replica, home)
        self.assertTrue(self.engine(home).hung_up.acquire(timeout=PATIENCE))


class BadInputTest(GatewayTest):
    options = ("--max-body", "1")

    def test_what_is_no_request_is_refused_and_the_gateway_goes_on(self) -> None:
        post = b"POST /v1/completions HTTP/1.1\r\n"
        for data, status in (
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xab" * 300, 400),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
            (b"hello\r\n\r\n", 400),
            (post + b"A: " + b"a" * 70_000 + b"\r\n\r\n", 431),
            (post + b"A: b\r\n" * 20_000 + b"\r\n", 431),
            (post + b"A b\r\n\r\n", 400),
            (post + b"Content-Length: x\r\n\r\n", 400),
            (post + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
            (post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            (post + b"Transfer-Encoding: gzip\r\n\r\nxx", 501),
            (post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
            (post + b"Content-Length: 104857600\r\n\r\n" + b"x" * 3_000_000, 413),
            (
                post
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + b"1000\r\n%b\r\n" % (b"x" * 4096) * 300,
                413,
            ),
            (b"DELETE /v1/completions HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
            (b"GET /limpet HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
            (b"HEAD /v1/models HTTP/1.1\r\n\r\n", 404),
        ):
            with self.subTest(data=data[:60]), self.gateway.socket() as client:
                threading.Thread(target=_send, args=(client, data), daemon=True).start()
                response = http.client.HTTPResponse(client)
                response.begin()
                self.assertEqual(response.status, status)
                self.assertTrue(json.loads(response.read())["error"]["message"] or "HEAD")
        self.assertEqual(sum(len(e.seen) for e in self.engines), 0)
        self.assertEqual(self.turn()[0], 200)

    def test_a_client_that_leaves_in_the_middle_of_a_request_leaves_nothing(self) -> None:
        for data in (b"POST /v1", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
            with self.gateway.socket() as client:
                client.sendall(data)
        self.assertEqual(self.turn()[0], 200)
        self.assertEqual(sum(len(e.seen) for e in self.engines), 1)

    def test_bodies_that_are_no_json_are_passed_on(self) -> None:
        for body in (b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"a":1,"a":2}'):
            response = ask(self.gateway.connect(), body=body)
            self.assertEqual((response.status, response.read()), (200, body))


def _send(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the gateway need not read all of it
        client.sendall(data)


if __name__ == "__main__":
    main(__doc__)
