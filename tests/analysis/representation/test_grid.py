"""Places on the grid, and the crossing of poses and backgrounds behind it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sibe.analysis.representation.grid import distances, to_grid, tsne
from sibe.analysis.representation.grid_picture import draw_grid
from sibe.analysis.representation.pairs import COPIES, crossed_layout, most_different, spread_out
from sibe.envs.backgrounds.background import Noise
from sibe.errors import UserError
from sibe.logs.picture_file import write_png


def scaled_cost(points: np.ndarray, cells: np.ndarray, columns: int, rows: int) -> float:
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1)
    return float((((points - low) / span * [columns - 1, rows - 1] - cells) ** 2).sum())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(1, 1), (2, 1), (1, 5), (2, 3), (3, 2), (4, 2)]), st.integers(0, 10**6))
def test_no_other_assignment_moves_the_points_less(shape: tuple[int, int], seed: int) -> None:
    columns, rows = shape
    points = np.random.default_rng(seed).normal(size=(columns * rows, 2))
    cells = to_grid(points, columns, rows)
    everywhere = list(itertools.product(range(columns), range(rows)))
    assert sorted(map(tuple, cells.tolist())) == everywhere
    best = min(
        scaled_cost(points, np.array(order), columns, rows)
        for order in itertools.permutations(everywhere)
    )
    assert scaled_cost(points, cells, columns, rows) == pytest.approx(best)


def test_points_that_are_a_grid_already_stay_where_they_are() -> None:
    cells = np.array(list(itertools.product(range(20), range(15))))
    shuffled = np.random.default_rng(0).permutation(cells)
    np.testing.assert_array_equal(to_grid(shuffled * [7.0, 0.1] + 100, 20, 15), shuffled)


def test_a_wrong_number_of_points_is_refused() -> None:
    with pytest.raises(ValueError, match="5 points for 2×3"):
        to_grid(np.zeros((5, 2)), 2, 3)


def test_tsne_keeps_clusters_together_and_repeats_itself() -> None:
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 40)
    latents = rng.normal(size=(120, 8)) + 20 * np.eye(8)[label]
    plane = tsne(latents, seed=3)
    centers = np.stack([plane[label == k].mean(axis=0) for k in range(3)])
    nearest = ((plane[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest, label)
    np.testing.assert_array_equal(plane, tsne(latents, seed=3))


def test_a_collapsed_representation_is_told() -> None:
    with pytest.raises(UserError, match="same representation"):
        tsne(np.ones((120, 4)), seed=0)


def test_without_scikit_learn_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match=r"pip install 'sibe\[analysis\]'"):
        tsne(np.zeros((120, 4)), seed=0)


def test_distances_are_in_cells() -> None:
    cells = np.array([[0, 0], [3, 4], [3, 0]])
    np.testing.assert_array_equal(distances(cells, np.array([[0, 1], [1, 2]])), [5, 4])


@pytest.mark.parametrize("count", [COPIES, 10, 100])
def test_each_pose_meets_as_many_backgrounds_and_no_pair_meets_twice(count: int) -> None:
    rng = np.random.default_rng(count)
    poses = rng.permutation(1000)[:count]
    backgrounds = rng.permutation(1000)[:count]
    layout = crossed_layout(poses, backgrounds, rng)
    shown = list(zip(layout.poses.tolist(), layout.backgrounds.tolist(), strict=True))
    assert len(set(shown)) == len(shown) == COPIES * count
    for chosen, there in ((poses, layout.poses), (backgrounds, layout.backgrounds)):
        assert sorted(there.tolist()) == sorted(COPIES * chosen.tolist())
    n = len(shown)
    for pairs, same, other in ((layout.same_pose, 0, 1), (layout.same_background, 1, 0)):
        brute = {
            (i, j)
            for i, j in itertools.combinations(range(n), 2)
            if shown[i][same] == shown[j][same] and shown[i][other] != shown[j][other]
        }
        assert {(int(i), int(j)) for i, j in pairs} == brute
        assert len(pairs) == count * COPIES


def test_the_marked_pair_is_the_one_that_differs_most() -> None:
    features = np.array([[0.0], [1.0], [9.0], [2.0]])
    assert most_different(np.array([[0, 1], [0, 3], [2, 3]]), features) == (2, 3)


def test_chosen_poses_cover_their_range() -> None:
    rng = np.random.default_rng(0)
    crowd = np.concatenate([rng.normal(0, 0.01, (500, 2)), rng.uniform(-5, 5, (60, 2))])
    chosen = spread_out(crowd, 30)
    assert len(set(chosen.tolist())) == 30
    assert (chosen >= 500).sum() >= 28  # the crowd in the middle needs one

    def hole(of: np.ndarray) -> float:
        return float(((crowd[:, None] - crowd[of]) ** 2).sum(axis=2).min(axis=1).max())

    assert all(hole(chosen) < hole(rng.choice(560, 30, replace=False)) for _ in range(20))


def test_equal_poses_are_not_chosen_twice_while_there_are_others() -> None:
    assert sorted(spread_out(np.zeros((6, 2)), 6).tolist()) == list(range(6))


def test_a_grid_of_noise_is_a_file_of_two_megabytes(tmp_path: Path) -> None:
    """Noise does not compress: in full color the 300 pictures take 7 MB."""
    noise = Noise(84, 84)
    rng = np.random.default_rng(0)
    frames = np.stack([noise.next(rng) for _ in range(60)])
    cells = np.array([(n % 10, n // 10) for n in range(60)])
    figure = draw_grid(frames, cells, title="title", subtitle="below", marks=[], note="note")
    sizes = {}
    for most in (np.inf, 1e6):
        write_png(figure, tmp_path / "grid.png", most_bytes=most)
        sizes[most] = (tmp_path / "grid.png").stat().st_size
    assert sizes[1e6] < 0.35 * sizes[np.inf] and sizes[1e6] * 300 / 60 < 3e6
    with Image.open(tmp_path / "grid.png") as image:
        shown = np.asarray(image.convert("RGB")).astype(int)
    assert abs(shown[61:145, 21:105] - frames[0]).mean() < 16
    assert (shown == 255).all(axis=-1).mean() > 0.2  # white stays white
