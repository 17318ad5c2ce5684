# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for the tests of the panel, and what a person would read off the page.

Every page that a test opens is watched: a request to another host or an uncaught error fails the
test. Pictures for people to look at go to build/screenshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:  # what is not installed costs these tests alone
    from playwright.sync_api import Browser, Page

    from panel.reading import Open
    from panel.scripted_gateway import ScriptedGateway

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 20_000  # ms; the deadline of every wait, long because the machine may be busy


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: bash tests/setup.sh tests installs it")
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages, each in a context of its own, and judges them when the test is over."""
    from panel.scripted_gateway import TOKEN  # noqa: PLC0415

    contexts = []
    requested: list[tuple[str, str]] = []
    errors: list[str] = []

    def open_one(
        url: str, *, width: int = 1280, scheme: str = "light", token: str | None = TOKEN
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.on("request", lambda request: requested.append((url, request.url)))
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url if token is None else f"{url}#token={token}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not errors
    assert requested
    for url, request in requested:
        address = urlsplit(request)
        assert address.scheme == "data" or address.netloc == urlsplit(url).netloc, request


@pytest.fixture
def scripted() -> Iterator[ScriptedGateway]:
    from panel.scripted_gateway import ScriptedGateway  # noqa: PLC0415

    gateway = ScriptedGateway()
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    folder = Path(__file__).parents[3] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return take
