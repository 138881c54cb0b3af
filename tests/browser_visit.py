"""A page in a real headless Chromium, and what it complained about or asked for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

PATIENCE = 180_000  # milliseconds: a machine under load is slow, not wrong
expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a browser: Debian's."""
    path = shutil.which("chromium")
    assert path, "there is no chromium: apt-get install -y chromium"
    with sync_playwright() as playwright:
        # Root, as in most containers, has no sandbox; the page is our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """An open page and what it complained about or asked for."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page: Page = browser.new_page(**options)
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)


def wait_until(page: Page, expression: str, arg: Any = None) -> None:
    """Wait until ``expression`` is true. Playwright's own way is for pages that allow eval."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)
