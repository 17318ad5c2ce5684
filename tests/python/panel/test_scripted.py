# SPDX-License-Identifier: Apache-2.0
"""What the page does with states that a real gateway reaches slowly or seldom, written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from panel.reading import (
    UNKNOWN,
    Open,
    button,
    drawn,
    eventually,
    expect,
    overflow,
    row,
    rows,
    shows,
)
from panel.scripted_gateway import ScriptedGateway, replica, state

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC, 09:00:00 in the browser's Berlin


def decision(number: int, **said: Any) -> dict[str, Any]:
    return {
        "id": number,
        "at": NOW + number,
        "kind": "main",
        "outcome": "sticky",
        "reason": "home has room",
        "replica": "gpu0",
        "home": "gpu0",
        "class": None,
        "prompt_tokens": None,
        "cached_tokens": None,
        **said,
    }


def test_what_nobody_has_said_is_a_dash_and_what_is_zero_is_zero(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    scripted.document = state(replicas=[replica("gpu0", kv_usage=0.0, reading_age=0.0)])
    page = open_page(scripted.url)
    expect(page.locator("#replicas")).to_be_visible()
    line = row(page, "replicas", "gpu0")
    assert line == {
        "Replica": "gpu0",
        "State": "up",
        "Switch": "Drain",
        "In flight": "0",
        "Sticky": "0",
        "Spilled in": "0",
        "Placed": "0",
        "Running": UNKNOWN,
        "Waiting": UNKNOWN,
        "KV used": "0.0 %",
        "Prefix hits": UNKNOWN,
        "Reading": "0.0 s",
    }
    assert page.locator("#sticky-share").inner_text() == UNKNOWN
    assert page.locator("#cache-share").inner_text() == UNKNOWN


def test_figures_are_grouped_shares_have_a_decimal_and_totals_are_sums_of_what_is_known(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    said = {"prefix_hit_since": NOW - 90_000, "prefix_hit_rate_5m": 0.5}
    scripted.document = state(
        replicas=[
            replica("gpu0", sticky=1_234_567, running=3.0, prefix_queries=1e8, prefix_hits=9e7,
                    prefix_hit_rate=0.9, **said),
            replica("gpu1", sticky=1, prefix_queries=9e8, prefix_hits=1e7,
                    prefix_hit_rate=0.0111, prefix_hit_since=NOW - 3600),
        ]
    )  # fmt: skip
    page = open_page(scripted.url)
    expect(page.locator("#replicas")).to_be_visible()
    first, second = rows(page, "replicas")
    assert first["Sticky"] == "1,234,567"
    assert first["Prefix hits"] == "90.0 % since 14 Jan 08:00, 5 min: 50.0 %"
    assert second["Prefix hits"] == "1.1 % since 08:00"
    totals = page.locator("#replica-totals").inner_text().split()
    assert "1,234,568" in totals
    # 100 million of 1,000 million tokens: not the mean of the two shares.
    assert page.locator("#replica-totals [data-is=prefix_hits]").inner_text() == "10.0 %"
    assert page.locator("#replica-totals [data-is=running]").inner_text() == "3"
    assert page.locator("#replica-totals [data-is=waiting]").inner_text() == UNKNOWN


def test_a_reading_older_than_the_router_trusts_is_marked(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    ages = [replica("a", reading_age=15.0), replica("b", reading_age=15.1), replica("c")]
    scripted.document = state(replicas=ages)
    page = open_page(scripted.url)
    expect(page.locator("#replicas")).to_be_visible()
    assert [line["Reading"] for line in rows(page, "replicas")] == ["15 s", "15 s, stale", UNKNOWN]
    scripted.document = state(replicas=ages, reading_max_age=10.0)
    shows(page, lambda: row(page, "replicas", "a")["Reading"], "15 s, stale")


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        ({"value": 8, "auto": True}, "affinity on, spill threshold 8 (auto)"),
        ({"value": 3, "auto": False}, "affinity on, spill threshold 3"),
        ({"value": None, "auto": True}, "affinity on, spill threshold auto"),
        ({"value": None, "auto": False}, "affinity on, no spill threshold"),
    ],
)
def test_the_rule_is_said_in_words(
    scripted: ScriptedGateway, open_page: Open, threshold: dict[str, Any], words: str
) -> None:
    scripted.document = state(spill_threshold=threshold)
    page = open_page(scripted.url)
    expect(page.locator("#rule")).to_have_text(words)
    has_threshold = threshold != {"value": None, "auto": False}
    expect(page.get_by_label("Spill threshold")).to_be_visible(visible=has_threshold)


def test_waiting_turns_say_how_long_and_why(scripted: ScriptedGateway, open_page: Open) -> None:
    reasons = {"working_set": 2, "tenant_limit": 1}
    scripted.document = state(waiting={"turns": 3, "longest": 75.2, "reasons": reasons})
    page = open_page(scripted.url)
    expect(page.locator("#waiting")).to_have_text("3")
    expect(page.locator("#waiting-note")).to_have_text(
        "longest 75 s; working set: 2; tenant limit: 1"
    )


def test_a_name_that_looks_like_markup_or_a_path_is_a_name(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    names = ["<img src=x onerror=alert(1)>", "http://10.0.0.1:8000/v1?a#b"]
    scripted.document = state(replicas=[replica(name) for name in names])
    page = open_page(scripted.url)
    expect(page.locator("#replicas")).to_be_visible()
    assert [line["Replica"] for line in rows(page, "replicas")] == names
    button(page, f"Drain {names[1]}").click()
    expect(page.get_by_role("status")).to_contain_text([f"{names[1]} is draining"])
    assert scripted.posts == [(f"replicas/{names[1]}/drain", {})]


def test_a_feed_that_falls_silent_is_lost_its_figures_are_old_and_it_comes_back(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    page = open_page(scripted.url, token=None)
    # From here on the page's time stands, but for what run_for() lets pass.
    page.clock.install(time=1000)
    page.clock.pause_at(1001)
    page.goto(f"{scripted.url}?#token={scripted.token}")
    expect(page.locator("#feed")).to_contain_text("live")
    scripted.silent = True
    scripted.document["refused"] = 1
    page.clock.run_for(4_900)
    expect(page.locator("#feed")).to_contain_text("live")
    page.clock.run_for(200)
    expect(page.locator("#feed")).to_contain_text(
        "feed lost: the feed fell silent; figures of 09:00:00"
    )
    expect(page.locator("#feed")).to_contain_text("next try in 1 s")
    expect(page.locator("body")).to_have_class("stale")
    expect(page.locator("#replicas")).to_be_visible()
    expect(page.locator("#refused")).to_have_text("0")
    scripted.silent = False
    page.clock.run_for(1_000)
    expect(page.locator("#feed")).to_contain_text("live")
    expect(page.locator("#refused")).to_have_text("1")
    expect(page.locator("body")).not_to_have_class("stale")


def test_a_turn_learns_its_class_in_place_and_new_ones_leave_the_focus_alone(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    scripted.document = state(decisions=[decision(1)])
    page = open_page(scripted.url)
    page.locator("#decision-rows .disclosure").focus()
    assert rows(page, "decisions")[0]["Class"] == UNKNOWN
    many = [decision(number) for number in range(100, 1, -1)]
    finished = decision(1, **{"class": "hit", "prompt_tokens": 11_043, "cached_tokens": 10_752})
    scripted.document = state(decisions=[*many, finished])
    # 20 rows are shown, and the one that somebody is on.
    eventually(page, lambda: len(rows(page, "decisions")), lambda length: length == 21)
    line = rows(page, "decisions")[-1]
    assert (line["Time"], line["Class"], line["Prompt tokens"], line["From cache"]) == (
        "09:00:01", "hit", "11,043", "10,752",
    )  # fmt: skip
    assert page.evaluate("document.activeElement.textContent") == "09:00:01"
    button(page, "Show the last 100").click()
    eventually(page, lambda: len(rows(page, "decisions")), lambda length: length == 100)


def test_an_explanation_opens_and_holds_the_list_until_it_is_closed(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    terms = {"in_flight": 2.0, "kv_usage": 1.6, "live_conversations": 4.0}
    common = {"in_flight": 2, "live_conversations": 4, "kv_usage": 0.2, "reading_age": 1.5}
    scripted.document = state(decisions=[decision(1), decision(0)])
    scripted.explanations[1] = decision(
        1,
        rows=[
            {"name": "gpu0", "standing": "chosen", "home": True, "overloaded": False,
             "score": 7.6, "terms": terms, **common},
            {"name": "gpu1", "standing": "down", "home": False, "overloaded": True,
             "score": None, "terms": {}, **common},
        ],
    )  # fmt: skip
    page = open_page(scripted.url)
    newest = button(page, "09:00:01")
    newest.press("Enter")
    expect(newest).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_text("Sent to gpu0 (sticky): home has room.")).to_be_visible()
    table = page.locator(".explanation:visible")
    assert [text.split("\t") for text in table.locator("tr").all_inner_texts()[1:]] == [
        ["Replica", "Standing", "In flight", "Live conversations", "KV used", "Reading",
         "In flight", "KV usage", "Live conversations", "Score"],
        ["gpu0 (home)", "chosen", "2", "4", "20.0 %", "1.5 s", "2.00", "1.60", "4.00", "7.60"],
        ["gpu1", "down, overloaded", "2", "4", "20.0 %", "1.5 s", *[UNKNOWN] * 4],
    ]  # fmt: skip
    # Thirty older ones are not newer, though they are not shown either.
    scripted.document = state(decisions=[decision(number) for number in range(3, -31, -1)])
    expect(page.get_by_text("held, 2 newer")).to_be_visible()
    assert len(rows(page, "decisions")) == 2
    newest.press("Enter")
    expect(table).to_be_hidden()
    eventually(page, lambda: len(rows(page, "decisions")), lambda length: length == 20)
    button(page, "09:00:00").click()
    expect(page.get_by_text("No explanation: this decision is no longer kept")).to_be_visible()


def test_a_refused_change_is_said_and_changes_nothing(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    scripted.refusal = "the threshold is set by the configuration"
    page = open_page(scripted.url)
    page.get_by_label("Spill threshold").fill("3")
    page.get_by_label("Spill threshold").press("Enter")
    said = page.get_by_text("Not changed: the threshold is set by the configuration")
    expect(said).to_be_visible()
    expect(button(page, "Undo")).to_be_hidden()
    assert scripted.posts == [("threshold", {"threshold": 3})]


def test_a_threshold_that_is_being_typed_is_left_alone_and_a_senseless_one_is_not_sent(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    page = open_page(scripted.url)
    field = page.get_by_label("Spill threshold")
    expect(field).to_have_value("8")
    field.fill("0")
    scripted.document = state(spill_threshold={"value": 5, "auto": False})
    expect(page.locator("#rule")).to_have_text("affinity on, spill threshold 5")
    expect(field).to_have_value("0")
    button(page, "Set").click()
    expect(page.get_by_text("a whole number from 1 to 1,000,000")).to_be_visible()
    assert scripted.posts == []
    field.press("Escape")
    expect(field).to_have_value("5")


def test_setting_a_replica_down_asks_first(scripted: ScriptedGateway, open_page: Open) -> None:
    scripted.document = state(replicas=[replica("gpu0", pins=12), replica("gpu1")])
    page = open_page(scripted.url)
    button(page, "gpu0").click()
    button(page, "Set down gpu0").click()
    expect(page.get_by_role("dialog", name="Set gpu0 down?")).to_contain_text(
        "12 pinned conversations move"
    )
    page.keyboard.press("Escape")
    button(page, "Set down gpu0").click()
    button(page, "Leave it").click()
    assert scripted.posts == []
    button(page, "Set down gpu0").click()
    button(page, "Set down").click()
    eventually(page, lambda: scripted.posts, lambda posts: posts == [("replicas/gpu0/down", {})])
    button(page, "Undo").click()
    eventually(page, lambda: scripted.posts[1:], lambda posts: posts == [("replicas/gpu0/up", {})])


def test_the_hour_is_drawn_in_means_of_ten_seconds_that_keep_every_token(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    cached = [(7 * second) % 1013 for second in range(3600)]
    computed = [(11 * second) % 97 for second in range(3600)]
    now = NOW + 4.5  # within a step, so that the first and the last mean are short
    scripted.timeline = {"now": now, "cached": cached, "computed": computed}
    page = open_page(scripted.url)
    areas = drawn(page)
    assert list(areas) == ["read from cache", "computed"]
    # The ring's last second is 08:00:04 UTC, its first 07:00:05.
    times = areas["computed"]["x"]
    assert len(times) == 361
    assert times[:2] == ["2027-01-15 08:00:05", "2027-01-15 08:00:10"]
    assert times[-1] == "2027-01-15 09:00:00"
    lengths = [5, *[10] * 359, 5]
    for name, counted in (("read from cache", cached), ("computed", computed)):
        values = areas[name]["y"]
        assert values[0] == sum(counted[:5]) / 5
        assert values[1] == sum(counted[5:15]) / 10
        total = sum(value * length for value, length in zip(values, lengths, strict=True))
        assert total == pytest.approx(sum(counted), rel=1e-12)
    expect(page.locator("#chart-words")).to_have_text(
        f"Last hour: {sum(cached):,} prompt tokens read from cache and {sum(computed):,} computed, "
        f"{100 * sum(cached) / sum(cached + computed):.1f} % from cache; means of 10 s."
    )
    page.get_by_label("5 min", exact=True).check()
    shows(page, lambda: len(drawn(page)["computed"]["y"]), 300)
    assert drawn(page)["computed"]["y"] == computed[-300:]


def test_without_plotly_the_chart_says_so_and_the_figures_stand(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    page = open_page(scripted.url, token=None)
    page.route("**/plotly.min.js", lambda route: route.fulfill(status=404))
    page.goto(f"{scripted.url}?#token={scripted.token}")
    expect(page.locator("#chart")).to_contain_text("pip install 'limpet[gateway]'")
    expect(page.locator("#chart-words")).to_have_text("No prompt token was read in the last hour.")


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_long_names_and_large_figures_do_not_make_the_page_scroll_sideways(
    scripted: ScriptedGateway, open_page: Open, width: int
) -> None:
    name = "inference-cluster-eu-central-1-node-000017.example.internal:8000/rank-3"
    large = replica(
        name, sticky=10**12, placed=10**12, in_flight=10**6, state="draining", kv_usage=1.0,
        prefix_hit_rate=1.0, prefix_hit_since=NOW - 1e6, prefix_hit_rate_5m=1.0,
        prefix_queries=1e15, prefix_hits=1e15, reading_age=9e5,
    )  # fmt: skip
    scripted.document = state(
        pool="organisation-" + "coder" * 15,
        replicas=[large, replica("gpu1")],
        decisions=[decision(1, replica=name, home=name, reason="its pin was stale: " * 4)],
    )
    page = open_page(scripted.url, width=width)
    button(page, name).click()
    button(page, "09:00:01").click()
    expect(page.get_by_text("No explanation")).to_be_visible()
    assert overflow(page) == 0


def test_a_replica_that_has_gone_takes_its_row_along_and_the_focus_stays_near(
    scripted: ScriptedGateway, open_page: Open
) -> None:
    page = open_page(scripted.url)
    button(page, "Drain gpu1").focus()
    scripted.document = state(replicas=[replica("gpu0")])
    eventually(page, lambda: len(rows(page, "replicas")), lambda length: length == 1)
    assert page.evaluate("document.activeElement.textContent") == "Replicas"
