"""Photograph the saved pages of `sibe demo` and `sibe watch` for the docs, with Debian's Chromium.

.venv/bin/python scripts/watch_screenshots.py demo.html run.html docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
SECONDS = 6.5  # into the episodes


def wait_until(page: Any, expression: str) -> None:
    """Wait; Playwright's own way needs eval, which the pages do not allow."""
    while not page.evaluate(expression):
        page.wait_for_timeout(50)


def open_demo(page: Any, file: Path) -> None:
    """Load the demo and stop it in the middle."""
    page.goto(file.resolve().as_uri())
    wait_until(page, "players.every((player) => player.episode)")
    page.evaluate(f"setPlaying(false); time = {SECONDS}; draw()")


def open_run(page: Any, file: Path) -> None:
    """Load the run and read a value."""
    page.goto(file.resolve().as_uri())
    wait_until(page, "document.querySelector('video').readyState >= 2")
    page.evaluate(f"document.querySelector('video').currentTime = {SECONDS / 2}")
    wait_until(page, "!document.querySelector('video').seeking")
    page.wait_for_timeout(1000)
    box = page.locator("#return > svg").bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"])


def main(demo: Path, run: Path, out: Path) -> None:
    """Write demo.png, demo_phone.png, watch.png and watch_phone.png."""
    views = {
        "demo": (open_demo, demo, (1280, 1190), "light"),
        "demo_phone": (open_demo, demo, (390, 844), "dark"),
        "watch": (open_run, run, (1280, 1000), "light"),
        "watch_phone": (open_run, run, (390, 844), "dark"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (show, file, (width, height), scheme) in views.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            show(page, file)
            page.screenshot(path=out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
