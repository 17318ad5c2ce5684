# SPDX-License-Identifier: Apache-2.0
"""A test case of the example gateway: starts one before scripted engines, sees that it ends well,
and with every slot returned, whatever the test did.

The command line of a test names the gateway: python3 tests/examples/X_test.py PATH_OF_GATEWAY.
"""

from __future__ import annotations

import http.client
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from scripted import PATIENCE, Engine, Gateway, ask

GATEWAY = Path(sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1][0] != "-" else "")


class GatewayTest(unittest.TestCase):
    options: tuple[str, ...] = ()
    engine_count = 2

    def setUp(self) -> None:
        self.engines = [Engine() for _ in range(self.engine_count)]
        self.gateway = Gateway(GATEWAY, *(e.url for e in self.engines), options=self.options)

    def tearDown(self) -> None:
        if self.gateway.process.poll() is None:
            self.gateway.all_slots_free()  # whatever the test did
            self.gateway.terminate()
        for engine in self.engines:
            engine.go_on.set()
        self.assertEqual(self.gateway.wait(), 0, self.gateway.log)
        for engine in self.engines:
            engine.stop()

    def turn(self, *arguments: Any, **named: Any) -> tuple[int, str, str]:
        """Status, replica and outcome."""
        connection = self.gateway.connect()
        response = ask(connection, *arguments, **named)
        response.read()
        connection.close()
        outcome = response.headers.get("x-limpet-outcome", "")
        return response.status, response.headers.get("x-limpet-replica", ""), outcome

    def engine(self, replica: str) -> Engine:
        return next(e for e in self.engines if e.url == replica.partition("#")[0])

    def other(self, engine: Engine) -> Engine:
        return next(e for e in self.engines if e is not engine)

    def row(self, engine: Engine) -> dict[str, Any]:
        rows = self.gateway.snapshot()["replicas"]
        row: dict[str, Any] = next(r for r in rows if r["name"] == engine.url)
        return row

    def raw(self, data: bytes) -> bytes:
        """What comes back until the gateway closes."""
        with self.gateway.socket() as client:
            client.sendall(data)
            received = b""
            while piece := client.recv(65536):
                received += piece
            return received

    def hold(self, script: str) -> tuple[http.client.HTTPConnection, Engine]:
        """A request that an engine holds."""
        connection = self.gateway.connect()
        headers = {"X-Script": script}
        connection.request("POST", "/v1/chat/completions", b"{}", headers)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for engine in self.engines:
                if engine.streaming.acquire(timeout=0.01):
                    return connection, engine
        raise AssertionError("no engine holds a stream")


def main(usage: str | None) -> None:
    if not GATEWAY.is_file():
        sys.exit(usage)
    unittest.main()
