# SPDX-License-Identifier: Apache-2.0
"""The example server between a client and two small fake engines, all on the loopback.

    python3 tests/examples/server_test.py PATH_OF_SERVER

Whether a slot was given back shows in what the router does next: a turn without a session goes to
the replica with the fewest turns in flight, and turns in a row go round the equals.
"""

from __future__ import annotations

import http.client
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any

PATIENCE = 20  # seconds that anything may take on a busy machine

SERVER = (
    Path(sys.argv.pop(1)).resolve()
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-")
    else None
)


class Engine(http.server.ThreadingHTTPServer):
    """Answers chat completions with their own body, or with a stream that the test holds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EngineHandler)
        self.endpoint = f"127.0.0.1:{self.server_address[1]}"
        self.scraped = threading.Event()
        self.streaming = threading.Event()  # a stream has begun
        self.go_on = threading.Event()  # a held stream may end
        self.hung_up = threading.Event()  # the other side closed a held stream
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.go_on.set()
        self.shutdown()
        self.server_close()


class EngineHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(b"vllm:num_requests_running 0\n")
            self.server.scraped.set()
        else:
            self._send(self.path.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mode = json.loads(body).get("mode", "echo")
        if mode == "echo":
            self._send(body)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b"data: first\n\n")
        self.server.streaming.set()
        if mode == "die":
            self.connection.close()
            self.close_connection = True
            return
        self._wait()
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _wait(self) -> None:
        """Until the stream may go on, or the other side has closed it."""
        self.connection.settimeout(0.02)
        while not self.server.go_on.is_set():
            try:
                if self.connection.recv(1) == b"":
                    self.server.hung_up.set()
                    break
            except TimeoutError:
                continue
            except OSError:
                self.server.hung_up.set()
                break

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Engine", self.server.endpoint)
        self.end_headers()
        self.wfile.write(body)

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Server:
    """The example server as a process."""

    def __init__(self, *replicas: str) -> None:
        assert SERVER is not None
        self.process = subprocess.Popen(
            [str(SERVER), "0", *replicas], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def stop(self) -> int:
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


def ask(
    connection: http.client.HTTPConnection, session: str | None = None, **body: Any
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json"}
    if session is not None:
        headers["X-Session-Id"] = session
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    return connection.getresponse()


class ServerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.engines = [Engine(), Engine()]
        self.server = Server(*(engine.endpoint for engine in self.engines))

    def tearDown(self) -> None:
        for engine in self.engines:
            engine.stop()
        if self.server.process.poll() is None:
            self.assertEqual(self.server.stop(), 0)

    def turn(self, session: str | None = None) -> tuple[str, str]:
        """A turn of a conversation: where it was served, and its outcome."""
        connection = self.server.connect()
        response = ask(connection, session, prompt="x" * 10)
        self.assertEqual(response.status, 200)
        self.assertEqual(json.loads(response.read()), {"prompt": "x" * 10})
        connection.close()
        replica = response.headers["X-Limpet-Replica"]
        self.assertEqual(response.headers["X-Engine"], replica)
        return replica, response.headers["X-Limpet-Outcome"]

    def assert_all_slots_are_free(self) -> None:
        replicas = {self.turn()[0] for _ in range(4)}
        self.assertEqual(replicas, {engine.endpoint for engine in self.engines})

    def hold_a_stream(self) -> tuple[Engine, http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self.server.connect()
        response = ask(connection, mode="hold")
        replica = response.headers["X-Limpet-Replica"]
        engine = next(e for e in self.engines if e.endpoint == replica)
        self.assertTrue(engine.streaming.wait(PATIENCE))
        return engine, connection, response

    def test_turns_of_a_conversation_go_home(self) -> None:
        home, outcome = self.turn("a")
        self.assertEqual(outcome, "placed")
        for _ in range(3):
            self.assertEqual(self.turn("a"), (home, "sticky"))

    def test_conversations_spread(self) -> None:
        homes = {self.turn(f"session-{i}")[0] for i in range(2)}
        self.assertEqual(len(homes), 2)

    def test_without_a_session_turns_are_balanced(self) -> None:
        self.assertEqual({self.turn()[1] for _ in range(4)}, {"balanced"})
        self.assert_all_slots_are_free()

    def test_other_requests_pass_and_a_connection_serves_many(self) -> None:
        connection = self.server.connect()
        for path in ("/v1/models", "/version"):
            connection.request("GET", path)
            response = connection.getresponse()
            self.assertEqual(response.read(), path.encode())
        connection.close()

    def test_a_stream_is_passed_on_as_it_comes(self) -> None:
        engine, connection, response = self.hold_a_stream()
        self.assertEqual(response.readline(), b"data: first\n")  # and the engine has sent no more
        others = {self.turn()[0] for _ in range(3)}
        self.assertNotIn(engine.endpoint, others)  # its slot is taken
        engine.go_on.set()
        self.assertEqual(response.read(), b"\ndata: [DONE]\n\n")
        connection.close()
        self.assert_all_slots_are_free()

    def test_a_client_that_hangs_up_ends_its_request(self) -> None:
        engine, connection, response = self.hold_a_stream()
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        response.close()
        connection.close()
        self.assertTrue(engine.hung_up.wait(PATIENCE))
        self.assert_all_slots_are_free()

    def test_a_stream_that_breaks_off_breaks_off_for_the_client(self) -> None:
        connection = self.server.connect()
        response = ask(connection, mode="die")
        with self.assertRaises(http.client.IncompleteRead):
            response.read()
        connection.close()
        self.assert_all_slots_are_free()

    def test_a_replica_that_is_gone_is_a_bad_gateway(self) -> None:
        replica, _ = self.turn("a")
        gone = next(engine for engine in self.engines if engine.endpoint == replica)
        gone.stop()
        connection = self.server.connect()
        for _ in range(2):  # the connection lives on
            response = ask(connection, "a")
            self.assertEqual((response.status, response.read()[:11]), (502, b"the replica"))
            connection.close()

    def test_metrics_are_read(self) -> None:
        for engine in self.engines:
            self.assertTrue(engine.scraped.wait(PATIENCE))

    def test_it_stops_in_the_middle_of_a_stream(self) -> None:
        _, connection, _ = self.hold_a_stream()
        self.assertEqual(self.server.stop(), 0)
        connection.close()


class ArgumentsTest(unittest.TestCase):
    def test_nonsense_is_refused(self) -> None:
        assert SERVER is not None
        for arguments in ([], ["0"], ["x", "127.0.0.1:1"], ["0", "127.0.0.1"], ["70000", "a:1"]):
            with self.subTest(arguments=arguments):
                done = subprocess.run(
                    [str(SERVER), *arguments],
                    check=False,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                )
                self.assertEqual(done.returncode, 2)
                self.assertTrue(done.stderr)


if __name__ == "__main__":
    if SERVER is None:
        sys.exit(__doc__)
    unittest.main()
