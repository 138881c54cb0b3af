"""`sibe demo`: the policy in the package, the episodes it plays, and the page they are on."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

import sibe
from sibe.agents.sac.agent import SAC
from sibe.cli import main as cli
from sibe.envs import dmc
from sibe.envs.backgrounds.background import compose
from sibe.envs.rendering.view import average_blocks
from sibe.errors import UserError
from sibe.policy.load import load_policy
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.environment import make_configured_env
from sibe.watch import demo as module
from sibe.watch.demo import SETTINGS, Demo, provenance
from sibe.watch.episode import LARGE, PICTURES, Episode, episode_bonus, play, straight_alpha

POLICY = Path(sibe.__file__).parent / "watch" / "data" / "policy"
STEPS, SEED = 10, 5


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return load_policy(POLICY, device="cpu")


@pytest.fixture(scope="module")
def episodes(policy: TrainedPolicy) -> dict[str, Episode]:
    """Short episodes, for the speed of it; `video` would make the clips if they are missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dmc, "TIME_LIMIT", STEPS * policy.config.env.action_repeat)
        return {name: play(policy, name, SEED, lambda part: None) for name in ("noise", "clean")}


def picture(url: str) -> Any:
    return np.array(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


def test_the_policy_is_small_and_what_its_papers_say(policy: TrainedPolicy) -> None:
    assert (POLICY / "model.safetensors").stat().st_size < 1_000_000
    about, config = provenance(), policy.config
    assert about["command"] == (
        f"sibe train --preset {config.preset} --task {config.env.task} "
        f"--background {config.env.background} --method {config.method} --seed {config.seed}"
    )
    assert about["env_steps"] == policy.env_step == config.schedule.env_steps
    assert about["command"] in (POLICY / "README.md").read_text()
    # The numbers in the words of the page.
    assert (config.env.size, config.env.stack, config.env.action_repeat) == (42, 3, 8)
    assert getattr(config.method_config, "intrinsic") == 0.001  # noqa: B009  a method's own field


def test_it_acts_behind_noise_as_it_was_trained_to(policy: TrainedPolicy) -> None:
    # The pole hangs down at first; a policy that does nothing stays near 0.
    env = make_configured_env(policy.config.env, split="eval")
    state, _ = env.reset(seed=SEED)
    total = 0.0
    for _ in range(75):
        state, reward, *_ = env.step(policy.act(state))
        total += float(reward)
    env.close()
    assert total > 200


def test_an_episode_is_that_of_the_policys_own_environment(
    policy: TrainedPolicy, episodes: dict[str, Episode]
) -> None:
    env = make_configured_env(policy.config.env, split="eval")
    state, _ = env.reset(seed=SEED)
    played = episodes["noise"]
    for step in range(STEPS):
        assert np.array_equal(picture(played.seen[step]), state[..., -3:])
        state, reward, *_ = env.step(policy.act(state))
        assert played.reward[step] == reward
    env.close()
    assert math.isclose(played.seconds, 0.08)


@pytest.mark.parametrize("name", ["noise", "clean"])
def test_it_has_all_the_page_needs(episodes: dict[str, Episode], name: str) -> None:
    episode = episodes[name]
    assert len(episode.reward) == len(episode.bonus) == STEPS
    assert len(episode.seen) == STEPS + 1
    assert len(episode.robot) == PICTURES * STEPS + 1
    assert len(episode.behind) == (STEPS + 1 if name == "noise" else 0)
    channels = 4 if name == "noise" else 3
    assert picture(episode.robot[0]).shape == (LARGE, LARGE, channels)
    assert min(episode.bonus) >= 0


def test_the_large_robot_is_where_the_policy_sees_it(episodes: dict[str, Episode]) -> None:
    episode = episodes["noise"]

    def difference(picture_of: int, step: int) -> float:
        """Between what the page puts together and what the policy saw."""
        layer = picture(episode.robot[picture_of]).astype(np.uint16)
        layer[..., :3] = layer[..., :3] * layer[..., 3:] // 255
        behind = picture(episode.behind[step]).repeat(4, axis=0).repeat(4, axis=1)
        whole = compose(layer.astype(np.uint8), behind)
        seen = picture(episode.seen[step]).astype(float)
        covered = average_blocks(layer[..., 3:].astype(np.uint8), 8)[..., 0] > 250
        off = np.abs(average_blocks(whole, 8) - seen)[covered]
        return float(off.mean())

    assert difference(PICTURES * STEPS, STEPS) < 12
    assert difference(PICTURES * 2, 2) < 12


def test_straight_alpha_is_undone_by_premultiplying() -> None:
    color, coverage = np.meshgrid(np.arange(256), np.arange(256))
    multiplied = np.rint(color * coverage / 255)
    layer = np.stack([multiplied, multiplied, multiplied, coverage], axis=-1).astype(np.uint8)
    straight = straight_alpha(layer)
    assert np.array_equal(straight[..., 3], layer[..., 3])
    again = np.rint(straight[..., 0].astype(float) * coverage / 255)
    assert np.array_equal(again, layer[..., 0])


def test_the_bonus_of_states_that_are_all_alike_is_that_of_guessing(policy: TrainedPolicy) -> None:
    state = np.full((42, 42, 9), 90, np.uint8)
    n = 64
    action = np.zeros(1, np.float32)
    bonus = episode_bonus(cast(SAC, policy.agent), [state] * (n + 1), [action] * n, [0.0] * n)
    assert np.mean(bonus) == pytest.approx(0.001 * math.log(n), rel=0.1)


def fake(name: str, seed: int, progress: Callable[[float], None]) -> dict[str, Any]:
    progress(0.5)
    if name == "video":
        raise UserError("there is no room for clips: make some")
    return {"seconds": 0.08, "reward": [1.0, 2.0], "bonus": [0.1, 0.2], "name": name, "seed": seed}


def test_episodes_appear_one_by_one_and_one_that_fails_is_told() -> None:
    demo = Demo(7, fake)
    answers = demo.answers()
    assert set(answers) == {"/", "/state.json", *(f"/episode/{n}.json" for n in SETTINGS)}
    assert answers["/episode/noise.json"]() is None
    assert demo.state()["noise"] == {"ready": False, "progress": 0.0, "error": ""}
    said: list[str] = []
    demo.play_all(said.append)
    assert said == [
        "White noise: return 3.0",
        "Video: there is no room for clips: make some",
        "Clean: return 3.0",
    ]
    state = answers["/state.json"]()
    assert state is not None
    assert json.loads(state.body)["video"]["error"] == "there is no room for clips: make some"
    noise = answers["/episode/noise.json"]()
    assert noise is not None and json.loads(noise.body)["seed"] == 7
    assert answers["/episode/video.json"]() is None


def test_a_demo_without_any_episode_is_a_mistake_to_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> dict[str, Any]:
        raise UserError("no OpenGL backend is installed: apt-get install -y libegl1")

    with pytest.raises(UserError, match="no OpenGL backend"):
        Demo(0, broken).play_all(lambda line: None)


def test_only_the_pages_own_script_may_run() -> None:
    answer = Demo(0, fake).answers()["/"]()
    assert answer is not None
    page = answer.body.decode()
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in answer.policy
    assert "connect-src 'self'" in answer.policy


def test_the_verb_saves_a_page_with_all_inside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_play", fake)
    out = tmp_path / "page.html"
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--seed", "3", "--save", str(out)])
    assert not stop.value.code
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"wrote {out} (")
    page = out.read_text()
    data = re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert data
    assert set(json.loads(data[1])["episodes"]) == {"noise", "clean"}
    assert "<code>sibe demo --seed 4</code>" in page
    # Honest about what it is good at.
    for values in provenance()["returns"].values():
        assert f"{np.mean(values):.0f} ± {np.std(values):.0f}" in page


def test_the_verb_refuses_another_kind_of_file_before_it_plays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--save", "page.pdf"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "sibe: the page must be an .html file, not 'page.pdf'\n"
