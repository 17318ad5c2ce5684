# SPDX-License-Identifier: Apache-2.0
"""What the two surfaces share: pools, tenants, the way to the engines, and a reload of all that.

A reload keeps what it can: a pool keeps its pins and counts, a replica that left serves its turns
to their end, a request that is on its way is not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os

from limpet.gateway import record as records
from limpet.gateway import tracing
from limpet.gateway.errors import Refusal
from limpet.gateway.pool import Pool
from limpet.gateway.request import digest_of
from limpet.gateway.settings import PoolSettings, Settings
from limpet.gateway.upstream import Upstream

log = logging.getLogger("limpet.gateway")


class Tenant:
    """Whoever a key belongs to; without keys there is one, for all."""

    __slots__ = ("active", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = 0


class Gateway:
    """Needs a running event loop; close() it."""

    def __init__(self, settings: Settings) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        # Clients must not be able to craft keys that collide; pins live in this process only.
        self.secret = os.urandom(16)
        self.pools: dict[str, Pool] = {}
        self.closing = False
        self._tenants: dict[str, Tenant] = {"": Tenant("")}
        self._keys: dict[str, Tenant] = {}
        self._models: dict[str, Pool] = {}
        self._open_pool: Pool | None = None
        self.apply(settings)
        self.upstream = Upstream(settings.timeouts.connect)

    # Configuration --------------------------------------------------------------------------------

    def apply(self, settings: Settings) -> list[str]:
        """Takes new settings; returns what of them needs a restart."""
        restart = [
            name
            for name in ("host", "port")
            if getattr(settings.server, name) != getattr(self.settings.server, name)
        ]
        if settings.admin != self.settings.admin:
            restart.append("admin")
        if settings.timeouts.connect != self.settings.timeouts.connect:
            restart.append("connect")
        self.settings = settings
        for name in list(self.pools):
            if name not in {pool.name for pool in settings.pools}:
                del self.pools[name]  # requests on their way hold it until they end
        for wanted in settings.pools:
            pool = self.pools.get(wanted.name)
            if pool is None:
                self.pools[wanted.name] = Pool(wanted, self.secret)
            else:
                restart += _update(pool, wanted)
        self.sweep()
        self._keys = {
            key.sha256: self._tenants.setdefault(key.tenant, Tenant(key.tenant))
            for key in settings.keys
        }
        self._models = {}
        self._open_pool = None
        for pool in self.pools.values():
            for model in (*pool.settings.models, *pool.settings.aliases):
                self._models[model] = pool
            if not pool.settings.models:
                self._open_pool = pool
        return restart

    def sweep(self) -> None:
        """Forgets replicas that left and whose last turn has ended."""
        for pool in self.pools.values():
            for target in list(pool.targets.values()):
                if target.leaving and not target.flights:
                    pool.forget(target)
            for replica in list(pool.pending):
                if not any(name in pool.targets for name in replica.names()):
                    pool.pending.remove(replica)
                    pool.add(replica)

    # Requests -------------------------------------------------------------------------------------

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def tenant_of(self, key: bytes) -> Tenant:
        """Refusal for a key that is nobody's."""
        if not self._keys:
            return self._tenants[""]
        if not key:
            raise Refusal(401, "an API key is needed: Authorization: Bearer KEY", "no_api_key")
        tenant = self._keys.get(digest_of(key))
        if tenant is None:
            raise Refusal(401, "this API key is not known here", "invalid_api_key")
        return tenant

    def pool_of(self, model: str | None) -> Pool:
        """Refusal for a model that no pool serves."""
        if model is None:
            if len(self.pools) == 1:
                return next(iter(self.pools.values()))
            if self._open_pool is not None:
                return self._open_pool
            raise Refusal(400, "the request names no model", "missing_model", param="model")
        pool = self._models.get(model, self._open_pool)
        if pool is None:
            raise Refusal(404, f"the model {model[:200]!r} does not exist here; GET /v1/models "
                          "lists those that do", "model_not_found", param="model")  # fmt: skip
        return pool

    def log(self, record: records.Record) -> None:
        records.write(record, self.settings.server.access_log)
        if self.settings.server.tracing:
            tracing.span(record)

    async def close(self) -> None:
        self.closing = True
        await self.upstream.close()


def _update(pool: Pool, wanted: PoolSettings) -> list[str]:
    """Brings a pool's replicas, models and threshold to what is wanted now."""
    restart = [
        f"pool {pool.name}: {name}"
        for name in ("kind", "pins", "block_tokens", "gate")
        if getattr(wanted, name) != getattr(pool.settings, name)
    ]
    if wanted.threshold != pool.settings.threshold:
        pool.spill.threshold = wanted.threshold
    pool.pending.clear()
    present = {target.settings for target in pool.targets.values() if not target.leaving}
    for target in list(pool.targets.values()):
        if target.settings not in wanted.replicas and not target.leaving:
            pool.leave(target)
    pool.pending = [replica for replica in wanted.replicas if replica not in present]
    pool.settings = wanted
    pool.upstream_key = os.environ.get(wanted.api_key_env, "")
    return restart
