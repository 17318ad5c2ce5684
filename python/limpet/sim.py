# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet of vLLM-like engines: judge a policy before it meets a GPU.

    reports = limpet.sim.simulate(["limpet", "vllm-lb"], replicas=4, sessions=[4, 8, 16])
    print(limpet.sim.table(reports))

Deterministic: equal arguments give equal reports. A policy is a name (policies()), a Routed, which
is the C++ router with policies of your choice, or any object with the methods of FrontEnd. How well
the simulator reproduces real engines is told in include/limpet/sim/README.md. Times are seconds,
shares 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Protocol

from limpet import _core
from limpet._core import EngineProfile, Quantity, Report, SimTurn, StepTime

__all__ = [
    "Calibration",
    "EngineProfile",
    "FrontEnd",
    "Quantity",
    "Report",
    "Routed",
    "SimTurn",
    "StepTime",
    "advice",
    "calibrate",
    "policies",
    "profiles",
    "simulate",
    "svg",
    "table",
]


class FrontEnd(Protocol):
    """A policy of your own. It may also have start(replicas: int), called once at the beginning,
    and finished(turn_id: int, replica: int, usage: limpet.Usage, now: float)."""

    def choose(self, turn: SimTurn, now: float, /) -> int:
        """The replica for this turn, 0-based."""
        ...


@dataclass(frozen=True)
class Routed:
    """The router with these policies, as limpet.Router takes them; None is its default."""

    name: str
    pins: Any = None
    scorer: Any = None
    overflow: Any = None
    shared_prefix_tokens: int = 0
    live_window: float = 300.0


@dataclass(frozen=True)
class Calibration:
    """A fitted profile, and how far the profile at first and the fitted one are from the
    measurements: root mean square of logarithmic errors, so that 0.1 is 10 %."""

    profile: EngineProfile
    misfit_before: float
    misfit: float


def profiles() -> dict[str, EngineProfile]:
    """The machines that are known, by name."""
    return {profile.name: profile for profile in _core._sim_profiles()}


def policies() -> dict[str, str]:
    """The policies that have a name, and what they do."""
    return dict(_core._sim_policies())


def _profile(profile: str | EngineProfile) -> EngineProfile:
    if isinstance(profile, EngineProfile):
        return profile
    known = profiles()
    if profile not in known:
        raise ValueError(f"profile = {profile}: there are {', '.join(known)}")
    return known[profile]


def simulate(
    policies: Iterable[str | Routed | FrontEnd] | Mapping[str, str | Routed | FrontEnd],
    *,
    workload: str = "ladder",
    profile: str | EngineProfile = "a4000-qwen3-4b",
    replicas: int = 4,
    slow: float = 1.0,
    sessions: Sequence[int] = (),
    seconds: float = 180.0,
    think: float | None = None,
    wander: float = 0.1,
    scrape: float = 2.0,
    seed: int = 1,
    progress: Callable[[Report], None] | None = None,
) -> list[Report]:
    """Plays a workload before a fleet, once for each policy: a report for each policy and each
    number of sessions at once.

    policies: a list, or a mapping of the names that reports shall carry. workload: "ladder",
    "agents", "replay=FILE" or "mooncake=FILE". slow: how much longer the last replica's steps take.
    sessions: those at once, one run each, one after the other on the same engines; () is 4, 8, 16,
    24 and 32, or 64 for recordings. seconds: of each run; recordings are played to their end.
    think: mean pause of the ladder in s, scale of the pauses of the others; None: as they come.
    wander: how far a replica's speed strays, 0..1. scrape: s between two metrics pages.

    progress is called with each report as it comes. ValueError for a setting that makes no sense,
    RuntimeError for a recording that cannot be read; what a policy of your own raises comes
    through.
    """
    if not 1 <= replicas <= 4096:
        raise ValueError(f"replicas = {replicas}: must be 1 to 4096")
    if any(not 1 <= seats <= 1_000_000 for seats in sessions):
        raise ValueError(f"sessions = {list(sessions)}: each must be 1 to 1000000")
    if not (0 < seconds < float("inf") and 0 < scrape < float("inf") and 0 < slow < float("inf")):
        raise ValueError("seconds, scrape and slow must be above 0")
    if not 0 <= wander < 1:
        raise ValueError(f"wander = {wander}: must be 0 to 1, 1 excluded")
    machine = _profile(profile)
    if isinstance(policies, str):
        raise ValueError(f"policies = {policies!r}: must be a list of policies")
    named = policies if isinstance(policies, Mapping) else {_name(p): p for p in policies}
    _refuse_unknown(named.values())
    reports: list[Report] = []
    for name, policy in named.items():
        reports += _core._sim_play(
            policy,
            name,
            workload,
            machine,
            replicas,
            slow,
            list(sessions),
            seconds,
            -1.0 if think is None else think,
            wander,
            scrape,
            seed,
            progress,
        )
    return reports


def _refuse_unknown(chosen: Iterable[str | Routed | FrontEnd]) -> None:
    known = policies()
    for policy in chosen:
        if isinstance(policy, str) and policy not in known:
            raise ValueError(f"policy = {policy}: there are {', '.join(known)}")


def _name(policy: str | Routed | FrontEnd) -> str:
    if isinstance(policy, str):
        return policy
    return policy.name if isinstance(policy, Routed) else type(policy).__name__


def calibrate(
    file: str | PathLike[str],
    profile: str | EngineProfile = "a4000-qwen3-4b",
    *,
    replays: int = 1500,
) -> Calibration:
    """Fits the step time and the front-end time of `profile` to measurements of a real engine.

    file: one JSON object a line, {"at", "first", "end": s, "prompt", "output": tokens}, and where
    known "cached": tokens and "session": a name. A handful is enough if they differ: a long cold
    prompt, its next turn, short ones, a dozen at once. Give the profile the capacities of your
    server, and 0 for the coefficients that your measurements cannot tell.
    """
    fitted, before, after = _core._sim_calibrate(fspath(file), _profile(profile), replays)
    return Calibration(fitted, before, after)


def table(reports: Sequence[Report]) -> str:
    """The reports as a table of fixed width, for people."""
    return _core._sim_table(list(reports))


def svg(reports: Sequence[Report]) -> str:
    """TTFB, hits and output over the sessions at once, a line a policy, as an SVG picture."""
    return _core._sim_svg(list(reports))


def advice(
    reports: Sequence[Report], candidate: str | None = None, today: str | None = None
) -> str:
    """A sentence or two: whether `candidate` is worth replacing `today` by, and where it ends. By
    default the first policy of the reports, and the second."""
    names = list(dict.fromkeys(report.policy for report in reports))
    if len(names) < 2 and (candidate is None or today is None):
        raise ValueError("reports = those of fewer than two policies: nothing to compare")
    return _core._sim_advice(list(reports), candidate or names[0], today or names[1])
