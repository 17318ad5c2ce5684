# SPDX-License-Identifier: Apache-2.0
"""A comparison on a terminal: played with a progress bar, shown as a table, written to files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from limpet.lab.compare import COLUMNS, Comparison, Plan, compare
from limpet.lab.ladder import Ladder, Turn
from limpet.lab.report import render
from limpet.lab.steering import Steering


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
