# SPDX-License-Identifier: Apache-2.0
"""An answer on its way: it waits for the engine and sends what has come, as a stream or as a whole.

Whoever hangs up aborts the request at once, before or after the first byte. The faults that break
an answer in the middle happen here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from limpet.lab import wire
from limpet.lab.core import Core, Turn
from limpet.lab.wire import Api, Reply

Reset = Callable[[Scope], None]  # breaks the connection of a request

VARY = {"vary": "Origin"}


def json_response(value: object, status: int = 200) -> Response:
    body = wire.dumps(value).encode("utf-8", "backslashreplace")
    response = Response(body, status, media_type="application/json")
    response.headers.update(VARY)
    return response


class Answer(Response):
    """Waits for the turns of a reply and sends what they say, until all have ended, the client has
    hung up or the server stops."""

    def __init__(
        self, core: Core, api: Api, reply: Reply, changed: asyncio.Event, reset: Reset
    ) -> None:
        super().__init__()
        self.core = core
        self.api = api
        self.reset = reset
        self.reply = reply
        self.changed = changed
        self.gone_at: float | None = None
        self.cut_after = self.core.fault.chunks if self.core.takes("cut") else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            if self.reply.ask.stream:
                await self._stream(scope, send)
            else:
                await self._whole(scope, send)
        finally:
            watch.cancel()
            for turn in self.reply.turns:
                if not turn.finished:
                    self.core.abort(turn, self.gone_at or time.monotonic())

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone_at = time.monotonic()
        for turn in self.reply.turns:
            self.core.abort(turn, self.gone_at)  # at once, whatever the sender is waiting for
        self.changed.set()

    async def _next(self) -> list[Turn] | None:
        """The turns, when something has changed; None: nobody listens any more."""
        await self.changed.wait()
        self.changed.clear()
        return None if self.gone_at or self.core.stopping else self.reply.turns

    async def _whole(self, scope: Scope, send: Send) -> None:
        while turns := await self._next():
            if not all(turn.finished for turn in turns):
                continue
            whole = json_response(self.api.whole(self.reply))
            if self.cut_after is None:
                return await whole(scope, _no_receive, send)
            await send({"type": "http.response.start", "status": 200, "headers": whole.raw_headers})
            half = bytes(whole.body)[: len(whole.body) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
            return self.reset(scope)
        if self.core.stopping and not self.gone_at:
            self.reset(scope)
        return None

    async def _stream(self, scope: Scope, send: Send) -> None:
        head = {"content-type": "text/event-stream; charset=utf-8", **VARY}
        headers = Response(headers=head).raw_headers
        headers = [each for each in headers if each[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        out = Sender(send, self.cut_after)
        await out.send(self.api.opened(self.reply))
        while turns := await self._next():
            await out.send(self._news(turns))
            over = all(turn.finished for turn in turns)
            if over:
                await out.send(self.api.ended(self.reply))
            if out.cut:
                return self.reset(scope)
            if over:
                return await out.close()
        if self.core.stopping and not self.gone_at:
            self.reset(scope)
        return None

    def _news(self, turns: list[Turn]) -> list[bytes]:
        events = []
        for index, turn in enumerate(turns):
            since = self.reply.sent[index]
            if turn.generated == since:
                continue
            if since == 0:
                events += self.api.began(self.reply, index)
            said = self.reply.said(index, since)
            events.append(self.api.more(self.reply, index, said, turn.finished))
            self.reply.sent[index] = turn.generated
        return events


class Sender:
    """Sends events, and no more once the fault `cut` is due."""

    def __init__(self, send: Send, cut_after: int | None) -> None:
        self._send = send
        self._left = cut_after
        self.cut = False

    async def send(self, events: list[bytes]) -> None:
        if self._left is not None:
            events = events[: self._left]
            self._left -= len(events)
            self.cut = self._left == 0
        if events:
            body = b"".join(events)
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def close(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _no_receive() -> Any:
    raise AssertionError("a whole answer reads nothing")
