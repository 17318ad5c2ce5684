# SPDX-License-Identifier: Apache-2.0
"""The ASGI application on the inference port: POST /v1/*, GET /v1/models, GET /health.

One request is one Flight. Its task reads the request, asks the pool for a replica, sends the same
bytes there and passes the answer on as it comes; a second task waits for the client to hang up and
then cancels the first, which closes the connection to the engine. Whatever happens, the outermost
`finally` of an attempt returns its lease. Before the first byte to the client a failed attempt is
repeated once on another replica; after it never.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import limpet
from limpet.gateway import request as requests
from limpet.gateway.attempt import COMMENT, Attempt, Cut
from limpet.gateway.errors import Refusal
from limpet.gateway.gateway import Gateway, Tenant
from limpet.gateway.headers import CREDENTIALS, BadHeader, to_engine
from limpet.gateway.models import list_models
from limpet.gateway.pool import Ask, Choice, Pool
from limpet.gateway.record import Record
from limpet.gateway.replicas import Flight
from limpet.gateway.request import ClientGone, Message, Receive, Scope, Send

log = logging.getLogger("limpet.gateway")

_BYTES_A_TOKEN = 4  # of a prompt, roughly; the gate goes by the engines' own figures afterwards
# Before anything is known of the answer: for the client of a stream that waits at the gate.
_OPENING: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-limpet-outcome", b"waiting"),
    ],
}


class App:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        task = asyncio.current_task()
        assert task is not None
        flight = Flight(task)
        record = Record(scope["path"])
        try:
            await self._answer(scope, receive, send, flight, record)
        except Refusal as refusal:
            record.refused(refusal)
            await _send_refusal(send, scope["path"], refusal, flight)
        except ClientGone:
            record.error = "client gone"
        except Cut as cut:
            record.error = str(cut)  # returning without an end makes the server cut the connection
        except asyncio.CancelledError:
            if flight.hung_up:
                record.error = "client gone"
                return
            record.error = "shutting down"
            if flight.started:
                return
            flight.resume()
            closing = Refusal(503, "the gateway is shutting down", "shutting_down", retry_after=1)
            await _send_refusal(send, scope["path"], closing, flight)
        except Exception:
            log.exception("a request failed in the gateway itself")
            record.error = "gateway error"
            if not flight.started:
                failed = Refusal(500, "the gateway failed; its log says why", "gateway_error")
                await _send_refusal(send, scope["path"], failed, flight)
        finally:
            if record.path != "/health":
                self.gateway.log(record)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, flight: Flight, record: Record
    ) -> None:
        path: str = scope["path"]
        method: str = scope["method"]
        if path == "/health" and method in ("GET", "HEAD"):
            await _health(send, self.gateway)
            return
        if not path.startswith("/v1/"):
            raise Refusal(404, f"{path} is not served here; POST /v1/* and GET /v1/models are",
                          "not_found")  # fmt: skip
        settings = self.gateway.settings
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        requests.check_headers(headers, settings.limits)
        found = dict(headers)
        tenant = self.gateway.tenant_of(requests.key_of(found))
        record.tenant = tenant.name
        if method == "GET" and path == "/v1/models":
            body = await list_models(self.gateway)
            await _send_whole(send, 200, [(b"content-type", b"application/json")], body)
            record.status = 200
            return
        if method != "POST":
            raise Refusal(405, f"{method} {path} is not served here; POST /v1/* is", "bad_method")

        limit = settings.limits.concurrent_per_tenant
        if limit and tenant.active >= limit:
            raise Refusal(429, f"more than {limit} requests at a time", "too_many_requests",
                          retry_after=1)  # fmt: skip
        tenant.active += 1
        try:
            body = await self._body(receive, found, flight)
            await self._turn(scope, receive, send, flight, record, tenant, found, body)
        finally:
            tenant.active -= 1

    async def _body(self, receive: Receive, found: dict[bytes, bytes], flight: Flight) -> bytes:
        settings = self.gateway.settings
        timer = self.gateway.loop.call_later(
            settings.timeouts.request_body, flight.abort, "slow body"
        )
        try:
            return await requests.read_body(
                receive, found.get(b"content-length"), settings.limits.body_bytes
            )
        except asyncio.CancelledError:
            if not flight.aborted:
                raise
            flight.resume()
            raise Refusal(408, "the request's body did not arrive in time", "timeout") from None
        finally:
            timer.cancel()

    async def _turn(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        flight: Flight,
        record: Record,
        tenant: Tenant,
        found: dict[bytes, bytes],
        body: bytes,
    ) -> None:
        path: str = scope["path"]
        headers = scope["headers"]
        settings = self.gateway.settings
        model = requests.model_of(body, found.get(b"content-type", b""))
        pool = self.gateway.pool_of(model)
        record.asked(pool.name, model)
        record.traceparent = found.get(b"traceparent")
        limit = settings.limits.waiting
        if limit and len(pool.awaiting) >= limit:
            raise Refusal(429, f"{limit} turns wait already", "too_many_waiting", retry_after=1)
        ask, source = requests.ask_of(
            path, headers, found, body, tenant.name, self.gateway.secret,
            settings.server.session_headers,
        )  # fmt: skip
        record.kind = ask.kind
        record.source = source
        try:
            passed = to_engine(headers, CREDENTIALS if self.gateway.has_keys else frozenset())
        except BadHeader as error:
            raise Refusal(400, str(error), "bad_header") from None
        if pool.upstream_key:
            passed["authorization"] = f"Bearer {pool.upstream_key}"
        sent = requests.without_billing_line(body) if settings.server.strip_billing_line else body
        target = scope.get("raw_path") or path.encode()
        if scope["query_string"]:
            target += b"?" + scope["query_string"]

        watcher = self.gateway.loop.create_task(_watch(receive, flight))
        exclude: tuple[str, ...] = ()
        try:
            while True:
                choice = await self._choose(pool, ask, exclude, body, flight, send)
                attempt = Attempt(self.gateway, pool, choice, flight, record, send, path)
                others = await attempt.run(target, passed, sent, retry=not exclude)
                if not others:
                    return
                exclude = others
                pool.retries += 1
                record.retried = True
        finally:
            watcher.cancel()

    async def _choose(
        self,
        pool: Pool,
        ask: Ask,
        exclude: tuple[str, ...],
        body: bytes,
        flight: Flight,
        send: Send,
    ) -> Choice:
        """The pool's choice, once its gate lets the turn in. While it waits, comments keep the
        client of a stream, if they are configured."""
        if pool.gate is None:
            return pool.choose(ask, exclude)
        comment = self.gateway.settings.server.keepalive_comment
        admitted = asyncio.ensure_future(pool.admit(ask, exclude, len(body) // _BYTES_A_TOKEN))
        try:
            if comment and requests.streams(body):
                while not (await asyncio.wait({admitted}, timeout=comment))[0]:
                    if not flight.opened:
                        flight.opened = True
                        await send(_OPENING)
                    await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            return await admitted
        except limpet.GateRefusedError as error:
            crowded = error.reason is limpet.GateReason.too_many_waiting
            raise Refusal(
                429 if crowded else 503,
                f"the gate refused the turn: {error}",
                "too_many_waiting" if crowded else "gate_refused",
                retry_after=round(error.retry_after),
            ) from None
        finally:
            if not admitted.done():
                admitted.cancel()
                with suppress(asyncio.CancelledError):
                    await admitted


async def _watch(receive: Receive, flight: Flight) -> None:
    """Cancels the flight once its client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not flight.task.done():
        flight.hang_up()


async def _send_refusal(send: Send, path: str, refusal: Refusal, flight: Flight) -> None:
    if flight.opened:
        event = refusal.event(path)
        await send({"type": "http.response.body", "body": event, "more_body": False})
        return
    body = refusal.body(path)
    await _send_whole(send, refusal.status, refusal.headers(body), body)


async def _send_whole(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    if not any(name == b"content-length" for name, _ in headers):
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _health(send: Send, gateway: Gateway) -> None:
    """200 while any pool can take a turn, for the balancer in front."""
    status = 200 if any(pool.open for pool in gateway.pools.values()) else 503
    await _send_whole(send, status, [(b"content-type", b"text/plain")], b"")


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message: Message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
