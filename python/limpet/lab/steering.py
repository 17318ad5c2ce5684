# SPDX-License-Identifier: Apache-2.0
"""Who picks the replica for a turn of the load ladder.

`off` is what a user has without Limpet, `RouterSteering` a `limpet.Router` in this process that
reads the engines' gauges as a gateway would, `GatewaySteering` a running gateway. A steering lives
for one run. For one event loop, like everything in limpet.lab.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import limpet


class LadderError(Exception):
    """An endpoint that cannot be used, or an answer that is none; the message says which."""


@dataclass(frozen=True)
class Target:
    """The engines: endpoints of one model, each with one or more data-parallel ranks."""

    endpoints: tuple[str, ...]
    ranks: int = 1
    max_num_seqs: int = 32
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)

    def replicas(self) -> list[tuple[str, str, int | None]]:
        """(name, endpoint, rank) of every replica; rank None where the endpoint has but one."""
        if self.ranks == 1:
            return [(url, url, None) for url in self.endpoints]
        return [
            (f"{url}#{rank}", url, rank) for url in self.endpoints for rank in range(self.ranks)
        ]

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass
class Route:
    """Where one turn goes. Who sends it calls `answered` with the reply's headers and sets `usage`
    when the engine has said it."""

    endpoint: str
    headers: Mapping[str, str]
    replica: str | None
    outcome: str
    usage: limpet.Usage | None = None

    def answered(self, headers: Mapping[str, str]) -> None:
        """The reply has begun; a gateway names its choice there."""
        self.replica = headers.get("x-limpet-replica", self.replica)
        self.outcome = headers.get("x-limpet-outcome", self.outcome)


def _route_to(replica: limpet.Replica, outcome: limpet.Outcome) -> Route:
    rank = replica.rank
    headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
    return Route(replica.endpoint, headers, replica.name, outcome.value)


class Steering:
    """Nobody: the engine's own balancer or, over several endpoints, the shortest queue (fewest of
    our turns in flight), as the usual balancers do."""

    name = "off"

    def __init__(self, target: Target) -> None:
        self._in_flight = dict.fromkeys(target.endpoints, 0)

    async def start(self) -> None:
        """The run begins."""

    def observe(self, endpoint: str, page: bytes) -> None:
        """A metrics page that was scraped from `endpoint`."""

    @asynccontextmanager
    async def turn(self, session: str, prompt_tokens: int) -> AsyncIterator[Route]:
        """The route of one turn, held for as long as the turn is in flight."""
        del session, prompt_tokens
        endpoint = min(self._in_flight, key=self._in_flight.__getitem__)
        self._in_flight[endpoint] += 1
        try:
            yield Route(endpoint, {}, None, "unrouted")
        finally:
            self._in_flight[endpoint] -= 1


class RouterSteering(Steering):
    """A router in this process; `build` makes it, without replicas."""

    def __init__(self, target: Target, name: str, build: Callable[[], limpet.Router]) -> None:
        super().__init__(target)
        self.name = name
        self.router = build()
        for replica, endpoint, rank in target.replicas():
            self.router.add_replica(
                replica,
                endpoint=endpoint,
                rank=rank,
                engine=None if rank is None else str(rank),
                max_num_seqs=target.max_num_seqs,
            )

    def observe(self, endpoint: str, page: bytes) -> None:
        self.router.observe(endpoint, page)

    @asynccontextmanager
    async def turn(self, session: str, prompt_tokens: int) -> AsyncIterator[Route]:
        with self.router.route(session, prompt_tokens=prompt_tokens) as lease:
            if lease.replica is None:
                raise LadderError("the router found no replica that is up")
            route = _route_to(lease.replica, lease.outcome)
            yield route
            lease.finish(route.usage)


class GateSteering(RouterSteering):
    """The default rule behind the admission gate: a turn may wait before it is sent, which its
    time to first byte includes."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "gate", limpet.Router)
        self.gate = limpet.WorkingSetGate(self.router)

    @asynccontextmanager
    async def turn(self, session: str, prompt_tokens: int) -> AsyncIterator[Route]:
        try:
            async with self.gate.enter(session, prompt_tokens=prompt_tokens) as ticket:
                route = _route_to(ticket.replica, ticket.outcome)
                yield route
                ticket.finish(route.usage)
        except limpet.GateRefusedError as error:
            raise LadderError(f"the gate refused a turn: {error}") from error


class GatewaySteering(Steering):
    """A gateway at `url`, which is told the conversation in a header; its affinity is switched
    through `admin`, its admin address, to what `name` says: "on" or "off"."""

    def __init__(self, target: Target, name: str, url: str, admin: str, token: str) -> None:
        super().__init__(target)
        self.name = name
        self._url = url
        self._admin = admin
        self._token = token

    async def start(self) -> None:
        import aiohttp  # noqa: PLC0415 (the command line names the modes without it)

        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._token}"}) as http,
            http.post(
                f"{self._admin}/limpet/api/pools/default/affinity", json={"affinity": self.name}
            ) as answer,
        ):
            if answer.status != 200:
                raise LadderError(f"the gateway: {answer.status} {await answer.text()}")

    @asynccontextmanager
    async def turn(self, session: str, prompt_tokens: int) -> AsyncIterator[Route]:
        del prompt_tokens
        yield Route(self._url, {"x-limpet-conversation-id": session}, None, "unrouted")


# What can be compared, besides "off". `published` is the rule that the published figures are of.
ROUTERS: dict[str, Callable[[], limpet.Router]] = {
    "on": limpet.Router,
    "published": lambda: limpet.Router(
        scorer=limpet.WeightedLoad(
            in_flight_weight=1.0, kv_usage_weight=8.0, live_weight=1.0, scale_gauge=False
        )
    ),
}

MODES = ("off", *ROUTERS, "gate")


def steering(mode: str, target: Target) -> Steering:
    """A fresh steering for one run, in one of MODES. Throws LadderError for others."""
    if mode == "off":
        return Steering(target)
    if mode == "gate":
        return GateSteering(target)
    if mode not in ROUTERS:
        raise LadderError(f"mode {mode}: there are {', '.join(MODES)}")
    return RouterSteering(target, mode, ROUTERS[mode])
