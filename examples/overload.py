# SPDX-License-Identifier: Apache-2.0
"""Why a median may get worse with affinity when the caches are full, and what an average hides.

    python examples/overload.py                  # prints the table, writes overload.svg
    python examples/overload.py --seconds 180 --sessions 24 --svg picture.svg

Sessions without pauses on four simulated RTX A4000, one of them 0, 5, 10 or 15 % slower than the
others, under three front ends: one that goes round (vLLM's own balancer while its engines sent it
no counts), one that sees the queues, and one that sends conversations home. include/limpet/gate
tells what follows.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import limpet
from limpet import sim

COLOURS = ["#0072B2", "#009E73", "#E69F00", "#D55E00"]  # the last is the slow one


@dataclass
class Front:
    """A front end that writes down how many turns each replica has, at every change."""

    name: str
    pick: Callable[[sim.SimTurn, list[int], float], int]
    queues: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)
    leases: dict[int, limpet.Lease] = field(default_factory=dict)

    def start(self, replicas: int) -> None:
        self.in_flight = [0] * replicas
        self.served = [0] * replicas

    def choose(self, turn: sim.SimTurn, now: float) -> int:
        replica = self.pick(turn, self.in_flight, now)
        self.in_flight[replica] += 1
        self.served[replica] += 1
        self.queues.append((now, tuple(self.in_flight)))
        return replica

    def finished(self, turn_id: int, replica: int, usage: limpet.Usage, now: float) -> None:
        self.in_flight[replica] -= 1
        self.queues.append((now, tuple(self.in_flight)))
        if turn_id in self.leases:
            self.leases.pop(turn_id).finish(usage)


def blind() -> Front:
    turns = iter(range(1 << 62))
    return Front("blind", lambda _, queues, __: next(turns) % len(queues))


def seeing() -> Front:
    starts = iter(range(1 << 62))

    def pick(_: sim.SimTurn, queues: list[int], __: float) -> int:
        first = next(starts)
        order = [(first + i) % len(queues) for i in range(len(queues))]
        return min(order, key=lambda replica: queues[replica])

    return Front("seeing", pick)


def affinity() -> Front:
    clock = limpet.ManualClock()
    router = limpet.Router([f"{i}" for i in range(4)], max_num_seqs=32, clock=clock)
    at = 0.0

    def pick(turn: sim.SimTurn, _: list[int], now: float) -> int:
        nonlocal at
        clock.advance(now - at)
        at = now
        lease = router.route(turn.conversation, prompt_tokens=turn.prompt_tokens)
        front.leases[turn.id] = lease
        return int(lease.replica.name)

    front = Front("affinity", pick)
    return front


def mean_queue(front: Front, replica: int, until: float) -> float:
    """Turns there, averaged over time."""
    total = 0.0
    changes = [*front.queues, (until, front.queues[-1][1])]
    for (begin, counts), (end, _) in itertools.pairwise(changes):
        total += counts[replica] * max(0.0, min(end, until) - begin)
    return total / until


def sampled(front: Front, replica: int, until: float, samples: int) -> list[int]:
    """Turns there at so many moments."""
    times = [at for at, _ in front.queues]
    moments = (bisect.bisect_right(times, until * i / samples) for i in range(samples + 1))
    return [front.queues[max(0, i - 1)][1][replica] for i in moments]


def picture(runs: list[tuple[str, Front]], until: float) -> str:
    """The turns on each replica over time, a panel a run."""
    width, height, columns, samples = 380, 120, 3, 150
    most = max(max(counts) for _, front in runs for _, counts in front.queues)
    rows = (len(runs) + columns - 1) // columns
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * (width + 40)} '
        f'{rows * (height + 50) + 20}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, (title, front) in enumerate(runs):
        left = 30 + index % columns * (width + 40)
        top = 30 + index // columns * (height + 50)
        parts.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>')
        parts.append(f'<path d="M{left} {top}v{height}h{width}" fill="none" stroke="#999"/>')
        for value in range(0, most + 1, 8):
            y = top + height - height * value / most
            parts.append(f'<text x="{left - 4}" y="{y + 4:.0f}" text-anchor="end">{value}</text>')
        for replica, colour in enumerate(COLOURS):
            points = [
                f"{left + width * i / samples:.0f},{top + height - height * counts / most:.0f}"
                for i, counts in enumerate(sampled(front, replica, until, samples))
            ]
            parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}"/>')
    legend = "turns on each replica over time; orange-red: the slow one"
    parts.append(f'<text x="30" y="{rows * (height + 50) + 12}">{legend}</text></svg>\n')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=32, help="at once (32)")
    parser.add_argument("--seconds", type=float, default=600.0, help="of a run (600)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, default=Path("overload.svg"))
    options = parser.parse_args()

    print("slower  front     out/min  TTFB p50    p95   mean | turns waiting or running, mean")
    runs: list[tuple[str, Front]] = []
    for slow in (1.0, 1.05, 1.10, 1.15):
        for make in (blind, seeing, affinity):
            front = make()
            report = sim.simulate(
                {front.name: front},
                sessions=[options.sessions],
                seconds=options.seconds,
                slow=slow,
                seed=options.seed,
            )[0]
            queues = [mean_queue(front, replica, options.seconds) for replica in range(4)]
            print(
                f"{100 * (slow - 1):4.0f} %  {front.name:8} {report.output_tokens_per_minute:8,.0f}"
                f"  {report.ttfb.p50:8.2f} {report.ttfb.p95:6.1f} {report.ttfb.mean:6.2f} | "
                f"others {statistics.mean(queues[:3]):4.1f}  slow one {queues[3]:4.1f}"
            )
            if slow in (1.0, 1.15):
                runs.append((f"{front.name}, one {100 * (slow - 1):.0f} % slower", front))
    options.svg.write_text(picture(runs, options.seconds), encoding="utf-8")
    print(f"wrote {options.svg}")


if __name__ == "__main__":
    main()
