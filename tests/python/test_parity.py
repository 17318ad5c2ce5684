# SPDX-License-Identifier: Apache-2.0
"""What Python decides is what the written rule says, and what C++ decides."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import limpet
import pytest
from plain_router import LIVE_WINDOW, TIME_TO_LIVE, PlainLease, PlainReplica, PlainRouter, PlainTurn

MAX_NUM_SEQS = 12


def page(kv_usage: float) -> str:
    return f"vllm:kv_cache_usage_perc {kv_usage}\n"


class History:
    """One random history on the router and on the plain model, compared at each step."""

    def __init__(self, seed: int, pins: limpet.ShardedPins | limpet.LocalPins) -> None:
        self.random = random.Random(seed)
        self.clock = limpet.ManualClock()
        # The defaults, and with the gauge, in turn.
        kv, live = ((0.0, 0.25), (8.0, 1.0))[seed % 2]
        self.router = limpet.Router(
            pins=pins,
            scorer=limpet.WeightedLoad(kv_usage_weight=kv, live_weight=live),
            clock=self.clock,
            live_window=LIVE_WINDOW,
        )
        self.model = PlainRouter(kv_weight=kv, live_weight=live)
        self.leases: list[tuple[limpet.Lease, PlainLease]] = []
        self.added = 0
        for _ in range(4):
            self.add()

    def add(self) -> None:
        name = f"replica{self.added}"
        self.added += 1
        self.router.add_replica(name, max_num_seqs=MAX_NUM_SEQS)
        self.model.replicas[name] = PlainReplica(MAX_NUM_SEQS)

    def run(self, steps: int) -> None:
        actions = [self.route, self.end, self.advance, self.observe, self.change_a_replica]
        for _ in range(steps):
            self.random.choices(actions, weights=[45, 32, 10, 5, 8])[0]()
            self.compare()

    def route(self) -> None:
        pick = self.random
        key = f"conversation{pick.randrange(60)}"
        turn = PlainTurn(
            key=key if pick.random() < 0.92 else None,
            parent=f"conversation{pick.randrange(60)}" if pick.random() < 0.3 else None,
            client_pinned=self.name() if pick.random() < 0.06 else None,
            exclude=(self.name(),) if pick.random() < 0.08 else (),
            side_call=pick.random() < 0.08,
        )
        arguments: dict[str, Any] = {
            "parent": turn.parent,
            "client_pinned": turn.client_pinned,
            "exclude": turn.exclude,
            "side_call": turn.side_call,
        }
        expected = self.model.decide(turn)
        planned = self.router.plan(turn.key, **arguments)
        if self.random.random() < 0.2:
            lease = self.router.commit(planned)
        else:
            lease = self.router.route(turn.key, **arguments)
        assert lease.outcome.name == expected.outcome
        assert (lease.outcome, lease.replica) == (planned.outcome, planned.replica)
        if not lease:
            assert not expected.replicas
            return
        assert lease.replica.name in expected.replicas
        began = self.model.begin(turn, expected.outcome, lease.replica.name)
        self.leases.append((lease, began))

    def end(self) -> None:
        if not self.leases:
            return
        lease, began = self.leases.pop(self.random.randrange(len(self.leases)))
        how = self.random.choice(["finish", "finish", "cancel", "fail"])
        getattr(lease, how)()
        began.end(how)

    def advance(self) -> None:
        by = self.random.choice([1, 2, 5, 20, 80, TIME_TO_LIVE])
        self.clock.advance(by)
        self.model.now += by

    def observe(self) -> None:
        for name in list(self.model.replicas):
            if self.random.random() < 0.8:
                kv_usage = self.random.randrange(100) / 100
                assert self.router.observe(name, page(kv_usage)) is limpet.ParseStatus.ok
                self.model.observe(name, kv_usage)

    def change_a_replica(self) -> None:
        name = self.name()
        replica = self.model.replicas[name]
        what = self.random.choice(["up", "up", "up", "drain", "down", "restarted", "remove", "add"])
        if what == "up":
            self.router.set_up(name)
            replica.state = "up"
        elif what == "drain":
            self.router.drain(name)
            replica.state = "draining"
        elif what == "down":
            self.router.set_down(name)
            replica.state = "down"
        elif what == "restarted":
            self.router.restarted(name)
            self.model.restarted(name)
        elif what == "remove" and len(self.model.replicas) > 2:
            self.router.remove(name)
            del self.model.replicas[name]
        elif what == "add" and len(self.model.replicas) < 7:
            self.add()

    def name(self) -> str:
        return self.random.choice(list(self.model.replicas))

    def compare(self) -> None:
        rows = self.router.snapshot().replicas
        assert {row.name: (row.in_flight, row.live_conversations) for row in rows} == {
            name: (replica.in_flight, self.model.live(name))
            for name, replica in self.model.replicas.items()
        }


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_go_as_the_written_rule_says(seed: int) -> None:
    print("seed", seed)
    for pins in (
        limpet.ShardedPins(idle_ttl=TIME_TO_LIVE),
        limpet.LocalPins(capacity=100, idle_ttl=TIME_TO_LIVE),
    ):
        History(seed, pins).run(1500)


def recorded_history(seed: int, steps: int) -> list[str]:
    """Commands as replay.cpp reads them. More conversations than pins, so that some are evicted."""
    pick = random.Random(seed)
    names = [f"replica{i}" for i in range(5)]
    lines = [f"add {name}" for name in names]
    running: list[int] = []

    def sometimes(chance: float, word: str) -> str:
        return word if pick.random() < chance else "-"

    for step in range(steps):
        what = pick.random()
        name = pick.choice(names)
        if what < 0.5:
            key = sometimes(0.95, f"key{pick.randrange(120)}")
            parent = sometimes(0.2, f"key{pick.randrange(120)}")
            turn = (
                f"{sometimes(0.05, name)} {sometimes(0.08, name)} {pick.choice([0, 0, 700, 2500])}"
            )
            lines.append(f"route {step} {key} {parent} {turn} {int(pick.random() < 0.05)}")
            running.append(step)
        elif what < 0.85 and running:
            number = running.pop(pick.randrange(len(running)))
            how = pick.choice(["finish", "finish", "finish", "cancel", "fail"])
            lines.append(f"end {number} {how} {pick.randrange(1, 4000)}")
        elif what < 0.88 and running:
            lines.append(f"first_byte {pick.choice(running)}")
        elif what < 0.93:
            lines.append(f"advance {pick.choice([1, 250, 4000, 90_000, 400_000])}")
        elif what < 0.96:
            lines += [f"observe {each} {pick.randrange(100) / 100}" for each in names]
        elif what < 0.97:
            lines.append("rebalance")
        else:
            lines.append(f"{pick.choice(['drain', 'down', 'up', 'up', 'restarted'])} {name}")
    return lines


def policies_of(name: str) -> dict[str, Any]:
    """As replay.cpp has them."""
    if name == "cheaper":
        return {
            "scorer": limpet.LeastPendingPrefill(),
            "overflow": limpet.MoveIfCheaper(floor_tokens=200),
        }
    if name == "batch":
        return {"scorer": limpet.TokensTimesBatch(), "overflow": limpet.SpillAbove(threshold=3)}
    return {"overflow": limpet.MoveWhenFull(threshold=3)}


def replayed_by_python(lines: list[str], policies: str) -> list[str]:
    clock = limpet.ManualClock()
    router = limpet.Router(
        pins=limpet.ShardedPins(capacity=64, idle_ttl=600),
        **policies_of(policies),
        clock=clock,
        shared_prefix_tokens=100,
        secret=(1).to_bytes(8, "little") + (2).to_bytes(8, "little"),
    )
    leases: dict[str, limpet.Lease] = {}
    out = []

    def or_none(word: str) -> str | None:
        return None if word == "-" else word

    for line in lines:
        what, *words = line.split()
        if what == "add":
            router.add_replica(words[0], max_num_seqs=12, kv_capacity_tokens=9000)
        elif what == "route":
            number, key, parent, client, excluded, tokens, side_call = words
            lease = leases[number] = router.route(
                or_none(key),
                parent=or_none(parent),
                client_pinned=or_none(client),
                exclude=() if excluded == "-" else [excluded],
                prompt_tokens=int(tokens),
                side_call=side_call == "1",
            )
            decision = lease.decision
            name = lease.replica.name if lease else "-"
            out.append(
                f"{decision.outcome.value}|{decision.reason.value}|{name}|{decision.in_flight_seen}"
            )
        elif what == "first_byte":
            leases[words[0]].first_byte()
        elif what == "end":
            lease = leases.pop(words[0])
            if words[1] == "finish":
                lease.finish(limpet.Usage(prompt_tokens=int(words[2]), completion_tokens=9))
            else:
                getattr(lease, words[1])()
        elif what == "advance":
            clock.advance(int(words[0]) / 1000)
        elif what == "observe":
            router.observe(words[0], page(float(words[1])))
        elif what == "rebalance":
            out.append(str(router.rebalance(4, idle=60)))
        else:
            change = {"drain": router.drain, "down": router.set_down, "up": router.set_up}
            change.get(what, router.restarted)(words[0])
    return out


def test_a_recorded_history_gives_the_same_decisions_in_cpp(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "replay"
    include = limpet.get_include()
    if not Path(include, "limpet").is_dir():
        pytest.skip("this limpet was not installed from a wheel, so it carries no headers")
    source = Path(__file__).with_name("replay.cpp")
    subprocess.run(
        [compiler, "-std=c++20", "-O0", "-pthread", f"-I{include}", source, "-o", program],
        check=True,
    )
    for policies in ("full", "cheaper", "batch"):
        outcomes = set()
        for seed in range(8):
            lines = recorded_history(seed, 4000)
            printed = subprocess.run(
                [program, policies],
                input="\n".join(lines),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            decided = replayed_by_python(lines, policies)
            assert decided == printed, f"{policies}, seed {seed}"
            outcomes |= {line.split("|")[0] for line in decided}
        # The histories would prove little if these did not happen.
        assert outcomes >= {"placed", "sticky", "spilled", "moved", "balanced", "client_pinned"}
