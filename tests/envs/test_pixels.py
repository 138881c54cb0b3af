"""Gymnasium environments from pixels: drawn by MuJoCo, by themselves, or showing images already."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import sibe
from sibe.envs.gymnasium_pixels import GymPixels
from sibe.envs.state import RobotShare
from sibe.errors import UserError


class _Picture(gym.Env[Any, np.ndarray]):
    """A state with a picture: observed, or only drawn. Rewards the control it was given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, shape: tuple[int, ...], observed: bool, render_mode: str) -> None:
        self.render_mode, self.observed, self.shape = render_mode, observed, shape
        self.action_space = gym.spaces.Box(*np.array([[[0, -4]], [[2, 8]]], np.float32))
        self.observation_space = gym.spaces.Box(0, 1, (2,))
        if observed:
            self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {"word": "kept"}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.shape == (1, 2)
        self.steps += 1
        return self._observe(), float(action.sum()), self.steps == 5, self.steps == 7, {}

    def render(self) -> np.ndarray:
        return self.image

    def _observe(self) -> Any:
        self.image = self.np_random.integers(0, 256, self.shape, dtype=np.uint8)
        return self.image if self.observed else np.zeros(2, np.float32)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    shapes = {"Rgb": (60, 40, 3), "Gray": (42, 42, 1), "Planes": (3, 20, 30), "Nine": (9, 9, 9)}
    names = []
    kind: Any = _Picture  # gymnasium's type of a creator takes every keyword
    for name, shape in shapes.items():
        for observed in (True, False):
            names.append(f"{name}{'Seen' if observed else 'Drawn'}-v0")
            kwargs = {"shape": shape, "observed": observed}
            gym.register(names[-1], kind, disable_env_checker=True, kwargs=kwargs)
    yield
    for name in names:
        del gym.registry[name]


@pytest.fixture
def imageio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's MuJoCo envs import it to save videos, which is not asked of them here."""
    if importlib.util.find_spec("imageio") is None:
        monkeypatch.setitem(sys.modules, "imageio", types.ModuleType("imageio"))


@pytest.mark.parametrize("how", ["Seen", "Drawn"])
@pytest.mark.parametrize("kind", ["Rgb", "Gray", "Planes"])
def test_the_image_is_resized_and_nothing_else(kind: str, how: str) -> None:
    env = sibe.make_env(f"{kind}{how}-v0", size=(20, 30), stack=1)
    frame, info = env.reset(seed=1)
    image = env.get_wrapper_attr("gym_env").unwrapped.image
    if kind == "Planes":  # already of the wanted size
        expected = image.transpose(1, 2, 0)
    else:
        resized = Image.fromarray(image.squeeze()).resize((30, 20), Image.Resampling.BOX)
        expected = np.broadcast_to(np.asarray(resized).reshape(20, 30, -1), (20, 30, 3))
    np.testing.assert_array_equal(frame, expected)
    assert frame.dtype == np.uint8
    assert info == {"word": "kept", "env_steps": 0}


def test_actions_are_mapped_and_repeated_until_the_end() -> None:
    env = sibe.make_env("RgbSeen-v0", action_repeat=3)
    env.reset(seed=1)
    # [0, 2] and [-4, 8] from [-1, 1]: corners, and the middle.
    _, reward, terminated, truncated, info = env.step(np.array([-1, 1], np.float32))
    assert (reward, terminated, truncated, info["env_steps"]) == (3 * 8.0, False, False, 3)
    _, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
    assert (reward, terminated, truncated, info["env_steps"]) == (2 * 3.0, True, False, 2)


def test_a_seed_fixes_the_life_and_a_split_changes_it() -> None:
    lives = {}
    for split in ("train", "eval"):
        for life in range(2):
            env = sibe.make_env("GrayDrawn-v0", split=split)
            frames = [env.reset(seed=4)[0]] + [
                env.step(np.zeros(2, np.float32))[0] for _ in range(2)
            ]
            lives[split, life] = np.concatenate(frames).tobytes()
    assert lives["train", 0] == lives["train", 1] != lives["eval", 0] == lives["eval", 1]


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "InvertedPendulum-v5"])
def test_mujoco_envs_have_backgrounds_too(task: str, imageio: None) -> None:
    frames = {}
    for background in ("clean", "noise"):
        env = sibe.make_env(task, background, stack=1)
        action = np.full(env.action_space.shape or (), 0.5, np.float32)
        lives = []
        for _ in range(2):
            life = [env.reset(seed=3)[0]]
            life += [env.step(action)[0] for _ in range(3)]
            lives.append(np.stack(life))
        first, second = lives
        np.testing.assert_array_equal(first, second)
        frames[background] = first
        env.close()
    # Where clean pixels survive the noise in every frame there is a robot; all else is noise.
    clean, noise = frames["clean"].astype(int), frames["noise"].astype(int)
    kept = (abs(clean - noise) < 8).all(axis=-1).mean()
    assert 0.01 < kept < 0.3
    assert (noise[1:] != noise[:-1]).mean() > 0.7
    assert 0 < (clean[1:] != clean[:-1]).mean() < 0.5


def test_pendulum_works_or_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pygame") is not None:
        env = sibe.make_env("Pendulum-v1", action_repeat=2)
        frame, _ = env.reset(seed=0)
        assert frame.std() > 10
        assert (env.step(np.ones(1, np.float32))[0][..., -3:] != frame[..., -3:]).any()
        env.close()
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(UserError, match=r"Pendulum-v1 cannot be drawn: .*pip install") as caught:
        sibe.make_env("Pendulum-v1").reset(seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "background", "words"),
    [
        ("CartPole-v1", "clean", "CartPole-v1 has the action space Discrete"),
        ("Pendulum-v1", "noise", "only be seen clean"),
        ("Pendulm-v1", "clean", "Pendulum"),
        ("Pendulum-v9", "clean", "v1"),
        ("nosuchmodule:Env-v0", "clean", "nosuchmodule"),
        ("RgbSeen-v0", "noise", "only be seen clean"),
        ("NineSeen-v0", "clean", "9 channels"),
    ],
)
def test_envs_that_cannot_be_used_are_refused_in_one_line(
    task: str, background: str, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        sibe.make_env(task, background).reset(seed=0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "imageio", None)
    with pytest.raises(UserError, match="pip install imageio"):
        sibe.make_env("HalfCheetah-v5")


def test_an_environment_object_looks_as_its_name_does() -> None:
    sources = gym.make("InvertedPendulum-v5"), "InvertedPendulum-v5"
    ours, named = (sibe.make_env(one, "noise", size=40, action_repeat=2) for one in sources)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], named.reset(seed=3)[0])
    for _ in range(3):
        here, there = (env.step(np.zeros(1, np.float32)) for env in (ours, named))
        np.testing.assert_array_equal(here[0], there[0])
        assert here[1:4] == there[1:4] and here[4]["env_steps"] == there[4]["env_steps"] == 2


def test_an_environment_that_repeats_actions_itself_is_counted_in_full() -> None:
    inner = sibe.make_env("cartpole_swingup", size=40, stack=1, action_repeat=4)
    env = sibe.make_env(inner, size=40, action_repeat=2)
    env.reset(seed=0)
    assert env.step(np.ones(1, np.float32))[4]["env_steps"] == 8


class _Rebuilt(gym.Env[Any, np.ndarray]):
    """A MuJoCo env whose reset makes its model anew, or changes its terrain."""

    XML = """<mujoco><asset><hfield name="hills" nrow="8" ncol="8" size="1 1 .5 .1"/></asset>
        <worldbody><geom type="hfield" hfield="hills"/><light pos="0 0 3"/>
        <camera pos="0 -3 2" euler="50 0 0"/>
        <body pos="{} 0 1"><freejoint/><geom type="sphere" size=".3"/></body>
        </worldbody></mujoco>"""

    def __init__(self, terrain: bool) -> None:
        self.terrain, self.episode = terrain, -1
        self.action_space = gym.spaces.Box(-1, 1, (1,))
        self.observation_space = gym.spaces.Box(0, 1, (1,))
        self._build(0)

    def _build(self, place: float) -> None:
        import mujoco

        self.model = mujoco.MjModel.from_xml_string(self.XML.format(place))
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        if self.terrain:
            self.model.hfield_data[27:36] = self.episode
        else:
            self._build(self.episode / 2)
        return np.zeros(1, np.float32), {}


@pytest.mark.parametrize("terrain", [False, True])
def test_what_reset_changes_in_the_model_is_seen(terrain: bool) -> None:
    env = sibe.make_env(_Rebuilt(terrain), size=60, stack=1)
    first, second = env.reset(seed=0)[0], env.reset(seed=0)[0]
    changed = (first != second).any(-1)
    assert 30 < changed.sum() < changed.size
    if not terrain:
        mine = np.asarray(env.get_wrapper_attr("enlarged")(60, 60))
        np.testing.assert_array_equal(mine, second)
    env.close()


def test_the_background_does_not_follow_from_the_seed_of_the_env() -> None:
    env = sibe.make_env("InvertedPendulum-v5", "noise", size=40, stack=1)
    env.reset(seed=3)
    ours: Any = env
    while not isinstance(ours, GymPixels):
        ours = ours.env
    theirs = ours.gym_env.unwrapped
    assert ours.np_random_seed != theirs.np_random_seed
    draws = [generator.random_raw(4).tolist() for generator in _generators(ours, theirs)]
    assert not set(draws[0]) & set(draws[1])


def _generators(*envs: gym.Env[Any, Any]) -> list[np.random.PCG64]:
    """Return fresh generators of the seeds that envs were given."""
    return [np.random.PCG64(env.np_random_seed) for env in envs]


def test_every_number_of_an_integer_box_is_chosen_equally_often() -> None:
    class Levels(_Picture):
        def __init__(self) -> None:
            super().__init__((20, 20, 3), True, "rgb_array")
            self.action_space = gym.spaces.Box(-1, 2, (1, 2), np.int8)
            self.given: list[int] = []

        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            assert action.dtype == np.int8 and self.action_space.contains(action)
            self.given += action.ravel().tolist()
            return self._observe(), 0.0, False, False, {}

    levels = Levels()
    env = sibe.make_env(levels, size=20, stack=1)
    env.reset(seed=0)
    unit = np.linspace(-1, 1, 401, dtype=np.float32)
    for action in unit:
        env.step(np.array([action, -action], np.float32))
    counts = np.bincount(np.array(levels.given) + 1, minlength=4)
    assert len(counts) == 4 and np.ptp(counts) <= 4


def test_how_much_of_the_robot_is_seen_follows_a_new_model() -> None:
    env = sibe.make_env(_Rebuilt(terrain=False), size=60, stack=1)
    inner: Any = env.unwrapped
    share = RobotShare(inner)
    found = []
    for _ in range(8):  # it moves out of the picture
        env.reset(seed=0)
        found.append(share())
    share.close()
    env.close()
    assert found[0] > 0.01 and found[-1] < found[0] / 2


def test_gray_images_may_have_two_axes() -> None:
    env = sibe.make_env(_Picture((42, 42), True, "rgb_array"), size=42, stack=1)
    frame = env.reset(seed=0)[0]
    assert frame.shape == (42, 42, 3) and frame.std() > 50
    np.testing.assert_array_equal(frame, np.repeat(frame[..., :1], 3, axis=-1))
