"""Photograph a report's page for the docs, with Debian's Chromium: wide, dark, and on a phone.

.venv/bin/python scripts/report_screenshots.py report/report.html docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"


def hover_first_panel(page: Any) -> None:
    """Point at the first panel, so that the picture shows the values."""
    box = page.locator("#panels svg").first.bounding_box()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"])


def main(report: Path, out: Path) -> None:
    """Write report.png, report_dark.png and report_phone.png."""
    views = {
        "report": ((1280, 1000), "light", "#curves"),
        "report_dark": ((1280, 800), "dark", "#scores"),
        "report_phone": ((390, 844), "light", "#curves"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, ((width, height), scheme, section) in views.items():
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            if name != "report":
                page.evaluate(f"document.querySelector('{section}').scrollIntoView()")
            if section == "#curves":
                hover_first_panel(page)
            page.screenshot(path=out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
