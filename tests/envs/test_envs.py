"""The contract of an environment: Gymnasium's API, one seed one result, rewards, time limits."""

from __future__ import annotations

import multiprocessing
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import sibe
from sibe.envs.dmc import DMCPixels
from sibe.envs.frame_stack import StackFrames
from sibe.envs.registration import env_id
from sibe.envs.rendering import gl
from sibe.envs.rendering.renderer import Renderer
from sibe.envs.rendering.view import ViewConfig
from sibe.envs.seeding import stream_seed
from sibe.envs.tasks import BACKGROUNDS, PAPER_BACKGROUNDS, PAPER_TASKS, SUITE_TASKS, task_spec
from sibe.errors import UserError

SETTINGS = [(task, background) for task in PAPER_TASKS for background in BACKGROUNDS]


def make(task: str, background: str, bank: Path, **options: Any) -> gym.Env[Any, Any]:
    clips: dict[str, Any] = {"clips": bank} if background == "video" else {}
    return gym.make(env_id(task, background), **clips, **options)


def actions(env: gym.Env[Any, Any], count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, env.action_space.shape).astype(np.float32) for _ in range(count)]


def assert_same_life(one: gym.Env[Any, Any], two: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """Reset both with the seed, step them in turn, and compare every byte they give."""
    np.testing.assert_array_equal(one.reset(seed=seed)[0], two.reset(seed=seed)[0])
    for action in actions(one, steps):
        left, right = one.step(action), two.step(action)
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1:] == right[1:]


@pytest.mark.parametrize(("task", "background"), SETTINGS)
def test_gymnasium_and_stable_baselines_find_no_fault(
    task: str, background: str, bank: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for check in (check_env, sb3_check_env):
            env = make(task, background, bank)
            check(env)
            env.close()
    # The frame stack is a wrapper, which Gymnasium remarks on and checks all the same.
    messages = [str(warning.message) for warning in caught]
    assert not [text for text in messages if "different from the unwrapped" not in text]


@pytest.mark.parametrize(("task", "background"), SETTINGS)
def test_one_seed_gives_the_same_bytes(task: str, background: str, bank: Path) -> None:
    one, two = make(task, background, bank), make(task, background, bank)
    # The full length for the task with the quickest frames, a part of it for the others.
    assert_same_life(one, two, seed=7, steps=200 if task == "cartpole_swingup" else 12)
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("task", "background"),
    [
        ("finger_spin", "clean"),
        ("finger_turn_hard", "noise"),
        ("quadruped_escape", "clean"),
        ("reacher_hard", "video"),
        ("walker_walk", "noise"),
        ("manipulator_insert_peg", "clean"),
    ],
)
def test_a_used_env_reset_with_a_seed_is_as_good_as_new(
    task: str, background: str, bank: Path
) -> None:
    """Tasks that change their model between episodes (terrain, targets, sizes) included."""
    used, fresh = make(task, background, bank), make(task, background, bank)
    for seed in (3, None):
        used.reset(seed=seed)
        for action in actions(used, 3):
            used.step(action)
    assert_same_life(used, fresh, seed=11, steps=3)
    used.close()
    fresh.close()


def test_a_full_episode_leaves_nothing_behind() -> None:
    used = sibe.make_env("cartpole_swingup", "noise", action_repeat=100)
    used.reset(seed=1)
    assert any(used.step(action)[3] for action in actions(used, 10))
    fresh = sibe.make_env("cartpole_swingup", "noise", action_repeat=100)
    assert_same_life(used, fresh, seed=2, steps=10)


def test_seeds_splits_and_episodes_differ(bank: Path) -> None:
    first: dict[object, bytes] = {}
    for seed in (0, 1):
        for split in ("train", "eval"):
            env = sibe.make_env("reacher_easy", split=split)
            first[seed, split] = env.reset(seed=seed)[0].tobytes()
            first[seed, split, "next"] = env.reset()[0].tobytes()
            env.close()
    unseeded = [sibe.make_env("reacher_easy") for _ in range(2)]
    first |= {n: env.reset()[0].tobytes() for n, env in enumerate(unseeded)}
    assert len(set(first.values())) == len(first)


@pytest.mark.parametrize(
    ("task", "repeat"), [("cartpole_swingup", 8), ("quadruped_walk", 4), ("reacher_easy", 3)]
)
def test_rewards_and_steps_match_a_plain_dm_control_loop(task: str, repeat: int) -> None:
    env = sibe.make_env(task, "noise", size=8, action_repeat=repeat)
    env.reset(seed=5)
    spec = task_spec(task)
    # The env seeds the task with the first draw of its own generator.
    rng, _ = gym.utils.seeding.np_random(stream_seed(5, "train"))
    random = np.random.RandomState(int(rng.integers(2**32)))
    plain = gl.load_suite().load(spec.domain, spec.task, task_kwargs={"random": random})
    plain.reset()
    limits, control_steps, total = plain.action_spec(), 0, 0.0
    for action in actions(env, 1000 // repeat + 1):
        _, reward, terminated, truncated, info = env.step(action)
        # ±1 are the actuators' own limits, whatever they are (quadruped: -0.8 to 1.1 and others).
        middle, half = (limits.maximum + limits.minimum) / 2, (limits.maximum - limits.minimum) / 2
        expected, steps = 0.0, 0
        while True:
            step = plain.step(middle + half * action.astype(np.float64))
            expected, steps = expected + step.reward, steps + 1
            if steps == repeat or step.last():
                break
        control_steps += steps
        total += expected
        assert reward == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert info["env_steps"] == steps
        assert (terminated, truncated) == (False, step.last())
        if truncated:
            break
        if task == "quadruped_walk" and control_steps >= 40:
            return
    assert control_steps == 1000
    assert total > 0


@pytest.mark.parametrize("task", ["lqr_lqr_2_1", "pendulum_swingup"])
def test_every_episode_is_cut_after_1000_control_steps(task: str) -> None:
    env = sibe.make_env(task, "noise", size=8, action_repeat=300)  # lqr has no limit of its own
    env.reset(seed=0)
    steps = [env.step(0 * action) for action in actions(env, 4)]
    assert [step[4]["env_steps"] for step in steps] == [300, 300, 300, 100]
    assert [step[2] for step in steps] == [False] * 4
    assert [step[3] for step in steps] == [False] * 3 + [True]


def test_reaching_the_end_of_a_task_is_a_termination() -> None:
    env = sibe.make_env("lqr_lqr_2_1", action_repeat=5)
    env.reset(seed=0)
    physics = env.get_wrapper_attr("physics")
    with physics.reset_context():
        physics.data.qpos[:] = physics.data.qvel[:] = 0
    _, _, terminated, truncated, info = env.step(0 * actions(env, 1)[0])
    assert (terminated, truncated) == (True, False)
    assert info["env_steps"] == 1  # the rest of the repeat is not played


@pytest.mark.parametrize(("background", "method"), [("clean", "rgb"), ("noise", "rgba")])
def test_one_agent_step_renders_one_frame(
    background: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    original = getattr(Renderer, method)

    def draw(self: Renderer) -> np.ndarray:
        drawn.append(1)
        image: np.ndarray = original(self)
        return image

    monkeypatch.setattr(Renderer, method, draw)
    env = sibe.make_env("cartpole_swingup", background, size=16)
    observation, _ = env.reset(seed=0)
    for count, action in enumerate(actions(env, 3), start=2):
        observation, *_ = env.step(action)
        assert len(drawn) == count
    np.testing.assert_array_equal(env.render(), observation[..., -3:])
    assert len(drawn) == count


class _Counter(gym.Env[np.ndarray, np.ndarray]):
    """Shows the number of steps taken, in every pixel."""

    observation_space = gym.spaces.Box(0, 255, (4, 6, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.time = 100
        return np.full((4, 6, 3), self.time, np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full((4, 6, 3), self.time, np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize("stack", [1, 3, 4])
def test_frames_are_stacked_oldest_first(stack: int) -> None:
    env = StackFrames(_Counter(), stack)
    seen = [env.reset()[0]] + [env.step(np.zeros(1, np.float32))[0] for _ in range(5)]
    for now, observation in enumerate(seen):
        assert observation.shape == env.observation_space.shape == (4, 6, 3 * stack)
        for position in range(stack):
            frame = observation[..., 3 * position : 3 * position + 3]
            assert (frame == 100 + max(now - stack + 1 + position, 0)).all()


def _rollout(envs: SyncVectorEnv | AsyncVectorEnv) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    results = [envs.reset(seed=[3, 4])[0].copy()]
    for _ in range(4):
        action = rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
        observation, reward, *_ = envs.step(action)
        results += [observation.copy(), reward.copy()]
    envs.close()
    return results


@pytest.mark.parametrize("context", [None, "fork", "spawn"])
def test_worker_processes_give_what_this_process_gives(context: str | None) -> None:
    used = gym.make("sibe/walker_walk-noise-v0")
    used.reset(seed=0)  # this process has drawn with OpenGL before it forks, and goes on after
    # "sibe:" makes a process that was not forked import the package that has the ids.
    makers = [partial(gym.make, "sibe:sibe/cartpole_swingup-noise-v0")] * 2
    here = _rollout(SyncVectorEnv(makers))
    there = _rollout(AsyncVectorEnv(makers, context=context))
    assert (here[0][0] != here[0][1]).any()
    for left, right in zip(here, there, strict=True):
        np.testing.assert_array_equal(left, right)
    fresh = gym.make("sibe/walker_walk-noise-v0")
    assert_same_life(used, fresh, seed=1, steps=2)


def _first_frames(envs: list[gym.Env[Any, Any]]) -> list[bytes]:
    return [env.reset(seed=1)[0].tobytes() for env in [*envs, *envs]]


def test_an_env_may_move_to_another_thread_or_to_a_forked_process() -> None:
    envs = [sibe.make_env("walker_walk"), sibe.make_env("reacher_easy", "noise")]
    here = _first_frames(envs)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_first_frames, envs).result() == here
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    # In the other order: the buffers of the one must not be taken for those of the other.
    context, back = gl.context(), envs[::-1]
    child = fork.Process(target=lambda: send.send((_first_frames(back), gl.context() is context)))
    child.start()
    assert receive.poll(60)
    frames, shared = receive.recv()
    assert frames == here[::-1]
    assert not shared  # a context does not survive a fork everywhere
    child.join()
    assert _first_frames(envs) == here


@pytest.mark.parametrize("task", ["finger_spin", "hopper_stand", "pendulum_swingup"])
def test_other_tasks_come_from_the_same_factory(task: str, bank: Path) -> None:
    frames: dict[str, np.ndarray] = {}
    for background in BACKGROUNDS:
        env = make(task, background, bank)
        frames[background], _ = env.reset(seed=0)
        assert frames[background].shape == env.observation_space.shape == (84, 84, 9)
        assert env.step(actions(env, 1)[0])[4]["env_steps"] == task_spec(task).action_repeat
        env.close()
    # The robot is the same in all three and covers a part of the picture; the rest is not.
    clean, noise, video = (frames[name].astype(int) for name in PAPER_BACKGROUNDS)
    assert 0.003 < (abs(clean - noise) + abs(clean - video) < 24).all(axis=-1).mean() < 0.3


def test_an_env_can_be_made_again_from_its_spec() -> None:
    one = gym.make("sibe/pendulum_swingup-noise-v0", size=(20, 30), stack=2)
    assert one.spec is not None
    two = gym.make(one.spec)
    assert two.observation_space.shape == (20, 30, 6)
    assert_same_life(one, two, seed=0, steps=2)


def test_every_task_of_the_suite_is_known_and_registered() -> None:
    suite = gl.load_suite()
    assert list(SUITE_TASKS) == [f"{domain}_{task}" for domain, task in suite.ALL_TASKS]
    assert {env_id(*setting) for setting in SETTINGS} <= set(gym.registry)
    # The paper's Table 3.
    repeats = {name: task_spec(name).action_repeat for name in PAPER_TASKS}
    assert repeats == {
        "ball_in_cup_catch": 4,
        "cartpole_swingup_sparse": 8,
        "reacher_easy": 4,
        "cartpole_swingup": 8,
        "walker_walk": 2,
        "cheetah_run": 4,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "walker_wlk"}, "walker_walk"),
        ({"task": "catpole_swingup"}, "cartpole_swingup"),
        ({"background": "nois"}, "noise"),
        ({"background": "Video"}, "clean, noise, video, video_random"),
        ({"size": 0}, "size must be between 1"),
        ({"size": (84, -1)}, "not -1"),
        ({"size": 10**6}, "4096"),
        ({"stack": 0}, "stack must be at least 1"),
        ({"action_repeat": -2}, "action_repeat must be at least 1"),
        ({"split": "test"}, "train or eval"),
        ({"camera": 9}, "cameras 0 to"),
        ({"render_mode": "human"}, "rgb_array"),
        ({"background": "video", "clips": "/nowhere"}, "/nowhere"),
        ({"task": "sibe/walker_walk-noise-v0"}, "gym.make"),
    ],
)
def test_what_a_user_can_get_wrong_is_told_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        sibe.make_env(**{"task": "walker_walk", **options})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_negative_seed_is_told_in_one_line() -> None:
    with pytest.raises(UserError, match="seed must be 0 or more"):
        DMCPixels("cartpole_swingup", ViewConfig()).reset(seed=-1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 84.5}, "size must be a whole number"),
        ({"size": (84,)}, "one number or"),
        ({"size": "84"}, "size must be a whole number"),
        ({"size": 0}, "size must be between"),
        ({"stack": 1.5}, "stack must be a whole number"),
        ({"stack": 0}, "stack must be at least 1"),
        ({"action_repeat": 2.0}, "action_repeat must be a whole number"),
        ({"camera": "side"}, "camera must be a whole number"),
        ({"camera": 77}, "has cameras 0 to 1"),
        ({"task": None}, "must be a name"),
    ],
    ids=str,
)
def test_odd_arguments_get_one_line(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        sibe.make_env(**{"task": "cartpole_swingup", **wrong})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_sizes_of_any_integer_type() -> None:
    env = sibe.make_env("cartpole_swingup", size=np.int64(40))  # type: ignore[arg-type]
    assert env.observation_space.shape == (40, 40, 9)
    env.close()


@pytest.mark.parametrize("background", ["clean", "noise", "video"])
def test_a_supersampled_image_is_the_average_of_the_larger_one(background: str, bank: Path) -> None:
    large = make("walker_walk", background, bank, size=(60, 40), stack=1)
    small = make("walker_walk", background, bank, size=(30, 20), stack=1, supersample=2)
    assert small.observation_space.shape == (30, 20, 3)
    seen = [large.reset(seed=3)[0], small.reset(seed=3)[0]]
    for _ in range(3):
        wide = seen[0].astype(float).reshape(30, 2, 20, 2, 3).mean(axis=(1, 3))
        assert abs(seen[1] - wide).max() <= 0.5
        seen = [env.step(np.ones(6, np.float32))[0] for env in (large, small)]


def test_supersampling_has_the_limits_of_an_image() -> None:
    with pytest.raises(UserError, match="supersample must be at least 1"):
        sibe.make_env("walker_walk", supersample=0)
    with pytest.raises(UserError, match="size times supersample must be between"):
        sibe.make_env("walker_walk", size=4000, supersample=100)
