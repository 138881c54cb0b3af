"""What an update draws from the replay, and how often there is one."""

from __future__ import annotations

from typing import NamedTuple


class Sampling(NamedTuple):
    """The agent's side of the bargain with the replay; fixed by its config."""

    batch: int
    """sequences per update"""
    length: int
    """consecutive transitions per sequence"""
    shift: int
    """random shift of the images in pixels either way; 0 for none"""
    every: int
    """agent steps from one update to the next"""
