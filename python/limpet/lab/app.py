# SPDX-License-Identifier: Apache-2.0
"""The simulated server's HTTP side: vLLM's endpoints, and those of the lab.

    POST /v1/chat/completions, /v1/completions, /v1/messages, /v1/responses, /v1/embeddings
    POST /v1/messages/count_tokens, /reset_prefix_cache
    GET  /v1/models, /health, /ping, /version, /metrics
    POST /lab/fault   {"kind": "hang", "rank": 0, "seconds": 5}       GET /lab/stats

A stream's headers leave before anything is computed, and a client that hangs up aborts its request
at once, as with the real one. Faults: see fault_from().
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from limpet.lab import text
from limpet.lab.answer import VARY, Answer, Reset, json_response
from limpet.lab.anthropic import Messages
from limpet.lab.core import FAULTS, Core, Fault
from limpet.lab.openai import Chat, Completions, Embeddings
from limpet.lab.responses import Responses
from limpet.lab.wire import Api, Refusal, Reply

VERSION = "0.32.0"

_RANK_HEADER = "x-data-parallel-rank"


def create_app(core: Core, reset: Reset, faulted: Callable[[Fault, float], None]) -> ASGIApp:
    """faulted(fault, seconds) makes a fault true that somebody has asked for."""
    apis = [
        (path, Endpoint(core, path, api, reset, steered).serve)
        for path, api, steered in (
            (Chat.path, Chat(), True),
            (Completions.path, Completions(), True),
            (Messages.path, Messages(), True),
            (Responses.path, Responses(), False),  # vLLM reads the rank's header elsewhere only
            (Embeddings.path, Embeddings(), True),
        )
    ]

    async def count_tokens(request: Request) -> Response:
        try:
            prompt = Messages().prompt(read_object(await request.body()))
        except Refusal as refusal:
            return json_response(refusal.anthropic(), refusal.status)
        return json_response({"input_tokens": text.count(prompt)})

    async def models(_: Request) -> Response:
        return json_response(model_list(core))

    async def empty(_: Request) -> Response:
        return Response(headers=VARY)

    async def version(_: Request) -> Response:
        return json_response({"version": VERSION})

    async def metrics(_: Request) -> Response:
        kind = "text/plain; version=1.0.0; charset=utf-8"
        return Response(core.metrics(), headers={"content-type": kind, **VARY})

    async def reset_prefix_cache(_: Request) -> Response:
        core.server.reset_prefix_cache()
        return Response(headers=VARY)

    async def stats(_: Request) -> Response:
        return json_response(core.shown())

    async def fault(request: Request) -> Response:
        try:
            wanted, seconds = fault_from(json.loads(await request.body()), core.options.ranks)
        except ValueError as error:
            return json_response({"error": {"message": str(error)}}, 400)
        faulted(wanted, seconds)
        return json_response({"fault": wanted.kind})

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refusal = Refusal(error.status_code, error.detail, error.detail)
        return json_response(refusal.openai(), refusal.status)

    return Starlette(
        routes=[
            *(Route(path, serve, methods=["POST"]) for path, serve in apis),
            Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", empty),
            Route("/ping", empty, methods=["GET", "POST"]),
            Route("/version", version),
            Route("/metrics", metrics),
            Route("/reset_prefix_cache", reset_prefix_cache, methods=["POST"]),
            Route("/lab/stats", stats),
            Route("/lab/fault", fault, methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )


def fault_from(body: Any, ranks: int) -> tuple[Fault, float]:
    """A fault, and for how many seconds (0: until told otherwise).

    die: connections break and the port closes. hang: requests are taken, tokens never come; "rank":
    on that one alone. slow: steps take "factor" times as long. 500: the next "count" requests are
    answered so. cut: the next "count" answers break after "chunks" events of a stream, or in the
    middle of a body. none: all is well again.
    """
    if not isinstance(body, dict) or body.get("kind") not in FAULTS:
        raise ValueError(f"kind must be one of {', '.join(FAULTS)}")
    known = {"kind", "rank", "factor", "count", "chunks", "seconds"}
    if unknown := set(body) - known:
        raise ValueError(f"{unknown.pop()}: there are {', '.join(sorted(known))}")

    def number(name: str, default: float, least: float) -> float:
        value = body.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
            raise ValueError(f"{name} = {value!r}: must be a number, at least {least}")
        return value

    rank = body.get("rank")
    if rank is not None and (not isinstance(rank, int) or not 0 <= rank < ranks):
        raise ValueError(f"rank = {rank!r}: there are {ranks}")
    slow = number("factor", 2.0, 0.001) if body["kind"] == "slow" else 1.0
    count, chunks = int(number("count", 1, 1)), int(number("chunks", 3, 0))
    return Fault(body["kind"], rank, slow, count, chunks), number("seconds", 0, 0)


def model_list(core: Core) -> dict[str, Any]:
    created = int(core.started)
    permission = {
        "id": f"modelperm-{zlib.crc32(core.model.encode()):08x}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": core.model,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": core.model,
        "parent": None,
        "max_model_len": core.max_model_len,
        "permission": [permission],
    }
    return {"object": "list", "data": [model]}


def read_object(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refusal.bad(f"JSON decode error: {error}") from None
    if not isinstance(body, dict):
        raise Refusal.bad("The body must be a JSON object")
    return body


class Endpoint:
    def __init__(self, core: Core, path: str, api: Api, reset: Reset, steered: bool) -> None:
        self.core = core
        self.path = path
        self.api = api
        self.reset = reset
        self.steered = steered
        self.numbers = itertools.count(1)

    async def serve(self, request: Request) -> Response:
        self.core.stats.requests[self.path] += 1
        try:
            body = await request.body()
            return self.answer(request, body)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Refusal as refusal:
            self.core.stats.refused[str(refusal.status)] += 1
            return json_response(self.api.refusal(refusal), refusal.status)

    def answer(self, request: Request, data: bytes) -> Response:
        core = self.core
        if core.takes("500"):
            raise Refusal(500, "InternalServerError", "EngineCore encountered an issue.")
        ask = self.api.ask(read_object(data))
        ask.model = ask.model or core.model
        if ask.model != core.model:
            raise Refusal(
                404,
                "NotFoundError",
                f"The model `{ask.model}` does not exist. Valid aliases: {core.model}.",
                "model",
            )
        rank = self.rank(request.headers.get(_RANK_HEADER))
        outputs = [ask.output_tokens(prompt, core.max_model_len) for prompt in ask.prompts]
        name, created = self.name(request, data)
        changed = asyncio.Event()
        turns = [
            core.submit(name, self.path, prompt, output, rank, changed)
            for prompt, output in zip(ask.prompts, outputs, strict=True)
        ]
        limits = [
            ask.max_tokens or core.max_model_len - text.count(prompt) for prompt in ask.prompts
        ]
        details = core.options.prompt_tokens_details
        reply = Reply(ask, turns, name, created, details, limits, [0] * len(turns))
        return Answer(core, self.api, reply, changed, self.reset)

    def rank(self, header: str | None) -> int | None:
        """What is no number is as good as no header."""
        if header is None or not self.steered:
            return None
        try:
            rank = int(header)
        except ValueError:
            return None
        if not 0 <= rank < self.core.options.ranks:
            raise Refusal.bad(
                f"data_parallel_rank {rank} is out of range [0, {self.core.options.ranks})."
            )
        return rank

    def name(self, request: Request, data: bytes) -> tuple[str, int]:
        """The answer's id, of which the client may choose a part, and its time."""
        chosen = request.headers.get("x-request-id")
        if self.core.options.reproducible:
            return self.api.prefix + (chosen or f"{zlib.crc32(data):016x}"), 1_700_000_000
        server = zlib.crc32(f"{self.core.started}{self.path}".encode())
        name = chosen or f"{server:08x}{next(self.numbers):08x}"
        return self.api.prefix + name, int(time.time())
