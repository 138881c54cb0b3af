"""Means of the metrics of an episode's updates."""

from __future__ import annotations

from sibe.agents.protocol import Metrics


class MeanMetrics:
    """Running means of metrics; stays on the device until asked."""

    def __init__(self) -> None:
        self._sums: Metrics = {}
        self._count = 0

    def add(self, metrics: Metrics) -> None:
        """Take the metrics of one update."""
        self._count += 1
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def means(self) -> dict[str, float]:
        """Return the means by name; nothing if there was no update."""
        return {name: float(total) / self._count for name, total in self._sums.items()}
