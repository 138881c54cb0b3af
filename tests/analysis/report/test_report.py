"""`sibe report` from synthetic runs: what is in the files, and what bad input gets."""

from __future__ import annotations

import csv
import functools
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from synthetic_runs import config_of, write_ablations, write_grid, write_run

from sibe.analysis.comparison import load_study
from sibe.analysis.report.curve_figures import metric_figure
from sibe.analysis.report.page import report_page
from sibe.analysis.report.page_videos import page_videos
from sibe.analysis.report.report import write_report
from sibe.analysis.report.results import compute_results
from sibe.analysis.report.score_table import latex_table, markdown_table, steps_text
from sibe.analysis.report.text import estimate_text
from sibe.analysis.statistics import Estimate
from sibe.cli import main as cli
from sibe.errors import UserError
from sibe.logs.plot_style import picture

SPARSE = "cartpole_swingup_sparse"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, two settings, three methods, three seeds; ablations; one young, one broken run."""
    root = tmp_path_factory.mktemp("fixture") / "runs"
    options = {"seeds": 3, "every": 100_000}
    write_grid(
        root / "grid",
        tasks=("walker_walk", SPARSE),
        backgrounds=("clean", "noise"),
        methods=("sibe", "db", "none"),
        video=True,
        **options,
    )
    write_ablations(root / "ablations", every=100_000, seeds=2)
    write_run(root / "young", config_of("walker_walk", "noise", "sibe", 4), env_steps=200_000)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    return root


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "new" / "report"
    write_report([runs], out, at=500_000)
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_files(report: Path) -> None:
    stems = {
        *(
            f"{kind}_{bg}"
            for kind in ("curves", "kl", "bonus", "aggregate")
            for bg in ("clean", "noise")
        ),
        "ablation_component",
        "ablation_chunk",
    }
    texts = {"table.md", "table.tex", "table.csv", "seeds.csv", "evaluations.csv", "aggregate.csv"}
    pictures = {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    assert {path.name for path in report.iterdir()} == {"report.html", *texts, *pictures}
    for path in report.glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 250
    for path in report.glob("*.svg"):
        assert path.read_text().lstrip().startswith("<?xml")


def test_every_seed_is_kept(runs: Path, report: Path) -> None:
    seeds = rows(report / "seeds.csv")
    # 36 of the grid and 14 ablation runs; the young one has not come to 500 000.
    assert len(seeds) == 50
    row = next(r for r in seeds if r["run"].endswith("walker_walk-noise/db/seed2"))
    logged = rows(runs / "grid" / "walker_walk-noise" / "db" / "seed2" / "eval.csv")
    assert float(row["return_at_500000"]) == pytest.approx(float(logged[-1]["episode_reward"]))
    every = rows(report / "evaluations.csv")
    assert len(every) == 50 * 5 + 20
    assert {r["method"] for r in every} >= {"SIBE", "DB", "SAC", "SIBE, L = 3"}


def test_table_tells_origins_apart(report: Path) -> None:
    table = rows(report / "table.csv")
    place = {"background": "noise", "task": "walker_walk"}
    here = [r for r in table if place.items() <= r.items()]
    ours = {r["method"]: r for r in here if r["origin"] == "these runs"}
    assert ours.keys() == {"SIBE", "DB", "SAC"}
    seeds = [
        float(r["return_at_500000"])
        for r in rows(report / "seeds.csv")
        if place.items() <= r.items() and r["method"] == "SIBE"
    ]
    sibe = ours["SIBE"]
    assert float(sibe["mean"]) == pytest.approx(np.mean(seeds))
    assert float(sibe["spread"]) == pytest.approx(np.std(seeds, ddof=1) / np.sqrt(3))
    assert float(sibe["bootstrap_low"]) <= float(sibe["mean"]) <= float(sibe["bootstrap_high"])
    assert (sibe["n"], sibe["bold"], sibe["asterisk"]) == ("3", "1", "1")
    paper = {r["method"]: r for r in here if r["origin"] == "paper"}
    assert (paper["proto"]["mean"], paper["proto"]["spread"]) == ("904", "19")
    reference = [r for r in table if r["origin"] == "reference"]
    assert reference and all(r["source"] and r["bold"] == "" for r in reference)
    assert {r["task"] for r in reference} == {"walker_walk", SPARSE}


def test_score_over_several_evaluations(runs: Path, tmp_path: Path) -> None:
    results = write_report([runs / "grid"], tmp_path / "out", at=400_000, last=3)
    logged = rows(runs / "grid" / "walker_walk-noise" / "db" / "seed2" / "eval.csv")
    returns = [float(row["episode_reward"]) for row in logged if float(row["frame"]) <= 400_000]
    row = next(
        r
        for r in rows(tmp_path / "out" / "seeds.csv")
        if r["run"].endswith("walker_walk-noise/db/seed2")
    )
    assert float(row["mean_of_3_at_400000"]) == pytest.approx(np.mean(returns[-3:]))
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith("# Scores over 3 evaluations up to 400k env steps\n")
    means = {(c.background, c.task, c.variant.label): c.mean for c in results.cells}
    value = means["noise", "walker_walk", "SIBE"] - means["noise", "walker_walk", "DB"]
    assert f"| White noise | walker_walk | SIBE − DB | 3, 3 | {value:.0f} [" in text
    assert "SIBE − DB" in (tmp_path / "out" / "report.html").read_text()
    with pytest.raises(
        UserError, match="no run has 9 evaluations up to env step 400000: lower --last"
    ):
        compute_results([runs / "grid"], 400_000, 9)


def test_markdown_and_latex(report: Path) -> None:
    text = (report / "table.md").read_text()
    assert text.startswith("# Scores at 500k env steps\n")
    printed = [line for line in text.splitlines() if "*paper, 500k, n = 5*" in line]
    assert len(printed) == 2
    assert "| **943 ± 7**\\* | 869 ± 38 | – | 904 ± 19 | 742 ± 32 | 25 ± 1 |" in printed[1]
    assert "non-reward SIBE" in text and "Left out" in text and "runs/broken" in text
    tex = (report / "table.tex").read_text()
    assert r"\textbf{943$\pm$7}$^\ast$" in tex and r"walker\_walk" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    for line in tex.splitlines():
        if line.endswith(r"\\"):
            assert line.count(" & ") in (8, 7)  # as many cells as columns, in both tables
    assert not re.search(r"(?<!\\)[_%#]", tex.replace("$_", ""))


class Page(HTMLParser):
    """Counts the tags, collects what could reach for the network."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "poster")]


def test_page_is_whole_and_asks_nobody(report: Path) -> None:
    text = (report / "report.html").read_text()
    page = Page(text)
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert "link" not in page.tags and text.count("<!--") == 0
    assert page.tags.count("video") == 12  # seed 1 of each method, task and setting
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert [variant["label"] for variant in data["variants"] if variant["shown"]] == [
        "SIBE",
        "DB",
        "SAC",
    ]
    assert [m["name"] for m in data["measures"]] == ["return", "kl", "bonus"]
    place = {"task": "walker_walk", "background": "noise", "measure": "return", "variant": 0}
    (curve,) = [c for c in data["curves"] if place.items() <= c.items()]
    assert curve["n"][-1] == 3 and max(curve["n"]) == 4 and len(curve["values"]) == 4
    assert "runs/broken" in text and "0123456789" in text and "Unfinished" in text


def test_same_runs_same_files(tmp_path: Path) -> None:
    write_run(tmp_path / "1", config_of("walker_walk", "noise", "sibe", 1), env_steps=20_000)
    out = tmp_path / "out"
    write_report([tmp_path / "1"], out)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "curves_video.png").touch()  # of an earlier report, on other runs
    for name in ("table.md", "curves_video.png"):
        (out / f"{name}.0123abcd.sibe-tmp").touch()  # of a report that was killed
    (out / "mine.txt").touch()
    write_report([tmp_path / "1"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {**first, "mine.txt": b""}


def test_default_step_is_the_last_common_one(runs: Path) -> None:
    results = compute_results([runs])
    assert results.env_step == 200_000
    assert "young has come no further" in results.notes[0]


def test_names_from_runs_are_escaped(tmp_path: Path) -> None:
    config = config_of("walker_walk", "clean", "sibe", 1)
    config["method"] = "</script><script>alert(1)</script>"
    write_run(tmp_path / "runs" / "<b>", config, env_steps=20_000)
    write_report([tmp_path / "runs"], tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert" not in text and "<b>" not in Page(text).tags
    assert text.count("</script>") == 2


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path) -> None:
    config = config_of("walker_walk", "clean", "sibe", 1)
    config["env"]["task"] = r"a$\frac$b"
    write_run(tmp_path / "runs" / "1", config, env_steps=20_000)
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert "frac" in (tmp_path / "out" / "curves_clean.svg").read_text()
    assert r"a\$\textbackslash{}frac\$b" in (tmp_path / "out" / "table.tex").read_text()


def test_one_seed_is_said_to_be_one(tmp_path: Path) -> None:
    write_run(tmp_path / "1", config_of("walker_walk", "noise", "sibe", 1), env_steps=30_000)
    results = compute_results([tmp_path])
    text = markdown_table(results.table)
    assert re.search(r"\| these runs, 30k, n = 1 \| [\d.]+\\\* \|", text)  # no ±, no bold
    assert "fewer than 3 seeds" in " ".join(results.notes)
    assert "nan" not in text + latex_table(results.table, "x")


def test_mixed_tasks_and_no_common_step(tmp_path: Path) -> None:
    pendulum = config_of("walker_walk", "clean", "sibe", 1)
    pendulum["env"]["task"] = "Pendulum-v1"
    write_run(tmp_path / "1", pendulum, env_steps=3000, every=1000, height=-900)
    for seed in (1, 2):
        config = config_of("walker_walk", "clean", "sibe", seed)
        write_run(tmp_path / f"w{seed}", config, env_steps=30_000)
    results = write_report([tmp_path], tmp_path / "out")
    assert results.env_step == 30_000
    assert "1 of 3 runs have no evaluation at env step 30000" in results.notes[0]
    assert results.study.tasks() == ["walker_walk", "Pendulum-v1"]
    assert [one.tasks for one in results.aggregates] == [["walker_walk"]]


def test_legends_tell_variants_apart_however_long_their_labels_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Figure] = {}

    def keep(figure: Figure, kind: str) -> bytes:
        data = picture(figure, kind)
        drawn[str(len(drawn))] = figure
        return data

    monkeypatch.setattr("sibe.analysis.report.report.picture", keep)
    shared: dict[str, Any] = {
        "encoder__features": 64,
        "encoder__filters": 16,
        "sac__init_temperature": 0.05,
    }
    for number, alpha in enumerate((0.01, 0.02)):
        for seed in (1, 2):
            config = config_of(
                "walker_walk", "clean", "sibe", seed, **shared, method_config__alpha=alpha
            )
            write_run(tmp_path / f"{number}-{seed}", config, env_steps=20_000)
    write_report([tmp_path], tmp_path / "out")
    for figure in drawn.values():
        figure.draw_without_rendering()
        legends = [text for legend in figure.legends for text in legend.get_texts()]
        ticks = [
            t for axis in figure.axes for t in axis.get_yticklabels() if "SIBE" in t.get_text()
        ]
        for texts in filter(None, (legends, ticks)):
            said = " ".join(" ".join(text.get_text() for text in texts).split())
            assert "alpha = 0.01" in said and "alpha = 0.02" in said
            for text in texts:  # and nothing runs out of the picture
                box, size = text.get_window_extent(), figure.bbox
                assert box.x0 >= 0 and box.y0 >= 0
                assert box.x1 <= size.width and box.y1 <= size.height
    assert len(drawn) == 8  # curves, KL, bonus and aggregate, each in two formats


def test_kl_is_on_a_logarithmic_axis(runs: Path) -> None:
    study = load_study([runs])
    for metric, scale in (("kl", "log"), ("bonus", "linear")):
        figure = metric_figure(study, "noise", metric)
        assert figure is not None and {axis.get_yscale() for axis in figure.axes} == {scale}


def test_a_single_run_has_no_aggregate(tmp_path: Path) -> None:
    config = config_of("walker_walk", "clean", "sibe", 1)
    write_run(tmp_path / "runs" / "1", config, env_steps=20_000)
    results = write_report([tmp_path / "runs"], tmp_path / "out")
    assert results.aggregates == []
    assert not list((tmp_path / "out").glob("aggregate_*"))
    assert "a single run" in (tmp_path / "out" / "report.html").read_text()
    assert "Over all tasks" not in (tmp_path / "out" / "table.md").read_text()


def test_only_ablations(tmp_path: Path) -> None:
    write_ablations(tmp_path / "runs", every=250_000, seeds=1)
    results = write_report([tmp_path / "runs"], tmp_path / "out")
    assert not results.table.rows and results.ablations.rows
    assert not (tmp_path / "out" / "curves_clean.png").exists()
    assert (tmp_path / "out" / "ablation_chunk.svg").exists()


def test_videos_are_capped(runs: Path) -> None:
    study = load_study([runs])
    one = max(video.stat().st_size for run in study.runs for video in run.videos)
    few = page_videos(study, total=int(2.5 * one))
    assert (len(few.shown), few.left_out) == (2, 10)
    assert not page_videos(study, largest=10).shown


def test_page_says_which_videos_are_missing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = functools.partial(page_videos, largest=10)
    monkeypatch.setattr("sibe.analysis.report.page.page_videos", cap)
    results = compute_results([runs])
    pictures = dict.fromkeys((f"aggregate_{one.background}" for one in results.aggregates), b"")
    page = report_page(results, pictures, "0").decode()
    assert "<video" not in page and "12 more not shown" in page


def test_the_papers_numbers_stand_under_the_papers_preset(tmp_path: Path) -> None:
    for preset in ("cpu", "paper"):
        for seed in (1, 2, 3):
            config = config_of("ball_in_cup_catch", "noise", "sibe", seed, preset=preset)
            write_run(tmp_path / preset / str(seed), config, env_steps=50_000)
    table = compute_results([tmp_path]).table
    (printed,) = [row for row in table.rows if row.origin == "paper"]
    assert table.columns[:2] == ["SIBE (cpu)", "SIBE (paper)"]
    assert printed.entries[0] is None and printed.entries[1] is not None


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(104.2, 23.1, 186.4), "104 [23, 186]"),
        (Estimate(0.4, 0.38, 0.42), "0.400 [0.380, 0.420]"),
        (Estimate(5.5, 3.0, 8.0), "5.5 [3.0, 8.0]"),
        (Estimate(-3.25, np.nan, np.nan), "-3.2"),
        (Estimate(0.0, 0.0, 0.0), "0 [0, 0]"),
    ],
)
def test_differences_have_two_digits_of_their_half_width(estimate: Estimate, text: str) -> None:
    assert estimate_text(estimate, digits=None) == text


def test_steps_as_text() -> None:
    given = (500_000, 1_000_000, 3008, 1_500_000, 10)
    assert [steps_text(n) for n in given] == ["500k", "1M", "3008", "1500k", "10"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("report {}/empty --out {}/out", "no run with an evaluation under"),
        ("report {}/nowhere --out {}/out", "nowhere is not a folder"),
        ("report {}/runs --out {}/out --at 123", "no run was evaluated at env step 123"),
        ("report {}/runs --out {}/out --at 0", "--at must be"),
        ("report {}/runs --out {}/out --at soon", "--at"),
        ("report {}/runs --out {}/file", "is not a folder"),
        ("report {}/runs --out {}/runs/1", "is a run directory"),
        ("report {}/runs", "--out"),
        ("report --out {}/out", "sibe report needs run directories"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    write_run(
        tmp_path / "runs" / "1", config_of("walker_walk", "noise", "sibe", 1), env_steps=20_000
    )
    with pytest.raises(SystemExit) as stop:
        cli.main(line.replace("{}", str(tmp_path)).split())
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and out == ""
    assert err.startswith("sibe: ") and err.count("\n") == 1 and words in err
    assert not (tmp_path / "out").exists()


def test_command_names_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(
        tmp_path / "a" / "1", config_of("walker_walk", "noise", "sibe", 1), env_steps=20_000
    )
    with (run / "eval.csv").open("a") as file:
        file.write("30000,15")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "eval.csv").write_text("frame\n")
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", f"{tmp_path}/a", f"{tmp_path}/b", "--out", f"{tmp_path}/out"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "left out b: b is not a run directory: it has no config.json" in out
    assert "1 run, scores at 20k env steps" in out
    assert f"open {tmp_path}/out/report.html" in out


def test_unwritable_out(tmp_path: Path) -> None:
    write_run(tmp_path / "1", config_of("walker_walk", "noise", "sibe", 1), env_steps=20_000)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        write_report([tmp_path / "1"], tmp_path / "file" / "below")


# --- runs from elsewhere --------------------------------------------------------------------


def three_runs(root: Path) -> Path:
    for seed in (1, 2, 3):
        write_run(root / f"r{seed}", config_of("walker_walk", "clean", "sibe", seed), every=250_000)
    return root / "r3"


@pytest.mark.parametrize("row", ["500000,1,1,1,1e308,1,1e308,1", "500000,1,1,1,-1e308,1,0,1"])
def test_numbers_that_cannot_be_leave_a_run_out(tmp_path: Path, row: str) -> None:
    run = three_runs(tmp_path / "runs")
    with (run / "eval.csv").open("a") as file:
        file.write(f"{row}\n")
    results = write_report([tmp_path / "runs"], tmp_path / "out")
    (left_out,) = results.study.left_out
    assert "eval.csv, line 4 is damaged" in left_out.reason
    with (run / "eval.csv").open("w") as file:
        file.write("frame,episode_reward\n1e300,1\n")
    (left_out,) = write_report([tmp_path / "runs"], tmp_path / "out").study.left_out
    assert "eval.csv, line 2 is damaged" in left_out.reason


@pytest.mark.parametrize("name", ["eval.csv", "train.csv", "config.json"])
def test_pipes_devices_and_links_are_not_read(tmp_path: Path, name: str) -> None:
    run = three_runs(tmp_path / "runs")
    for make in (
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(tmp_path / "runs" / "r1" / name),
    ):
        (run / name).unlink()
        make(run / name)
        (left_out,) = write_report([tmp_path / "runs"], tmp_path / "out").study.left_out
        assert left_out.name == "runs/r3" and name in left_out.reason


def test_only_videos_of_the_run_itself_are_shown(tmp_path: Path) -> None:
    run = three_runs(tmp_path / "runs")
    (tmp_path / "secret").write_bytes(b"precious")
    (run / "video").mkdir()
    (run / "video" / "z.mp4").symlink_to(tmp_path / "secret")
    videos = page_videos(load_study([run]))
    assert (videos.shown, videos.left_out) == ([], 1)
    (run / "video" / "z.mp4").unlink()
    os.mkfifo(run / "video" / "z.mp4")
    assert page_videos(load_study([run])).left_out == 1


def test_names_are_no_markup_in_any_medium(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of("walker_walk", "clean", "sibe", 1)
    for name, task in {"a": "<script>alert(1)</script>![](http://a.b/c)|x", "b": "\x1b[2J"}.items():
        config["env"]["task"] = task
        write_run(tmp_path / "runs" / f"\x1b[31m{name}", config, every=250_000)
    (tmp_path / "runs" / "<img src=x>").mkdir()
    (tmp_path / "runs" / "<img src=x>" / "config.json").write_text("{\x1b")
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    assert not stop.value.code
    assert "\x1b" not in "".join(capsys.readouterr())
    markdown, latex = ((tmp_path / "out" / f"table.{kind}").read_text() for kind in ("md", "tex"))
    assert "<" not in markdown and "](" not in markdown.replace("\\](", "")
    assert "&lt;script&gt;" in markdown and r"\textless{}script\textgreater{}" in latex
    assert "<" not in latex and "\x1b" not in markdown + latex
