#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the library promises of its cost, and says of each promise whether it holds.

    python3 benchmarks/claims.py PATH/TO/limpet_bench [--rounds N] [--seconds S]

Each promise is a ratio of two benchmarks, run in turns in one process, or a count. Printed are the
median over the rounds and the lowest and highest of them; the median decides. One thread is
measured in CPU time, several in elapsed time: those need idle cores, so the same ratio of hashing
alone, which shares nothing, stands beside them. Exit code 1: a promise does not hold.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    text: str
    above: str  # benchmark names
    below: str
    bound: float
    at_least: bool = False  # else at most
    elapsed: bool = False  # else CPU time
    floor: bool = False  # not a promise: what the machine gives


RATIOS = [
    Ratio(
        "sticky turn / naive find, 8 Ki pins",
        "sticky_turn/pins:8192/replicas:8",
        "naive_find/pins:8192",
        2.5,
    ),
    Ratio(
        "sticky turn / naive find, 1 Mi pins",
        "sticky_turn/pins:1048576/replicas:8",
        "naive_find/pins:1048576",
        1.5,
    ),
    Ratio(
        "first turn, 1,024 replicas / 64",
        "first_turn/replicas:1024",
        "first_turn/replicas:64",
        16.0,
    ),
    Ratio(
        "sticky turns of two threads / of one, 1 Mi pins",
        "threads_sticky_turn/pins:1048576/replicas:64/real_time/threads:1",
        "threads_sticky_turn/pins:1048576/replicas:64/real_time/threads:2",
        1.7,
        at_least=True,
        elapsed=True,
    ),
    Ratio(
        "  the same of hashing alone",
        "threads_floor_hash/keys:1048576/real_time/threads:1",
        "threads_floor_hash/keys:1048576/real_time/threads:2",
        1.7,
        at_least=True,
        elapsed=True,
        floor=True,
    ),
    Ratio(
        "  the same with 8 Ki pins",
        "threads_sticky_turn/pins:8192/replicas:64/real_time/threads:1",
        "threads_sticky_turn/pins:8192/replicas:64/real_time/threads:2",
        1.7,
        at_least=True,
        elapsed=True,
        floor=True,
    ),
]

NO_ALLOCATION = re.compile(r"(sticky|first|spilled|balanced)_turn/")
MOST_BYTES_A_PIN = 96.0


def run(binary: str, names: list[str], rounds: int, seconds: float) -> list[dict[str, object]]:
    command = [
        binary,
        "--benchmark_filter=^(" + "|".join(re.escape(name) for name in names) + ")$",
        f"--benchmark_repetitions={rounds}",
        f"--benchmark_min_time={seconds}",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_format=json",
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = json.loads(output)["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            sys.exit(f"{row['name']}: {row['error_message']}")
    return [row for row in rows if row["run_type"] == "iteration"]


def times(rows: list[dict[str, object]], name: str, unit: str) -> list[float]:
    of_name = [row for row in rows if row["run_name"] == name]
    of_name.sort(key=lambda row: row["repetition_index"])  # type: ignore[arg-type,return-value]
    return [float(row[unit]) for row in of_name]  # type: ignore[arg-type]


def report(text: str, measured: str, bound: str, holds: bool | None) -> bool:
    verdict = {True: "holds", False: "DOES NOT HOLD", None: ""}[holds]
    print(f"{text:<50} {measured:<24} {bound:<14} {verdict}".rstrip(), flush=True)
    return holds is not False


def check_ratio(binary: str, ratio: Ratio, rounds: int, seconds: float) -> bool:
    rows = run(binary, [ratio.above, ratio.below], rounds, seconds)
    unit = "real_time" if ratio.elapsed else "cpu_time"
    above, below = times(rows, ratio.above, unit), times(rows, ratio.below, unit)
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    middle = statistics.median(ratios)
    holds = middle >= ratio.bound if ratio.at_least else middle <= ratio.bound
    measured = f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    bound = f"at {'least' if ratio.at_least else 'most'} {ratio.bound}"
    return report(
        ratio.text, measured, "" if ratio.floor else bound, None if ratio.floor else holds
    )


def check_counts(binary: str) -> bool:
    listed = subprocess.run(
        [binary, "--benchmark_list_tests"], check=True, capture_output=True, text=True
    )
    turns = [name for name in listed.stdout.splitlines() if NO_ALLOCATION.match(name)]
    rows = run(binary, [*turns, "find_pin/pins:1048576"], 1, 0.01)
    most = max(float(row["allocs/op"]) for row in rows)  # type: ignore[arg-type]
    pins = next(float(row["bytes/pin"]) for row in rows if "bytes/pin" in row)  # type: ignore[arg-type]
    fine = report(
        "allocations a sticky, first, spilled, balanced turn", f"{most:g}", "0", most == 0.0
    )
    return (
        report(
            "bytes a pin of a store of 1 Mi",
            f"{pins:.1f}",
            f"at most {MOST_BYTES_A_PIN:g}",
            pins <= MOST_BYTES_A_PIN,
        )
        and fine
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each benchmark in a round")
    options = parser.parse_args()
    all_hold = check_counts(options.binary)
    for ratio in RATIOS:
        all_hold = check_ratio(options.binary, ratio, options.rounds, options.seconds) and all_hold
    sys.exit(not all_hold)


if __name__ == "__main__":
    main()
