# SPDX-License-Identifier: Apache-2.0
"""The gateway as a process: both surfaces on their ports, signals, reload, an orderly end.

SIGTERM and SIGINT: no new connection, streams end within drain_seconds, then exit; a second one
ends them at once. SIGHUP: the configuration file is read again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from limpet.gateway import admin, http_server
from limpet.gateway.app import App
from limpet.gateway.gateway import Gateway
from limpet.gateway.health import Monitor
from limpet.gateway.models import NoEngine, ask_models
from limpet.gateway.pool import Pool
from limpet.gateway.replicas import Endpoint
from limpet.gateway.settings import Settings, SettingsError
from limpet.gateway.upstream import Unreachable

log = logging.getLogger("limpet.gateway")

_CHECK_TIMEOUT = 5.0  # s


@dataclass(frozen=True)
class Ready:
    """Where the two surfaces are, once they listen."""

    url: str
    admin_url: str


async def serve(
    settings: Settings,
    token: str,
    *,
    load: Callable[[], Settings] | None = None,
    ready: Callable[[Ready], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Runs until SIGTERM, SIGINT or `stop`.

    `load` reads the configuration again, for SIGHUP. SettingsError where an address cannot be had
    or a replica is no engine.
    """
    stop = stop or asyncio.Event()
    front, back = settings.server, settings.admin
    with (
        http_server.listen(front.host, front.port, "--port") as front_socket,
        http_server.listen(back.host, back.port, "--admin-port") as back_socket,
    ):
        sockets = [front_socket, back_socket]
        gateway = Gateway(settings)
        try:
            _refuse_itself(settings, [sock.getsockname()[1] for sock in sockets])
            await check(gateway)
            await _run(gateway, token, sockets, load, ready, stop)
        finally:
            await gateway.close()


async def _run(
    gateway: Gateway,
    token: str,
    sockets: list[socket.socket],
    load: Callable[[], Settings] | None,
    ready: Callable[[Ready], None],
    stop: asyncio.Event,
) -> None:
    settings = gateway.settings
    http_server.quiet()
    limit = settings.limits.header_bytes
    front = http_server.make(App(gateway), settings.server.drain_seconds, limit)
    back = http_server.make(admin.make(gateway, token), 1.0, limit)
    monitor = asyncio.create_task(Monitor(gateway).run())

    def end() -> None:
        if stop.is_set():
            front.force_exit = back.force_exit = True
        stop.set()

    def reload() -> None:
        if load is None:
            log.warning("there is no configuration file to read again")
            return
        try:
            restart = gateway.apply(load())
        except SettingsError as error:
            log.error("the configuration is kept as it was: %s", error)
            return
        log.warning("the configuration was read again")
        for what in restart:
            log.warning("%s takes effect at the next start", what)

    loop = gateway.loop
    signals = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, handler in signals.items():
        loop.add_signal_handler(number, handler)
    servers = [
        asyncio.create_task(front.serve([sockets[0]])),
        asyncio.create_task(back.serve([sockets[1]])),
    ]
    hosts = (settings.server.host, settings.admin.host)
    urls = [
        f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
        for host, sock in zip(hosts, sockets, strict=True)
    ]
    try:
        for server, task in zip((front, back), servers, strict=True):
            listening = asyncio.create_task(server.listening.wait())
            await asyncio.wait([listening, task], return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
        ready(Ready(*urls))
        ending = asyncio.create_task(stop.wait())
        await asyncio.wait([ending, *servers], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        front.should_exit = True
        await asyncio.wait([servers[0]])
        # Those that the deadline cut off give their leases back.
        if front.server_state.tasks:
            await asyncio.wait(list(front.server_state.tasks), timeout=1.0)
    finally:
        gateway.closing = True
        front.should_exit = back.should_exit = True
        for pool in gateway.pools.values():
            await pool.tell()
        await asyncio.wait(servers)
        monitor.cancel()
        for number in signals:
            loop.remove_signal_handler(number)
    for task in servers:
        task.result()


# Before it listens --------------------------------------------------------------------------------


def _refuse_itself(settings: Settings, ports: list[int]) -> None:
    here = {"localhost", "127.0.0.1", "0.0.0.0", "::1", "::", settings.server.host}
    for pool in settings.pools:
        for replica in pool.replicas:
            parts = urlsplit(replica.url)
            if parts.hostname in here and (parts.port or 80) in ports:
                raise SettingsError(f"{replica.url} is the gateway itself")


async def check(gateway: Gateway) -> None:
    """Asks every endpoint for its models. SettingsError for one that is no engine.

    One that does not answer is down until it does: engines take minutes to load a model.
    """
    await asyncio.gather(
        *(
            _check(gateway, pool, endpoint)
            for pool in gateway.pools.values()
            for endpoint in pool.endpoints.values()
        )
    )


async def _check(gateway: Gateway, pool: Pool, endpoint: Endpoint) -> None:
    try:
        models = await ask_models(gateway.upstream, endpoint.url, _CHECK_TIMEOUT, pool.upstream_key)
    except NoEngine as error:
        if error.status in (401, 403):
            hint = "the engine wants a key: name its variable in api_key_env"
            raise SettingsError(f"{endpoint.url} {error}; {hint}") from None
        if error.status >= 500:
            log.warning("%s %s; it is down until /health answers", endpoint.url, error)
            _down(pool, endpoint)
            return
        raise SettingsError(
            f"{endpoint.url} {error}: this is no OpenAI-compatible engine such as vLLM"
        ) from None
    except Unreachable as error:
        if error.no_http:
            raise SettingsError(f"{endpoint.url} is no engine: {error}") from None
        log.warning("%s does not answer (%s); it is down until it does", endpoint.url, error)
        _down(pool, endpoint)
        return
    served = {model["id"] for model in models}
    for name in (*pool.settings.models, *pool.settings.aliases):
        if name not in served:
            log.warning("%s does not serve %r, only: %s", endpoint.url, name, ", ".join(served))


def _down(pool: Pool, endpoint: Endpoint) -> None:
    endpoint.reachable = False
    for target in endpoint.targets:
        pool.refresh(target)
