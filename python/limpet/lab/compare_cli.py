# SPDX-License-Identifier: Apache-2.0
"""`limpet compare`: affinity off against on, on the user's own engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from limpet.lab.compare import COLUMNS, Comparison, Plan, compare
from limpet.lab.ladder import Ladder, Shape, Turn
from limpet.lab.report import render
from limpet.lab.steering import MODES, LadderError, Steering, Target, steering


def fail(message: object) -> typer.Exit:
    """The message on standard error, and exit code 2."""
    Console(stderr=True).print(f"limpet: {message}", markup=False, highlight=False)
    return typer.Exit(2)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`4,8,16` as numbers."""
    try:
        return tuple(int(item) for item in text.split(","))
    except ValueError:
        raise fail(f"{option} {text}: numbers, separated by commas") from None


def table(comparison: Comparison) -> Table:
    """Medians of the rounds; green and red where the difference to the first mode is real. What
    does not fit a terminal of 80 columns is in the report."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    columns = [column for column in COLUMNS if column.name != "sessions_per_hour"]
    for title in ("sessions", "mode", *(column.title.replace(" ", "\n", 1) for column in columns)):
        grid.add_column(title, justify="left" if title == "mode" else "right")
    baseline = comparison.plan.modes[0]
    for sessions in comparison.plan.sessions:
        for mode in comparison.plan.modes:
            cells = []
            for column in columns:
                figure = comparison.figure(column, mode, sessions)
                text = column.text(figure.median if figure else None)
                effect = comparison.effect(column, mode, baseline, sessions)
                cells.append({1: f"[green]{text}[/]", -1: f"[red]{text}[/]"}.get(effect, text))
            grid.add_row(str(sessions), mode, *cells)
    return grid


async def play(
    ladder: Ladder,
    plan: Plan,
    make: Callable[[str], Steering],
    console: Console,
    save: Callable[[Comparison], None],
) -> Comparison:
    """Plays the plan with a progress bar; `save` is called after every run, so that an interrupted
    comparison keeps what it has. Throws LadderError."""
    runs = plan.runs()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("run {task.completed}/{task.total}, {task.fields[turns]} turns"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )

    with Progress(*columns, console=console) as progress:
        task = progress.add_task("checking", total=len(runs), turns=0)
        turns = 0

        def seen(_: Turn) -> None:
            nonlocal turns
            turns += 1
            progress.update(task, turns=turns)

        def announce(done: int) -> None:
            said = "done"
            if done < len(runs):
                round_, sessions, mode = runs[done]
                said = f"round {round_ + 1}, {sessions} sessions, {mode}"
            progress.update(task, description=said, completed=done)

        ladder.on_turn = seen
        announce(0)
        result = None
        async for step, result in compare(ladder, plan, make):
            save(result)
            announce(len(result.steps))
            hits = "?" if step.prefix_hit_rate is None else f"{step.prefix_hit_rate:.0%}"
            progress.console.print(
                f"{step.sessions} sessions, {step.mode}: TTFB p50 {step.ttfb_p50:.2f} s, p95 "
                f"{step.ttfb_p95:.2f} s, {step.output_tokens_per_minute:,.0f} output tokens a "
                f"minute, hits {hits}",
                highlight=False,
            )
        assert result is not None  # a plan has runs
        return result


def write(comparison: Comparison, report: Path | None, record: Path | None) -> None:
    """The report and the JSON beside it; each whole or not at all."""
    texts = {}
    if record is not None:
        texts[record] = json.dumps(comparison.as_json())
    if report is not None:
        texts[report] = render(comparison)
    for path, text in texts.items():
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


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


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("compare")(compare_command)
