# SPDX-License-Identifier: Apache-2.0
"""examples/replay.cpp and replay.py: the same decisions and figures, and the right ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHARED_DATA = Path(os.environ.get("LIMPET_SHARED_DATA", ROOT.parent / "shared" / "data"))
RECORDING = SHARED_DATA / "claude_code_sessions.jsonl"
PYTHON = [sys.executable, str(ROOT / "examples" / "replay.py")]

needs_recording = pytest.mark.skipif(
    not RECORDING.is_file(), reason=f"{RECORDING} is absent; set LIMPET_SHARED_DATA"
)


@pytest.fixture(scope="module")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path_factory.mktemp("replay") / "replay"
    source = ROOT / "examples" / "replay.cpp"
    include = ROOT / "include"
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-pthread", f"-I{include}", source, "-o", program],
        check=True,
    )
    return [str(program)]


@pytest.fixture(params=["cpp", "python"])
def program(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "python":
        return PYTHON
    command: list[str] = request.getfixturevalue("cpp")
    return command


def run(command: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


def figures(command: list[str], *arguments: object) -> dict[str, Any]:
    done = run(command, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def by_policy(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in found["policies"]}


def turn(at: float, tokens: int, **members: Any) -> dict[str, Any]:
    return {"at": at, "in": tokens, "out": 1, "from": -1, "kept": 0, "think": 0, **members}


def write_sessions(path: Path, *sessions: list[dict[str, Any]]) -> Path:
    lines = [json.dumps({"session": f"s{i}", "turns": turns}) for i, turns in enumerate(sessions)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# The same in both languages ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sessions", 60],
        ["--sessions", 90, "--seed", 7, "--replicas", 3, "--concurrent", 30, "--max-num-seqs", 4],
        ["--sessions", 40, "--seed", 2**64 - 1, "--replicas", 1, "--ramp", 0],
        ["--sessions", 60, "--seed", 3, "--replicas", 17, "--idle-ttl", 60, "--max-num-seqs", 8],
    ],
    ids=["defaults", "overloaded", "one replica", "short pins"],
)
def test_cpp_and_python_decide_alike_on_generated_sessions(
    cpp: list[str], arguments: list[object]
) -> None:
    assert figures(cpp, *arguments) == figures(PYTHON, *arguments)


def test_the_overloaded_and_the_short_lived_runs_spill_and_expire(cpp: list[str]) -> None:
    """The comparison above would prove little if these did not happen."""
    overloaded = figures(cpp, "--sessions", 90, "--replicas", 3, "--concurrent", 30,
                         "--max-num-seqs", 4)  # fmt: skip
    assert by_policy(overloaded)["Limpet"]["spills"] > 0
    expiring = figures(cpp, "--sessions", 60, "--idle-ttl", 60)
    assert by_policy(expiring)["Limpet"]["placed_again"] > 0


@needs_recording
def test_cpp_and_python_decide_alike_on_recorded_sessions(cpp: list[str]) -> None:
    arguments = ["--trace", RECORDING, "--sessions", 80, "--concurrent", 40, "--max-num-seqs", 8]
    assert figures(cpp, *arguments) == figures(PYTHON, *arguments)


def test_the_tables_are_the_same(cpp: list[str]) -> None:
    arguments = ["--sessions", 20, "--replicas", 4]
    assert run(cpp, *arguments).stdout == run(PYTHON, *arguments).stdout


# The right ones ---------------------------------------------------------------------------------


def test_two_turns_by_hand(program: list[str], tmp_path: Path) -> None:
    trace = write_sessions(
        tmp_path / "trace",
        [
            turn(0, 1000, api=2),
            turn(5, 2000, **{"from": 0}, kept=960, think=3, api=4),
        ],
    )
    found = figures(program, "--trace", trace, "--replicas", 2)
    assert found["turns"] == 2
    assert found["prompt_tokens"] == 3000
    assert found["virtual_s"] == 9  # 2 + 3 + 4
    assert found["momentary_floor"] == 2
    rows = by_policy(found)
    # On either side of the fleet: nothing read before, 2 s and 4 s of work against a mean of 3.
    apart = rows["round robin"]
    assert apart["reused_percent"] == 0
    assert apart["home_percent"] == 0
    assert apart["imbalance"] == pytest.approx(4 / 3, abs=1e-4)
    assert apart["momentary_imbalance"] == 2  # one busy, one idle, at every moment
    # Both at home: 960 of 3000 tokens, all 6 s on one replica of two.
    for policy in ("consistent hash", "never leaving home", "Limpet"):
        assert rows[policy]["reused_percent"] == 32
        assert rows[policy]["home_percent"] == 100
        assert rows[policy]["imbalance"] == 2


def test_a_sub_agent_runs_beside_the_main_line(program: list[str], tmp_path: Path) -> None:
    trace = write_sessions(
        tmp_path / "trace",
        [
            turn(0, 100, api=10),
            turn(4, 100, api=2, agent=1),  # from 4 to 6, whatever the main line does
            turn(12, 100, **{"from": 0}, kept=64, think=2, api=3),
        ],
    )
    found = figures(program, "--trace", trace, "--replicas", 2)
    assert found["virtual_s"] == 15  # 10 + 2 + 3
    assert found["most_met"] == 1
    # One on each for 2 s, one on either for 11 s, against a mean of 15 / 2.
    assert found["momentary_floor"] == pytest.approx(26 / 15, abs=1e-4)
    # It is a conversation of its own, placed beside its parent; only one turn has one before it.
    limpet = by_policy(found)["Limpet"]
    assert limpet["home_percent"] == 100
    assert limpet["imbalance"] == 2
    assert by_policy(found)["round robin"]["home_percent"] == 100  # replica 0, 1, 0


def test_sessions_begin_as_others_end(program: list[str], tmp_path: Path) -> None:
    sessions = [[turn(0, 100, api=10)] for _ in range(4)]
    trace = write_sessions(tmp_path / "trace", *sessions)
    # Two at a time, the first two 3 s apart: 0 to 10, 3 to 13, then 10 to 20, 13 to 23.
    found = figures(program, "--trace", trace, "--concurrent", 2, "--ramp", 6)
    assert found["virtual_s"] == 23
    assert found["most_met"] == 1


def test_an_overloaded_home_is_left_once(program: list[str], tmp_path: Path) -> None:
    # The main line's second turn finds home busy with its sub-agent; a threshold of 4 / 4 = 1.
    trace = write_sessions(
        tmp_path / "trace",
        [
            turn(0, 100, api=2),
            turn(2.5, 100, api=10, agent=1),
            turn(3, 100, **{"from": 0}, kept=64, think=1, api=1),
            turn(20, 100, **{"from": 2}, kept=64, think=16, api=1),
        ],
    )
    rows = by_policy(figures(program, "--trace", trace, "--replicas", 2, "--max-num-seqs", 4))
    assert rows["Limpet"]["spills"] == 1
    assert rows["Limpet"]["home_percent"] == 50  # the third turn goes home by itself
    assert rows["Limpet"]["reused_percent"] == 16  # and finds there what turn 0 has left
    assert rows["never leaving home"]["home_percent"] == 100


@pytest.mark.parametrize("seed", range(5))
def test_what_was_read_before_is_the_longest_common_prefix(
    cpp: list[str], tmp_path: Path, seed: int
) -> None:
    """Against prompts that are spelled out, token by token."""
    dice = random.Random(seed)
    replicas = dice.randint(1, 5)

    def common(a: list[int], b: list[int]) -> int:
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                    min(len(a), len(b)))  # fmt: skip

    prompts: list[list[int]] = []
    turns = []
    reused = 0
    for i in range(200):
        start = dice.choice(prompts)[: dice.randint(0, 200)] if prompts else []
        prompt = start + [dice.randint(0, 2) for _ in range(dice.randint(1, 40))]
        shared = [common(prompt, other) for other in prompts]
        kept = max(shared, default=0)
        turns.append(turn(2 * i, len(prompt), think=1, api=1, kept=kept,
                          **{"from": shared.index(kept) if kept else -1}))  # fmt: skip
        # Round robin: the replica has seen every turn whose number is the same modulo the fleet.
        reused += max((shared[j] for j in range(i % replicas, i, replicas)), default=0)
        prompts.append(prompt)
    trace = write_sessions(tmp_path / "trace", turns)
    expected = 100 * reused / sum(map(len, prompts))
    rows = by_policy(figures(cpp, "--trace", trace, "--replicas", replicas))
    assert rows["round robin"]["reused_percent"] == pytest.approx(expected, abs=1e-4), f"{seed=}"


@needs_recording
def test_limpet_keeps_the_reuse_and_the_balance_on_recorded_sessions(cpp: list[str]) -> None:
    rows = by_policy(figures(cpp, "--trace", RECORDING, "--replicas", 8))
    limpet = rows["Limpet"]
    assert limpet["reused_percent"] >= rows["never leaving home"]["reused_percent"] - 0.5
    assert limpet["imbalance"] <= 1.25 * rows["least in flight"]["imbalance"]
    assert limpet["reused_percent"] >= rows["least in flight"]["reused_percent"] + 15


# Bad input --------------------------------------------------------------------------------------

GOOD = turn(0, 9, api=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "0"], "from 1 to 1024"),
        (["--replicas", "1025"], "from 1 to 1024"),
        (["--replicas", "eight"], "from 1 to 1024"),
        (["--replicas", "٣"], "from 1 to 1024"),
        (["--replicas", "99999999999999999999999"], "from 1 to 1024"),
        (["--replicas="], "from 1 to 1024"),
        (["--sessions", "-3"], ""),
        (["--ramp", "1.5"], "whole number"),
        (["--seed", "18446744073709551616"], "whole number"),
        (["--replicas"], "--replicas"),
        (["--frobnicate"], "--frobnicate"),
        (["--trace", "no/such/file"], "no/such/file: cannot be read"),
    ],
)
def test_nonsense_is_refused_with_exit_code_2(
    program: list[str], arguments: list[str], message: str
) -> None:
    done = run(program, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "trace:2: "),
        ("[]", "trace:2: "),
        ('{"turns": []}', 'trace:2: no member "session"'),
        ('{"session": 7, "turns": []}', "trace:2: "),
        ('{"session": "s0", "turns": [' + json.dumps(GOOD) + "]}", "two sessions have this name"),
        ('{"session": "b", "turns": []}', "trace:2: the session has no turns"),
        ('{"session": "b", "turns": [3]}', "trace:2: turn 0: "),
        ({"from": 0}, "turn 1: kept is more"),
        ({"from": 1}, "turn 1: from is no earlier turn"),
        ({"from": -2}, "turn 1: from is no earlier turn"),
        ({"from": 0.5}, "turn 1: from is no whole number"),
        ({"in": -1}, "turn 1: in is negative"),
        ({"in": "9"}, "turn 1: "),
        ({"in": True}, "turn 1: "),
        ({"api": None}, 'turn 1: no member "api"'),
        ({"think": -1}, "turn 1: think is no time"),
        ({"think": float("nan")}, "neither a value nor a number"),
        ({"api": float("inf")}, "neither a value nor a number"),
        ({"at": -1}, "turn 1: at is no time"),
        ({"kept": 10}, "turn 1: kept is more than both prompts can share"),
    ],
)
def test_a_broken_recording_is_refused_with_its_line(
    program: list[str], tmp_path: Path, line: str | dict[str, Any], message: str
) -> None:
    if isinstance(line, dict):
        broken = {**turn(0, 9, api=1, kept=10), **line}
        line = json.dumps({"session": "b", "turns": [GOOD, broken]})
    trace = write_sessions(tmp_path / "trace", [GOOD])
    trace.write_text(trace.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    done = run(program, "--trace", trace)
    assert done.returncode == 2
    assert "trace:2: " in done.stderr
    assert message in done.stderr
    assert done.stdout == ""


def test_an_empty_recording_is_refused(program: list[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n\n", encoding="utf-8")
    done = run(program, "--trace", empty)
    assert done.returncode == 2
    assert "holds no session" in done.stderr


def test_help_explains_every_option_and_figure(program: list[str]) -> None:
    done = run(program, "--help")
    assert done.returncode == 0
    for word in ("--trace", "--sessions", "--seed", "--replicas", "--concurrent", "--ramp",
                 "--max-num-seqs", "--idle-ttl", "--json", "read before", "imbalance"):  # fmt: skip
        assert word in done.stdout
