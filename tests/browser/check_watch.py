"""`sibe demo` and `sibe watch` in a real headless Chromium: run by `make test-browser`."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_visit import Visit, chromium, wait_until
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from synthetic_runs import config_of, write_run

from sibe.envs import dmc
from sibe.logs.csv_log import EVAL_COLUMNS, TRAIN_COLUMNS, CsvLog
from sibe.watch.demo import SETTINGS, Demo
from sibe.watch.server import Answer, PageServer
from sibe.watch.watch import saved_watch, watch_answers

STEPS = 25  # agent steps of an episode: two seconds
CONFIG = config_of("walker_walk", "noise", "sibe", 3)
LONG = "a_folder_with_a_long_name_that_has_no_place_to_break_" * 2
CLOCK = "document.getElementById('clock').textContent"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def demo() -> Demo:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dmc, "TIME_LIMIT", 8 * STEPS)
        demo = Demo(0)
        demo.play_all(print)
    return demo


@pytest.fixture(scope="module")
def demo_server(demo: Demo) -> Iterator[PageServer]:
    server = PageServer(demo.answers())
    with server.running():
        yield server


@pytest.fixture
def visit(browser: Browser, demo_server: PageServer) -> Iterator[Visit]:
    """The demo, loaded; whatever a test does, the page complains of nothing and stays at home."""
    visit = Visit(browser, demo_server.url, viewport={"width": 1280, "height": 900})
    wait_for_episodes(visit.page)
    yield visit
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith((demo_server.url, "data:"))] == []
    visit.page.close()


def wait_for_episodes(page: Page) -> None:
    for name in SETTINGS:
        expect(page.locator(f"#{name} .wait")).to_be_hidden()


def pixels(page: Page, canvas: str) -> Any:
    """Return what a canvas shows: uint8 [H, W, 4]."""
    url = page.evaluate("name => document.querySelector(name).toDataURL()", canvas)
    return np.array(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


def go_to(page: Page, seconds: float) -> None:
    """Move the slider, which pauses."""
    page.locator("#time").evaluate(
        "(slider, s) => { slider.value = s; slider.dispatchEvent(new Event('input')); }", seconds
    )


def test_the_demo_plays(visit: Visit) -> None:
    page = visit.page
    assert page.title() == "sibe demo"
    first = page.evaluate(CLOCK)
    wait_until(page, f"{CLOCK} !== {json.dumps(first)}")
    go_to(page, 2)
    for name in SETTINGS:
        picture = pixels(page, f"#{name} .robot")
        assert picture[..., 3].min() == 255  # all of it is painted
        assert picture[..., :3].std() > 5


def test_what_the_policy_sees_is_shown_pixel_for_pixel(visit: Visit, demo: Demo) -> None:
    page = visit.page
    answer = demo.answers()["/episode/noise.json"]()
    assert answer is not None
    episode = json.loads(answer.body)
    for step in (0, 7, STEPS):
        go_to(page, step * episode["seconds"])
        data = base64.b64decode(episode["seen"][step].partition(",")[2])
        assert np.array_equal(
            pixels(page, "#noise .seen")[..., :3], np.array(Image.open(io.BytesIO(data)))
        )
        total = sum(episode["reward"][:step])
        assert page.locator("#noise .return").inner_text() == f"{total:.0f}"
        bonus = f"{episode['bonus'][step - 1]:.4f}" if step else "–"
        assert page.locator("#noise .bonus").inner_text() == bonus


def test_curves_grow_with_the_clock(visit: Visit) -> None:
    page = visit.page
    window = page.locator("#returns clipPath rect")
    go_to(page, 0.5)
    early = float(window.get_attribute("width") or 0)
    go_to(page, 1.5)
    assert float(window.get_attribute("width") or 0) > early + 100
    expect(page.locator("#returns path.mean")).to_have_count(3)
    expect(page.locator("#bonuses .legend")).to_contain_text("White noise")
    page.locator("#returns > svg").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#returns .tip")).to_contain_text("2.00 s")


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.page
    button = page.locator("#play")
    expect(button).to_have_text("Pause")
    page.keyboard.press("Space")
    expect(button).to_have_text("Play")
    stopped = page.evaluate(CLOCK)
    page.wait_for_timeout(300)
    assert page.evaluate(CLOCK) == stopped
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("Space")
    expect(button).to_have_text("Pause")
    button.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Space")  # once, by the button itself
    expect(button).to_have_text("Play")
    page.locator("#time").focus()
    page.keyboard.press("Home")
    assert page.evaluate(CLOCK) == "0.0 of 2 s"
    page.keyboard.press("End")
    assert page.evaluate(CLOCK) == "2.0 of 2 s"
    slow = page.get_by_role("button", name="½×")
    slow.press("Enter")
    expect(slow).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="1×", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )


def test_speed(visit: Visit) -> None:
    page = visit.page
    # In the time of the page itself: a busy machine drops pictures, not seconds.
    passed = """async () => {
      const wait = (ms) => new Promise((done) => setTimeout(done, ms));
      setPlaying(false); time = 0; setPlaying(true);
      await wait(100);
      const [from, since] = [time, performance.now()];
      await wait(600);
      return (time - from) / ((performance.now() - since) / 1000);
    }"""
    assert page.evaluate(passed) == pytest.approx(1, abs=0.35)
    page.get_by_role("button", name="2×").click()
    assert page.evaluate(passed) == pytest.approx(2, abs=0.7)


def test_who_wants_no_motion_gets_none(browser: Browser, demo_server: PageServer) -> None:
    visit = Visit(browser, demo_server.url, reduced_motion="reduce")
    wait_for_episodes(visit.page)
    expect(visit.page.locator("#play")).to_have_text("Play")
    visit.page.wait_for_timeout(300)
    assert visit.page.evaluate(CLOCK) == "0.0 of 2 s"
    visit.page.close()


def test_dark(browser: Browser, demo_server: PageServer) -> None:
    visit = Visit(browser, demo_server.url, color_scheme="dark")
    dark = visit.page.evaluate(BACKGROUND)
    button = visit.page.locator("#dark")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    assert visit.page.evaluate(BACKGROUND) != dark
    assert visit.complaints == []
    visit.page.close()


@pytest.mark.parametrize("width", [320, 390])
def test_the_demo_fits_a_phone(browser: Browser, demo_server: PageServer, width: int) -> None:
    visit = Visit(
        browser, demo_server.url, viewport={"width": width, "height": 700}, has_touch=True
    )
    page = visit.page
    wait_for_episodes(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#play").tap()
    expect(page.locator("#play")).to_have_text("Play")
    # However far down one is, it can be stopped.
    page.evaluate("scrollTo(0, 600)")
    box = page.locator("#play").bounding_box()
    assert box is not None and 0 <= box["y"] < 100 and box["height"] >= 32
    assert visit.complaints == []
    page.close()


def test_the_saved_demo_needs_no_server(browser: Browser, demo: Demo, tmp_path: Path) -> None:
    file = tmp_path / "demo.html"
    file.write_bytes(demo.saved())
    visit = Visit(browser, file.as_uri())
    wait_for_episodes(visit.page)
    go_to(visit.page, 1)
    assert pixels(visit.page, "#video .robot")[..., :3].std() > 5
    assert visit.complaints == []
    assert {url.partition(":")[0] for url in visit.requests} <= {"file", "data"}
    visit.page.close()


def test_the_demo_says_how_far_it_is_and_what_failed(browser: Browser) -> None:
    demo = Demo(0)
    server = PageServer(demo.answers())
    with server.running():
        visit = Visit(browser, server.url)
        expect(visit.page.locator("#noise .wait")).to_have_text("Waiting for its turn")
        demo._progress("noise")(0.4)
        expect(visit.page.locator("#noise .wait")).to_have_text("Playing: 40 %")
        demo._errors["video"] = "no room"
        expect(visit.page.locator("#video .wait")).to_have_text("no room")
        assert visit.complaints == []
        visit.page.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / LONG, CONFIG, env_steps=200_000, every=50_000, video=True)


def test_a_watched_run_grows_vanishes_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "young"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    server = PageServer(watch_answers(folder))
    with server.running():
        visit = Visit(browser, server.url)
        page = visit.page
        expect(page.locator("#return")).to_contain_text("The first episode is not finished yet")
        expect(page.locator("#film")).to_contain_text("No video yet")
        row = {"episode_length": 1000, "fps": 50.0, "total_time": 20.0}
        with CsvLog(folder / "train.csv", (*TRAIN_COLUMNS, "kl")) as log:
            log.append({**row, "frame": 1000, "episode_reward": 5.0, "kl": 200.0})
            log.append({**row, "frame": 2000, "episode_reward": 9.0, "kl": 3.0})
        expect(page.locator("#steps")).to_have_text("2,000 of 500,000 env steps")
        expect(page.locator("#return path.mean")).to_have_count(1)
        expect(page.locator("#panels figcaption")).to_have_text(["KL (nats)"])
        with CsvLog(folder / "eval.csv", EVAL_COLUMNS) as log:
            log.append({"frame": 2000, "episode_reward": 8.0, "episode_reward_std": 1.0})
        expect(page.locator("#facts")).to_contain_text("8 ± 1")
        expect(page.locator("#return path.mean")).to_have_count(2)
        shutil.move(folder, tmp_path / "elsewhere")
        expect(page.locator("#state")).to_have_text("Gone")
        expect(page.locator("#notice")).to_contain_text("there is no run directory")
        expect(page.locator("#return path.mean")).to_have_count(2)  # what was there can be read
        shutil.move(tmp_path / "elsewhere", folder)
        expect(page.locator("#state")).to_have_text("Stopped")
        assert visit.complaints == []
        page.close()


def test_a_panel_that_is_being_read_is_not_pulled_away(browser: Browser, run: Path) -> None:
    server = PageServer(watch_answers(run))
    with server.running():
        visit = Visit(browser, server.url)
        page = visit.page
        chart = page.locator("#return > svg")
        chart.focus()
        page.keyboard.press("ArrowRight")
        tip = page.locator("#return .tip")
        expect(tip).to_contain_text("env step 200,000")
        with CsvLog(run / "eval.csv", EVAL_COLUMNS) as log:
            log.append({"frame": 250_000, "episode_reward": 700.0, "episode_reward_std": 1.0})
        expect(page.locator("#facts")).to_contain_text("700 ± 1")
        expect(tip).to_contain_text("env step 200,000")
        chart.blur()
        expect(page.locator("#return > svg")).to_have_attribute(
            "aria-label", re.compile("at 250k env steps")
        )
        assert visit.complaints == []
        page.close()


def test_the_video_plays_and_another_replaces_it(browser: Browser, run: Path) -> None:
    server = PageServer(watch_answers(run))
    with server.running():
        visit = Visit(browser, server.url)
        page = visit.page
        wait_until(page, "document.querySelector('video').videoWidth > 0")
        first = page.evaluate("document.querySelector('video').src")
        assert first.startswith("blob:")
        (video,) = (run / "video").glob("*.mp4")
        shutil.copy(video, video.with_name("eval_000300000.mp4"))
        wait_until(page, "url => document.querySelector('video').src !== url", first)
        wait_until(page, "document.querySelector('video').videoWidth > 0")
        assert visit.complaints == []
        page.close()


@pytest.mark.parametrize("width", [320, 390])
def test_a_watched_run_fits_a_phone(browser: Browser, run: Path, width: int) -> None:
    server = PageServer(watch_answers(run))
    with server.running():
        visit = Visit(browser, server.url, viewport={"width": width, "height": 844})
        visit.page.locator("#panels > figure > svg").first.wait_for()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.complaints == []
        visit.page.close()


def test_a_killed_server_is_told_and_a_new_one_on_its_port_goes_on(
    browser: Browser, run: Path
) -> None:
    server = PageServer(watch_answers(run))
    with server.running():
        visit = Visit(browser, server.url)
        page = visit.page
        expect(page.locator("#foot")).to_contain_text("last at")
    expect(page.locator("#notice")).to_contain_text("The server has ended")
    again = PageServer(watch_answers(run), server.server_port)
    with again.running():
        expect(page.locator("#notice")).to_contain_text("sibe train --resume")
        page.close()
    # Chromium itself notes requests that nobody answers; there is nothing else.
    assert all("ERR_CONNECTION_REFUSED" in line for line in visit.complaints)


def test_the_saved_run_needs_no_server(browser: Browser, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_bytes(saved_watch(run))
    visit = Visit(browser, file.as_uri())
    page = visit.page
    expect(page.locator("#title")).to_have_text("SIBE on walker_walk")
    expect(page.locator("#panels figcaption")).to_have_count(3)
    wait_until(page, "document.querySelector('video').videoWidth > 0")
    assert visit.complaints == []
    assert {url.partition(":")[0] for url in visit.requests} <= {"file", "data"}
    page.close()


def test_a_page_of_another_site_learns_nothing(browser: Browser, run: Path) -> None:
    answers = watch_answers(run)
    told: list[str] = []

    def state() -> Answer | None:
        told.append("state.json")
        return answers["/state.json"]()

    server = PageServer({**answers, "/state.json": state})
    target = f"{server.url}state.json"
    html = f"<script src='{target}'></script><iframe src='{server.url}'></iframe>"
    foreign = PageServer({"/": lambda: Answer("text/html", html.encode(), "img-src *")})
    with server.running(), foreign.running():
        page = browser.new_page()
        page.goto(foreign.url)
        ask = """url => fetch(url).then((answer) => answer.text(), () => "refused")"""
        assert page.evaluate(ask, target) == "refused"
        look = """url => new Promise((done) => {
          const image = Object.assign(new Image(), { src: url });
          image.onload = image.onerror = (event) => done(event.type);
        })"""
        assert page.evaluate(look, target) == "error"
        assert told == []
        assert page.frames[1].locator("#return").count() == 0  # the page will not be framed
        page.goto(target)
        assert told == ["state.json"]  # to be asked by the user is another thing
        page.close()
