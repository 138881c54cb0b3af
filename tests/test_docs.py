"""The code in the documentation runs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import sibe

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


RUNNABLE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_python_in_docs_runs(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # runs are written where the reader is
    shared = {"__name__": "__doc__"}  # a page is read from top to bottom
    for code in blocks(page):
        exec(compile(code, page.name, "exec", dont_inherit=True), shared)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    names = {path.rpartition(".")[2]: path.rpartition(".")[0] for path in listed}
    for name in set(sibe.__all__) - {"__version__"}:
        assert getattr(import_module(names[name]), name) is getattr(sibe, name)
