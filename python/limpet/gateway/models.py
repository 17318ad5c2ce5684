# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models: what the engines of all pools serve, as one list."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from yarl import URL

from limpet.gateway.gateway import Gateway
from limpet.gateway.pool import Pool
from limpet.gateway.upstream import Unreachable, Upstream

_TIMEOUT = 2.0  # s


async def list_models(gateway: Gateway) -> bytes:
    lists = await asyncio.gather(
        *(_of_pool(gateway.upstream, pool) for pool in gateway.pools.values())
    )
    by_id = {model["id"]: model for models in lists for model in models}
    return json.dumps({"object": "list", "data": list(by_id.values())}).encode()


async def _of_pool(upstream: Upstream, pool: Pool) -> list[dict[str, Any]]:
    """What the first of its endpoints that answers serves, else the names in the settings."""
    for endpoint in list(pool.endpoints.values()):
        if endpoint.reachable:
            with suppress(Unreachable, NoEngine):
                return await ask_models(upstream, endpoint.url, _TIMEOUT, pool.upstream_key)
    return [{"id": name, "object": "model", "owned_by": "limpet"} for name in pool.settings.models]


class NoEngine(Exception):
    """An endpoint answers, and not as an engine would; the message says how."""

    def __init__(self, status: int, content_type: str) -> None:
        super().__init__(f"answers GET /v1/models with {status} {content_type}")
        self.status = status


async def ask_models(
    upstream: Upstream, url: str, timeout: float, key: str = ""
) -> list[dict[str, Any]]:
    """What an endpoint says it serves. Unreachable or NoEngine where it does not."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    status, content_type, body = await upstream.ask(URL(url + "/v1/models"), timeout, headers)
    try:
        data = json.loads(body)["data"] if status == 200 else None
        if isinstance(data, list) and all(isinstance(model["id"], str) for model in data):
            return data
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise NoEngine(status, content_type)
