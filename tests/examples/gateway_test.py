# SPDX-License-Identifier: Apache-2.0
"""The example gateway between clients and scripted engines: what it does when all goes well.

python3 tests/examples/gateway_test.py PATH_OF_GATEWAY
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import subprocess
import threading
import time
import unittest
from typing import Any

from gateway_case import GATEWAY, GatewayTest, main
from scripted import PATIENCE, USAGE, Exchange, ask


class RoutingTest(GatewayTest):
    def test_turns_of_a_conversation_go_home_and_conversations_spread(self) -> None:
        homes = {}
        for session in ("a", "b"):
            status, homes[session], outcome = self.turn(session=session)
            self.assertEqual((status, outcome), (200, "placed"))
        self.assertNotEqual(homes["a"], homes["b"])
        for session in ("a", "b", "a", "b"):
            self.assertEqual(self.turn(session=session), (200, homes[session], "sticky"))

    def test_what_names_the_conversation_is_told(self) -> None:
        connection = self.gateway.connect()
        for headers, source in (
            ({"X-Session-Id": "s"}, "session_header"),
            ({"X-Claude-Code-Session-Id": "s"}, "claude_code_header"),
            ({}, "none"),
        ):
            response = ask(connection, headers=headers)
            response.read()
            self.assertEqual(response.headers["x-limpet-key-source"], source)

    def test_usage_that_the_engine_told_is_counted(self) -> None:
        status, replica, _ = self.turn("usage", session="a")
        self.assertEqual(status, 200)
        self.assertEqual(self.row(self.engine(replica))["live_tokens"], sum(USAGE.values()))

    def test_metrics_are_read(self) -> None:
        self.gateway.wait_until(lambda s: s["readings"] >= 2)

    def test_models_come_from_a_replica_and_are_no_turn(self) -> None:
        connection = self.gateway.connect()
        connection.request("GET", "/v1/models?x=1", headers={"Authorization": "Bearer t"})
        response = connection.getresponse()
        self.assertEqual((response.status, response.read()), (200, b""))
        self.assertEqual(response.headers["x-limpet-outcome"], "unrouted")
        (seen,) = [x for e in self.engines for x in e.seen]
        self.assertEqual((seen.method, seen.target), ("GET", "/v1/models?x=1"))
        self.assertEqual(seen.header("authorization"), "Bearer t")


class RanksTest(GatewayTest):
    engine_count = 1
    options = ("--data-parallel-size", "3")

    def rank(self, **named: Any) -> tuple[str | None, str]:
        outcome = self.turn(**named)[2]
        return self.engines[0].seen[-1].header("X-data-parallel-rank"), outcome

    def test_the_rank_is_sent(self) -> None:
        ranks = {self.rank(session=s) for s in "abc"}
        self.assertEqual(ranks, {(str(r), "placed") for r in range(3)})
        rank, _ = self.rank(session="a")
        self.assertEqual(self.rank(session="a"), (rank, "sticky"))

    def test_a_rank_that_the_client_names_is_honoured(self) -> None:
        named = {"X-Data-Parallel-Rank": "2"}
        self.assertEqual(self.rank(headers=named, session="a"), ("2", "client_pinned"))
        for wrong in ("3", "-1", "x"):  # for the engine to refuse
            named = {"X-Data-Parallel-Rank": wrong}
            self.assertEqual(self.rank(headers=named, session="a"), (wrong, "unrouted"))

    def test_responses_cannot_be_steered(self) -> None:
        for _ in range(2):
            self.assertEqual(self.rank(target="/v1/responses"), (None, "unrouted"))
        self.assertEqual(self.gateway.log.count("/v1/responses"), 1)


class StreamTest(GatewayTest):
    def test_head_and_events_are_passed_on_as_they_come(self) -> None:
        head_seen, event_seen = threading.Event(), threading.Event()

        def in_steps(exchange: Exchange) -> None:
            exchange.begin_stream()
            head_seen.wait(PATIENCE)
            exchange.chunk(b"data: 1\n\n")
            event_seen.wait(PATIENCE)
            exchange.chunk(b"")

        for engine in self.engines:
            engine.script = in_steps
        connection = self.gateway.connect()
        response = ask(connection)  # the head is here, and the engine waits
        self.assertEqual(sum(r["in_flight"] for r in self.gateway.snapshot()["replicas"]), 1)
        head_seen.set()
        self.assertEqual(response.readline(), b"data: 1\n")
        event_seen.set()
        self.assertEqual(response.read(), b"\n")

    def test_a_client_that_does_not_read_slows_the_engine(self) -> None:
        sent, blocked = 0, threading.Event()

        def flood(exchange: Exchange) -> None:
            nonlocal sent
            exchange.begin_stream()
            exchange.connection.settimeout(2)
            try:
                while True:
                    exchange.chunk(b"x" * 65536)
                    sent += 65536
            finally:
                blocked.set()

        for engine in self.engines:
            engine.script = flood
        connection = self.gateway.connect()
        response = ask(connection)
        self.assertTrue(blocked.wait(PATIENCE))
        self.assertLess(sent, 32 << 20)  # what sockets buffer
        connection.close()
        response.close()

    def test_a_client_that_hangs_up_ends_the_engines_work(self) -> None:
        for script in ("stream", "silent"):
            with self.subTest(script=script):
                connection, engine = self.hold(script)
                connection.close()
                self.assertTrue(engine.hung_up.acquire(timeout=PATIENCE))
                self.assertEqual(self.gateway.all_slots_free()["replicas"][0]["failed"], 0)

    def test_so_does_one_that_has_sent_its_next_request_already(self) -> None:
        connection, engine = self.hold("silent")
        assert connection.sock is not None
        connection.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        connection.close()
        self.assertTrue(engine.hung_up.acquire(timeout=PATIENCE))
        self.gateway.all_slots_free()
        self.assertEqual(sum(len(e.seen) for e in self.engines), 1)

    def test_a_client_that_asks_first_is_told_to_go_on(self) -> None:
        head = b"POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        with self.gateway.socket() as client:
            client.sendall(head)
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(b"body")
            self.assertTrue(client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n"))
        (seen,) = [x for e in self.engines for x in e.seen]
        self.assertEqual((seen.header("Expect"), seen.body), (None, b"body"))

    def test_a_client_of_http_1_0_gets_no_chunks(self) -> None:
        def whole(exchange: Exchange) -> None:
            exchange.begin_stream()
            exchange.chunk(b"data: 1\n\n")
            exchange.chunk(b"")

        for engine in self.engines:
            engine.script = whole
        head, body = self.raw(b"POST /v1/x HTTP/1.0\r\nContent-Length: 0\r\n\r\n").split(
            b"\r\n\r\n"
        )
        self.assertNotIn(b"chunked", head)
        self.assertEqual(body, b"data: 1\n\n")

    def test_clients_that_hang_up_at_any_moment_are_no_engines_failure(self) -> None:
        def hang_up(seed: int) -> None:
            random_ = random.Random(seed)
            for _ in range(300):
                with self.gateway.socket() as client:
                    client.sendall(b"POST /v1/x HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
                    time.sleep(random_.random() / 1000)  # the moment, not a synchronisation

        threads = [threading.Thread(target=hang_up, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        for _ in range(8):  # and no connection that was closed with them is used again
            self.assertEqual(self.turn()[0], 200)
        self.assertEqual([r["failed"] for r in self.gateway.snapshot()["replicas"]], [0, 0])
        self.assertNotIn("Bad file descriptor", self.gateway.log)

    def test_requests_sent_ahead_are_answered_in_turn(self) -> None:
        request = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 3\r\n%s\r\n%s"
        sent = b"".join(request % (b"", b"%03d" % i) for i in range(8))
        received = self.raw(sent + request % (b"Connection: close\r\n", b"end"))
        bodies = [answer[-3:] for answer in received.split(b"HTTP/1.1 200 OK")[1:]]
        self.assertEqual(bodies, [b"%03d" % i for i in range(8)] + [b"end"])

    def test_an_answer_that_breaks_off_breaks_off_for_the_client(self) -> None:
        for script in ("die_in_stream", "die_in_body"):
            connection = self.gateway.connect()
            response = ask(connection, script, session="a")
            self.assertEqual(response.status, 200)
            with self.assertRaises(http.client.IncompleteRead):
                response.read()
        self.assertEqual([len(e.seen) for e in self.engines].count(0), 1)  # and is not retried

    def test_an_error_in_a_stream_fails_the_turn(self) -> None:
        _, replica, _ = self.turn("error_in_stream", session="a")
        row = self.row(self.engine(replica))
        self.assertEqual((row["failed"], row["pins"]), (1, 0))


class StopTest(GatewayTest):
    def wait_until_refused(self) -> None:
        with self.assertRaises(ConnectionRefusedError):
            while True:
                with contextlib.suppress(ConnectionResetError):
                    self.gateway.socket().close()

    def test_open_answers_end_and_idle_connections_close(self) -> None:
        with self.gateway.socket() as idle:
            connection, engine = self.hold("stream")
            self.gateway.terminate()
            self.assertEqual(idle.recv(1), b"")
            self.wait_until_refused()
            engine.go_on.set()
            self.assertIn(b"[DONE]", connection.getresponse().read())
            self.assertEqual(self.gateway.wait(), 0)

    def test_asked_twice_it_waits_for_nobody(self) -> None:
        connection, _ = self.hold("silent")
        self.gateway.terminate()
        self.wait_until_refused()
        self.gateway.terminate()
        self.assertEqual(self.gateway.wait(), 0)
        connection.close()


class GraceTest(GatewayTest):
    options = ("--grace", "1")

    def test_after_its_grace_it_ends(self) -> None:
        connection, _ = self.hold("stream")
        self.gateway.terminate()
        self.assertEqual(self.gateway.wait(), 0)
        connection.close()


class ArgumentsTest(unittest.TestCase):
    def run_with(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(GATEWAY), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def test_nonsense_is_refused(self) -> None:
        good = ("--replica", "http://127.0.0.1:1")
        for arguments in (
            *([], ["--replica"], ["--replica", "127.0.0.1:1"], ["--replica", "https://a:1"]),
            *(["--replica", "http://a"], ["--replica", "http://a:70000"], [*good, "--port", "1"]),
            *([*good, "--threads", "x"], [*good, *good], [*good, "--listen", "8080"]),
            *([*good, "--data-parallel-size", "0"], ["--replica", "http://a:1/v1"]),
        ):
            with self.subTest(arguments=arguments):
                done = self.run_with(*arguments)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn("gateway: ", done.stderr)

    def test_a_port_in_use_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = self.run_with("--replica", "http://127.0.0.1:1", "--listen", address)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot listen on {address}", done.stderr)

    def test_help_teaches(self) -> None:
        done = self.run_with("--help")
        self.assertEqual((done.returncode, "--replica URL" in done.stdout), (0, True))


if __name__ == "__main__":
    main(__doc__)
