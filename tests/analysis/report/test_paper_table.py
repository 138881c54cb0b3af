"""The paper's table: its rules give its own bold and asterisks back from its printed numbers."""

from __future__ import annotations

import math
from itertools import groupby

import pytest

from sibe.analysis.report.paper_table import Mark, PaperCell, marks, paper_table, reference_scores
from sibe.catalogue.registry import ENTRIES
from sibe.envs.tasks import BACKGROUNDS, PAPER_TASKS, SUITE_TASKS

NAN = math.nan
ROWS = [list(g) for _, g in groupby(paper_table(), key=lambda c: (c.background, c.task))]


def test_data_is_the_whole_table() -> None:
    assert len(ROWS) == 12 and all(len(row) == 5 for row in ROWS)
    assert {c.task for row in ROWS for c in row} == set(PAPER_TASKS)
    assert [c.method for c in ROWS[0]] == ["sibe", "db", "proto", "plan2explore", "rpc"]
    # Three cells and the sums, read off the printed page by eye.
    by_place = {(c.background, c.task, c.method): c for row in ROWS for c in row}
    reacher = by_place["video", "reacher_easy", "plan2explore"]
    assert (reacher.mean, reacher.se, reacher.mark) == (529, 196, Mark(True, True))
    assert by_place["noise", "ball_in_cup_catch", "db"][5:] == (602, 187, Mark(False, False))
    assert by_place["noise", "cartpole_swingup", "db"][5:] == (858, 5, Mark(True, False))
    assert sum(c.mark.bold for row in ROWS for c in row) == 20
    assert sum(c.mark.asterisk for row in ROWS for c in row) == 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].background}-{row[0].task}")
def test_rules_reproduce_the_printed_marks(row: list[PaperCell]) -> None:
    assert marks([c.mean for c in row], [c.se for c in row]) == [c.mark for c in row]


def test_two_plainer_readings_do_not() -> None:
    """Why the rule is what it is: see the module's docstring and docs/howto/read_the_report.md."""
    literal = overlap = 0
    for row in ROWS:
        best = max(row, key=lambda c: c.mean)
        for c in row:
            others = [o for o in row if o is not c]
            above_all = all(c.mean - c.se >= o.mean + o.se for o in others)
            overlaps = c.mean + c.se >= best.mean - best.se
            literal += above_all != c.mark.bold
            overlap += overlaps != c.mark.bold
    assert (literal, overlap) == (13, 1)


def test_marks_without_standard_error() -> None:
    assert marks([800, 700], [NAN, 5]) == [Mark(False, True), Mark(False, False)]
    assert marks([800, 799], [5, NAN]) == [Mark(True, True), Mark(False, False)]
    assert marks([NAN, 3, NAN], [NAN, 1, NAN])[1] == Mark(True, True)
    assert marks([NAN, NAN], [NAN, NAN]) == [Mark(False, False)] * 2
    assert marks([5, 5], [1, 1]) == [Mark(True, True)] * 2


def test_references_say_what_they_are() -> None:
    for r in reference_scores():
        assert r.task in SUITE_TASKS and r.background in BACKGROUNDS
        assert r.source and 0 <= r.mean <= 1000 and r.env_step in (100_000, 500_000, 1_000_000)
        assert r.method not in ENTRIES  # never taken for one of ours
    shift = [r for r in reference_scores() if "random shift" in r.method]
    assert (shift[1].env_step, shift[1].mean, shift[1].sd) == (500_000, 845, 39)
