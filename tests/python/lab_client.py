# SPDX-License-Identifier: Apache-2.0
"""What the lab's tests share: requests, their answers as events and usage, recorded answers."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import limpet
import pytest
from limpet import lab

DEADLINE = 20.0  # s: what takes longer hangs

FORMS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")


def body(path: str, text: str, max_tokens: int = 8, **others: Any) -> dict[str, Any]:
    """A request of that form, whose prompt is mostly `text`."""
    if path == "/v1/completions":
        asked: dict[str, Any] = {"prompt": text, "max_tokens": max_tokens}
    elif path == "/v1/responses":
        asked = {"instructions": text, "input": "hello", "max_output_tokens": max_tokens}
    else:
        asked = {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
    if others.get("stream") and path in ("/v1/chat/completions", "/v1/completions"):
        asked["stream_options"] = {"include_usage": True}
    return asked | others


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[lab.Engine, httpx.AsyncClient]]:
    """An engine 500 times faster than the machine it is, and a client of it."""
    async with (
        lab.Engine(**{"speed": 500.0} | options) as engine,
        httpx.AsyncClient(base_url=engine.url, timeout=DEADLINE) as client,
    ):
        yield engine, client


async def until(true: Callable[[], bool]) -> None:
    """Lets the others go on until it is true."""
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, "it has not become true"
        await asyncio.sleep(0.002)


class Held:
    """The clock of an engine, which stands still unless told to go on. For one of SLOWLY."""

    def __init__(self, engine: lab.Engine) -> None:
        self.core = engine.core
        self.at = 0.0
        self.core.now = lambda: self.at  # type: ignore[method-assign]

    def go(self, to: float | None = None) -> None:
        """To that time, s, or to whatever is due next."""
        self.at = self.core.server.next_at if to is None else to
        self.core.metrics()


SLOWLY = 1e-6  # a speed at which nothing happens by itself


async def in_two_parts(path: str, asked: dict[str, Any], **options: Any) -> httpx.Response:
    """The answer to a stream of which some tokens have arrived before the others are computed."""
    async with serving(speed=SLOWLY, **options) as (engine, client):
        clock = Held(engine)
        async with client.stream("POST", path, json=asked) as answer:
            chunks = answer.aiter_bytes()
            got = [await anext(chunks)] if path == "/v1/responses" else []
            [turn] = engine.core.turns.values()
            while turn.generated < 3:
                clock.go()
            got.append(await anext(chunks))
            clock.go(clock.at + 1e3)
            got += [chunk async for chunk in chunks]
    whole = httpx.Response(200, content=b"".join(got))
    whole.headers = answer.headers
    return whole


def usage(answer: httpx.Response) -> limpet.Usage:
    scanner = limpet.UsageScanner()
    scanner.feed(answer.content)
    assert scanner.usage is not None
    return scanner.usage


def events(answer: str) -> list[dict[str, Any]]:
    """The JSON of a stream's events, [DONE] apart; the names of events agree with what they say."""
    found = []
    for block in filter(None, answer.split("\n\n")):
        *head, data = block.split("\n")
        if data == "data: [DONE]":
            continue
        found.append(json.loads(data.removeprefix("data: ")))
        assert head in ([], [f"event: {found[-1].get('type')}"])
    return found


def said(path: str, answer: httpx.Response) -> str:
    """The text of an answer, whole or streamed."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        whole = answer.json()
        if path == "/v1/messages":
            return str(whole["content"][0]["text"])
        if path == "/v1/responses":
            return str(whole["output"][0]["content"][0]["text"])
        choice = whole["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    parts = []
    for event in events(answer.text):
        if path == "/v1/messages":
            parts.append(event["delta"].get("text", "") if "delta" in event else "")
        elif path == "/v1/responses":
            parts.append(event["delta"] if isinstance(event.get("delta"), str) else "")
        elif event["choices"]:
            choice = event["choices"][0]
            parts.append(choice["text"] if "text" in choice else choice["delta"]["content"])
    return "".join(parts)


def recorded(name: str) -> str:
    """A file of the recordings, or a skipped test."""
    root = Path(__file__).resolve().parents[2]
    path = Path(os.environ.get("LIMPET_SHARED_DATA", root / "../shared/data"), "vllm_0.32", name)
    if not path.is_file():
        pytest.skip(f"no {path}: the recordings are not here")
    return path.read_text(encoding="utf-8")


def recorded_answer(name: str) -> tuple[dict[str, str], str]:
    """Headers and body of a recorded answer."""
    _, _, rest = recorded(f"responses/{name}").partition("--- HTTP ")
    _, _, rest = rest.partition("\n")
    end = rest.index("\n}\n") + 2
    return json.loads(rest[:end]), rest[end:].strip()
