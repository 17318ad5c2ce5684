# SPDX-License-Identifier: Apache-2.0
"""The simulator from Python: policies by name, of the router, of one's own; the command line."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import limpet
import pytest
from limpet import sim

SMALL: dict[str, Any] = {"sessions": [3], "seconds": 40.0}


def shown(reports: list[sim.Report]) -> list[str]:
    return [report.to_json() for report in reports]


def test_equal_arguments_give_equal_reports() -> None:
    policies = ["limpet", "vllm-lb"]
    first = sim.simulate(policies, sessions=[2, 4], seconds=30)
    assert shown(first) == shown(sim.simulate(policies, sessions=[2, 4], seconds=30))
    assert [(r.policy, r.seats) for r in first] == [
        ("limpet", 2),
        ("limpet", 4),
        ("vllm-lb", 2),
        ("vllm-lb", 4),
    ]
    assert shown(first) != shown(sim.simulate(policies, sessions=[2, 4], seconds=30, seed=2))


def test_every_named_policy_serves() -> None:
    seen: list[str] = []
    reports = sim.simulate(list(sim.policies()), progress=lambda r: seen.append(r.policy), **SMALL)
    assert seen == list(sim.policies())
    assert all(report.turns > 3 for report in reports)


def test_the_router_with_default_policies_is_the_policy_limpet() -> None:
    routed = sim.Routed("limpet", scorer=limpet.WeightedLoad(), overflow=limpet.SpillAbove())
    assert shown(sim.simulate([routed], **SMALL)) == shown(sim.simulate(["limpet"], **SMALL))


def test_a_router_with_a_scorer_in_python_decides_as_the_same_scorer_in_c() -> None:
    class Fewest:
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext) -> float:
            assert context.candidates == 4
            return float(load.in_flight)

    python = sim.simulate([sim.Routed("same", scorer=Fewest())], **SMALL)
    compiled = sim.simulate([sim.Routed("same", scorer=limpet.LeastInFlight())], **SMALL)
    assert shown(python) == shown(compiled)


class InTurn:
    """Round robin, and a look at what it is told."""

    def __init__(self) -> None:
        self.replicas = 0
        self.turns: list[sim.SimTurn] = []
        self.finished_tokens = 0

    def start(self, replicas: int) -> None:
        self.replicas = replicas

    def choose(self, turn: sim.SimTurn, now: float) -> int:
        assert now >= 0
        self.turns.append(turn)
        return (len(self.turns) - 1) % self.replicas

    def finished(self, turn_id: int, replica: int, usage: limpet.Usage, now: float) -> None:
        assert 0 <= replica < self.replicas
        assert turn_id < len(self.turns)
        assert now > 0
        self.finished_tokens += usage.completion_tokens


def test_a_policy_of_ones_own_is_asked_and_told() -> None:
    mine = InTurn()
    [report] = sim.simulate({"mine": mine}, **SMALL)
    assert report.policy == "mine"
    assert mine.replicas == 4
    assert report.turns == len(mine.turns)
    assert mine.finished_tokens == 256 * report.turns
    assert {turn.conversation for turn in mine.turns} >= {"ladder-0", "ladder-1", "ladder-2"}
    assert mine.turns[0].prompt_tokens > mine.turns[0].shared_tokens == 3500
    [same] = sim.simulate({"mine": "round-robin"}, **SMALL)
    assert same.to_json() == report.to_json()


def test_what_a_policy_raises_comes_through() -> None:
    class Broken:
        def choose(self, turn: sim.SimTurn, now: float) -> int:
            raise LookupError(f"{turn.conversation} at {now}")

    class Beyond:
        def choose(self, turn: sim.SimTurn, now: float) -> int:
            return 4 if turn.id == 0 and now == 0 else 0

    class Scorer:
        def score(self, load: limpet.ReplicaLoad, context: limpet.ScoreContext) -> float:
            raise LookupError(f"scorer {load} {context}")

    with pytest.raises(LookupError, match="ladder-0"):
        sim.simulate([Broken()], **SMALL)
    with pytest.raises(ValueError, match="no such replica of 4"):
        sim.simulate([Beyond()], **SMALL)
    with pytest.raises(LookupError, match="scorer"):
        sim.simulate([sim.Routed("x", scorer=Scorer())], **SMALL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": ["no-such"]}, "policy = no-such: there are limpet, limpet-published, "),
        ({"policies": "limpet"}, "policies = 'limpet': must be a list"),
        ({"profile": "no-such"}, "profile = no-such"),
        ({"workload": "no-such"}, "no workload no-such"),
        ({"replicas": 0}, "replicas = 0"),
        ({"sessions": [0]}, "sessions"),
        ({"seconds": 0.0}, "seconds"),
        ({"wander": 1.0}, "wander = 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    policies = settings.pop("policies", ["limpet"])
    with pytest.raises(ValueError, match=message):
        sim.simulate(policies, **{**SMALL, **settings})


def test_a_name_that_is_no_policy_is_refused_before_anything_is_played() -> None:
    played: list[sim.Report] = []
    with pytest.raises(ValueError, match="no-such"):
        sim.simulate(["limpet", "no-such"], progress=played.append, **SMALL)
    assert not played


def test_a_recording_that_is_not_there_is_an_error_with_its_name() -> None:
    with pytest.raises(RuntimeError, match="no-such-file"):
        sim.simulate(["limpet"], workload="replay=no-such-file")


def test_a_changed_profile_is_used() -> None:
    fast = sim.EngineProfile(sim.profiles()["a4000-qwen3-4b"])
    fast.name = "twice as fast"
    step = sim.StepTime()
    for field in ("weights", "per_token", "per_pair", "per_context", "per_sequence", "fixed"):
        setattr(step, field, getattr(fast.step, field) / 2)
    fast.step = step
    [slow_report] = sim.simulate(["limpet"], **SMALL)
    [fast_report] = sim.simulate(["limpet"], profile=fast, **SMALL)
    assert fast_report.output_tokens_per_minute > 1.5 * slow_report.output_tokens_per_minute


def test_reports_become_a_table_a_picture_and_advice() -> None:
    reports = sim.simulate(["limpet", "vllm-lb"], sessions=[4, 8], seconds=60)
    assert len(sim.table(reports).splitlines()) == 5
    assert sim.svg(reports).startswith("<svg ")
    assert sim.advice(reports).startswith("At ")
    with pytest.raises(ValueError, match="fewer than two"):
        sim.advice(reports[:2])
    report = json.loads(reports[0].to_json())
    assert report["ttfb_p50"] == pytest.approx(reports[0].ttfb.p50, rel=1e-5)
    assert report["seats"] == 4


def test_a_profile_is_fitted_to_measurements(tmp_path: Path) -> None:
    # 0.5 ms a prompt token and 20 ms a step, 0.1 s of front end, in steps of 2,048 tokens at most.
    lines = []
    for at, prompt, output in [(0, 4096, 50), (20, 1024, 100), (40, 64, 200), (60, 8192, 2)]:
        steps = -(-prompt // 2048)
        first = at + 0.1 + 0.0005 * prompt + 0.02 * steps
        end = first + (output - 1) * (0.02 + 0.0005)
        lines.append({"at": at, "first": first, "end": end, "prompt": prompt, "output": output})
    file = tmp_path / "measured.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    start = sim.profiles()["a4000-qwen3-4b"]
    found = sim.calibrate(file, start)
    assert found.misfit < 0.03 < found.misfit_before
    assert found.profile.step.per_token == pytest.approx(0.0005, rel=0.1)
    assert start.step.per_token != found.profile.step.per_token


def test_the_command_line_simulates_and_calibrates(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    testing = importlib.import_module("typer.testing")
    app = importlib.import_module("limpet.cli").app
    run = testing.CliRunner().invoke
    picture = tmp_path / "plot.svg"
    asked = "simulate --policies limpet,vllm-lb --sessions 2,4 --seconds 30 --plot"
    table = run(app, [*asked.split(), str(picture)])
    assert table.exit_code == 0, table.output
    assert "vllm-lb" in table.output
    assert "sessions at once" in table.output
    assert picture.read_text().startswith("<svg ")
    lines = run(
        app, ["simulate", "--policies", "limpet", "--sessions", "2", "--seconds", "30", "--json"]
    )
    assert json.loads(lines.output)["policy"] == "limpet"
    assert "consistent-hash" in run(app, ["simulate", "--list"]).output
    assert run(app, ["simulate", "--policies", "no-such"]).exit_code == 2

    file = tmp_path / "measured.jsonl"
    file.write_text('{"at": 0, "first": 1, "end": 2, "prompt": 2000, "output": 50}\n')
    fitted = run(app, ["calibrate", str(file), "--json"])
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.output)["per_token"] > 0
    assert run(app, ["calibrate", str(tmp_path / "absent")]).exit_code == 2
