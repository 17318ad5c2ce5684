# SPDX-License-Identifier: Apache-2.0
"""When a difference between two modes is called real, and what is advised. Figures by hand."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from limpet.lab.compare import COLUMNS, Comparison, Plan, Range
from limpet.lab.ladder import Shape, Step, read_page
from limpet.lab.report import render
from limpet.lab.steering import LadderError, Target, steering

BY_NAME = {column.name: column for column in COLUMNS}
STEP = Step(
    mode="off",
    sessions=4,
    seed=1,
    seconds=60.0,
    sessions_per_hour=60.0,
    output_tokens_per_minute=4000.0,
    ttfb_p50=2.0,
    ttfb_mean=2.5,
    ttfb_p95=5.0,
    replicas_busy=1.9,
    prefix_hit_rate=0.5,
    stayed_home=None,
    requests=10,
    counters={
        "prefix_cache_queries": (1000.0, 3000.0),
        "prefix_cache_hits": (100.0, 1100.0),
        "generation_tokens": (0.0, 4000.0),
        "num_preemptions": (0.0, 0.0),
    },
)


def comparison(
    rounds: int, p50: dict[tuple[str, int], list[float]], modes: tuple[str, ...] = ("off", "on")
) -> Comparison:
    """Steps that differ in their median first byte alone."""
    sessions = tuple(sorted({n for _, n in p50}))
    plan = Plan(modes, sessions, seconds=60.0, rounds=rounds)
    result = Comparison(plan, Target(("http://a",)), "tiny")
    for (mode, n), values in p50.items():
        for seed, value in enumerate(values):
            result.steps.append(replace(STEP, mode=mode, sessions=n, seed=seed, ttfb_p50=value))
    return result


@pytest.mark.parametrize(
    ("a", "b", "real"),
    [
        ([2.0, 2.1, 2.2], [0.4, 0.4, 0.5], True),
        ([2.0, 2.1, 2.2], [2.1, 2.3, 2.4], False),  # they overlap
        ([2.0, 2.1, 2.2], [1.0, 1.8, 1.9], False),  # apart, but by less than 0.9, a spread
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], False),
    ],
)
def test_a_difference_is_real_only_beyond_the_spread(
    a: list[float], b: list[float], real: bool
) -> None:
    assert Range.of(a).differs_from(Range.of(b)) is real
    assert Range.of(b).differs_from(Range.of(a)) is real


def test_one_round_says_nothing() -> None:
    result = comparison(1, {("off", 4): [2.0], ("on", 4): [0.1]})
    assert result.effect(BY_NAME["ttfb_p50"], "on", "off", 4) == 0
    assert "One round" in result.advice()


def test_lower_first_byte_times_are_better_and_higher_output_is() -> None:
    result = comparison(2, {("off", 4): [2.0, 2.1], ("on", 4): [0.4, 0.5]})
    assert result.effect(BY_NAME["ttfb_p50"], "on", "off", 4) == 1
    assert result.effect(BY_NAME["ttfb_p50"], "off", "on", 4) == -1
    assert result.effect(BY_NAME["output_tokens_per_minute"], "on", "off", 4) == 0
    for index, step in enumerate(result.steps):
        if step.mode == "on":
            result.steps[index] = replace(step, output_tokens_per_minute=3000.0)
    assert result.effect(BY_NAME["output_tokens_per_minute"], "on", "off", 4) == -1


def test_advice_names_the_setting_the_steps_and_the_figures() -> None:
    better = comparison(2, {("off", 4): [2.0, 2.1], ("on", 4): [0.4, 0.5]})
    assert better.advice() == (
        "Switch affinity on: on is better at 4 sessions (TTFB p50 2.05 -> 0.45 s), worse nowhere."
    )
    limit = comparison(
        2,
        {
            ("off", 4): [2.0, 2.1],
            ("on", 4): [0.4, 0.5],
            ("off", 16): [5.0, 5.1],
            ("on", 16): [13.0, 13.1],
        },
    )
    assert limit.advice().startswith("Switch affinity on for up to 4 sessions on these replicas")
    assert "worse at 16" in limit.advice()
    same = comparison(2, {("off", 4): [2.0, 2.1], ("on", 4): [2.0, 2.1]})
    assert "no difference is larger than the run-to-run spread" in same.advice()
    odd = comparison(
        2,
        {
            ("off", 4): [0.4, 0.5],
            ("on", 4): [2.0, 2.1],
            ("off", 8): [2.0, 2.1],
            ("on", 8): [0.4, 0.5],
        },
    )
    assert odd.advice().startswith("No clear advice")


def test_rounds_are_interleaved_and_the_order_rotates() -> None:
    assert Plan(("off", "on"), (4, 8), rounds=2).runs() == [
        (0, 4, "off"),
        (0, 4, "on"),
        (0, 8, "off"),
        (0, 8, "on"),
        (1, 4, "on"),
        (1, 4, "off"),
        (1, 8, "on"),
        (1, 8, "off"),
    ]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"modes": ("on", "on"), "sessions": (4,)}, "modes on, on"),
        ({"modes": ("on",), "sessions": ()}, "sessions"),
        ({"modes": ("on",), "sessions": (0,)}, "sessions"),
        ({"modes": ("on",), "sessions": (4,), "rounds": 0}, "rounds"),
    ],
)
def test_a_plan_that_cannot_be_played_is_refused(plan: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**plan)  # type: ignore[arg-type]


def test_an_unknown_mode_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(LadderError, match="fast: there are off, on, published, gate"):
        steering("fast", Target(("http://a",)))


def test_counters_are_summed_over_the_engines_of_a_page() -> None:
    page = (
        "# TYPE vllm:prefix_cache_queries_total counter\n"
        'vllm:prefix_cache_queries_total{engine="0",model_name="m}"} 100.0\n'
        'vllm:prefix_cache_queries_total{engine="1",model_name="m}"} 50.0\n'
        'vllm:num_requests_running{engine="0"} 2.0\n'
        'vllm:num_requests_running{engine="1"} 0.0\n'
        'vllm:num_requests_waiting{engine="1"} 7.0\n'
        "vllm_generation_tokens_total 1e+03\n"
    )
    assert read_page(page) == ({"prefix_cache_queries": 150.0, "generation_tokens": 1000.0}, 1)


def test_the_longest_turn_of_the_published_shape() -> None:
    # 3500 + 7450 + 5 x (256 + 400) + 256
    assert Shape().longest == 14486


def test_the_report_shows_every_figure_with_its_range_and_its_counters() -> None:
    result = comparison(2, {("off", 4): [2.0, 2.1], ("on", 4): [0.4, 0.5]})
    result.model = "<b>model</b>"
    page = render(result)
    assert html.escape("<b>model</b>") in page
    assert "<b>model</b>" not in page
    assert "0.45" in page
    assert "0.40 to 0.50" in page
    assert "1,000 to 3,000" in page
    assert html.escape(result.advice()) in page
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    waits = {line["name"]: line for line in figures[0]["data"]}
    assert figures[0]["layout"]["yaxis"]["type"] == "log"
    assert waits["off p50"]["y"] == [2.05]
    assert waits["on p50"]["x"] == [4]
    assert 'src="http' not in page


def test_the_record_is_json_and_keeps_the_counters() -> None:
    result = comparison(2, {("off", 4): [2.0, 2.2], ("on", 4): [0.4, 0.5]})
    record = json.loads(json.dumps(result.as_json()))
    off = next(row for row in record["figures"] if row["mode"] == "off")
    assert off["ttfb_p50"] == {"median": pytest.approx(2.1), "low": 2.0, "high": 2.2}
    assert record["steps"][0]["counters"]["prefix_cache_hits"] == [100.0, 1100.0]
