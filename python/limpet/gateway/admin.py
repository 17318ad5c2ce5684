# SPDX-License-Identifier: Apache-2.0
"""The admin surface: /limpet/ (the panel), /limpet/api/* and /metrics, on a port of its own.

Data and switches need the admin token as a bearer; the panel's files hold nothing and need none.
README.md has the API's contract.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

import limpet
from limpet.gateway import exporter, state
from limpet.gateway.gateway import Gateway
from limpet.gateway.pool import Pool

_PANEL = Path(__file__).parent / "panel"
_EVERY = 1.0  # s between two states of the feed
_BODY = 4096  # bytes that a switch can need
_STATIC = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
# The page asks no other host for anything; the chart library writes style attributes.
_POLICY = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "referrer-policy": "no-referrer",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
Handler = Callable[[Request], Awaitable[Response]]


def make(gateway: Gateway, token: str) -> Starlette:
    """The ASGI application; `token` must not be empty."""
    wanted = b"Bearer " + token.encode()

    def private(handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, wanted):
                raise HTTPException(401, "the admin token is needed: Authorization: Bearer TOKEN",
                                    {"www-authenticate": "Bearer"})  # fmt: skip
            return await handler(request)

        return checked

    def pool_of(request: Request) -> Pool:
        pool = gateway.pools.get(request.path_params["pool"])
        if pool is None:
            raise HTTPException(404, f"there is no pool {request.path_params['pool']!r}; there "
                                f"are: {', '.join(gateway.pools)}")  # fmt: skip
        return pool

    def now_of(pool: Pool) -> dict[str, Any]:
        return state.state(pool, gateway.loop.time())

    async def changed(pool: Pool) -> Response:
        await pool.tell()
        return JSONResponse(now_of(pool))

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(
            exporter.page(gateway.pools.values()), media_type=exporter.CONTENT_TYPE
        )

    async def pools(_: Request) -> Response:
        return JSONResponse(state.pools(gateway.pools))

    async def show(request: Request) -> Response:
        return JSONResponse(now_of(pool_of(request)))

    async def timeline(request: Request) -> Response:
        seconds = request.query_params.get("seconds", "3600")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 3600:
            raise HTTPException(400, f"seconds = {seconds!r}: a whole number from 1 to 3600")
        return JSONResponse(state.timeline(pool_of(request), int(seconds)))

    async def decision(request: Request) -> Response:
        found = pool_of(request).decision(request.path_params["id"])
        if found is None:
            raise HTTPException(404, "this decision is no longer among the last hundred")
        return JSONResponse(state.explained(found))

    async def explain(request: Request) -> Response:
        pool = pool_of(request)
        body = await _body(request)
        given = {name: body.get(name, "") for name in ("session", "agent", "tenant")}
        if not all(isinstance(value, str) for value in given.values()):
            raise HTTPException(400, "session, agent and tenant must be texts")
        # A key is of tenant, session and agent, whichever client's headers named them.
        named = {"x-claude-code-session-id": given["session"]}
        if given["agent"]:
            named["x-claude-code-agent-id"] = given["agent"]
        key = limpet.identify(named).key(given["tenant"], secret=gateway.secret)
        if key is None:
            raise HTTPException(400, "session: 1 to 256 visible ASCII characters")
        return JSONResponse(state.explanation(pool.router.explain(key)))

    async def events(request: Request) -> Response:
        pool = pool_of(request)

        async def feed() -> AsyncIterator[str]:
            while not gateway.closing:
                yield f"event: state\ndata: {json.dumps(now_of(pool))}\n\n"
                async with pool.changed:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(pool.changed.wait(), _EVERY)

        return StreamingResponse(
            feed(), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def affinity(request: Request) -> Response:
        pool = pool_of(request)
        wanted_affinity = (await _body(request)).get("affinity")
        if wanted_affinity not in ("on", "off"):
            raise HTTPException(400, f"affinity = {wanted_affinity!r}: must be 'on' or 'off'")
        pool.router.set_affinity(limpet.Affinity(wanted_affinity))
        return await changed(pool)

    async def threshold(request: Request) -> Response:
        pool = pool_of(request)
        body = await _body(request)
        value = body.get("threshold")
        right = value is None and "threshold" in body
        if type(value) is int:
            right = 1 <= value <= 0xFFFFFFFF
        if not right:
            raise HTTPException(400, f"threshold = {value!r}: turns in flight, at least 1, or null")
        pool.spill.threshold = value
        return await changed(pool)

    async def switch(request: Request) -> Response:
        pool = pool_of(request)
        name = request.path_params["replica"]
        target = pool.targets.get(name)
        if target is None:
            raise HTTPException(404, f"pool {pool.name!r} has no replica {name!r}")
        if target.leaving:
            raise HTTPException(409, f"{name!r} has left the configuration; its turns are ending")
        action = request.path_params["action"]
        if action == "up":
            pool.want(target, "up")
        elif action == "drain":
            pool.want(target, "draining")
        elif action == "down":
            pool.want(target, "down")
        else:
            raise HTTPException(404, f"{action!r} is none of drain, up and down")
        return await changed(pool)

    async def failed(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse(
            {"error": {"message": error.detail}}, error.status_code, headers=error.headers
        )

    base = "/limpet/api/pools"
    private_routes: list[tuple[str, Handler, str]] = [
        ("/metrics", metrics, "GET"),
        (base, pools, "GET"),
        (base + "/{pool}", show, "GET"),
        (base + "/{pool}/timeline", timeline, "GET"),
        (base + "/{pool}/decisions/{id:int}", decision, "GET"),
        (base + "/{pool}/events", events, "GET"),
        (base + "/{pool}/explain", explain, "POST"),
        (base + "/{pool}/affinity", affinity, "POST"),
        (base + "/{pool}/threshold", threshold, "POST"),
        (base + "/{pool}/replicas/{replica:path}/{action}", switch, "POST"),
    ]
    return Starlette(
        routes=[
            *(Route(path, private(run), methods=[method]) for path, run, method in private_routes),
            Route("/limpet/{file}", _file),
            Route("/limpet/", _file),
            Route("/limpet", _home),
            Route("/", _home),
        ],
        exception_handlers={HTTPException: failed},
    )


async def _body(request: Request) -> dict[str, Any]:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _BODY:
            raise HTTPException(413, f"the body is longer than {_BODY} bytes")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return body


async def _home(_: Request) -> Response:
    return RedirectResponse("/limpet/")


async def _file(request: Request) -> Response:
    """A file of the panel, or the chart library out of its installed package."""
    name = request.path_params.get("file", "index.html")
    if name == "plotly.min.js":
        package = importlib.util.find_spec("plotly")
        if package is None or package.origin is None:
            raise HTTPException(404, "the chart library is missing: pip install plotly")
        path = Path(package.origin).parent / "package_data" / name
    else:
        path = _PANEL / name
    media = _TYPES.get(path.suffix)
    if media is None or path.parent.name not in ("panel", "package_data") or not path.is_file():
        raise HTTPException(404, f"there is no {name!r} here")
    return FileResponse(path, media_type=media, headers={**_STATIC, **_POLICY})
