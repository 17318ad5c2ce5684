# SPDX-License-Identifier: Apache-2.0
"""A comparison as one HTML file that needs no other: the advice, the table, three figures, and the
engines' counters that the figures were computed from. Charts by Plotly, which the file carries."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from string import Template
from typing import Any

from limpet.lab.compare import COLUMNS, Column, Comparison, Range
from limpet.lab.steering import LadderError

_SECONDS = [digit * 10.0**power for power in range(-2, 4) for digit in (1, 2, 5)]
# Told apart with any colour vision, on white and on near-black (Okabe and Ito's palette).
_COLOURS = ("#767676", "#0072b2", "#d55e00", "#009e73", "#cc79a7")


def render(comparison: Comparison, title: str = "Limpet: the load ladder") -> str:
    """The page. Throws LadderError without plotly (extra `lab`)."""
    try:
        plotly = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except ModuleNotFoundError as error:
        raise LadderError("the report needs plotly: pip install 'limpet[lab]'") from error
    page = Template((files("limpet.lab") / "report.html").read_text(encoding="utf-8"))
    plan, target = comparison.plan, comparison.target
    ranks = f", {target.ranks} ranks each" if target.ranks > 1 else ""
    setting = (
        f"{comparison.model} on {len(target.endpoints)} endpoint(s){ranks}; {plan.seconds:g} s a "
        f"step, {plan.rounds} round(s), interleaved, seeds from {plan.seed}."
    )
    return page.substitute(
        title=html.escape(title),
        plotly=plotly,
        setting=html.escape(setting),
        advice=html.escape(comparison.advice()),
        baseline=html.escape(plan.modes[0]),
        table=_table(comparison),
        sources="".join(f"<li>{html.escape(f'{c.title}: {c.source}')}</li>" for c in COLUMNS),
        counters=_counters(comparison),
        figures=json.dumps(_figures(comparison)).replace("<", "\\u003c"),
    )


def _cell(comparison: Comparison, column: Column, mode: str, sessions: int) -> str:
    figure = comparison.figure(column, mode, sessions)
    if figure is None:
        return "<td>-</td>"
    effect = comparison.effect(column, mode, comparison.plan.modes[0], sessions)
    kind = {1: ' class="good"', -1: ' class="bad"'}.get(effect, "")
    spread = f"{column.text(figure.low)} to {column.text(figure.high)}"
    spread = f'<span class="range">{spread}</span>' if comparison.plan.rounds > 1 else ""
    return f"<td{kind}>{column.text(figure.median)}{spread}</td>"


def _table(comparison: Comparison) -> str:
    head = "".join(f'<th scope="col">{html.escape(column.title)}</th>' for column in COLUMNS)
    rows = "".join(
        f'<tr><th scope="row">{sessions}</th><td>{html.escape(mode)}</td>'
        + "".join(_cell(comparison, column, mode, sessions) for column in COLUMNS)
        + "</tr>"
        for sessions in comparison.plan.sessions
        for mode in comparison.plan.modes
    )
    return (
        f'<table><thead><tr><th scope="col">sessions</th><th scope="col">mode</th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _counters(comparison: Comparison) -> str:
    names = list(comparison.steps[0].counters) if comparison.steps else []
    head = "".join(f'<th scope="col">vllm:{name}_total</th>' for name in names)
    rows = "".join(
        f"<tr><td>{step.sessions}</td><td>{html.escape(step.mode)}</td><td>{step.seed}</td>"
        + "".join(f"<td>{a:,.0f} to {b:,.0f}</td>" for a, b in (step.counters[n] for n in names))
        + "</tr>"
        for step in comparison.steps
    )
    return (
        '<table><thead><tr><th scope="col">sessions</th><th scope="col">mode</th>'
        f'<th scope="col">seed</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _line(
    comparison: Comparison, column: str, mode: str, index: int, label: str, dash: str = "solid"
) -> dict[str, Any]:
    of = next(c for c in COLUMNS if c.name == column)
    points: list[tuple[int, Range]] = [
        (n, figure)
        for n in comparison.plan.sessions
        if (figure := comparison.figure(of, mode, n)) is not None
    ]
    return {
        "x": [n for n, _ in points],
        "y": [figure.median for _, figure in points],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [figure.high - figure.median for _, figure in points],
            "arrayminus": [figure.median - figure.low for _, figure in points],
        },
        "name": label,
        "mode": "lines+markers",
        "line": {"dash": dash, "color": _COLOURS[index % len(_COLOURS)]},
    }


def _figures(comparison: Comparison) -> list[dict[str, Any]]:
    def layout(title: str, **axis: Any) -> dict[str, Any]:
        ticks = list(comparison.plan.sessions)
        return {
            "xaxis": {"title": {"text": "sessions at once"}, "tickvals": ticks},
            "yaxis": {"title": {"text": title}, **axis},
            "margin": {"t": 10, "r": 10},
            "legend": {"orientation": "h", "y": 1.12},
        }

    modes = list(enumerate(comparison.plan.modes))
    waits = [
        _line(comparison, f"ttfb_{name}", mode, index, f"{mode} {name}", dash)
        for index, mode in modes
        for name, dash in (("p50", "solid"), ("p95", "dot"))
    ]
    hits = [_line(comparison, "prefix_hit_rate", mode, i, mode) for i, mode in modes]
    busy = [_line(comparison, "replicas_busy", mode, i, mode) for i, mode in modes]
    return [
        {"id": "ttfb", "data": waits, "layout": layout("seconds", type="log", tickvals=_SECONDS)},
        {"id": "hits", "data": hits, "layout": layout("share", tickformat=".0%", range=[0, 1])},
        {"id": "busy", "data": busy, "layout": layout("replicas", rangemode="tozero")},
    ]
