# SPDX-License-Identifier: Apache-2.0
"""The admission gate with awaitables: limpet.WorkingSetGate.

    gate = limpet.WorkingSetGate(router)
    async with gate.enter("conversation-key", prompt_tokens=11_043) as ticket:
        reply = await post(ticket.replica.name, body)
        ticket.finish(limpet.Usage.parse(reply))

Lets only as many conversations in at once as the replicas' KV caches hold; the others wait here,
where they cost nobody's cache. While everything fits it changes nothing. The rule, its figures and
every option's effect are told in include/limpet/gate/README.md. Times are seconds.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from limpet import _core
from limpet._core import Decision, GateReason, KeyHash, Outcome, Replica, Router, TicketState, Usage

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GateRefusedError", "GateReplica", "GateSnapshot", "GateTicket", "WorkingSetGate"]


class GateRefusedError(Exception):
    """The gate refused a turn: `reason` says why, `retry_after` in how many seconds a client may
    try again, an estimate that is at least 1."""

    def __init__(self, reason: GateReason, retry_after: float) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.retry_after = retry_after


@dataclass(frozen=True)
class GateReplica:
    """One replica as the gate sees it, in tokens. capacity_tokens None: unknown, and the replica
    lets everyone in. resident_tokens: what those inside count for, the shared prefix apart."""

    name: str
    capacity_tokens: int | None
    resident_tokens: int
    residents: int
    theta: float


@dataclass(frozen=True)
class GateSnapshot:
    """The gate at one moment. open: some replica that is up lets everyone in, since nobody told its
    capacity. waiting: turns, the longest of them for longest_wait. residents: conversations inside.
    passed, waited, refused, cancelled: turns let in at once, after a wait, refused, and given up
    while they waited. Of reusable_tokens that conversations inside had been read, lost_tokens
    were read again."""

    open: bool
    waiting: int
    longest_wait: float
    residents: int
    shared_prefix_tokens: int
    passed: int
    waited: int
    refused: int
    cancelled: int
    reusable_tokens: int
    lost_tokens: int
    replicas: tuple[GateReplica, ...]


def _tell(ticket: GateTicket | None) -> None:
    if ticket is not None:
        ticket._tell()


class GateTicket:
    """One turn at the gate. Await it, or enter it with `async with`: both wait until it is let in
    and raise GateRefusedError where it is refused. Who is cancelled meanwhile leaves the queue.

    At the end of an `async with` block the turn is finished, without usage, unless the block called
    finish(usage), cancel() or fail(); an exception cancels it. The first of these calls counts."""

    def __init__(self, gate: WorkingSetGate, arguments: dict[str, Any]) -> None:
        self._gate = gate
        self._settled: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Weak: the gate must not keep a ticket that nobody holds any more in its queue.
        this = weakref.ref(self)
        self._core = gate._core.enter(settled=lambda: _tell(this()), **arguments)

    @property
    def state(self) -> TicketState:
        """Where the turn is."""
        return self._core.state

    @property
    def reason(self) -> GateReason:
        """Why it is admitted, waits or is refused."""
        return self._core.reason

    @property
    def waited(self) -> float:
        """Seconds it waited before it was let in or refused."""
        return self._core.waited

    @property
    def replica(self) -> Replica | Any:
        """Where to send the turn; None until it is let in, and where affinity is off."""
        return self._core.replica

    @property
    def outcome(self) -> Outcome:
        """What the router made of it, once it is let in."""
        return self._core.outcome

    @property
    def decision(self) -> Decision | None:
        """The router's decision, once it is let in."""
        return self._core.decision

    def first_byte(self) -> None:
        """As Lease.first_byte(); nothing unless it is let in."""
        self._core.first_byte()

    def finish(self, usage: Usage | None = None) -> None:
        """The engine answered, and said `usage` of the tokens."""
        self._core.finish(usage)
        self._gate._set_timer()

    def cancel(self) -> None:
        """The caller does not want the answer any more, or does not want to wait."""
        self._core.cancel()
        self._gate._set_timer()

    def fail(self) -> None:
        """The replica did not serve the turn."""
        self._core.fail()
        self._gate._set_timer()

    async def _admitted(self) -> Self:
        if self._core.state is TicketState.waiting:
            self._loop = asyncio.get_running_loop()
            self._settled = self._loop.create_future()
            self._gate._set_timer()
            try:
                # Settled by another thread before the future was there: then nobody sets it.
                if self._core.state is TicketState.waiting:
                    await self._settled
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._core.state is TicketState.refused:
            raise GateRefusedError(self._core.reason, self._gate._retry_after())
        return self

    def _tell(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._admitted().__await__()

    async def __aenter__(self) -> Self:
        await self._admitted()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._core.state is TicketState.admitted:
            self.finish() if exc_type is None else self.cancel()

    def __repr__(self) -> str:
        where = f" to {self.replica.name}" if self.replica is not None else ""
        return f"<GateTicket {self.state.name}{where}: {self.reason.value}>"


class WorkingSetGate:
    """Lets only as many conversations in at once as the replicas' KV caches hold.

    theta: share of a replica's cache that they may fill. max_wait: from then on nobody who came
    later is let in first, and whoever has had min_turns and ends a turn makes way: longer is more
    output, for a longer wait of those who wait. min_turns: turns that a conversation can count on
    in one stay. grace: at most so long a conversation of usual size keeps its place between two
    turns while others wait, a larger one longer in proportion. deadline: after this wait a turn is
    refused; None: never. max_waiting: turns beyond are refused at once. shared_prefix_tokens: what
    all prompts begin with; None: learnt. kv_capacity_tokens: of replicas that neither the router's
    configuration nor their metrics page tells; None: such replicas let everyone in, and
    snapshot().open says so. automatic: theta follows what has to be read again.

    ValueError for an option that makes no sense. Tickets may be made and ended on any thread;
    those that are awaited must be so in one event loop, which also gives the gate its timer.
    Without a loop call tick() yourself.
    """

    def __init__(
        self,
        router: Router,
        *,
        theta: float = 0.95,
        max_wait: float = 60.0,
        min_turns: int = 2,
        grace: float = 2.0,
        deadline: float | None = 600.0,
        max_waiting: int = 1024,
        shared_prefix_tokens: int | None = None,
        kv_capacity_tokens: int | None = None,
        automatic: bool = False,
    ) -> None:
        self._core = _core._Gate(
            router,
            theta=theta,
            max_wait=max_wait,
            min_turns=min_turns,
            grace=grace,
            deadline=deadline,
            max_waiting=max_waiting,
            shared_prefix_tokens=shared_prefix_tokens,
            kv_capacity_tokens=kv_capacity_tokens,
            automatic=automatic,
        )
        self._timer: asyncio.TimerHandle | None = None

    def enter(
        self,
        key: str | bytes | KeyHash | None = None,
        *,
        parent: str | bytes | KeyHash | None = None,
        client_pinned: str | None = None,
        exclude: Iterable[str] = (),
        prompt_tokens: int | None = 0,
        side_call: bool = False,
    ) -> GateTicket:
        """A ticket for this turn, in the queue from now on where it has to wait. The arguments are
        those of Router.route; prompt_tokens matters here, an estimate will do."""
        return GateTicket(
            self,
            {
                "key": key,
                "parent": parent,
                "client_pinned": client_pinned,
                "exclude": tuple(exclude),
                "prompt_tokens": prompt_tokens,
                "side_call": side_call,
            },
        )

    def tick(self) -> None:
        """Lets in and refuses whom time has brought so far. Tickets that are awaited need no call
        of it."""
        self._core.tick()

    def snapshot(self) -> GateSnapshot:
        """The gate now."""
        now = self._core.snapshot()
        replicas = tuple(GateReplica(**row) for row in now.pop("replicas"))
        return GateSnapshot(**now, replicas=replicas)

    def _retry_after(self) -> float:
        return max(1.0, self.snapshot().longest_wait)

    def _set_timer(self) -> None:
        """One timer for the next moment at which time alone may let somebody in."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # another thread: the loop's own next call sets it
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_in = self._core.wake_in()
        if wake_in is not None:
            # A little late, since the clock may be a tick of the kernel behind.
            self._timer = loop.call_later(wake_in + 0.005, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._core.tick()
        self._set_timer()
