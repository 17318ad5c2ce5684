# SPDX-License-Identifier: Apache-2.0
"""A simulated server on a port: in the running event loop (Engine), or in a process of its own
(EngineProcess), which can also be stopped or killed as a real one can.

    async with Engine(profile="a4000-qwen3-4b", ranks=2, speed=10) as engine:
        await post(engine.url + "/v1/chat/completions", ...)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, final

import uvicorn
from starlette.types import Scope

from limpet.lab.app import create_app, fault_from
from limpet.lab.core import Core, Fault, Options

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER, on, 0 s
_KEEP_ALIVE = 5  # s, as vLLM's


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the process that embeds it has its own handlers


@final
class Engine:
    """A vLLM-like server in the running loop. Keyword arguments: those of Options; `host` and
    `port` (0: a free one). An async context manager; ValueError for options that make no sense,
    OSError for a port that is taken.

    The fault `die` closes the port and breaks every connection, and then `dead` is set; restart(),
    or the fault's `seconds`, opens the same port again with an empty cache, as a new process would.
    `gone` is set when nothing of that kind is to come.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> None:
        self.options = Options(**options)
        self.host = host
        self.port = port
        self.dead = asyncio.Event()
        self.gone = asyncio.Event()
        self._core: Core | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def core(self) -> Core:
        """What is behind the port; another one after restart()."""
        if self._core is None:
            raise RuntimeError("the engine has not been started")
        return self._core

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stop()

    async def start(self) -> None:
        core = Core(self.options)
        listening = socket.create_server((self.host, self.port), family=_family(self.host))
        self.port = listening.getsockname()[1]
        self._core = core
        self.dead.clear()
        self.gone.clear()
        config = uvicorn.Config(
            create_app(core, self._reset, self._on_fault),
            lifespan="off",
            log_config=None,  # logging is set up by the process that embeds it
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the server ended before it had begun")
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Breaks what is under way and closes the port. Twice is once."""
        if self._server is None or self._serving is None:
            return
        server, serving = self._server, self._serving
        self._server = self._serving = None
        self.core.stop()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            _break(getattr(connection, "transport", None))
        server.should_exit = True
        await serving
        self.dead.set()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def fault(self, kind: str, *, seconds: float = 0, **how: Any) -> None:
        """As POST /lab/fault, which app.fault_from() documents; `die` is done when dead is set."""
        self._on_fault(*fault_from({"kind": kind, "seconds": seconds, **how}, self.options.ranks))

    def stats(self) -> dict[str, Any]:
        """As GET /lab/stats."""
        return self.core.shown()

    def _on_fault(self, fault: Fault, seconds: float) -> None:
        if fault.kind != "die":
            return self.core.set_fault(fault, seconds)
        task = asyncio.create_task(self._die(seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _die(self, seconds: float) -> None:
        await self.stop()
        if seconds <= 0:
            return self.gone.set()
        await asyncio.sleep(seconds)
        return await self.start()

    def _reset(self, scope: Scope) -> None:
        if self._server is None:
            return
        for connection in list(self._server.server_state.connections):
            if getattr(connection, "client", None) == scope["client"]:
                _break(getattr(connection, "transport", None))


@final
class EngineProcess:
    """`limpet engine` in a process of its own, with those command-line options. An async context
    manager: the URL is known once it is entered, and leaving it kills the process."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    @property
    def process(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the engine has not been started")
        return self._process

    async def __aenter__(self) -> EngineProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "limpet.cli", "engine", "--port", "0", "--json", *self._arguments),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"limpet engine ended with {await self._process.wait()}")
        self.url = json.loads(line)["url"]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def freeze(self, frozen: bool = True) -> None:
        """A stopped process: its port takes connections, and nothing is ever answered."""
        self.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _break(transport: Any) -> None:
    """The other side sees a reset, as when a process dies."""
    if transport is None or transport.is_closing():
        return
    broken = transport.get_extra_info("socket")
    if broken is not None:
        with contextlib.suppress(OSError):
            broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
