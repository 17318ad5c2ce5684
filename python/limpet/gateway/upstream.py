# SPDX-License-Identifier: Apache-2.0
"""The way to the engines: one pool of connections, bodies and headers as they are.

Idle connections are given up after 3 s, before vLLM gives them up at 5 s. A request on a pooled
connection that turns out to be stale goes once more on a fresh one; any other failure before the
first byte raises Unreachable, and it is the caller who may try another replica.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from contextvars import ContextVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

_KEEP_ALIVE = 3.0  # s; vLLM's is 5
_BUFFER = 65536  # bytes of an answer that wait for a slow client, twice that at most
_OWN_ANSWER = 16 << 20  # bytes that a metrics page can have
_LARGE = 1 << 20  # bytes of a request
_HEADER_BYTES = 65536  # of one line of an answer's head

_reused: ContextVar[bool] = ContextVar("limpet_reused", default=False)


class Unreachable(Exception):
    """Nothing came back from an engine; the message says what happened, without an address."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(_reason(error))
        self.slow = isinstance(error, asyncio.TimeoutError)
        self.no_http = isinstance(error, aiohttp.ClientResponseError)


class _Connector(aiohttp.TCPConnector):
    """Tells whether the connection that a request got had served another before."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        protocol: ResponseHandler | None = connection.protocol
        _reused.set(getattr(protocol, "limpet_served", False))
        if protocol is not None:
            protocol.limpet_served = True  # type: ignore[attr-defined]
        return connection


class Upstream:
    """Needs a running event loop; close() it."""

    def __init__(self, connect_timeout: float) -> None:
        self._pooled = self._session(connect_timeout, force_close=False)
        self._fresh = self._session(connect_timeout, force_close=True)

    @staticmethod
    def _session(connect_timeout: float, *, force_close: bool) -> aiohttp.ClientSession:
        connector = (
            _Connector(limit=0, force_close=True)
            if force_close
            else _Connector(limit=0, keepalive_timeout=_KEEP_ALIVE)
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            read_bufsize=_BUFFER,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            trust_env=False,
        )

    async def post(
        self, address: URL, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        """The answer's head; its body is still to be read, and the answer to be closed."""
        try:
            return await self._send(self._pooled, address, headers, body)
        except aiohttp.ClientError as error:
            if not _reused.get() or isinstance(error, aiohttp.ClientConnectorError):
                raise Unreachable(error) from error
        except (asyncio.TimeoutError, OSError) as error:
            raise Unreachable(error) from error
        try:  # the pooled connection was stale
            return await self._send(self._fresh, address, headers, body)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise Unreachable(error) from error

    @staticmethod
    async def _send(
        session: aiohttp.ClientSession, address: URL, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        _reused.set(False)
        # The client library sends what it reads from a file in pieces, bytes at one go.
        data = io.BytesIO(body) if len(body) > _LARGE else body
        return await session.post(address, headers=headers, data=data, allow_redirects=False)

    async def ask(
        self, address: URL, timeout: float, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of a GET that the gateway makes itself. Unreachable."""
        try:
            async with self._pooled.get(
                address,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,
            ) as answer:
                return answer.status, answer.content_type, await _bounded(answer)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise Unreachable(error) from error

    async def try_turn(
        self, address: URL, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> int:
        """The status of a small turn of the gateway's own, read to its end. Unreachable."""
        try:
            async with self._fresh.post(
                address,
                headers={"Content-Type": "application/json", **headers},
                data=body,
                timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,
            ) as answer:
                await _bounded(answer)
                return answer.status
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise Unreachable(error) from error

    async def close(self) -> None:
        await self._pooled.close()
        await self._fresh.close()


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """The body of an answer to the gateway itself; what is too long is cut."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _OWN_ANSWER:
            break
    return bytes(body)


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect ({error.os_error.strerror or type(error.os_error).__name__})"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    if isinstance(error, asyncio.TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        return "its answer is no HTTP"
    return f"the connection broke ({type(error).__name__})"
