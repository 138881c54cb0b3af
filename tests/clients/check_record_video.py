"""Gymnasium's RecordVideo, which needs moviepy: `make test-clients`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
from gymnasium.wrappers import RecordVideo

import sibe

SIZE = 40


def test_gymnasium_records_videos(tmp_path: Path) -> None:
    made = sibe.make_env("cartpole_swingup", "noise", size=SIZE)
    env: Any = RecordVideo(
        made, str(tmp_path / "videos"), episode_trigger=lambda episode: True, video_length=6
    )
    env.reset(seed=1)
    for _ in range(8):
        env.step(env.action_space.sample())
    env.close()
    (video,) = tmp_path.glob("videos/*.mp4")
    with av.open(str(video)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames) >= 6
    assert frames[0].shape == (SIZE, SIZE, 3)
    assert frames[0].std() > 20  # the noise is there
