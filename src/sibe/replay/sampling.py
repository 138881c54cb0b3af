"""What an update draws from the replay, and how often there is one."""

from __future__ import annotations

from typing import NamedTuple


class Sampling(NamedTuple):
    """What an agent asks of the replay; fixed by its config."""

    batch: int
    """sequences per update"""
    length: int
    """consecutive transitions per sequence"""
    shift: int
    """random shift of the images in pixels either way; 0 for none"""
    every: int
    """agent steps from one update to the next"""
    frames_per_state: int = 1
    """single frames that overlapping states share, or 1: states come stacked"""
    group: int = 1
    """sequences that look alike follow one another in groups of so many; 1 for any"""
    updates: int = 1
    """updates in a row whenever there is one, each with a minibatch of its own"""
    online: int = 0
    """states that the online encoder sees, from the first on, as single frames; 0 for all"""
    target: int = 0
    """first state that the target encoder sees, as single frames"""
    least: int | None = None
    """transitions of a sequence that must have happened; the rest may lie after a termination. None
    for all"""
