"""report.html: one self-contained page that makes no network requests.

data/report.html is the template; curves are drawn by chart.js, which all pages share, and switched
by data/report_page.js. The page's own content security policy forbids it the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from jinja2 import Environment

from sibe.analysis.comparison import setting_name
from sibe.analysis.page.template import page_environment
from sibe.analysis.report.page_data import page_data
from sibe.analysis.report.page_videos import page_videos
from sibe.analysis.report.results import Results
from sibe.analysis.report.score_table import RULES, cell_text, row_label, steps_text
from sibe.analysis.report.text import (
    DIFFERENCE_RULES,
    REFERENCE_RULES,
    estimate_text,
    reference_text,
)
from sibe.analysis.runs import Run


def report_page(results: Results, pictures: Mapping[str, bytes], version: str) -> bytes:
    """Return the page.

    Args:
        results: what it says.
        pictures: SVG files by stem; those of aggregates and ablations are embedded.
        version: of the package that makes the report.
    """
    page = _environment().get_template("report.html")
    return page.render(
        results=results,
        study=results.study,
        pictures=pictures,
        lead=_lead(results, version),
        rules=RULES,
        reference_rules=REFERENCE_RULES,
        difference_rules=DIFFERENCE_RULES,
        videos=page_videos(results.study),
        data=page_data(results.study),
    ).encode()


def _environment() -> Environment:
    environment = page_environment("sibe.analysis.report")
    environment.filters.update(estimate=estimate_text, setting=setting_name, steps=steps_text)
    environment.globals.update(
        cell_text=cell_text,
        details_of=_details_of,
        reference_text=reference_text,
        revision_of=_revision_of,
        row_label=row_label,
        version_of=_version_of,
    )
    return environment


def _lead(results: Results, version: str) -> str:
    study = results.study
    counts = {
        "run": len(study.runs),
        "method": len({variant.method for variant in study.variants}),
        "variant": sum(variant.kind != "method" for variant in study.variants),
        "task": len(study.tasks()),
        "setting": len(study.backgrounds),
    }
    said = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items() if n)
    return f"{said}. Scores {results.when}. Made by sibe {version}."


def _version_of(run: Run) -> str:
    versions = run.meta.get("versions")
    return str(versions.get("sibe")) if isinstance(versions, dict) else "unknown"


def _revision_of(run: Run) -> str:
    git = run.meta.get("git")
    if not isinstance(git, dict):
        return "unknown"
    return str(git.get("revision", ""))[:10] + (" (changed)" if git.get("dirty") else "")


def _details_of(run: Run) -> str:
    return json.dumps({"config": run.config, "meta": run.meta}, indent=1)
