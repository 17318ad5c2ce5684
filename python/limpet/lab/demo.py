# SPDX-License-Identifier: Apache-2.0
"""`limpet demo`: what affinity does, on one machine without a GPU.

A simulated vLLM with four data-parallel ranks (`limpet engine`, a process of its own), the gateway
in this process, and the load ladder through it, affinity off and on. What is simulated is the
engine's scheduler, cache and time; requests, streams, gateway and counters are the real thing. The
engine's own balancer is that of the vLLM that the published ladder was measured on, 0.26, which
went round the ranks; `limpet demo --balancer vllm-lb` has that of mid 2026 on.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from rich.console import Console

from limpet.gateway import server
from limpet.gateway.settings import (
    AdminSettings,
    PoolSettings,
    ReplicaSettings,
    ServerSettings,
    Settings,
)
from limpet.lab.compare import Comparison, Plan
from limpet.lab.ladder import Ladder
from limpet.lab.play import play, table, write
from limpet.lab.server import EngineProcess
from limpet.lab.steering import GatewaySteering, LadderError, Target


async def run(
    plan: Plan,
    ranks: int,
    speed: float,
    balancer: str,
    report: Path,
    keep: bool,
    console: Console,
) -> Comparison:
    """Plays the plan, shows and writes what it came to. Throws LadderError, ValueError, OSError."""
    arguments = ("--data-parallel-size", str(ranks), "--speed", str(speed))
    async with EngineProcess(*arguments, "--balancer", balancer) as engine:
        console.print(f"engine:  {engine.url}, {ranks} ranks, {speed:g} x real time")
        token = secrets.token_urlsafe(24)
        stop = asyncio.Event()
        ready: asyncio.Future[server.Ready] = asyncio.get_running_loop().create_future()
        replica = ReplicaSettings(engine.url, data_parallel_size=ranks, max_num_seqs=32)
        settings = Settings(
            pools=(PoolSettings(replicas=(replica,)),),
            server=ServerSettings(port=0, access_log="off"),
            admin=AdminSettings(port=0),
        )
        serving = asyncio.create_task(
            server.serve(settings, token, ready=ready.set_result, stop=stop)
        )
        try:
            await asyncio.wait((ready, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            at = ready.result()
            console.print(f"gateway: {at.url}/v1")
            console.print(f"panel:   {at.admin_url}/limpet/#token={token}", soft_wrap=True)
            target = Target((engine.url,), ranks)
            # A scrape every second of wall time: the pages are for the report, not for the router.
            ladder = Ladder(target, speed=speed, scrape_interval=speed)
            playing = asyncio.create_task(
                play(
                    ladder,
                    plan,
                    lambda mode: GatewaySteering(target, mode, at.url, at.admin_url, token),
                    console,
                    lambda _: None,
                )
            )
            # Ctrl+C goes to the gateway, which then ends.
            await asyncio.wait((playing, serving), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                playing.cancel()
                raise LadderError("interrupted")
            comparison = playing.result()
            write(comparison, report, report.with_suffix(".json"))
            Console().print(table(comparison))
            Console().print(comparison.advice(), highlight=False)
            console.print(f"report:  {report}")
            if keep:
                console.print("The panel stays up; Ctrl+C ends it.")
                await serving
            return comparison
        finally:
            stop.set()
            await asyncio.gather(serving, return_exceptions=True)
