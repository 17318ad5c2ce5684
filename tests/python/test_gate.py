# SPDX-License-Identifier: Apache-2.0
"""limpet.WorkingSetGate: awaitables over the C++ gate, which tests/gate judges."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import limpet
import pytest
from limpet import GateReason, TicketState


def pool(
    capacity: int | None = 10_000, **options: Any
) -> tuple[limpet.WorkingSetGate, limpet.ManualClock]:
    """One replica whose cache holds `capacity` tokens, filled to the brim."""
    clock = limpet.ManualClock()
    router = limpet.Router(clock=clock)
    router.add_replica("gpu0", kv_capacity_tokens=capacity)
    return limpet.WorkingSetGate(router, theta=1.0, shared_prefix_tokens=0, **options), clock


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def usage(prompt: int) -> limpet.Usage:
    return limpet.Usage(prompt_tokens=prompt)


def test_a_turn_that_fits_comes_in_at_once() -> None:
    async def main() -> None:
        gate, _ = pool()
        async with gate.enter("a", prompt_tokens=9_000) as ticket:
            assert ticket.replica.name == "gpu0"
            assert ticket.outcome is limpet.Outcome.placed
            assert ticket.reason is GateReason.room
            assert ticket.decision is not None and ticket.decision.prompt_tokens == 9_000
            assert repr(ticket) == "<GateTicket admitted to gpu0: there was room>"
            ticket.finish(usage(9_000))
        assert ticket.state is TicketState.ended
        assert gate.snapshot().residents == 1

    run(main())


def test_a_first_byte_is_told_to_the_router() -> None:
    async def main() -> None:
        clock = limpet.ManualClock()
        router = limpet.Router(["gpu0"], clock=clock)
        gate = limpet.WorkingSetGate(router)

        def pending() -> int | None:
            return router.snapshot().replicas[0].pending_prefill_tokens

        async with gate.enter("a", prompt_tokens=700) as ticket:
            assert pending() == 700
            ticket.first_byte()
            assert pending() == 0
        ticket.first_byte()
        assert pending() == 0

    run(main())


def test_one_that_does_not_fit_waits_for_the_end_of_another() -> None:
    async def main() -> None:
        gate, clock = pool()
        first = await gate.enter("a", prompt_tokens=9_000)
        second = asyncio.ensure_future(gate.enter("b", prompt_tokens=9_000)._admitted())
        await asyncio.sleep(0)
        assert gate.snapshot().waiting == 1
        clock.advance(3.0)
        first.cancel()
        ticket = await second
        assert ticket.reason is GateReason.waited
        assert ticket.waited == 3.0
        ticket.finish(usage(9_000))

    run(main())


def test_time_alone_lets_the_next_one_in_by_the_loops_timer() -> None:
    async def main() -> None:
        router = limpet.Router()  # the real clock
        router.add_replica("gpu0", kv_capacity_tokens=10_000)
        gate = limpet.WorkingSetGate(router, grace=0.05)
        async with gate.enter("a", prompt_tokens=8_000) as ticket:
            ticket.finish(usage(8_000))
        async with gate.enter("b", prompt_tokens=8_000) as ticket:
            assert ticket.reason is GateReason.waited

    run(main())


def test_a_waiter_that_is_cancelled_leaves_the_queue_at_once() -> None:
    async def main() -> None:
        gate, _ = pool()
        first = await gate.enter("a", prompt_tokens=9_000)

        async def turn() -> None:
            async with gate.enter("b", prompt_tokens=9_000):
                raise AssertionError("let in")

        waiter = asyncio.ensure_future(turn())
        await asyncio.sleep(0)
        assert gate.snapshot().waiting == 1
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert gate.snapshot().waiting == 0
        assert gate.snapshot().cancelled == 1
        first.cancel()

    run(main())


def test_refusals_raise_and_say_why() -> None:
    async def main() -> None:
        gate, clock = pool(max_waiting=1, deadline=30.0)
        first = await gate.enter("a", prompt_tokens=9_000)
        waiter = asyncio.ensure_future(gate.enter("b", prompt_tokens=9_000)._admitted())
        await asyncio.sleep(0)
        with pytest.raises(limpet.GateRefusedError, match="too many turns wait") as full:
            await gate.enter("c", prompt_tokens=9_000)
        assert full.value.reason is GateReason.too_many_waiting
        assert full.value.retry_after >= 1.0
        clock.advance(30.0)
        gate.tick()
        with pytest.raises(limpet.GateRefusedError, match="waited too long"):
            await waiter
        first.cancel()

    run(main())


def test_an_exception_in_the_block_gives_the_slot_back() -> None:
    async def main() -> None:
        gate, _ = pool()
        with pytest.raises(KeyError):
            async with gate.enter("a", prompt_tokens=9_000):
                raise KeyError
        assert gate.snapshot().residents == 0  # nothing was read

    run(main())


def test_tickets_work_without_a_loop() -> None:
    gate, _ = pool()
    first = gate.enter("a", prompt_tokens=9_000)
    second = gate.enter("b", prompt_tokens=9_000)
    seen = [first.state, second.state]
    assert second.replica is None
    first.fail()
    seen.append(second.state)
    second.finish()
    seen.append(second.state)
    assert [state.name for state in seen] == ["admitted", "waiting", "admitted", "ended"]


def test_a_ticket_that_nobody_holds_leaves() -> None:
    gate, _ = pool()
    first = gate.enter("a", prompt_tokens=9_000)
    gate.enter("b", prompt_tokens=9_000)
    gc.collect()
    assert gate.snapshot().waiting == 0
    first.cancel()


def test_many_tasks_all_get_in_and_never_too_many_at_once() -> None:
    async def main() -> None:
        gate, clock = pool(30_000, grace=0.0)
        inside = most = served = 0

        async def session(name: int) -> None:
            nonlocal inside, most, served
            for _ in range(3):
                async with gate.enter(f"c{name}", prompt_tokens=9_000) as ticket:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    clock.advance(0.1)
                    inside -= 1
                    served += 1
                    ticket.finish(usage(9_000))

        await asyncio.gather(*(session(i) for i in range(20)))
        assert (served, most) == (60, 3)
        assert gate.snapshot().waiting == 0

    run(main())


def test_without_a_capacity_it_is_open_and_says_so() -> None:
    gate, _ = pool(None)
    tickets = [gate.enter(f"c{i}", prompt_tokens=90_000) for i in range(50)]
    assert all(ticket.state is TicketState.admitted for ticket in tickets)
    now = gate.snapshot()
    assert now.open and now.replicas[0].capacity_tokens is None
    assert now.replicas[0].name == "gpu0"


@pytest.mark.parametrize(
    ("options", "text"),
    [({"theta": 0.0}, "theta"), ({"min_turns": 0}, "min_turns"), ({"max_wait": -1.0}, "max_wait")],
)
def test_a_bad_option_names_itself(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        limpet.WorkingSetGate(limpet.Router(["gpu0"]), **options)


def test_it_wants_a_router() -> None:
    with pytest.raises(TypeError, match=r"router must be a limpet\.Router"):
        limpet.WorkingSetGate("gpu0")  # type: ignore[arg-type]
