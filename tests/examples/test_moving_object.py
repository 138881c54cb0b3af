from __future__ import annotations

import moving_object
import torch


def test_position_is_learned_from_frames_alone() -> None:
    untrained, trained = moving_object.main()
    assert untrained < 0.6 < 0.8 < trained


def test_the_object_is_where_the_positions_say() -> None:
    frames, positions = moving_object.make_video(seed=1)
    axis = torch.arange(moving_object.SIZE)
    for frame, (row, column) in zip(frames[:20, ..., 0].float(), positions, strict=False):
        disc = (axis - row).square()[:, None] + (axis - column).square() < moving_object.RADIUS**2
        assert frame[disc].mean() > frame[~disc].mean() + 40
