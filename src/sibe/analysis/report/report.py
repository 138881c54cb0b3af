"""A report: run directories in; figures, tables, numbers and one self-contained page out."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from sibe.analysis.report.aggregate_figure import aggregate_figure
from sibe.analysis.report.curve_figures import (
    METRICS,
    ablation_figure,
    curves_figure,
    metric_figure,
)
from sibe.analysis.report.page import report_page
from sibe.analysis.report.results import Results, compute_results
from sibe.analysis.report.text import text_files
from sibe.errors import UserError
from sibe.logs.picture_file import write_file
from sibe.logs.plot_style import picture
from sibe.storage.atomic import SUFFIX
from sibe.storage.run_files import RunFiles

PAGE = "report.html"
_OWN = ("curves_*.???", "kl_*.???", "bonus_*.???", "aggregate_*.???", "ablation_*.???")


def write_report(roots: Sequence[Path], out: Path, at: int | None = None, last: int = 1) -> Results:
    """Write the report on all runs below ``roots`` into folder ``out`` and return its numbers.

    Args:
        roots: run directories, or folders of them.
        out: made if missing; an earlier report in it is replaced.
        at: env step of the tables (default: the last one that all runs share).
        last: how many evaluations up to there a score is the mean of.

    Raises:
        UserError: if there is nothing to report on, or ``out`` cannot be written.
    """
    _check_out(out)
    results = compute_results(roots, at, last)
    files = text_files(results)
    vectors = {}
    with matplotlib.rc_context({"text.parse_math": False}):  # a $ in a name is a $
        for name, figure in _figures(results):
            files[f"{name}.png"] = picture(figure, "png")
            files[f"{name}.svg"] = vectors[name] = picture(figure, "svg")
    # The page last: once it is there, all is there.
    files[PAGE] = report_page(results, vectors, importlib.metadata.version("sibe"))
    for name, content in files.items():
        write_file(out / name, content)
    _remove_stale(out, files)
    return results


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is not a folder: choose another")
    if RunFiles(out).config_json.exists():
        raise UserError(f"--out {out} is a run directory: choose a folder for the report")


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    study = results.study
    for background in study.backgrounds:
        figures = {"curves": curves_figure(study, background)}
        figures |= {metric: metric_figure(study, background, metric) for metric in METRICS}
        for name, figure in figures.items():
            if figure is not None:
                yield f"{name}_{background}", figure
    for one in results.aggregates:
        yield f"aggregate_{one.background}", aggregate_figure(one)
    for kind in ("component", "chunk"):
        if (figure := ablation_figure(study, kind)) is not None:
            yield f"ablation_{kind}", figure


def _remove_stale(out: Path, files: dict[str, bytes]) -> None:
    """Delete what this report has not: pictures of an earlier one, which would be taken for its.

    Temporary files of a report that was killed go too.
    """
    for path in out.iterdir():
        name = path.name
        if name.endswith(SUFFIX):
            name = name.removesuffix(SUFFIX).rpartition(".")[0]
        own = name in files or any(fnmatch(name, pattern) for pattern in _OWN)
        if own and path.name not in files:
            path.unlink()
