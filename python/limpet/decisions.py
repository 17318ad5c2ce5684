# SPDX-License-Identifier: Apache-2.0
"""Records of decisions: written while a router works, replayed to ask what another would have done.

A Recorder stands before a router and writes one JSON object a line for everything that the router
was asked and told; the format is that of include/limpet/ledger/decisions.hpp. replay() plays a
record through a router again, bit for bit, with the same policies or with others. Records hold key
hashes and replica names, no key and no text.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from limpet import _core
from limpet.policies import MetricsParser

if TYPE_CHECKING:
    from typing_extensions import Self

_LIFE = {
    "drain": "drain",
    "up": "set_up",
    "down": "set_down",
    "remove": "remove",
    "restarted": "restarted",
}
_FIGURES = (
    "running",
    "waiting",
    "kv_usage",
    "prefix_queries",
    "prefix_hits",
    "prompt_tokens",
    "prompt_tokens_cached",
    "kv_capacity_tokens",
    "start_time",
)
_REPLICA = ("endpoint", "rank", "engine", "max_num_seqs", "kv_capacity_tokens")


class RecordedLease:
    """A lease whose end is written down as well; otherwise as Lease."""

    def __init__(self, recorder: Recorder, lease: _core.Lease, number: int) -> None:
        self._recorder = recorder
        self._lease = lease
        self._number = number

    @property
    def replica(self) -> _core.Replica | None:
        return self._lease.replica

    @property
    def outcome(self) -> _core.Outcome:
        return self._lease.outcome

    @property
    def decision(self) -> _core.Decision:
        return self._lease.decision

    def finish(self, usage: _core.Usage | None = None) -> None:
        """The engine answered; `usage` is what it said of the tokens."""
        self._recorder._end(self._lease, self._number, "finish", usage)

    def cancel(self) -> None:
        """The caller does not want the answer any more."""
        self._recorder._end(self._lease, self._number, "cancel", None)

    def fail(self) -> None:
        """The replica did not serve the turn."""
        self._recorder._end(self._lease, self._number, "fail", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.cancel()

    def __del__(self) -> None:
        self.cancel()


class _Tap:
    """A metrics parser that keeps what the last page said."""

    def __init__(self, parser: MetricsParser) -> None:
        self._parser = parser
        self.readings: list[_core.Reading] = []

    def parse(self, page: bytes) -> list[_core.Reading] | _core.ParseStatus:
        found = self._parser.parse(page)
        if isinstance(found, _core.ParseStatus):
            return found
        self.readings = list(found)
        return self.readings


class Recorder:
    """A router that writes down what it is asked and told, so that it can be replayed.

    `write` receives whole lines, newline included. `names` and `options` are Router's; its clock is
    the recorder's own, moved to the monotonic time at every call. Thread-safe: one call at a time.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        names: Iterable[str] = (),
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        max_num_seqs: int | None = None,
        metrics: MetricsParser | None = None,
        **options: Any,
    ) -> None:
        self._write = write
        self._now_ns = now_ns
        self._lock = threading.RLock()
        self._leases = 0
        epoch = now_ns() // 1_000_000_000
        self._epoch_ns = epoch * 1_000_000_000
        self._t = 0
        self._clock = _core.ManualClock(float(epoch))
        self._parser = _Tap(_core.VllmMetrics() if metrics is None else metrics)
        self.router = _core.Router([], clock=self._clock, metrics=self._parser, **options)
        header = {"record": "limpet decisions", "version": 1, "epoch": epoch, "affinity": "on"}
        if self.router.affinity is _core.Affinity.off:
            header["affinity"] = "off"
        self._line(header)
        for name in names:
            self.add_replica(name, max_num_seqs=max_num_seqs)

    def route(
        self,
        key: str | bytes | _core.KeyHash | None = None,
        *,
        parent: str | bytes | _core.KeyHash | None = None,
        client_pinned: str | None = None,
        exclude: Iterable[str] = (),
        prompt_tokens: int = 0,
        side_call: bool = False,
    ) -> RecordedLease:
        """As Router.route()."""
        exclude = list(exclude)
        with self._lock:
            event: dict[str, object] = {"t": self._tick(), "do": "route"}
            lease = self.router.route(
                key,
                parent=parent,
                client_pinned=client_pinned,
                exclude=exclude,
                prompt_tokens=prompt_tokens,
                side_call=side_call,
            )
            self._leases += 1
            event["lease"] = self._leases
            for name, given in (("key", key), ("parent", parent)):
                if given is not None:
                    hashed = given if isinstance(given, _core.KeyHash) else self.router.hash(given)
                    event[name] = bytes(hashed).hex()
            if client_pinned is not None:
                event["client_pinned"] = client_pinned
            if exclude:
                event["exclude"] = exclude
            if prompt_tokens:
                event["prompt_tokens"] = prompt_tokens
            if side_call:
                event["side_call"] = 1
            decision = lease.decision
            event["outcome"] = decision.outcome.name
            if decision.replica is not None:
                event["replica"] = decision.replica.name
            if decision.home is not None:
                event["home"] = decision.home.name
            self._line(event)
            return RecordedLease(self, lease, self._leases)

    def add_replica(self, name: str, **options: Any) -> _core.Replica:
        """As Router.add_replica()."""
        with self._lock:
            t = self._tick()
            replica = self.router.add_replica(name, **options)
            given = {key: options[key] for key in _REPLICA if options.get(key) is not None}
            self._line({"t": t, "do": "add", "name": name, "endpoint": name, **given})
            return replica

    def observe(self, endpoint: str, page: str | bytes) -> _core.ParseStatus:
        """As Router.observe()."""
        with self._lock:
            t = self._tick()
            status = self.router.observe(endpoint, page)
            if status is _core.ParseStatus.ok:
                figures = [
                    {"engine": reading.engine}
                    | {f: v for f in _FIGURES if (v := getattr(reading, f)) is not None}
                    for reading in self._parser.readings
                ]
                self._line({"t": t, "do": "observe", "endpoint": endpoint, "readings": figures})
            return status

    def drain(self, name: str) -> None:
        """As Router.drain(), and so are the four below."""
        self._change("drain", name)

    def set_up(self, name: str) -> None:
        self._change("up", name)

    def set_down(self, name: str) -> None:
        self._change("down", name)

    def remove(self, name: str) -> None:
        self._change("remove", name)

    def restarted(self, name: str) -> None:
        self._change("restarted", name)

    def set_affinity(self, affinity: _core.Affinity) -> None:
        """As Router.set_affinity()."""
        with self._lock:
            t = self._tick()
            self.router.set_affinity(affinity)
            self._line({"t": t, "do": "affinity", "value": affinity.name})

    def _change(self, what: str, name: str) -> None:
        with self._lock:
            t = self._tick()
            getattr(self.router, _LIFE[what])(name)
            self._line({"t": t, "do": what, "name": name})

    def _end(self, lease: _core.Lease, number: int, how: str, usage: _core.Usage | None) -> None:
        with self._lock:
            if not lease.held:
                return
            event: dict[str, object] = {"t": self._tick(), "do": how, "lease": number}
            if usage is not None:
                event |= {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens}
                if usage.cached_tokens is not None:
                    event["cached"] = usage.cached_tokens
                lease.finish(usage)
            else:
                getattr(lease, how)()
            self._line(event)

    def _tick(self) -> int:
        t = max(self._now_ns() - self._epoch_ns, self._t)
        self._clock.advance((t - self._t) / 1e9)
        self._t = t
        return t

    def _line(self, event: dict[str, Any]) -> None:
        self._write(json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A turn that would have gone elsewhere, or by another row of the decision table."""

    line: int
    """Of the record, the first line being 1."""
    key: str | None
    """The conversation's key hash in hexadecimal."""
    recorded: tuple[str | None, str]
    """Replica and outcome, as the record says."""
    replayed: tuple[str | None, str]
    """Replica and outcome, as the policies of the replay say."""
    reason: str
    """Why: the decision's reason in a sentence."""

    @property
    def elsewhere(self) -> bool:
        """Whether the replica differs, not only the outcome."""
        return self.recorded[0] != self.replayed[0]


@dataclasses.dataclass(slots=True)
class Replay:
    """What a replay found."""

    turns: int = 0
    lines: int = 0
    differences: list[Difference] = dataclasses.field(default_factory=list)


class _Recorded:
    """A metrics parser whose page is the list of readings of one recorded line."""

    def __init__(self) -> None:
        self.readings: list[_core.Reading] = []

    def parse(self, _page: bytes) -> list[_core.Reading] | _core.ParseStatus:
        return self.readings


def replay(
    lines: Iterable[str],
    *,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Replay:
    """Plays a record through a router made with `options` (pins, scorer, overflow ...: Router's).

    At each turn the router's own decision is compared with the recorded one, and then the recorded
    one is followed, so that a difference is that turn's own and no consequence of an earlier one.
    With the options of the recorded router there is no difference. Raises ValueError, naming the
    line, for what is not a record.
    """
    player = _Player(options)
    number = 0
    for number, line in enumerate(_nonempty(lines), start=1):
        try:
            player.play(number, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"line {number}: not a record of decisions: {what}") from error
        if progress is not None:
            progress(number)
    if player.router is None:
        raise ValueError("line 1: not a record of decisions: it is empty")
    player.found.lines = number
    return player.found


def _nonempty(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip())


class _Player:
    def __init__(self, options: dict[str, Any]) -> None:
        self.found = Replay()
        self.router: _core.Router | None = None
        self._options = options
        self._leases: dict[int, _core.Lease] = {}
        self._replicas: dict[str, _core.Replica] = {}
        self._parser = _Recorded()
        self._t = 0

    def play(self, number: int, event: dict[str, Any]) -> None:
        if self.router is None:
            self._begin(event)
            return
        t = int(event["t"])
        if t < self._t:
            raise ValueError("time goes back")
        self._clock.advance((t - self._t) / 1e9)
        self._t = t
        what = event["do"]
        router = self.router
        if what == "route":
            self._route(number, router, event)
        elif what in ("finish", "cancel", "fail"):
            self._end(event)
        elif what in _LIFE:
            getattr(router, _LIFE[what])(event["name"])
        elif what == "add":
            given = {key: event[key] for key in _REPLICA if key in event}
            self._replicas[event["name"]] = router.add_replica(event["name"], **given)
        elif what == "observe":
            self._parser.readings = [_core.Reading(**reading) for reading in event["readings"]]
            router.observe(event["endpoint"], b"")
        elif what == "affinity":
            router.set_affinity(_core.Affinity[event["value"]])
        else:
            raise ValueError(f"unknown event {what!r}")

    def _begin(self, header: dict[str, Any]) -> None:
        if header.get("record") != "limpet decisions":
            raise ValueError("the first line does not say so")
        if header["version"] != 1:
            raise ValueError(f"version {header['version']} is not known")
        self._clock = _core.ManualClock(float(header["epoch"]))
        self.router = _core.Router([], clock=self._clock, metrics=self._parser, **self._options)
        self.router.set_affinity(_core.Affinity[header["affinity"]])

    def _route(self, number: int, router: _core.Router, event: dict[str, Any]) -> None:
        turn: dict[str, Any] = {
            name: event[name]
            for name in ("client_pinned", "exclude", "prompt_tokens")
            if name in event
        }
        if "side_call" in event:
            turn["side_call"] = True
        if "parent" in event:
            turn["parent"] = _core.KeyHash(bytes.fromhex(event["parent"]))
        key = _core.KeyHash(bytes.fromhex(event["key"])) if "key" in event else None
        recorded = (event.get("replica"), str(event["outcome"]))
        planned = router.plan(key, **turn)
        replica = planned.replica
        replayed = (None if replica is None else replica.name, planned.outcome.name)
        self.found.turns += 1
        if replayed == recorded:
            self._leases[event["lease"]] = router.route(key, **turn)
            return
        self.found.differences.append(
            Difference(number, event.get("key"), recorded, replayed, planned.reason.value)
        )
        if recorded[0] is not None:
            followed = _core._as_recorded(
                router, planned, self._replicas[recorded[0]], _core.Outcome[recorded[1]]
            )
            self._leases[event["lease"]] = router.commit(followed)

    def _end(self, event: dict[str, Any]) -> None:
        lease = self._leases.pop(event["lease"], None)
        if lease is None:
            return  # refused when it was recorded, or never routed
        if event["do"] == "finish" and "prompt" in event:
            lease.finish(
                _core.Usage(
                    prompt_tokens=event["prompt"],
                    cached_tokens=event.get("cached"),
                    completion_tokens=event["completion"],
                )
            )
        else:
            getattr(lease, event["do"])()
