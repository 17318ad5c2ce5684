# SPDX-License-Identifier: Apache-2.0
"""How much of their prompts coding-agent sessions find already read on the replica they are sent
to, policy by policy: the same sessions, the same pauses, six ways of choosing a replica.

    python examples/replay.py --trace sessions.jsonl --replicas 8

The twin of replay.cpp over the Python module: the same sessions, decisions and figures.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limpet
from playback import Playback, Settings, Tally
from sessions import Generator, Session, mixed, read_sessions

if TYPE_CHECKING:
    from collections.abc import Callable

FOR_EVER = 24 * 36_500 * 3600  # s


class Progress:
    """On a terminal a line that is rewritten, else a line every five seconds."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._terminal = sys.stderr.isatty()
        self._shown = time.monotonic()

    def show(self, policy: str, done: int) -> None:
        now = time.monotonic()
        if now - self._shown < (0.1 if self._terminal else 5.0):
            return
        self._shown = now
        text = f"{policy}: {100 * done // self._turns} % of {self._turns} turns"
        print(
            f"\r\x1b[K{text}" if self._terminal else text,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def clear(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def compare(sessions: list[Session], settings: Settings) -> dict[str, Tally]:
    """Every policy is this one router: what differs is its pins, its overflow rule and what it is
    asked.
    """
    replicas = [f"replica{i}" for i in range(settings.replicas)]
    pins = limpet.LocalPins(
        capacity=max(8192, sum(len(session.keys) for session in sessions)),
        idle_ttl=settings.idle_ttl_s or FOR_EVER,
    )
    never = limpet.NeverSpill()
    drawn = itertools.count(settings.seed)
    turn_number = itertools.count()

    def random(key: str) -> dict[str, Any]:
        number = mixed(next(drawn) & (1 << 64) - 1)
        return {"key": key, "client_pinned": replicas[number % len(replicas)]}

    def round_robin(key: str) -> dict[str, Any]:
        return {"key": key, "client_pinned": replicas[next(turn_number) % len(replicas)]}

    def keyless(_key: str) -> dict[str, Any]:
        return {}

    def by_key(key: str) -> dict[str, Any]:
        return {"key": key}

    progress = Progress(sum(len(session.turns) for session in sessions))
    tallies = {}
    for policy, ask, store, overflow in (
        ("random", random, pins, never),
        ("round robin", round_robin, pins, never),
        ("consistent hash", by_key, limpet.RendezvousPins(), never),
        ("least in flight", keyless, pins, never),
        ("never leaving home", by_key, pins, never),
        ("Limpet", by_key, pins, limpet.SpillAbove()),
    ):
        playback = Playback(sessions, settings, ask, store, overflow)
        tallies[policy] = playback.run(functools.partial(progress.show, policy))
    progress.clear()
    return tallies


DESCRIPTION = "Plays coding-agent sessions over a fleet, once for each way of choosing a replica."
EPILOG = """\
Time is virtual. A turn is sent when the answer before it has come and its recorded pause is over,
and takes the time it took when it was recorded, wherever it is sent. Sub-agents run beside the main
line, as conversations of their own.

policies  random, round robin, least in flight: choose a replica for each turn
          consistent hash: for each conversation, by a hash of its key
          never leaving home: for each conversation, by load, and it stays there
          Limpet: the same, but a turn leaves a home that is overloaded, once

figures   read before   share of all prompt tokens that the chosen replica had read before
          at home       share of the turns after a conversation's first that were sent to where that
                        one was placed
          spills        turns that left an overloaded home
          placed again  turns whose conversation had to be placed anew (its pin had expired)
          imbalance     turns in flight, averaged over time: the fullest replica over the mean
          momentary     the same with whichever replica is the fullest at each moment: how unevenly
                        the turns of a moment fall, not what a replica has to bear. With few in
                        flight it is high whoever chooses (one turn on 8 replicas: 8); its floor is
                        that of turns spread evenly at every moment. Affinity has its price here,
                        since a turn does not go wherever it is quiet just now
"""


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(
                f"'{text}': a whole number from {least} to {most} is needed"
            )
        return int(text)

    return parse


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    seconds, count = 10**9, 10**6

    def number(name: str, least: int, most: int, default: int | None, text: str) -> None:
        parser.add_argument(name, type=whole(least, most), default=default, metavar="N", help=text)

    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="recorded sessions, one JSON object a line; without it they are generated",
    )
    number(
        "--sessions",
        1,
        100_000,
        None,
        "how many to generate, or the first N of the file (default: 500, or all)",
    )
    number(
        "--seed", 0, 2**64 - 1, 1, "of the generated sessions and of the random policy (default 1)"
    )
    number("--replicas", 1, 1024, 8, "1 to 1024 (default 8)")
    number(
        "--concurrent",
        1,
        count,
        None,
        "sessions at a time; when one ends the next begins (default: 16 a replica)",
    )
    number(
        "--ramp",
        0,
        seconds,
        3600,
        "seconds over which the first of them begin, evenly spread (default 3600)",
    )
    number(
        "--max-num-seqs",
        1,
        count,
        32,
        "of each replica: Limpet leaves a home that serves a quarter of it (default 32)",
    )
    number(
        "--idle-ttl",
        0,
        seconds,
        0,
        "seconds after which the pin of an idle conversation is "
        "forgotten (default 0: never, as the replicas of this replay never forget what they read; "
        "1800 is the library's)",
    )
    parser.add_argument("--json", action="store_true", help="prints JSON instead of the table")
    return parser


def print_table(sessions: list[Session], settings: Settings, tallies: dict[str, Tally]) -> None:
    any_one = tallies["Limpet"]
    print(
        f"{len(sessions)} sessions, {any_one.turns} turns, "
        f"{any_one.prompt_tokens / 1e6:.0f} million prompt tokens on {settings.replicas} replicas"
    )
    print(
        f"{settings.concurrent} sessions at a time; half of the turns met {any_one.median_met()} "
        f"or more others in flight, none more than {len(any_one.met) - 1}"
    )
    print(f"floor of the momentary imbalance: {any_one.floor():.2f}\n")
    print(
        f"{'policy':<20}{'read before':>12}{'at home':>10}{'spills':>9}{'placed again':>14}"
        f"{'imbalance':>11}{'momentary':>11}"
    )
    for policy, tally in tallies.items():
        print(
            f"{policy:<20}{tally.reused_percent():10.2f} %{tally.home_percent():8.2f} %"
            f"{tally.spills:9}{tally.placed_again:14}{tally.imbalance():11.2f}"
            f"{tally.momentary():11.2f}"
        )


def as_json(sessions: list[Session], settings: Settings, tallies: dict[str, Tally]) -> str:
    any_one = tallies["Limpet"]
    return json.dumps(
        {
            "sessions": len(sessions),
            "turns": any_one.turns,
            "prompt_tokens": any_one.prompt_tokens,
            "replicas": settings.replicas,
            "concurrent": settings.concurrent,
            "ramp_s": settings.ramp_ms // 1000,
            "max_num_seqs": settings.max_num_seqs,
            "idle_ttl_s": settings.idle_ttl_s,
            "virtual_s": any_one.end_ms / 1000,
            "median_met": any_one.median_met(),
            "most_met": len(any_one.met) - 1,
            "momentary_floor": round(any_one.floor(), 4),
            "policies": [
                {
                    "policy": policy,
                    "reused_percent": round(tally.reused_percent(), 4),
                    "home_percent": round(tally.home_percent(), 4),
                    "spills": tally.spills,
                    "placed_again": tally.placed_again,
                    "imbalance": round(tally.imbalance(), 4),
                    "momentary_imbalance": round(tally.momentary(), 4),
                    "decisions": f"{tally.fingerprint:016x}",
                }
                for policy, tally in tallies.items()
            ],
        },
        indent=2,
    )


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    settings = Settings(
        replicas=given.replicas,
        concurrent=given.concurrent or 16 * given.replicas,
        ramp_ms=1000 * given.ramp,
        max_num_seqs=given.max_num_seqs,
        idle_ttl_s=given.idle_ttl,
        seed=given.seed,
    )
    if given.trace is None:
        sessions = Generator(settings.seed).sessions(given.sessions or 500)
    else:
        try:
            sessions = read_sessions(given.trace)[: given.sessions]
        except ValueError as error:
            parser.error(str(error))
    tallies = compare(sessions, settings)
    if given.json:
        print(as_json(sessions, settings, tallies))
    else:
        print_table(sessions, settings, tallies)


if __name__ == "__main__":
    main()
