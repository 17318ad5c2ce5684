# SPDX-License-Identifier: Apache-2.0
"""A record of decisions replays bit for bit, and shows where other policies would have differed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import limpet
import pytest
from limpet.decisions import Recorder, replay


class Time:
    """Nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 12_345_678_901_234

    def __call__(self) -> int:
        return self.now


PAGE = """vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 0
vllm:kv_cache_usage_perc{{engine="0"}} {usage}
"""


def history(seed: int, turns: int, **options: Any) -> list[str]:
    """A random history of a small, busy pool, as a record."""
    draw = random.Random(seed)
    lines: list[str] = []
    time = Time()
    recorder = Recorder(lines.append, ["a", "b", "c"], now_ns=time, max_num_seqs=8, **options)
    open_leases = []
    for _ in range(turns):
        time.now += draw.randrange(1, 3_000_000_000)
        key = None if draw.random() < 0.1 else f"conversation-{draw.randrange(12)}"
        exclude = [draw.choice("abc")] if draw.random() < 0.1 else []
        open_leases.append(
            recorder.route(
                key,
                parent=f"conversation-{draw.randrange(12)}" if draw.random() < 0.2 else None,
                client_pinned=draw.choice("abc") if draw.random() < 0.05 else None,
                exclude=exclude,
                prompt_tokens=draw.randrange(20_000) if draw.random() < 0.5 else 0,
                side_call=draw.random() < 0.1,
            )
        )
        while len(open_leases) > draw.randrange(1, 9):
            lease = open_leases.pop(draw.randrange(len(open_leases)))
            end = draw.random()
            if end < 0.6:
                prompt = draw.randrange(1, 20_000)
                lease.finish(
                    limpet.Usage(prompt_tokens=prompt, completion_tokens=draw.randrange(900))
                )
            elif end < 0.8:
                lease.finish()
            elif end < 0.9:
                lease.fail()
            else:
                lease.cancel()
        if draw.random() < 0.1:
            usage = round(draw.random(), 3)
            recorder.observe(
                draw.choice("abc"), PAGE.format(running=draw.randrange(8), usage=usage)
            )
        if draw.random() < 0.05:
            name = draw.choice("abc")
            change = draw.choice(["drain", "set_down", "set_up", "set_up", "restarted"])
            getattr(recorder, change)(name)
    for lease in open_leases:
        lease.finish()
    return lines


@pytest.mark.parametrize("seed", range(12))
def test_a_record_replays_to_the_same_decisions(seed: int) -> None:
    found = replay(history(seed, 400))
    assert found.turns == 400
    assert found.differences == []


def test_a_record_made_under_other_policies_replays_under_those() -> None:
    lines = history(1, 300, overflow=limpet.SpillAbove(threshold=1), scorer=limpet.RoundRobin())
    assert (
        replay(
            lines, overflow=limpet.SpillAbove(threshold=1), scorer=limpet.RoundRobin()
        ).differences
        == []
    )


def test_another_threshold_shows_the_turns_that_would_have_gone_elsewhere() -> None:
    lines: list[str] = []
    recorder = Recorder(lines.append, ["a", "b"], now_ns=Time(), max_num_seqs=32)
    home = recorder.route("k")
    assert home.replica is not None
    second = recorder.route("k")  # one in flight at home: below a threshold of 8, not of 1
    home.finish()
    second.finish()

    assert replay(lines).differences == []
    (difference,) = replay(lines, overflow=limpet.SpillAbove(threshold=1)).differences
    other = "b" if home.replica.name == "a" else "a"
    assert difference.line == 5  # header, two replicas, first turn
    assert difference.recorded == (home.replica.name, "sticky")
    assert difference.replayed == (other, "spilled")
    assert difference.elsewhere


def test_a_difference_is_a_turns_own_and_not_the_consequence_of_an_earlier_one() -> None:
    lines: list[str] = []
    recorder = Recorder(lines.append, ["a", "b"], now_ns=Time())
    first = recorder.route("k", client_pinned=None)
    assert first.replica is not None
    first.finish()
    for _ in range(5):
        recorder.route("k").finish()

    class OtherFirst:
        """Places every conversation where the recorded router did not."""

        def score(self, load: limpet.ReplicaLoad, _context: limpet.ScoreContext) -> float:
            return 1.0 if load.replica == taken else 0.0

    taken = recorder.router.snapshot().replicas["ab".index(first.replica.name)].id
    found = replay(lines, scorer=OtherFirst())
    assert [difference.recorded[1] for difference in found.differences] == ["placed"]


def test_records_of_cpp_and_python_have_one_form() -> None:
    """The lines that tests/ledger/decisions.test.cpp expects of the C++ recorder, in part."""
    lines: list[str] = []
    time = Time()
    time.now = 5_000_000_000
    recorder = Recorder(lines.append, now_ns=time)
    recorder.add_replica("a", endpoint="http://a", max_num_seqs=32)
    time.now += 3_000_000
    recorder.observe("http://a", "vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.1\n")
    lease = recorder.route()
    time.now += 1_000_000
    lease.fail()
    assert lines == [
        '{"record":"limpet decisions","version":1,"epoch":5,"affinity":"on"}\n',
        '{"t":0,"do":"add","name":"a","endpoint":"http://a","max_num_seqs":32}\n',
        '{"t":3000000,"do":"observe","endpoint":"http://a",'
        '"readings":[{"engine":"","running":2.0,"kv_usage":0.1}]}\n',
        '{"t":3000000,"do":"route","lease":1,"outcome":"balanced","replica":"a"}\n',
        '{"t":4000000,"do":"fail","lease":1}\n',
    ]


def test_a_record_holds_no_key() -> None:
    lines: list[str] = []
    recorder = Recorder(lines.append, ["a"], now_ns=Time())
    recorder.route("secret-session").finish()
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: not a record of decisions: it is empty"),
        (["{}"], "line 1: not a record of decisions: the first line does not say so"),
        (["nonsense"], "line 1: not a record"),
        (['{"record":"limpet decisions","version":9}'], "line 1: .*version 9 is not known"),
        (
            ['{"record":"limpet decisions","version":1,"epoch":0,"affinity":"on"}', '{"t":1}'],
            "line 2: .*no 'do'",
        ),
        (
            [
                '{"record":"limpet decisions","version":1,"epoch":0,"affinity":"on"}',
                '{"t":1,"do":"dance"}',
            ],
            "line 2: .*unknown event 'dance'",
        ),
    ],
)
def test_what_is_no_record_is_refused_by_line(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(lines)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "limpet.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        # Wide, or typer breaks a long path in two.
        env={**os.environ, "COLUMNS": "400"},
    )


def test_the_command_says_where_a_changed_policy_differs(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text("".join(history(3, 200)))
    same = command("replay-decisions", str(file))
    assert same.returncode == 0, same.stderr
    assert "200 turns: 0 would have gone elsewhere" in same.stdout

    other = command(
        "replay-decisions", str(file), "--overflow", "spill_above:threshold=1", "--json"
    )
    assert other.returncode == 0, other.stderr
    found = json.loads(other.stdout)
    assert found["turns"] == 200
    assert found["elsewhere"] > 0
    assert {"line", "key", "recorded", "replayed", "reason"} == set(found["differences"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--overflow", "spill"], "no such policy; there are: spill_above"),
        (["--overflow", "spill_above:threshold=many"], "threshold=many is not a number"),
        (["--overflow", "spill_above:threshold=-1"], "threshold"),
        (["--overflow", "spill_above:limit=3"], "limit"),
        (["--scorer", "weighted_load:live_weight=-3"], "live_weight"),
        (["--capacity", "0"], "capacity"),
    ],
)
def test_nonsense_on_the_command_line_is_refused(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text("".join(history(3, 5)))
    refused = command("replay-decisions", str(file), *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    missing = command("replay-decisions", str(tmp_path / "absent.jsonl"))
    assert missing.returncode == 2
    assert "absent.jsonl" in missing.stderr
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\xff\xfe\x00")
    assert command("replay-decisions", str(broken)).returncode == 2
