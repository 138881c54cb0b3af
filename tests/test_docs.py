"""The code in the documentation runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


RUNNABLE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_python_in_docs_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in blocks(page):
        exec(compile(code, page.name, "exec", dont_inherit=True), {"__name__": "__doc__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"
