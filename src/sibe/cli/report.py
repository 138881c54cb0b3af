"""`sibe report`: figures, tables and one page from any number of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from sibe.config.values import Count, configuration


@configuration()
class Report:
    """Compare runs: learning curves, the paper's table, aggregates, and a page to click through."""

    runs: Positional[Annotated[tuple[Path, ...], arg(metavar="RUNS...")]]
    """Run directories, or folders with run directories anywhere below; unfinished ones count."""
    out: Path
    """Folder for the report; an earlier report in it is replaced."""
    at: Count | None = None
    """Env step of the tables (default: the last one that all runs were evaluated at)."""
    last: Count = 1
    """A score is the mean of this many evaluations up to there; single ones swing."""

    def run(self) -> int:
        """Write the report and say what is in it."""
        from sibe.analysis.report.report import PAGE, write_report
        from sibe.errors import UserError, printable
        from sibe.logs.amounts import count

        if not self.runs:
            raise UserError("sibe report needs run directories: sibe report runs --out report")
        results = write_report(self.runs, self.out, self.at, self.last)
        for name, reason in results.study.left_out:
            print(printable(f"left out {name}: {reason}"))
        for note in results.notes:
            print(printable(note))
        print(f"{count(len(results.study.runs), 'run')}, scores {results.when}")
        print(f"open {self.out / PAGE}")
        return 0
