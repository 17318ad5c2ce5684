# SPDX-License-Identifier: Apache-2.0
"""The panel of a real gateway before simulated engines. Every figure that is checked here is traced
to somebody else's books: the engine's own metrics page, or the usage in the answers that a client
got."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from panel.fleet import NAMES, RANKS, SECRET, SESSION, Fleet, running
from panel.reading import (
    Open,
    button,
    drawn,
    eventually,
    expect,
    faint_texts,
    overflow,
    row,
    rows,
    shows,
)
from panel.scripted_gateway import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

BLOCK = 16  # tokens; PoolSettings.block_tokens


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that has served three conversations; one of them found its cache emptied."""
    with running(tmp_path_factory.mktemp("served")) as fleet:
        for conversation in "abc":
            for _ in range(3):
                fleet.turn(conversation)
        fleet.empty_caches()
        fleet.turn("a")
        yield fleet


def detail(page: Page, name: str, label: str) -> str:
    """What the opened row of replica `name` says beside `label`."""
    opened = page.locator("#replica-rows tr.detail").nth(NAMES.index(name))
    return opened.locator("dl > div", has_text=label).locator("dd").inner_text()


def test_a_row_a_replica_shows_what_the_engine_and_the_client_counted(
    served: Fleet, open_page: Open
) -> None:
    page = open_page(served.panel)
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 8 (auto)")
    asked = [served.counter("prefix_cache_queries_total", rank) for rank in range(RANKS)]
    found = [served.counter("prefix_cache_hits_total", rank) for rank in range(RANKS)]
    # The engines' counters and the usage of the answers are two accounts of the same tokens.
    assert sum(asked) == served.cached + served.computed
    assert sum(found) == served.cached

    def hits_of(name: str) -> str:
        return row(page, "replicas", name).get("Prefix hits", "").partition(" since")[0]

    for rank, name in enumerate(NAMES):
        shows(page, partial(hits_of, name), f"{100 * found[rank] / asked[rank]:.1f} %")
        button(page, name).click()
        assert detail(page, name, "Prefix tokens asked for") == f"{asked[rank]:,.0f}"
        assert detail(page, name, "Prefix tokens found") == f"{found[rank]:,.0f}"
        assert detail(page, name, "Endpoint") == served.engine
        assert detail(page, name, "Rank") == str(rank)
        line = row(page, "replicas", name)
        assert line["Running"] == f"{served.counter('num_requests_running', rank):.0f}"
        assert line["Waiting"] == f"{served.counter('num_requests_waiting', rank):.0f}"
        assert line["KV used"] == f"{100 * served.counter('kv_cache_usage_perc', rank):.1f} %"
        assert line["State"] == "up"
        assert float(line["Reading"].removesuffix(" s")) < 15
    lines = rows(page, "replicas")
    assert sum(int(line["Placed"]) for line in lines) == 3
    assert sum(int(line["Sticky"]) for line in lines) == 7
    assert [line["In flight"] for line in lines] == ["0"] * RANKS
    assert page.locator("#sticky-share").inner_text() == "100.0 %"


def test_the_timeline_holds_every_token_of_the_answers(served: Fleet, open_page: Open) -> None:
    page = open_page(served.panel)
    areas = drawn(page)
    for name, tokens in (("read from cache", served.cached), ("computed", served.computed)):
        *whole, last = areas[name]["y"]
        # Means over ten seconds; only the last is over as many as have passed of its own.
        sums = [10 * sum(whole) + seconds * last for seconds in range(1, 11)]
        assert any(total == pytest.approx(tokens, rel=1e-9) for total in sums), name
    expect(page.locator("#chart-words")).to_contain_text(
        f"Last hour: {served.cached:,} prompt tokens read from cache and "
        f"{served.computed:,} computed"
    )
    share = f"{100 * served.cached / (served.cached + served.computed):.1f} %"
    expect(page.locator(".share")).to_have_text(
        f"{share} from cache in the last hour, as measured by the engine, per request"
    )


def test_turns_are_classed_and_what_was_lost_is_priced(served: Fleet, open_page: Open) -> None:
    page = open_page(served.panel)
    shows(page, lambda: row(page, "classes", "lost").get("Turns", ""), "1")
    turns = {line["Class"]: line["Turns"] for line in rows(page, "classes")}
    assert turns == {
        "hit": "6", "partial": "0", "cold": "3", "misrouted": "0", "lost": "1", "diverged": "0",
        "unmeasured": "0",
    }  # fmt: skip
    # What home had read of `a` before its last turn: the turn before and its answer, whole blocks.
    before, last = served.usages["a"][-2:]
    read = (before["prompt_tokens"] + before["completion_tokens"]) // BLOCK * BLOCK
    assert last["prompt_tokens"] > read
    lost = row(page, "classes", "lost")
    assert lost["Computed again, tokens"] == f"{read - last['cached_tokens']:,}"
    assert lost["Meaning"] == "went home, and the engine had evicted it"


def test_a_decision_opens_into_every_replicas_score_by_term(served: Fleet, open_page: Open) -> None:
    page = open_page(served.panel)
    eventually(page, lambda: rows(page, "decisions"), lambda lines: len(lines) == 10)
    newest, *_, oldest = rows(page, "decisions")
    assert (newest["Outcome"], newest["Class"]) == ("sticky", "lost")
    assert newest["Prompt tokens"] == f"{served.usages['a'][-1]['prompt_tokens']:,}"
    assert (oldest["Outcome"], oldest["Class"], oldest["From cache"]) == ("placed", "cold", "0")
    page.locator("#decision-rows .disclosure").last.click()
    expect(page.get_by_text("The lowest score got the conversation.")).to_be_visible()
    table = page.locator(".explanation:visible")
    heads = table.locator("thead tr").nth(1).locator("th").all_inner_texts()
    assert heads[6:] == ["In flight", "KV usage", "Live conversations", "Score"]
    lines = [line.split("\t") for line in table.locator("tbody tr").all_inner_texts()]
    assert {line[0] for line in lines} == set(NAMES)
    assert sorted(line[1] for line in lines) == ["chosen", "eligible"]
    for line in lines:
        *terms, score = (float(text) for text in line[6:])
        assert score == pytest.approx(sum(terms), abs=0.02)


def test_nothing_that_a_client_said_is_on_the_page_or_in_the_api(
    served: Fleet, open_page: Open
) -> None:
    page = open_page(served.panel)
    eventually(page, lambda: rows(page, "decisions"), lambda lines: len(lines) == 10)
    texts = [page.content(), json.dumps(served.get("")), json.dumps(served.get("/timeline"))]
    texts += [json.dumps(served.get(f"/decisions/{one['id']}")) for one in served.decisions()]
    assert len(texts) == 13
    for text in texts:
        assert SESSION not in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 390, "light")],
)
def test_light_dark_and_narrow_are_readable(
    served: Fleet,
    open_page: Open,
    picture: Callable[[Page, str], None],
    name: str,
    width: int,
    scheme: str,
) -> None:
    page = open_page(served.panel, width=width, scheme=scheme)
    eventually(page, lambda: rows(page, "decisions"), lambda lines: len(lines) == 10)
    page.locator("#decision-rows .disclosure").first.click()
    expect(page.locator(".explanation:visible")).to_be_visible()
    button(page, NAMES[0]).click()
    drawn(page)
    page.wait_for_timeout(200)  # for the picture alone
    assert faint_texts(page) == []
    assert overflow(page) == 0
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 384) == (scheme == "dark")
    picture(page, name)
    page.evaluate("document.body.classList.add('stale')")
    assert faint_texts(page) == []


def test_narrow_cards_are_still_a_table_to_a_screen_reader(served: Fleet, open_page: Open) -> None:
    page = open_page(served.panel, width=390)
    eventually(page, lambda: len(rows(page, "replicas")), lambda length: length == RANKS)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    said: dict[str, list[str]] = {}
    for node in tree["nodes"]:
        role = node.get("role", {}).get("value", "")
        said.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    assert {"Replica", "In flight", "KV used", "Reading", "Class", "Outcome"} <= set(
        said["columnheader"]
    )
    assert {*NAMES, "All", "hit", "lost"} <= set(said["rowheader"])
    assert said["switch"] == ["Affinity"]
    assert f"Drain {NAMES[0]}" in said["button"]
    assert "Spill threshold" in said["spinbutton"]
    assert len(said["table"]) == 3


def test_a_token_is_asked_for_kept_in_the_tab_and_never_in_the_address(
    served: Fleet, open_page: Open
) -> None:
    page = open_page(served.panel, token=None)
    field = page.get_by_label("Token of this gateway's admin surface")
    expect(field).to_be_focused()
    expect(page.locator("#panel")).to_be_hidden()
    field.fill("not-the-token")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The gateway refuses this token.")
    field.fill(TOKEN)
    field.press("Enter")
    expect(page.locator("#replicas")).to_be_visible()
    expect(page.locator("#feed-words")).to_have_text("live")
    page.reload()
    expect(page.locator("#replicas")).to_be_visible()
    button(page, "Forget token").click()
    expect(field).to_be_focused()
    page.reload()
    expect(field).to_be_focused()

    page = open_page(served.panel)  # with #token=
    expect(page.locator("#replicas")).to_be_visible()
    assert page.url == served.panel
    assert TOKEN not in page.content()
    assert page.evaluate("history.length") <= 2
