# SPDX-License-Identifier: Apache-2.0
"""A gateway's admin API whose state a test writes by hand: for what a real one reaches slowly or
seldom (a hung engine's reading, turns that wait, a silent feed, a name that looks like markup).

It serves the panel's own files, so that the page under test is the one that ships. Whatever can be
had from the real gateway is tested there (test_panel.py).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from importlib import resources, util
from pathlib import Path
from typing import Any

import limpet
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

PANEL = Path(str(resources.files(limpet))) / "gateway" / "panel"
_plotly = util.find_spec("plotly")
PLOTLY = Path((_plotly and _plotly.origin) or "").parent / "package_data" / "plotly.min.js"
TOKEN = "scripted-token"


def replica(name: str, **said: Any) -> dict[str, Any]:
    """One replica's entry; what is not given is 0, and unknown where the engine would say it."""
    counted = [
        "in_flight",
        "live_conversations",
        "pins",
        "sticky",
        "placed",
        "spilled_in",
        "spilled_out",
        "moved",
        "balanced",
        "client_pinned",
        "failed",
    ]
    reported = [
        "rank",
        "running",
        "waiting",
        "kv_usage",
        "prefix_queries",
        "prefix_hits",
        "prefix_hit_rate",
        "prefix_hit_since",
        "prefix_hit_rate_5m",
        "reading_age",
    ]
    return {
        "name": name,
        "endpoint": f"http://{name}:8000",
        "state": "up",
        **dict.fromkeys(counted, 0),
        **dict.fromkeys(reported),
        **said,
    }


def state(**said: Any) -> dict[str, Any]:
    """A pool's state document with two idle replicas."""
    return {
        "pool": "coder",
        "now": 1_800_000_000.0,
        "affinity": "on",
        "spill_threshold": {"value": 8, "auto": True},
        "sticky_share": None,
        "refused": 0,
        "unrouted": 0,
        "replicas": [replica("gpu0"), replica("gpu1")],
        "last_hour": {"cached": 0, "computed": 0},
        "classes": [],
        "decisions": [],
        "waiting": {"turns": 0, "longest": 0.0, "reasons": {}},
        **said,
    }


class ScriptedGateway:
    """Serves `document` until stopped; `silent` stops the feed's events but not the feed."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document = document or state()
        self.timeline: dict[str, Any] = {"now": 1_800_000_000.0, "cached": [], "computed": []}
        self.explanations: dict[int, dict[str, Any]] = {}
        self.token: str | None = TOKEN
        self.refusal: str | None = None  # what every change is answered with
        self.silent = False
        self.posts: list[tuple[str, Any]] = []
        # Listens from here on, so that nobody is refused before the server's loop runs.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/limpet/"
        self._server = uvicorn.Server(
            uvicorn.Config(self._app(), log_level="critical", timeout_graceful_shutdown=0)
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _app(self) -> Starlette:
        pool = "/limpet/api/pools/{pool}"
        return Starlette(
            routes=[
                Route("/limpet/plotly.min.js", lambda _: FileResponse(PLOTLY)),
                Route("/limpet/api/pools", self._pools),
                Route(pool, self._state),
                Route(f"{pool}/events", self._events),
                Route(f"{pool}/timeline", self._timeline),
                Route(f"{pool}/decisions/{{id}}", self._decision),
                Route(f"{pool}/{{change:path}}", self._change, methods=["POST"]),
                Mount("/limpet", StaticFiles(directory=PANEL, html=True)),
            ]
        )

    def _refuses(self, request: Request) -> Response | None:
        if self.token is None or request.headers.get("authorization") == f"Bearer {self.token}":
            return None
        return JSONResponse({"error": {"message": "a token is needed"}}, 401)

    async def _pools(self, request: Request) -> Response:
        pool = {"name": self.document["pool"], "models": [self.document["pool"], "alias"]}
        return self._refuses(request) or JSONResponse({"pools": [pool]})

    async def _state(self, request: Request) -> Response:
        return self._refuses(request) or JSONResponse(self.document)

    async def _timeline(self, request: Request) -> Response:
        seconds = int(request.query_params["seconds"])
        cut = {name: self.timeline[name][-seconds:] for name in ("cached", "computed")}
        return self._refuses(request) or JSONResponse({**self.timeline, **cut})

    async def _decision(self, request: Request) -> Response:
        found = self.explanations.get(int(request.path_params["id"]))
        missing = JSONResponse({"error": {"message": "this decision is no longer kept"}}, 404)
        return self._refuses(request) or (missing if found is None else JSONResponse(found))

    async def _events(self, request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            while True:
                if not self.silent:
                    # As awkward as the format allows: a comment, CRLF, data in two lines.
                    first, _, rest = json.dumps(self.document).partition(", ")
                    yield f": tick\r\n\r\nevent: state\r\ndata: {first},\r\ndata: {rest}\r\n\r\n"
                await asyncio.sleep(0.1)

        return self._refuses(request) or StreamingResponse(
            events(), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def _change(self, request: Request) -> Response:
        if refused := self._refuses(request):
            return refused
        change, body = request.path_params["change"], await request.json()
        self.posts.append((change, body))
        if self.refusal is not None:
            return JSONResponse({"error": {"message": self.refusal}}, 409)
        return JSONResponse(self.document)
