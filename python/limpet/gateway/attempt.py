# SPDX-License-Identifier: Apache-2.0
"""One replica's chance to answer a turn: its lease, the request to it, the answer's way back.

Chunks go on as they come and are read for their usage afterwards; what waits for a slow client is
bounded by the connection to the engine. Every way out of run() closes the answer and ends the
choice, and with it the lease.
"""

from __future__ import annotations

import asyncio
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp

import limpet
from limpet.gateway.errors import Refusal, event_of
from limpet.gateway.gateway import Gateway
from limpet.gateway.headers import RANK, to_client
from limpet.gateway.pool import Choice, Pool
from limpet.gateway.record import Record
from limpet.gateway.replicas import Flight
from limpet.gateway.request import Send
from limpet.gateway.upstream import Unreachable

if TYPE_CHECKING:
    from multidict import CIMultiDict

_RETRIED = frozenset({502, 503, 504})
COMMENT = b": keep-alive\n\n"


class Cut(Exception):
    """An answer that had begun cannot be ended; the client must see that it is incomplete."""


class Attempt:
    """One replica's chance to answer a turn. It holds the lease from beginning to end."""

    def __init__(
        self,
        gateway: Gateway,
        pool: Pool,
        choice: Choice,
        flight: Flight,
        record: Record,
        send: Send,
        path: str,
    ) -> None:
        self.gateway = gateway
        self.pool = pool
        self.choice = choice
        self.flight = flight
        self.record = record
        self.send = send
        self.path = path

    async def run(
        self, target: bytes, headers: CIMultiDict[str], body: bytes, *, retry: bool
    ) -> tuple[str, ...]:
        """Answers the client: (). Or, only if `retry`: whom to exclude when another is asked."""
        choice, flight = self.choice, self.flight
        endpoint = choice.endpoint
        self.record.chosen(choice)
        if endpoint is None:
            raise Refusal(
                503,
                f"no replica of pool {self.pool.name!r} is up",
                "no_replica",
                retry_after=max(1, round(self.gateway.settings.health.interval)),
            )
        if choice.target is not None and choice.target.rank is not None and choice.lease:
            headers = headers.copy()
            headers[RANK.decode()] = str(choice.target.rank)
        flight.target = choice.target
        flight.began = self.gateway.loop.time()
        flight.last_byte = 0.0
        self.pool.flights.add(flight)
        self.pool.awaiting.add(flight)
        if choice.target is not None:
            choice.target.flights.add(flight)
        answer: aiohttp.ClientResponse | None = None
        try:
            answer = await self.gateway.upstream.post(endpoint.address(target), headers, body)
            endpoint.answered()
            if answer.status in _RETRIED:
                endpoint.doubted()
                others = self.pool.others(endpoint, choice.target) if retry else ()
                if others:
                    choice.fail()
                    return others
            await self._relay(answer, body)
        except Unreachable as error:
            endpoint.failed()
            choice.fail()
            self.record.error = str(error)
            return self._again(retry, Refusal(502, f"a replica failed: {error}", "bad_gateway"))
        except asyncio.CancelledError:
            if flight.hung_up or not flight.aborted:
                raise
            choice.fail()
            why = flight.resume()
            self.record.error = why
            if flight.started:
                raise Cut(why) from None
            return self._again(retry, Refusal(504, f"a replica failed: {why}", "gateway_timeout"))
        finally:
            self.pool.flights.discard(flight)
            self.pool.awaiting.discard(flight)
            if choice.target is not None:
                choice.target.flights.discard(flight)
            if answer is not None:
                answer.close()
            choice.cancel()
        return ()

    def _again(self, retry: bool, refusal: Refusal) -> tuple[str, ...]:
        """Whom to exclude; raises the refusal where nobody else can take the turn."""
        endpoint = self.choice.endpoint
        assert endpoint is not None
        others = self.pool.others(endpoint, self.choice.target) if retry else ()
        if not others:
            raise refusal
        return others

    async def _relay(self, answer: aiohttp.ClientResponse, body: bytes) -> None:
        headers = to_client(answer.raw_headers)
        if self.gateway.settings.server.response_headers:
            choice = self.choice
            if choice.target is not None:
                headers.append((b"x-limpet-replica", choice.target.header))
            headers.append((b"x-limpet-outcome", choice.outcome.encode()))
            headers.append((b"x-limpet-key-source", self.record.source.encode()))
        status = answer.status
        self.record.status = status
        self.pool.answers[status] = self.pool.answers.get(status, 0) + 1
        self.flight.started = True
        if not self.flight.opened:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
        elif status != 200 or answer.content_type != "text/event-stream":
            await self._fail_stream(answer)
            return
        usage = Usage(answer) if status < 400 else None
        prefix: list[int] = []
        try:
            prefix = await self._stream(answer, usage, body)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            endpoint = self.choice.endpoint
            assert endpoint is not None
            endpoint.failed()
            self.choice.fail()
            raise Cut("the replica broke off its answer") from error
        except asyncio.CancelledError:
            if self.flight.hung_up and usage is not None:
                self.choice.cancel(usage.found)  # aborted ones count what is known
            raise
        if usage is None or usage.failed:
            if usage is not None or status >= 500:
                self.choice.fail()
            return  # else the client's own error: run() gives the slot back
        self.record.used(usage.found, self.choice.finish(usage.found, prefix))

    async def _fail_stream(self, answer: aiohttp.ClientResponse) -> None:
        """No stream came, and the client has been given the beginning of one."""
        try:
            event = event_of(self.path, await answer.read())
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            self.choice.fail()
            raise Cut("the replica broke off its answer") from error
        if answer.status >= 500:
            self.choice.fail()
        await self.send({"type": "http.response.body", "body": event, "more_body": False})

    async def _stream(
        self, answer: aiohttp.ClientResponse, usage: Usage | None, body: bytes
    ) -> list[int]:
        """Passes the answer's body on; returns the fingerprints of the prompt."""
        content, flight, loop = answer.content, self.flight, self.gateway.loop
        target, send = self.choice.target, self.send
        prefix: list[int] = []
        comment = self.gateway.settings.server.keepalive_comment
        if comment and answer.content_type == "text/event-stream":
            chunk = await self._wait(content, comment)
        else:
            chunk = await content.readany()
        while chunk:
            now = loop.time()
            first = not flight.last_byte
            done = content.at_eof()
            flight.sending = True
            await send({"type": "http.response.body", "body": chunk, "more_body": not done})
            flight.sending = False
            flight.last_byte = loop.time()
            if target is not None:
                target.moved_at = flight.last_byte
            if first:
                self.pool.awaiting.discard(flight)
                self.pool.first_byte(now - flight.began)
                self.record.ttfb = now - flight.began
                if self.choice.lease is not None:
                    self.choice.lease.first_byte()
                if usage is not None and self.choice.lease is not None:
                    prefix = limpet.prefix_chain(body)
                body = b""
            if usage is not None:
                usage.feed(chunk)
            if done:
                return prefix
            chunk = await content.readany()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return prefix

    async def _wait(self, content: aiohttp.StreamReader, seconds: float) -> bytes:
        """The first bytes; until then a comment every `seconds`, so that nobody hangs up."""
        while True:
            with suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(content.readany(), seconds)
            await self.send({"type": "http.response.body", "body": COMMENT, "more_body": True})


class Usage:
    """Reads the usage off an answer that passes; off a gzip one, from a copy."""

    __slots__ = ("_inflate", "_scanner")

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        encoding = answer.headers.get("Content-Encoding", "").lower()
        self._scanner = limpet.UsageScanner() if encoding in ("", "identity", "gzip") else None
        self._inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None

    def feed(self, chunk: bytes) -> None:
        if self._scanner is None:
            return
        if self._inflate is not None:
            try:
                chunk = self._inflate.decompress(chunk)
            except zlib.error:
                self._scanner = None
                return
        self._scanner.feed(chunk)

    @property
    def failed(self) -> bool:
        """Whether the engine reported an error in a stream that began well."""
        return self._scanner is not None and self._scanner.failed

    @property
    def found(self) -> limpet.Usage | None:
        return None if self._scanner is None else self._scanner.usage
