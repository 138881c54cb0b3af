"""The summary: how many cases of each kind came to what, as a Markdown table."""

from __future__ import annotations

from collections import Counter

from storm.case import Case, Outcome, Result

_FAILED = "FAILED"


class Summary:
    """Counts the cases that were done."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._kills: Counter[tuple[str, str]] = Counter()

    def add(self, case: Case, result: Result | None) -> None:
        """Count a case; None for one that failed."""
        row = (case.family, case.kind)
        outcome = _FAILED if result is None else result.outcome.value
        self._counts.setdefault(row, Counter())[outcome] += 1
        if case.family == "kill":
            self._kills[row] += 0 if result is None else result.kills

    @property
    def failures(self) -> int:
        """How many cases failed."""
        return sum(counts[_FAILED] for counts in self._counts.values())

    def faults(self, family: str) -> int:
        """Return how many kills, damages or crafted files there were."""
        if family == "kill":
            return self._kills.total()
        return sum(c.total() for (name, _), c in self._counts.items() if name == family)

    def table(self) -> str:
        """Return the table."""
        outcomes = [*(outcome.value for outcome in Outcome), _FAILED]
        lines = [
            "| fault | of | faults | " + " | ".join(outcomes) + " |",
            "|---|---|" + "--:|" * (1 + len(outcomes)),
        ]
        for row, counts in self._counts.items():
            faults = self._kills[row] if row[0] == "kill" else counts.total()
            cells = (*row, faults, *(counts[name] or "" for name in outcomes))
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        sums = [sum(c[name] for c in self._counts.values()) for name in outcomes]
        total = sum(map(self.faults, ("kill", "damage", "hostile")))
        lines.append("| " + " | ".join(map(str, ("all", "", total, *sums))) + " |")
        return "\n".join(lines)
