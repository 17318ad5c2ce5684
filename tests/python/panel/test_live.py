# SPDX-License-Identifier: Apache-2.0
"""The panel while things change: turns that wait, switches, a gateway that goes and comes back.
What a switch did is asked of the gateway itself, beside the page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from panel.fleet import NAMES, RANKS, Fleet, running
from panel.reading import Open, button, eventually, expect, row, rows, shows

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fleet]:
    with running(tmp_path) as fleet:
        yield fleet


def test_a_turn_that_waits_is_seen_waiting_and_gone_when_it_ends(
    fresh: Fleet, open_page: Open
) -> None:
    page = open_page(fresh.panel)
    fresh.fault(kind="slow", factor=30)  # real time: some 25 s for so many tokens
    waiter = threading.Thread(target=fresh.turn, args=("a",), kwargs={"max_tokens": 1000})
    waiter.start()
    expect(page.locator("#waiting")).to_have_text("1")
    expect(page.locator("#waiting-note")).to_contain_text("longest")
    shows(page, lambda: sorted(line["In flight"] for line in rows(page, "replicas")), ["0", "1"])
    (busy,) = (line["Replica"] for line in rows(page, "replicas") if line["In flight"] == "1")
    shows(page, lambda: row(page, "replicas", busy)["Running"], "1")
    assert fresh.counter("num_requests_running", NAMES.index(busy)) == 1
    fresh.fault(kind="none")
    waiter.join()
    expect(page.locator("#waiting")).to_have_text("0")
    shows(page, lambda: [line["In flight"] for line in rows(page, "replicas")], ["0"] * RANKS)


def test_the_switches_do_what_they_say_and_undo_takes_it_back(
    fresh: Fleet, open_page: Open
) -> None:
    page = open_page(fresh.panel)
    said = page.locator("#message-words")
    affinity = page.get_by_role("switch", name="Affinity")
    expect(affinity).to_be_checked()
    affinity.click()
    expect(page.locator("#rule")).to_contain_text("affinity off")
    expect(affinity).not_to_be_checked()
    assert fresh.state()["affinity"] == "off"
    fresh.turn("a")
    expect(page.locator("#unrouted")).to_have_text("1")
    shows(page, lambda: rows(page, "decisions")[0]["Outcome"], "unrouted")
    button(page, "Undo").click()
    expect(affinity).to_be_checked()
    assert fresh.state()["affinity"] == "on"

    field = page.get_by_label("Spill threshold")
    field.fill("3")
    button(page, "Set").click()
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 3")
    assert fresh.state()["spill_threshold"] == {"value": 3, "auto": False}
    button(page, "Auto").click()
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 8 (auto)")
    assert fresh.state()["spill_threshold"] == {"value": 8, "auto": True}
    button(page, "Undo").click()
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 3")

    first, second = NAMES
    button(page, f"Drain {first}").click()
    expect(said).to_contain_text(f"{first} is draining")
    shows(page, lambda: row(page, "replicas", first)["State"], "draining")
    assert [one["state"] for one in fresh.state()["replicas"]] == ["draining", "up"]
    for conversation in "bcd":
        fresh.turn(conversation)
    shows(page, lambda: [line["Placed"] for line in rows(page, "replicas")], ["0", "3"])
    button(page, "Undo").click()
    shows(page, lambda: row(page, "replicas", first)["State"], "up")
    assert fresh.state()["replicas"][0]["state"] == "up"

    button(page, second).click()
    button(page, f"Set down {second}").click()
    expect(page.get_by_role("dialog")).to_contain_text("3 pinned conversations")
    button(page, "Set down").click()
    shows(page, lambda: row(page, "replicas", second)["State"], "down")
    fresh.turn("b")
    shows(page, lambda: rows(page, "decisions")[0]["Outcome"], "moved")
    assert rows(page, "decisions")[0]["Replica"] == first
    button(page, f"Take up {second}").click()
    shows(page, lambda: row(page, "replicas", second)["State"], "up")


def test_a_switch_goes_by_what_was_asked_for_last_however_late_the_answers(
    fresh: Fleet, open_page: Open
) -> None:
    page = open_page(fresh.panel)
    affinity = page.get_by_role("switch", name="Affinity")
    expect(affinity).to_be_checked()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/affinity", hold)

    affinity.click()
    expect(affinity).not_to_be_checked()
    affinity.click()
    expect(affinity).to_be_checked()
    affinity.click()
    expect(affinity).not_to_be_checked()
    assert fresh.state()["affinity"] == "on"  # nothing has been answered

    for count, wanted in enumerate(("off", "on", "off"), start=1):
        shows(page, lambda: len(held), count)
        held[-1].continue_()
        shows(page, lambda: fresh.state()["affinity"], wanted)
        expect(affinity).not_to_be_checked()
    expect(page.locator("#rule")).to_contain_text("affinity off")

    affinity.click()
    shows(page, lambda: len(held), 4)
    held[-1].abort()
    expect(page.locator("#message-words")).to_have_text("Not changed: the gateway does not answer")
    expect(affinity).not_to_be_checked()


def test_the_switches_can_be_reached_and_worked_without_a_mouse(
    fresh: Fleet, open_page: Open
) -> None:
    page = open_page(fresh.panel)
    expect(page.locator("#replicas")).to_be_visible()
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"

    def tab_to(target: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == target:
                # The focus can be seen.
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != (
                    "none"
                )
                return
        raise AssertionError(f"{target} was not reached")

    tab_to("affinity")
    page.keyboard.press("Space")
    eventually(page, lambda: fresh.state()["affinity"], lambda value: value == "off")
    page.keyboard.press("Space")
    eventually(page, lambda: fresh.state()["affinity"], lambda value: value == "on")
    tab_to("threshold")
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 2")
    assert page.evaluate(focused) == "threshold"
    tab_to("undo")
    page.keyboard.press("Enter")
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 8 (auto)")
    tab_to(f"Drain {NAMES[1]}")
    page.keyboard.press("Enter")
    shows(page, lambda: row(page, "replicas", NAMES[1])["State"], "draining")
    # The same button, which now takes it up again: updates have not taken the focus away.
    assert page.evaluate(focused) == f"Take up {NAMES[1]}"
    page.keyboard.press("Enter")
    shows(page, lambda: row(page, "replicas", NAMES[1])["State"], "up")


def test_a_lost_gateway_is_said_its_figures_stay_as_old_and_it_comes_back(
    fresh: Fleet, open_page: Open, picture: Callable[[Page, str], None]
) -> None:
    page = open_page(fresh.panel)
    fresh.turn("a")
    fresh.turn("a")
    shows(page, lambda: sorted(line["Sticky"] for line in rows(page, "replicas")), ["0", "1"])
    fresh.stop_gateway()
    expect(page.locator("#feed")).to_contain_text("feed lost: the gateway ")
    expect(page.locator("#feed")).to_contain_text("; figures of ")
    expect(page.locator("body")).to_have_class("stale")
    assert sorted(line["Sticky"] for line in rows(page, "replicas")) == ["0", "1"]
    page.get_by_role("switch", name="Affinity").click()
    expect(page.locator("#message-words")).to_have_text("Not changed: the gateway does not answer")
    picture(page, "lost")
    fresh.start_gateway()
    # In one glance, since a page that has come back by itself takes the button away.
    page.evaluate("() => { const b = document.getElementById('retry'); if (!b.hidden) b.click(); }")
    expect(page.locator("#feed-words")).to_have_text("live")
    expect(page.locator("body")).not_to_have_class("stale")
    # The new gateway counts anew.
    shows(page, lambda: [line["Sticky"] for line in rows(page, "replicas")], ["0", "0"])
