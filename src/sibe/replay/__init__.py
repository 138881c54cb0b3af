"""Frames in, chunks out: a ring of single frames, the sampler over it, and its episodes on disk."""

from sibe.replay.chunk import Chunk
from sibe.replay.episodes import Episode, episode_path, prune, read_episode, write_episode
from sibe.replay.replay import Replay

__all__ = [
    "Chunk",
    "Episode",
    "Replay",
    "episode_path",
    "prune",
    "read_episode",
    "write_episode",
]
