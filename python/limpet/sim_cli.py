# SPDX-License-Identifier: Apache-2.0
"""`limpet simulate` and `limpet calibrate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from limpet import sim
from limpet.console import fail


def _split(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def simulate(
    policies: Annotated[
        str, typer.Option(help="Names, separated by commas, or `all`; --list shows them.")
    ] = "limpet,vllm-lb,limpet-published,consistent-hash,prefix-affinity,tokens-times-batch",
    workload: Annotated[
        str, typer.Option(help="ladder, agents, replay=FILE or mooncake=FILE.")
    ] = "ladder",
    profile: Annotated[
        str, typer.Option(help="The machine; --list shows them.")
    ] = "a4000-qwen3-4b",
    replicas: Annotated[int, typer.Option(min=1)] = 4,
    slow: Annotated[
        float, typer.Option(help="The last replica's steps take so much longer.")
    ] = 1.0,
    sessions: Annotated[str, typer.Option(help="At once: numbers, separated by commas.")] = "",
    seconds: Annotated[
        float, typer.Option(help="Of each run; recordings end by themselves.")
    ] = 180,
    think: Annotated[
        float | None, typer.Option(help="Ladder: mean pause, s; others: scale of the pauses.")
    ] = None,
    wander: Annotated[float, typer.Option(help="How far a replica's speed strays, 0..1.")] = 0.1,
    scrape: Annotated[float, typer.Option(help="Seconds between two metrics pages.")] = 2.0,
    block_tokens: Annotated[
        int, typer.Option(help="Of the KV cache; 0: the profile's. Large ones are faster.")
    ] = 0,
    seed: Annotated[int, typer.Option()] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also a picture, SVG, to this file.")] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Print the policies and the profiles.")
    ] = False,
) -> None:
    """Simulate routing policies on a fleet of vLLM-like engines: a table, and a sentence of advice.

    limpet simulate --replicas 8 --policies limpet,vllm-lb --workload agents --plot agents.svg
    """
    if show_list:
        for name, meaning in sim.policies().items():
            print(f"{name:24} {meaning}")
        print("profiles:", ", ".join(sim.profiles()))
        return
    names = list(sim.policies()) if policies == "all" else _split(policies)
    try:
        sizes = [int(size) for size in _split(sessions)]
        machine = sim.profiles().get(profile)
        if machine is None:
            raise ValueError(f"profile = {profile}: there are {', '.join(sim.profiles())}")
        if block_tokens > 0:
            machine.block_tokens = block_tokens
        steps = len(sizes) or (5 if workload in ("ladder", "agents") else 1)
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
            task = bar.add_task("simulating", total=len(names) * steps)
            reports = sim.simulate(
                names,
                workload=workload,
                profile=machine,
                replicas=replicas,
                slow=slow,
                sessions=sizes,
                seconds=seconds,
                think=think,
                wander=wander,
                scrape=scrape,
                seed=seed,
                progress=lambda _: bar.advance(task),
            )
    except (ValueError, RuntimeError) as error:
        raise fail(error) from None
    if plot is not None:
        plot.write_text(sim.svg(reports), encoding="utf-8")
    if as_json:
        for report in reports:
            print(report.to_json())
        return
    print(sim.table(reports), end="")
    if len(names) > 1:
        print("\n" + sim.advice(reports), end="")


def calibrate(
    file: Annotated[Path, typer.Argument(help="Measurements, one JSON object a line.")],
    profile: Annotated[str, typer.Option(help="The machine to start from.")] = "a4000-qwen3-4b",
    kv_tokens: Annotated[int, typer.Option(help="Of your server's KV cache.")] = 0,
    max_num_seqs: Annotated[int, typer.Option(help="Your server's option; 0: the profile's.")] = 0,
    max_num_batched_tokens: Annotated[int, typer.Option(help="As that.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Fit an engine profile to a handful of measurements of your server.

    Lines of {"at", "first", "end": s, "prompt", "output": tokens}, and where known "cached": tokens
    and "session": a name. Send requests that differ: a long cold prompt, its next turn, short ones,
    a dozen at once.
    """
    known = sim.profiles()
    if profile not in known:
        raise fail(f"profile = {profile}: there are {', '.join(known)}")
    start = known[profile]
    start.kv_tokens = kv_tokens or start.kv_tokens
    start.max_num_seqs = max_num_seqs or start.max_num_seqs
    start.max_num_batched_tokens = max_num_batched_tokens or start.max_num_batched_tokens
    try:
        with Console(stderr=True).status("fitting ..."):
            found = sim.calibrate(file, start)
    except (ValueError, RuntimeError) as error:
        raise fail(error) from None
    step = found.profile.step
    fitted = {
        "weights": step.weights,
        "per_token": step.per_token,
        "per_pair": step.per_pair,
        "per_context": step.per_context,
        "per_sequence": step.per_sequence,
        "fixed": step.fixed,
        "front_end": found.profile.front_end,
    }
    if as_json:
        misfit = {"misfit_before": found.misfit_before, "misfit": found.misfit}
        print(json.dumps(fitted | misfit))
        return
    for name, value in fitted.items():
        print(f"{name:13} {value:.4g} s")
    print(
        f"error {100 * found.misfit:.0f} % (at first {100 * found.misfit_before:.0f} %); "
        f"{1 / step.per_token:,.0f} prompt tokens/s"
    )


def add_to(app: typer.Typer) -> None:
    app.command()(simulate)
    app.command()(calibrate)
