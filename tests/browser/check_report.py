"""report.html in a real headless Chromium: run by `make test-browser`, not by `make test`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from browser_visit import Visit, chromium, wait_until
from playwright.sync_api import Browser, expect
from synthetic_runs import config_of, write_ablations, write_grid, write_run

from sibe.analysis.report.report import write_report

LONG = "a_folder_with_a_long_name_that_has_no_place_to_break_" * 2


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("runs")
    write_grid(
        root / "grid",
        tasks=("walker_walk", "cheetah_run"),
        backgrounds=("clean", "noise"),
        methods=("sibe", "db", "none"),
        seeds=3,
        every=100_000,
        video=True,
    )
    write_ablations(root / "ablations", every=100_000, seeds=2)
    write_run(root / LONG, config_of("reacher_easy", "clean", "sibe", 1), env_steps=200_000)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    out = tmp_path_factory.mktemp("report")
    write_report([root], out, at=500_000)
    return (out / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser, page_url: str) -> Iterator[Visit]:
    visit = Visit(browser, page_url, viewport={"width": 1280, "height": 900})
    yield visit
    assert visit.complaints == []
    outside = [url for url in visit.requests if not url.startswith(("file:", "data:"))]
    assert outside == []
    visit.page.close()


def test_curves_are_drawn(visit: Visit) -> None:
    page = visit.page
    names = page.locator("#panels figcaption").all_text_contents()
    assert names == ["cartpole_swingup_sparse", "reacher_easy", "walker_walk", "cheetah_run"]
    assert page.title() == "sibe report"


def test_methods_switch_on_and_off(visit: Visit) -> None:
    page = visit.page
    walker = page.locator("#panels .panel", has_text="walker_walk")
    expect(walker.locator("path.mean")).to_have_count(3)
    button = page.locator("#variants").get_by_role("button", name="DB", exact=True)
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(walker.locator("path.mean")).to_have_count(2)
    assert "DB" not in (walker.locator("svg").get_attribute("aria-label") or "")
    button.press("Enter")
    expect(walker.locator("path.mean")).to_have_count(3)
    # The paper's ablations are there, but off at first.
    ablation = page.locator("#variants").get_by_role("button", name="non-reward SIBE")
    expect(ablation).to_have_attribute("aria-pressed", "false")
    sparse = page.locator("#panels .panel", has_text="cartpole_swingup_sparse")
    expect(sparse).to_contain_text("No method is switched on")
    ablation.click()
    expect(sparse.locator("path.mean")).to_have_count(1)


def test_hover_and_keys_show_values(visit: Visit) -> None:
    page = visit.page
    panel = page.locator("#panels .panel", has_text="walker_walk")
    tip = panel.locator(".tip")
    expect(tip).to_be_hidden()
    panel.locator("svg").scroll_into_view_if_needed()
    box = panel.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + 0.5 * box["height"])
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("env step 500,000")
    text = tip.inner_text()
    found = re.search(r"SIBE: (\d+) \[(\d+), (\d+)\], n = 3", text)
    assert found, text
    mean, low, high = map(int, found.groups())
    assert low < mean < high
    # The same number as in the table below.
    row = page.locator("#scores tr", has_text="Standard").filter(has_text="walker_walk")
    assert row.first.locator("td.number").first.inner_text().startswith(f"{mean} ±")
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()
    panel.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("env step 500,000")
    page.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text("env step 400,000")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_setting_measure_task_and_seeds(visit: Visit) -> None:
    page = visit.page
    before = page.locator("#panels").inner_html()
    page.get_by_role("button", name="White noise").click()
    expect(page.get_by_role("button", name="Standard")).to_have_attribute("aria-pressed", "false")
    assert page.locator("#panels").inner_html() != before
    assert "reacher_easy" not in page.locator("#panels figcaption").all_text_contents()
    page.locator("#task").select_option("cheetah_run")
    expect(page.locator("#panels figcaption")).to_have_text("cheetah_run")
    paths = page.locator("#panels svg path")
    count = paths.count()
    page.get_by_role("button", name="Every seed").click()
    expect(paths).to_have_count(count + 9)
    page.get_by_role("button", name="KL (nats), in training").click()
    expect(page.locator("#panels path.mean")).to_have_count(1)
    expect(page.locator("#variants button", has_text="DB")).to_be_hidden()


def test_dark_and_light(browser: Browser, page_url: str) -> None:
    visit = Visit(browser, page_url, color_scheme="dark")
    color = "getComputedStyle(document.body).backgroundColor"
    button = visit.page.locator("#dark")
    expect(button).to_have_attribute("aria-pressed", "true")
    dark = visit.page.evaluate(color)
    button.click()
    assert visit.page.evaluate(color) != dark
    assert visit.complaints == []
    visit.page.close()


@pytest.mark.parametrize("width", [320, 390])
def test_phone_width_has_no_horizontal_scroll(browser: Browser, page_url: str, width: int) -> None:
    visit = Visit(browser, page_url, viewport={"width": width, "height": 844}, has_touch=True)
    page = visit.page
    page.locator("#panels svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for details in page.locator("details").all()[:2]:
        details.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A tap reads values too, and what it shows stays on the screen.
    panel = page.locator("#panels .panel", has_text="walker_walk")
    panel.locator("svg").tap()
    expect(panel.locator(".tip")).to_be_visible()
    box = panel.locator(".tip").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    size = page.evaluate("parseFloat(getComputedStyle(document.querySelector('p')).fontSize)")
    assert size >= 16
    assert visit.complaints == []
    page.close()


def test_videos_play_and_pictures_load(visit: Visit) -> None:
    page = visit.page
    assert page.locator("video").count() == 12
    video = page.locator("video").first
    video.scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('video').videoWidth > 0")
    widths = page.locator("img").evaluate_all("all => all.map(i => i.naturalWidth)")
    assert len(widths) >= 3 and min(widths) > 100


def test_tables_and_controls_are_labeled(visit: Visit) -> None:
    page = visit.page
    for table in page.locator("table").all():
        assert table.locator("thead th[scope=col]").count() > 3
        rows = table.locator("tbody tr").count()
        assert table.locator("tbody th[scope=row]").count() == rows > 0
    for button in page.locator("button:visible").all():
        assert button.get_attribute("aria-pressed") in ("true", "false")
        assert button.inner_text().strip()
    assert page.locator("img:not([alt]), svg[role=img]:not([aria-label])").count() == 0
    expect(page.locator(".notes")).to_contain_text("broken")
    expect(page.locator("#runs")).to_contain_text("0123456789")
