"""How much is measured, and what every benchmark is given: the plan, the machine, both sides."""

from __future__ import annotations

from dataclasses import dataclass

from sibe.bench.machine import Machine, measure_machine
from sibe.bench.sides import Side


@dataclass(frozen=True)
class Plan:
    """Sizes and counts; the defaults are the real thing, ``QUICK`` is for tests."""

    presets: tuple[str, ...] = ("paper", "cpu")
    pairs: int = 5
    """interleaved measurements of each side"""
    seconds: float = 0.3
    """a single measurement takes at least this long"""
    stored: int = 4000
    """transitions in the replay where both sides have one"""
    transitions: tuple[int, int] = (10_000, 100_000)
    """small and large replay of ours"""
    batches: tuple[int, ...] = (32, 64, 128, 256, 512)
    sides: tuple[int, ...] = (48, 64, 84, 100)
    side_batch: int = 128
    """batch size for the image sizes"""
    part_steps: int = 10
    """agent steps over which the parts of the first preset are measured"""
    episodes: int = 2
    """learning episodes that count in the whole run"""
    matrices: tuple[int, ...] = (1024, 2048, 3072)
    copied: int = 1 << 28
    tries: int = 6


QUICK = Plan(
    presets=("debug",),
    pairs=2,
    seconds=0.01,
    stored=200,
    transitions=(200, 1000),
    batches=(4, 8),
    sides=(24, 32),
    side_batch=4,
    part_steps=2,
    episodes=1,
    matrices=(256,),
    copied=1 << 22,
    tries=2,
)


@dataclass
class Bench:
    """What a benchmark works with; ``machine`` is the best seen so far."""

    plan: Plan
    machine: Machine
    ours: Side
    reference: Side

    @staticmethod
    def start(plan: Plan, ours: Side, reference: Side) -> Bench:
        """Measure the machine, on our side."""
        return Bench(plan, _measure(plan, ours), ours, reference)

    def refresh(self) -> Machine:
        """Measure the machine again, so that its limits are from the same minutes as the times."""
        self.machine = self.machine.best(_measure(self.plan, self.ours))
        return self.machine

    def side(self, name: str) -> Side:
        """Return the side called ``name``."""
        return {"ours": self.ours, "reference": self.reference}[name]

    def forget(self) -> None:
        """Free what was prepared on both sides."""
        self.ours.forget()
        self.reference.forget()


def _measure(plan: Plan, side: Side) -> Machine:
    machine: Machine = side.call(measure_machine, plan.matrices, plan.copied, plan.tries)
    return machine
