# SPDX-License-Identifier: Apache-2.0
"""`limpet compare`: affinity off against on, on the user's own engines; `limpet demo`: the same on
simulated ones. What needs more than a terminal is imported when it is wanted."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from limpet.console import fail
from limpet.lab.steering import MODES, LadderError, Target, steering


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`4,8,16` as numbers."""
    try:
        return tuple(int(item) for item in text.split(","))
    except ValueError:
        raise fail(f"{option} {text}: numbers, separated by commas") from None


def compare_command(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL...", help="The engines, e.g. http://10.0.0.1:8000")
    ],
    ranks: Annotated[
        int, typer.Option("--data-parallel-size", min=1, help="Ranks behind each URL.")
    ] = 1,
    modes: Annotated[
        str, typer.Option(help=f"The first is the baseline; {', '.join(MODES)}.")
    ] = "off,on",
    sessions: Annotated[str, typer.Option(help="At once, a step each.")] = "4,8,16",
    seconds: Annotated[float, typer.Option(min=1, help="Of a step.")] = 120,
    rounds: Annotated[int, typer.Option(min=1, help="One tells nothing about noise.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the lengths of the sessions.")] = 1,
    model: Annotated[str | None, typer.Option(help="Default: the first one served.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LIMPET_API_KEY", help="Bearer token of the engines.")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Of a replica, as it was started.")] = 32,
    system_tokens: Annotated[int, typer.Option(min=1, help="Shared by all sessions.")] = 3500,
    first_tokens: Annotated[int, typer.Option(min=200, help="First message.")] = 7300,
    new_tokens: Annotated[int, typer.Option(min=1, help="Of each later turn.")] = 400,
    turns: Annotated[int, typer.Option(min=1, help="A session.")] = 6,
    output_tokens: Annotated[int, typer.Option(min=1, help="A turn, exactly.")] = 256,
    scrape: Annotated[float, typer.Option(min=0.1, help="Seconds between metrics pages.")] = 2.0,
    report: Annotated[Path, typer.Option(help="The HTML report.")] = Path("limpet-compare.html"),
    as_json: Annotated[bool, typer.Option("--json", help="The whole record on stdout.")] = False,
) -> None:
    """Play the load ladder against your engines, affinity off and on, and say what to set.

    Simulated coding agents resend their growing history turn after turn. Rounds are interleaved,
    and a difference counts only where it is larger than what the machine does by itself between
    rounds. The engines should have nothing else to do meanwhile. Writes an HTML report and, beside
    it, JSON with every request and the engines' counters.

    \b
    limpet compare http://10.0.0.1:8000 http://10.0.0.2:8000
    limpet compare http://10.0.0.1:8000 --data-parallel-size 4 --sessions 4,8 --rounds 2
    """
    try:
        from limpet.lab.compare import Plan  # noqa: PLC0415
        from limpet.lab.ladder import Ladder, Shape  # noqa: PLC0415
        from limpet.lab.play import play, table, write  # noqa: PLC0415
    except ImportError as error:
        raise fail(f"limpet compare needs {error.name}: pip install 'limpet[lab]'") from None
    console = Console(stderr=True)
    target = Target(
        tuple(url.rstrip("/") for url in urls), ranks, max_num_seqs, model=model, api_key=api_key
    )
    shape = replace(
        Shape(),
        system=system_tokens,
        first=first_tokens,
        new=new_tokens,
        turns=turns,
        output=output_tokens,
    )
    record = report.with_suffix(".json")
    try:
        plan = Plan(tuple(modes.split(",")), numbers(sessions, "--sessions"), seconds, rounds, seed)
        for mode in plan.modes:
            steering(mode, target)
        if not report.parent.is_dir():
            raise ValueError(f"--report {report}: there is no folder {report.parent}")
    except (ValueError, LadderError) as error:
        raise fail(error) from None
    minutes = len(plan.runs()) * seconds / 60
    console.print(f"{len(plan.runs())} runs, at least {minutes:.0f} minutes.", highlight=False)
    ladder = Ladder(target, shape=shape, scrape_interval=scrape)
    try:
        comparison = asyncio.run(
            play(
                ladder,
                plan,
                lambda mode: steering(mode, target),
                console,
                lambda so_far: write(so_far, None, record),
            )
        )
    except LadderError as error:
        raise fail(error) from None
    except KeyboardInterrupt:
        raise fail(f"interrupted; what was measured is in {record}") from None
    write(comparison, report, record)
    if as_json:
        print(json.dumps(comparison.as_json()))
    else:
        Console().print(table(comparison))
        Console().print(comparison.advice(), highlight=False)
    console.print(f"report: {report}, record: {record}", highlight=False)


def demo(
    sessions: Annotated[str, typer.Option(help="At once, a step each.")] = "4,8",
    seconds: Annotated[float, typer.Option(min=1, help="Of a step, by the engines' time.")] = 120,
    rounds: Annotated[int, typer.Option(min=1, help="One tells nothing about noise.")] = 2,
    ranks: Annotated[int, typer.Option("--data-parallel-size", min=2)] = 4,
    speed: Annotated[float, typer.Option(min=1, help="Of the engines, in real times.")] = 10,
    balancer: Annotated[
        str, typer.Option(help="The engine's own, for affinity off; see limpet engine --help.")
    ] = "vllm-lb-blind",
    report: Annotated[Path, typer.Option(help="The HTML report.")] = Path("limpet-demo.html"),
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep", help="Leave the panel up at the end. Default: on a terminal."
        ),
    ] = None,
) -> None:
    """Four simulated GPUs, the gateway and the load ladder: affinity off against on, two minutes.

    No GPU, no model. Prints the table and a sentence of advice, and writes an HTML report; the
    panel shows the gateway at work meanwhile.
    """
    try:
        from limpet.lab.compare import Plan  # noqa: PLC0415
        from limpet.lab.demo import run  # noqa: PLC0415
    except ImportError as error:
        raise fail(f"the demo needs {error.name}: pip install 'limpet[lab,gateway]'") from None
    console = Console(stderr=True, highlight=False)
    try:
        plan = Plan(("off", "on"), numbers(sessions, "--sessions"), seconds, rounds)
        if not report.parent.is_dir():
            raise ValueError(f"--report {report}: there is no folder {report.parent}")
        if keep is None:
            keep = sys.stdout.isatty()
        asyncio.run(run(plan, ranks, speed, balancer, report, keep, console))
    except (ValueError, LadderError, RuntimeError, OSError) as error:
        raise fail(error) from None


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("compare")(compare_command)
    app.command()(demo)
