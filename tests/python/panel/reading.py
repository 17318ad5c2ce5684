# SPDX-License-Identifier: Apache-2.0
"""Reads the panel as a person does: by headings of tables, names of buttons and visible words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from playwright.sync_api import expect as expect  # noqa: PLC0414 (exported)
else:  # a test module that imports this is skipped where there is no Playwright
    expect = pytest.importorskip("playwright.sync_api").expect

UNKNOWN = "\N{EN DASH}"

_T = TypeVar("_T")


class Open(Protocol):
    def __call__(
        self, url: str, *, width: int = 1280, scheme: str = "light", token: str | None = ...
    ) -> Page: ...


def eventually(page: Page, read: Callable[[], _T], holds: Callable[[_T], bool]) -> _T:
    """What `read` gives once it `holds`; fails after 20 s with what it gave last."""
    deadline = time.monotonic() + 20
    while True:
        value = read()
        if holds(value):
            return value
        assert time.monotonic() < deadline, value
        page.wait_for_timeout(50)


def shows(page: Page, read: Callable[[], _T], wanted: _T) -> None:
    eventually(page, read, lambda value: value == wanted)


def rows(page: Page, table: str) -> list[dict[str, str]]:
    """The visible rows of the table with this id, as column heading -> text, in one glance."""
    found: list[dict[str, str]] = page.evaluate(
        """(id) => {
          const table = document.getElementById(id);
          const heads = [...table.tHead.rows].at(-1).cells;
          const names = [...heads].map((cell) => cell.innerText.trim());
          const lines = [...table.tBodies[0].rows].filter((row) => !row.matches(".detail"));
          return lines.map((row) => Object.fromEntries([...row.cells].map(
            (cell, place) => [names[place], cell.innerText.trim().replace(/\\s+/g, " ")])));
        }""",
        table,
    )
    return found


def row(page: Page, table: str, name: str) -> dict[str, str]:
    """The row whose first cell reads `name`; empty when there is none."""
    return next((line for line in rows(page, table) if next(iter(line.values())) == name), {})


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def drawn(page: Page) -> dict[str, Any]:
    """What the chart draws: for each area its name, its times (s, as written) and its values."""
    areas: list[dict[str, Any]] = eventually(
        page,
        lambda: page.evaluate(
            "(document.getElementById('chart').data ?? []).map(({name, x, y}) => ({name, x, y}))"
        ),
        lambda found: len(found) == 2,
    )
    return {area["name"]: area for area in areas}


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wider


def faint_texts(page: Page) -> list[str]:
    """Every visible text whose contrast with its ground is below 4.5, WCAG 2.2's level AA."""
    found: list[str] = page.evaluate(
        """() => {
          const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const light = ([red, green, blue]) => [red, green, blue].reduce((sum, part, place) => {
            const value = part / 255;
            const linear = value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
            return sum + linear * [0.2126, 0.7152, 0.0722][place];
          }, 0);
          const ground = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const colour = parse(getComputedStyle(at).backgroundColor);
              if (colour.length === 3 || colour[3] === 1) return colour;
            }
            return parse(getComputedStyle(document.body).backgroundColor);
          };
          const faint = [];
          const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) {
            const node = walk.currentNode.parentElement;
            const text = walk.currentNode.textContent.trim();
            if (!text || !node.checkVisibility() || node.closest("script, template")) continue;
            const style = getComputedStyle(node);
            const ink = parse(node.closest("svg") ? style.fill : style.color);
            const [above, below] = [light(ink), light(ground(node))].sort((a, b) => b - a);
            const contrast = (above + 0.05) / (below + 0.05);
            if (contrast < 4.5) faint.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`);
          }
          return faint;
        }"""
    )
    return found
