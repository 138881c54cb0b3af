from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sibe.catalogue.run_config import to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.logs import learning_curve
from sibe.logs.csv_log import EVAL_COLUMNS, TRAIN_COLUMNS, CsvLog
from sibe.logs.learning_curve import write_learning_curve
from sibe.logs.picture_file import write_png
from sibe.logs.plot_style import set_logarithmic

EVALS = [(0, 10.0, 5.0), (10_000, 300.0, 80.0), (20_000, 700.0, 40.0)]


def _write_run(run: Path, *, metrics: tuple[str, ...] = ("kl", "infonce"), evals: int = 3) -> Path:
    run.mkdir()
    (run / "config.json").write_text(json.dumps(to_json(RunConfig(seed=7))))
    with CsvLog(run / "train.csv", (*TRAIN_COLUMNS, *metrics)) as log:
        for i in range(1, 21):
            row = {"frame": 1000 * i, "episode_reward": 35.0 * i}
            if i > 2:  # no updates before, and so no metrics
                row |= {name: 10.0 / i for name in metrics}
            log.append(row)
    with CsvLog(run / "eval.csv", EVAL_COLUMNS) as log:
        for frame, mean, std in EVALS[:evals]:
            log.append({"frame": frame, "episode_reward": mean, "episode_reward_std": std})
    return run


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, in order."""
    saved: list[Any] = []

    def spy(figure: Any, out: Path) -> None:
        saved.append(figure)
        write_png(figure, out)

    monkeypatch.setattr(learning_curve, "write_png", spy)
    return saved


def test_picture_shows_the_logs(tmp_path: Path, figures: list[Any]) -> None:
    out = tmp_path / "new" / "curve.png"
    assert write_learning_curve(_write_run(tmp_path / "run"), out) == out
    with Image.open(out) as image:
        assert image.size == (1000, 380)
        counts = image.convert("RGB").getcolors(1 << 20)
    assert counts is not None
    colors = {pixel for _, pixel in counts}
    # Evaluation, KL and InfoNCE are really there, in their colors.
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)} <= colors
    assert [file.name for file in out.parent.iterdir()] == ["curve.png"]

    (figure,) = figures
    left, kl, infonce = figure.axes
    assert figure.get_suptitle() == "cartpole_swingup  ·  clean  ·  sibe  ·  seed 7"
    assert figure.get_supxlabel() == "environment steps (action repeat included)"
    training, evaluation = left.lines
    np.testing.assert_array_equal(training.get_xdata(), np.arange(1, 21) * 1000)
    np.testing.assert_array_equal(training.get_ydata(), np.arange(1, 21) * 35)
    np.testing.assert_array_equal(evaluation.get_xydata(), [row[:2] for row in EVALS])
    band = {tuple(corner) for corner in left.collections[0].get_paths()[0].vertices}
    for frame, mean, std in EVALS:
        assert {(frame, mean - std), (frame, mean + std)} <= band
    for axis, label in ((kl, "KL (nats)"), (infonce, "InfoNCE (nats)")):
        assert axis.get_ylabel() == label
        x, y = axis.lines[0].get_data()
        np.testing.assert_array_equal(x, np.arange(3, 21) * 1000)
        np.testing.assert_allclose(y, 10 / np.arange(3, 21))
        assert axis.get_xlim() == left.get_xlim()


def test_picture_is_the_same_each_time(tmp_path: Path) -> None:
    run = _write_run(tmp_path / "run")
    first = write_learning_curve(run, tmp_path / "a.png").read_bytes()
    assert write_learning_curve(run, tmp_path / "b.png").read_bytes() == first


@pytest.mark.parametrize(
    ("kl", "infonce", "scales"),
    [
        (1.0, 1.0, ["log", "linear"]),
        (1e-3, 1e-3, ["log", "log"]),
        (0.0, 1.0, ["linear", "linear"]),  # a KL of 0 is drawn, too
    ],
)
def test_what_spans_decades_is_on_a_logarithmic_axis(
    tmp_path: Path, figures: list[Any], kl: float, infonce: float, scales: list[str]
) -> None:
    run = _write_run(tmp_path / "run")
    lines = (run / "train.csv").read_text().splitlines()
    (run / "train.csv").write_text("\n".join([*lines, _row(lines[0], kl, infonce)]) + "\n")
    write_learning_curve(run, tmp_path / "a.png")
    assert [axis.get_yscale() for axis in figures[0].axes[1:]] == scales


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (300.0, 390.0, 3),  # no round number of one digit in between
        (390.0, 6900.0, 4),  # 500, 1000, 2000, 5000
        (150.0, 40_000.0, 2),  # 1000, 10000
    ],
)
def test_logarithmic_axis_has_a_handful_of_plain_numbers(
    low: float, high: float, labels: int
) -> None:
    figure = Figure()
    axis = figure.subplots()
    axis.plot([0, 1], [high, low])
    set_logarithmic(axis)
    figure.canvas.draw()
    bottom, top = axis.get_ylim()
    ticks = [t for t in axis.get_yticks() if bottom <= t <= top]
    texts = [axis.yaxis.get_major_formatter()(tick) for tick in ticks]
    assert labels <= len(ticks) <= 6 and texts == [f"{tick:g}" for tick in ticks]
    assert axis.yaxis.get_minorticklabels() == []


def _row(header: str, kl: float, infonce: float) -> str:
    row = {"frame": 21_000, "episode_reward": 700, "kl": kl, "infonce": infonce}
    return ",".join(str(row.get(name, "")) for name in header.split(","))


def test_method_without_bottleneck_gets_one_panel(tmp_path: Path, figures: list[Any]) -> None:
    write_learning_curve(_write_run(tmp_path / "run", metrics=()), tmp_path / "a.png")
    assert len(figures[0].axes) == 1


@pytest.mark.parametrize("state", ["header only", "empty", "missing", "half a header"])
def test_young_run_shows_its_training(tmp_path: Path, figures: list[Any], state: str) -> None:
    run = _write_run(tmp_path / "run", evals=0)
    if state == "empty":
        (run / "eval.csv").write_text("")
    if state == "half a header":
        (run / "eval.csv").write_text("frame,st")
    if state == "missing":
        (run / "eval.csv").unlink()
    write_learning_curve(run, tmp_path / "a.png")
    assert [line.get_label() for line in figures[0].axes[0].lines] == ["training episode"]


def test_half_written_row_is_left_out(tmp_path: Path, figures: list[Any]) -> None:
    run = _write_run(tmp_path / "run")
    with (run / "eval.csv").open("a") as file:
        file.write("30000,3750,30,125,99")
    write_learning_curve(run, tmp_path / "a.png")
    assert figures[0].axes[0].lines[1].get_xdata().tolist() == [0, 10_000, 20_000]


def test_returns_of_zero_and_below(tmp_path: Path, figures: list[Any]) -> None:
    for name, value, bottom in (("zero", 0.0, 0.0), ("below", -50.0, None)):
        run = _write_run(tmp_path / name, evals=0)
        (run / "train.csv").unlink()
        with CsvLog(run / "eval.csv", EVAL_COLUMNS) as log:
            log.append({"frame": 0, "episode_reward": value})
        write_learning_curve(run, tmp_path / "a.png")
        low, high = figures[-1].axes[0].get_ylim()
        assert (low == bottom and high == 1) if bottom == 0 else low < value < high


def test_nothing_to_plot(tmp_path: Path) -> None:
    run = _write_run(tmp_path / "run", evals=0)
    (run / "train.csv").unlink()
    with pytest.raises(UserError, match="no episode to plot yet"):
        write_learning_curve(run, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_errors_of_users(tmp_path: Path) -> None:
    run = _write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"must be a \.png file"):
        write_learning_curve(run, tmp_path / "a.jpg")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        write_learning_curve(run, tmp_path / "file" / "a.png")
    with pytest.raises(UserError, match="not the folder of a run"):
        write_learning_curve(tmp_path, tmp_path / "a.png")
    (run / "eval.csv").write_text("frame,step\n1,2\n")
    with pytest.raises(UserError, match="no column episode_reward"):
        write_learning_curve(run, tmp_path / "a.png")
    (run / "config.json").write_text("[]")
    with pytest.raises(UserError, match="not the folder of a run"):
        write_learning_curve(run, tmp_path / "a.png")


def test_no_global_state(tmp_path: Path) -> None:
    run = _write_run(tmp_path / "run")
    code = (
        "import sys, pathlib, matplotlib\n"
        "from sibe.logs.learning_curve import write_learning_curve\n"
        "rc = matplotlib.rcParams\n"
        # Looking up the backend would import pyplot.
        "state = lambda: {name: rc[name] for name in rc if name != 'backend'}\n"
        "before = state()\n"
        "write_learning_curve(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "assert state() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, run, tmp_path / "a.png"], check=True)
