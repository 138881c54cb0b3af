"""`sibe watch`: what the page says of a run at every age, and the verb itself."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import config_of, write_run

from sibe.cli import main as cli
from sibe.logs.csv_log import EVAL_COLUMNS, TRAIN_COLUMNS, CsvLog
from sibe.watch.run_data import run_data
from sibe.watch.watch import saved_watch, watch_answers

CONFIG = config_of("walker_walk", "noise", "sibe", 3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", CONFIG, env_steps=200_000, every=50_000, video=True)


@pytest.fixture
def young(tmp_path: Path) -> Path:
    folder = tmp_path / "young"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def state_of(run: Path) -> dict[str, Any]:
    """Return what the server answers for /state.json."""
    answer = watch_answers(run)["/state.json"]()
    assert answer is not None and answer.kind == "application/json"
    state: dict[str, Any] = json.loads(answer.body)
    return state


def test_a_run_that_has_only_just_begun(young: Path) -> None:
    state = state_of(young)
    assert (state["state"], state["reached"], state["planned"]) == ("stopped", 0, 500_000)
    assert state["charts"] == [{"title": "Return", "log": False, "curves": []}]
    assert (state["video"], state["facts"]) == (None, [])
    assert watch_answers(young)["/video.mp4"]() is None


def test_a_running_one_is_known_by_its_lock(young: Path) -> None:
    with (young / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state_of(young)["state"] == "training"
    state = state_of(young)
    assert (state["state"], state["note"]) == (
        "stopped",
        f"sibe train --resume {young} continues it",
    )


def test_a_finished_one_is_known_by_its_last_checkpoint(run: Path) -> None:
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "checkpoint_000500000.pt").touch()
    assert state_of(run)["state"] == "finished"


def test_curves_metrics_and_facts(run: Path) -> None:
    state = state_of(run)
    assert state["title"] == "SIBE on walker_walk"
    assert state["setting"] == "White noise, seed 3, preset paper"
    titles = [chart["title"] for chart in state["charts"]]
    assert titles == ["Return", "KL (nats)", "InfoNCE (nats)", "Bonus per agent step"]
    evaluations, episodes = state["charts"][0]["curves"]
    assert evaluations["x"] == [50_000, 100_000, 150_000, 200_000]
    assert all(low < y < high for low, y, high in _band(evaluations))
    assert episodes["x"][-1] == 200_000
    assert dict(state["facts"])["Last evaluation"].startswith(f"{evaluations['mean'][-1]:.0f} ±")


def _band(curve: dict[str, Any]) -> list[tuple[float, float, float]]:
    return list(zip(curve["low"], curve["mean"], curve["high"], strict=True))


def test_a_new_row_is_seen(young: Path) -> None:
    with CsvLog(young / "train.csv", (*TRAIN_COLUMNS, "kl")) as log:
        log.append({"frame": 1000, "episode_length": 1000, "episode_reward": 5.0, "fps": 100.0})
        first = state_of(young)
        assert [c["title"] for c in first["charts"]] == ["Return"]
        row = {"frame": 2000, "episode_length": 1000, "episode_reward": 7.5, "fps": 100.0}
        log.append({**row, "kl": 3.0})
    with CsvLog(young / "eval.csv", EVAL_COLUMNS) as log:
        log.append({"frame": 2000, "episode_reward": 6.0})  # no spread, as of another program
    state = state_of(young)
    assert (first["reached"], state["reached"]) == (1000, 2000)
    assert [c["title"] for c in state["charts"]] == ["Return", "KL (nats)"]
    evaluations, episodes = state["charts"][0]["curves"]
    assert (evaluations["mean"], evaluations["low"]) == ([6.0], [None])
    assert episodes["mean"] == [5.0, 7.5]


def test_a_half_written_row_is_left_out(run: Path) -> None:
    before = state_of(run)
    with (run / "train.csv").open("a") as file:
        file.write("210000,105")
    assert state_of(run) == before


def test_a_run_that_is_deleted_and_comes_back(run: Path, tmp_path: Path) -> None:
    answers = watch_answers(run)
    shutil.move(run, tmp_path / "elsewhere")
    state = state_of(run)
    assert state == {
        "state": "gone",
        "note": f"there is no run directory {run}: check the path",
    }
    page = answers["/"]()
    assert page is not None and b"there is no run directory" in page.body
    assert answers["/video.mp4"]() is None
    shutil.move(tmp_path / "elsewhere", run)
    assert state_of(run)["state"] == "stopped"


def test_a_run_that_is_being_deleted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(folder: Path) -> list[int]:
        shutil.rmtree(run)
        return [1 for _ in folder.iterdir()]

    monkeypatch.setattr("sibe.watch.run_data.list_steps", vanish)
    assert state_of(run)["state"] == "gone"


def test_a_damaged_log_is_told(run: Path) -> None:
    (run / "train.csv").write_text("frame,episode_reward\n1000,x\n")
    state = run_data(run)
    assert state["state"] == "damaged"
    assert "train.csv, line 2 is damaged" in state["note"]


def test_another_video_is_another_name(run: Path) -> None:
    first = state_of(run)["video"]
    (video,) = (run / "video").glob("*.mp4")
    answer = watch_answers(run)["/video.mp4"]()
    assert answer is not None and answer.body == video.read_bytes()
    os.utime(video, ns=(1, 1))
    assert state_of(run)["video"] != first


def test_the_saved_page_has_all_inside_and_asks_nobody(run: Path) -> None:
    (video,) = (run / "video").glob("*.mp4")
    page = saved_watch(run).decode()
    assert "connect-src &#39;none&#39;" in page
    assert 'src="data:video/mp4;base64,' in page
    assert len(page) > video.stat().st_size
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    data = re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert data and json.loads(data[1])["run"] == state_of(run)


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    run = write_run(tmp_path / evil.replace("/", "∕"), CONFIG, env_steps=100_000, every=50_000)
    assert "<script>alert" not in saved_watch(run).decode()


def cli_run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_the_verb_serves_until_it_is_stopped_and_leaves_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = []

    def visit(url: str) -> None:
        with urllib.request.urlopen(url + "state.json", timeout=10) as answer:
            answered.append(json.load(answer)["title"])
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("webbrowser.open", visit)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    before = sorted(run.rglob("*"))
    code, _, err = cli_run(capsys, "watch", str(run))
    assert (code, err) == (130, "sibe: stopped\n")
    assert answered == ["SIBE on walker_walk"]
    assert sorted(run.rglob("*")) == before


def test_the_verb_saves(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    code, said, _ = cli_run(capsys, "watch", str(run), "--save", str(out))
    assert code == 0
    assert said.startswith(f"wrote {out} (")
    assert out.read_bytes() == saved_watch(run)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "there is no run directory nowhere"),
        (["{run}", "--save", "page.pdf"], "the page must be an .html file, not 'page.pdf'"),
        (["{run}", "--port", "70000"], "--port must be"),
        ([], "missing: RUN"),
    ],
)
def test_mistakes_are_one_line(
    args: list[str], words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = cli_run(capsys, "watch", *(arg.format(run=run) for arg in args))
    assert code == 2
    assert words in err and err.count("\n") == 1


def test_an_export_has_nothing_to_watch(young: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (young / "model.safetensors").touch()
    code, _, err = cli_run(capsys, "watch", str(young))
    assert code == 2
    assert "is an exported policy" in err
