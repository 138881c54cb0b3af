"""report.html: one page that holds everything and asks nobody for anything.

Curves are drawn by data/report_chart.js and switched by data/report_page.js; the tables, the list
of runs and the pictures are written here. The page's own content security policy forbids it the
network. Whatever comes from a run (names, labels, configs) is escaped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files

from sibe.analysis.comparison import SETTINGS
from sibe.analysis.report.page_data import page_data
from sibe.analysis.report.page_tables import (
    aggregate_html,
    reference_html,
    runs_html,
    score_html,
)
from sibe.analysis.report.page_videos import videos_html
from sibe.analysis.report.results import Results
from sibe.analysis.report.score_table import RULES, steps_text
from sibe.analysis.report.text import REFERENCE_RULES

_CAPTIONS = {"ablation_component": "Components of SIBE", "ablation_chunk": "Chunk length"}


def report_page(results: Results, pictures: Mapping[str, bytes], version: str) -> bytes:
    """Return the page.

    Args:
        results: what it says.
        pictures: SVG files by stem; those of aggregates and ablations are put in.
        version: of the package that makes the report.
    """
    study = results.study
    parts = {
        "style": _asset("report.css"),
        "script": _asset("report_chart.js") + _asset("report_page.js"),
        # "</script>" inside a name must not end the script.
        "data": json.dumps(page_data(study), separators=(",", ":")).replace("<", "\\u003c"),
        "lead": escape(_lead(results, version)),
        "notes": _notes(results),
        "scores": _scores(results),
        "aggregates": _aggregates(results, pictures),
        "ablations": _ablations(results, pictures),
        "videos": videos_html(study),
        "runs": runs_html(study),
    }
    page = _asset("report.html")
    for name, part in parts.items():
        page = page.replace(f"<!--{name}-->", part)
    return page.encode()


def _asset(name: str) -> str:
    return (files("sibe.analysis.report") / "data" / name).read_text(encoding="utf-8")


def _lead(results: Results, version: str) -> str:
    study = results.study
    counts = {
        "run": len(study.runs),
        "method": len({arm.method for arm in study.arms}),
        "variant": sum(arm.kind != "method" for arm in study.arms),
        "task": len(study.tasks()),
        "setting": len(study.backgrounds),
    }
    said = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items() if n)
    step = steps_text(results.env_step)
    return f"{said}. Tables at {step} env steps. Made by sibe {version}."


def _notes(results: Results) -> str:
    notes = [escape(note) for note in results.notes]
    notes += [
        f"Left out: <b>{escape(name)}</b>: {escape(reason)}"
        for name, reason in results.study.left_out
    ]
    if not notes:
        return ""
    return "<ul class=notes>" + "".join(f"<li>{note}</li>" for note in notes) + "</ul>"


def _scores(results: Results) -> str:
    parts = []
    if results.table.rows:
        parts += [f"<p>{escape(RULES)}</p>", score_html(results.table, "Scores of the methods")]
    if results.references:
        parts += [
            "<details><summary>Public reference scores (other people's code)</summary>",
            f"<p>{escape(REFERENCE_RULES)}</p>",
            reference_html(results.references),
            "</details>",
        ]
    return "".join(parts) or "<p>There are only ablations: see below.</p>"


def _aggregates(results: Results, pictures: Mapping[str, bytes]) -> str:
    if not results.aggregates:
        return "<p>No task of the DeepMind Control suite is common to all methods.</p>"
    shown = [
        _picture(pictures, f"aggregate_{one.background}", SETTINGS.get(one.background, ""))
        for one in results.aggregates
    ]
    return aggregate_html(results.aggregates) + "".join(shown)


def _ablations(results: Results, pictures: Mapping[str, bytes]) -> str:
    if not results.ablations.rows:
        return "<p>No ablation runs.</p>"
    table = score_html(results.ablations, "Scores of the ablations")
    shown = [
        _picture(pictures, name, caption) for name, caption in _CAPTIONS.items() if name in pictures
    ]
    return table + "".join(shown)


def _picture(pictures: Mapping[str, bytes], name: str, caption: str) -> str:
    source = "data:image/svg+xml;base64," + base64.b64encode(pictures[name]).decode()
    return (
        f"<figure class=picture><img alt='{escape(caption)}' src='{source}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
