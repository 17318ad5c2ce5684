# SPDX-License-Identifier: Apache-2.0
"""uvicorn, as the gateway needs it: signals are ours, engines' headers stay, heads have an end.

httptools collects a request's head without a limit; LimitedProtocol answers 431 to one that is
still unfinished after `header_bytes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from limpet.gateway.settings import SettingsError

_CLIENT_KEEP_ALIVE = 75  # s that a client's idle connection is kept
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s"
)
_TOO_LARGE_BODY = (
    b'{"error": {"message": "the request\'s head is too long", "type": "invalid_request_error", '
    b'"param": null, "code": "headers_too_large"}}'
)


class Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make(app: Any, drain_seconds: float, header_bytes: int) -> Server:
    return Server(
        uvicorn.Config(
            app,
            http=_protocol(header_bytes),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_CLIENT_KEEP_ALIVE,
            timeout_graceful_shutdown=drain_seconds,  # type: ignore[arg-type]
            backlog=2048,
            h11_max_incomplete_event_size=header_bytes,
        )
    )


def _protocol(header_bytes: int) -> Any:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415
    except ImportError:
        return "h11"  # which has such a limit itself

    class LimitedProtocol(HttpToolsProtocol):
        _unfinished = False
        _head_bytes = 0

        def on_message_begin(self) -> None:
            self._unfinished = True
            self._head_bytes = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._unfinished = False
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._unfinished:
                self._head_bytes += len(data)
                if self._head_bytes > header_bytes:
                    self.transport.write(_TOO_LARGE % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY))
                    self.transport.close()

    return LimitedProtocol


def listen(host: str, port: int, option: str) -> socket.socket:
    """A bound socket. SettingsError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)  # or a second process could bind the same port meanwhile
    except OSError as error:
        sock.close()
        raise SettingsError(f"{host}:{port}: {error.strerror}; another address: {option}") from None
    sock.setblocking(False)
    return sock


class _CutAnswers(logging.Filter):
    """An answer that its engine broke off is cut on purpose, and is in the access log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("ASGI callable returned without")


def quiet() -> None:
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_CutAnswers())
