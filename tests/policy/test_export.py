"""`sibe export`: what is written, that it acts as the run does, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hub_stand_in import hub_on_this_machine
from safetensors.torch import load_file

import sibe
from sibe.cli import main as cli
from sibe.errors import UserError
from sibe.policy.weights import load_networks, read_weights, write_weights
from sibe.storage.checkpoint import load_newest

FILES = ["README.md", "config.json", "model.safetensors", "replay.mp4"]


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    return int(stop.value.code or 0), *capsys.readouterr()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    line = "train --preset debug --env-steps 1000 --eval-episodes 1 --threads 1 --no-video"
    with pytest.raises(SystemExit) as stop:
        cli.main([*line.split(), "--background", "noise", "--out", str(out)])
    assert not stop.value.code
    return out


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.parent / "exported"
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(run), "--out", str(out), "--episodes", "2", "--seed", "5"])
    assert not stop.value.code
    return out


def test_it_acts_bit_for_bit_as_the_checkpoint(run: Path, exported: Path) -> None:
    ours, theirs = sibe.load_policy(exported), sibe.load_policy(run)
    assert ours.config == theirs.config
    assert ours.env_step == theirs.env_step == 1000
    states = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 9), dtype=np.uint8)
    np.testing.assert_array_equal(ours.act(states), theirs.act(states))
    np.testing.assert_array_equal(ours.act(states, explore=True), theirs.act(states, explore=True))
    for name, value in theirs.agent.embed(states).items():
        assert torch.equal(ours.agent.embed(states)[name], value)


def test_it_holds_what_the_policy_needs_and_no_more(run: Path, exported: Path) -> None:
    tensors = safetensors.torch.load_file(exported / "model.safetensors")
    found = load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None
    agent = found[1]["agent"]
    expected = {
        f"{part}/{key}": value
        for part in ("encoder", "actor", "method")
        for key, value in agent[part].items()
    }
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[key], value) for key, value in expected.items())
    assert sorted(path.name for path in exported.iterdir()) == FILES
    assert (exported / "config.json").read_text() == (run / "config.json").read_text()


def test_the_card_has_the_score_that_eval_repeats(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = (exported / "README.md").read_text()
    code, out, _ = call(capsys, "eval", exported, "--episodes", 2, "--seed", 5)
    assert code == 0
    returns = [line.split()[-1] for line in out.splitlines()[:2]]
    assert f"Each episode: {', '.join(returns)}." in card
    score = out.splitlines()[-1].split("return ")[1].split(" over")[0]
    assert f"**Return {score}**" in card
    assert "sibe eval . --episodes 2 --seed 5" in card
    assert "| trained for | 1000 simulator steps" in card
    assert "[replay.mp4](replay.mp4)" in card
    head = card.split("---\n")[1]
    assert f'value: "{score.replace("±", "+/-")}"' in head
    assert "pipeline_tag: reinforcement-learning" in head


def test_an_export_can_be_exported_and_replaced(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()  # an empty folder is as good as none
    line = ("export", exported, "--out", copy, "--episodes", 1)
    assert call(capsys, *line)[0] == 0
    # Tensors, not bytes: the order of safetensors' own metadata is not fixed.
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (copy, exported))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    (copy / "README.md").write_text("edited")
    code, _, err = call(capsys, *line)
    assert (code, err.count("\n")) == (2, 1)
    assert "--overwrite" in err
    assert (copy / "README.md").read_text() == "edited"
    assert call(capsys, *line, "--overwrite")[0] == 0
    assert (copy / "README.md").read_text() != "edited"
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize(
    ("source", "out", "words"),
    [
        ("nowhere", "new", "there is no run directory"),
        ("full", "new", "it has no config.json"),
        ("young", "new", "has no checkpoint yet"),
        ("run", "full", "not empty and not an export"),
        ("run", "run", "not empty and not an export"),
        ("run", "file", "is a file"),
        ("run", "file/below", "cannot write the export"),
        ("damaged", "new", "is damaged"),
        ("foreign", "new", "has the format none, this sibe reads sibe-policy-1"),
        ("unfit", "new", "does not fit its config.json"),
    ],
)
def test_bad_input_is_one_line_and_harms_nothing(
    source: str,
    out: str,
    words: str,
    run: Path,
    exported: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "young").mkdir()
    shutil.copy(run / "config.json", tmp_path / "young")
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("replay", "tensorboard"))
    for name in ("damaged", "foreign", "unfit"):
        shutil.copytree(exported, tmp_path / name)
    weights = (exported / "model.safetensors").read_bytes()
    (tmp_path / "damaged" / "model.safetensors").write_bytes(weights[:-100])
    safetensors.torch.save_file({"x": torch.ones(1)}, tmp_path / "foreign" / "model.safetensors")
    config = json.loads((run / "config.json").read_text())
    config["encoder"]["features"] += 1
    (tmp_path / "unfit" / "config.json").write_text(json.dumps(config))
    before = sorted(path for path in tmp_path.rglob("*"))

    line = ("export", tmp_path / source, "--out", tmp_path / out, "--episodes", 1)
    code, _, err = call(capsys, *line)
    assert (code, err.count("\n")) == (2, 1), err
    assert words in err
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert (tmp_path / "full" / "thesis.tex").read_text() == "precious"


def test_push_uploads_what_was_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_token")
    out = tmp_path / "out"
    line = ("export", run, "--out", out, "--episodes", 1, "--push")
    code, _, said = call(capsys, *line, "only-a-name")
    assert code == 2 and "user/name" in said and not out.exists()  # before anything is played
    with hub_on_this_machine() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        code, said, _ = call(capsys, *line, "ann/cart")
    assert code == 0
    assert f"pushed to {hub.endpoint}/ann/cart: sibe eval hf://ann/cart" in said
    pushed = hub.repositories["ann/cart"]
    assert pushed == {path.name: path.read_bytes() for path in out.iterdir()}
    assert sorted(pushed) == FILES
    assert 'sibe.load_policy("hf://ann/cart")' in pushed["README.md"].decode()


def test_no_episodes_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "export", run, "--out", run.parent / "x", "--episodes", 0)
    assert code == 2 and "--episodes must be at least 1" in err


def test_a_failure_on_the_way_leaves_the_earlier_export(
    run: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sibe.policy import export as module

    out = tmp_path / "out"
    shutil.copytree(exported, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "model_card", full)
    with pytest.raises(UserError, match="No space left on device"):
        module.export(run, out, episodes=1, seed=0, overwrite=True, device="cpu")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert list(tmp_path.iterdir()) == [out]


def test_without_pyav_the_card_has_no_video(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "av", None)
    out = tmp_path / "out"
    code, said, _ = call(capsys, "export", run, "--out", out, "--episodes", 1)
    assert code == 0 and "no video: videos need PyAV" in said
    assert sorted(path.name for path in out.iterdir()) == FILES[:3]
    assert "replay.mp4" not in (out / "README.md").read_text()


def test_an_agent_with_a_memory_goes_without_its_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "exported"
    line = (
        "train --method plan2explore --preset debug --env-steps 1000 --eval-episodes 1 --no-video"
    )
    assert call(capsys, *line.split(), "--threads", 1, "--out", run)[0] == 0
    assert call(capsys, "export", run, "--out", out, "--episodes", 1)[0] == 0
    tensors = load_file(out / "model.safetensors")
    assert {name.partition("/")[0] for name in tensors} == {"model", "actor"}
    policies = sibe.load_policy(out), sibe.load_policy(run)
    frames = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    played = []
    for policy in policies:
        policy.reset()
        played.append([policy.act(frame) for frame in frames])
    exported, trained = played
    np.testing.assert_array_equal(exported, trained)


# --- exports from elsewhere -----------------------------------------------------------------


@pytest.fixture
def hostile(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "hostile")
    return tmp_path / "hostile"


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    for part, values in changes.items():
        config[part] = {**config[part], **values} if isinstance(values, dict) else values
    (folder / "config.json").write_text(json.dumps(config))


def change_about(folder: Path, text: str) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    path.write_bytes(safetensors.torch.save(tensors, {"sibe": text}))


def about(**changes: Any) -> str:
    values = {"format": "sibe-policy-1", "env_step": 1000, "action_dim": 1}
    return json.dumps({**values, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"size": 10**9}},
        {"env": {"size": 4096}},
        {"env": {"size": float("inf")}},
        {"env": {"stack": 10**9}},
        {"env": {"task": {}}},
        {"env": {"task": "walker\x1b[2Jwalk"}},
        {"encoder": {"features": 10**9}},
        {"encoder": {"filters": 4096}},
        {"encoder": {"strides": [1] * 20_000}},
        {"sac": {"hidden": 10**9}},
        {"sac": {"hidden": 8192}},
        {"sac": {"lr": float("nan")}},
        {"method_config": {"hidden": 10**6}},
        {"seed": -1},
    ],
)
def test_absurd_configs_are_refused_at_once(
    hostile: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    change_config(hostile, **change)
    started = time.perf_counter()
    code, _, err = call(capsys, "eval", hostile)
    assert (code, err.count("\n")) == (2, 1), err
    assert "\x1b" not in err
    assert time.perf_counter() - started < 2  # minutes, some gigabytes, or no answer at all


@pytest.mark.parametrize(
    "text",
    [
        about(action_dim=-1),
        about(action_dim=10**9),
        about(action_dim=1.5),
        about(env_step=float("inf")),
        about(env_step=[]),
        about(env_step=None),
        "[" * 100_000,
        "{",
    ],
)
def test_absurd_weights_are_refused(
    hostile: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    change_about(hostile, text)
    code, _, err = call(capsys, "eval", hostile)
    assert (code, err.count("\n")) == (2, 1) and "is damaged" in err


def test_weights_that_are_not_numbers_are_refused(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = hostile / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    next(value for name, value in tensors.items() if "actor" in name).fill_(float("nan"))
    path.write_bytes(safetensors.torch.save(tensors, {"sibe": about()}))
    code, _, err = call(capsys, "eval", hostile)
    assert code == 2 and "the weights of the actor are not finite" in err


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_links_and_pipes_are_refused(
    hostile: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (hostile / name).rename(hostile.parent / name)
    (hostile / name).symlink_to(hostile.parent / name)
    code, _, err = call(capsys, "eval", hostile)
    assert code == 2 and "leads out of" in err
    (hostile / "config.json").unlink()
    os.mkfifo(hostile / "config.json")
    code, _, err = call(capsys, "eval", hostile)
    assert code == 2 and "is a pipe" in err


def test_a_module_that_a_file_names_is_imported_only_on_demand(
    hostile: Path,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "evilmod.py").write_text("import pathlib; pathlib.Path('pwned').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    task = "evilmod:Foo-v0"
    change_config(hostile, env={"task": task})
    shutil.copytree(run, tmp_path / "run")
    change_config(tmp_path / "run", env={"task": task})
    lines = (
        ("eval", hostile),
        ("export", hostile, "--out", tmp_path / "out"),
        ("embed", hostile, "--out", tmp_path / "out.png"),
        ("probe", hostile, "--out", tmp_path / "out"),
        ("eval", tmp_path / "run"),
        ("train", "--resume", tmp_path / "run"),
    )
    for line in lines:
        code, _, err = call(capsys, *line)
        assert (code, err.count("\n")) == (2, 1), err
        assert task in err and "--allow-import" in err
    assert not (tmp_path / "pwned").exists()
    code, _, err = call(capsys, "eval", hostile, "--allow-import")
    assert code == 2 and "Gymnasium cannot make" in err  # it registers nothing
    assert (tmp_path / "pwned").exists()
    assert sibe.load_policy(hostile).config.env.task == task  # imported meanwhile


def test_a_network_without_tensors_needs_none_in_the_file(tmp_path: Path) -> None:
    networks = {"method": torch.nn.Identity(), "actor": torch.nn.Linear(1, 1)}
    write_weights(tmp_path / "w", networks, 0, 1)  # as of plain SAC
    load_networks(networks, read_weights(tmp_path / "w", torch.device("cpu")).state, tmp_path)


def test_a_flipped_bit_of_the_weights_is_found(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = hostile / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    code, _, err = call(capsys, "eval", hostile)
    assert (code, err.count("\n")) == (2, 1) and "its checksum is wrong" in err


def test_an_edited_config_of_an_export_is_named(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "note:" not in call(capsys, "eval", hostile, "--episodes", 1)[1]
    change_config(hostile, env={"action_repeat": 2})
    code, out, _ = call(capsys, "eval", hostile, "--episodes", 1)
    assert code == 0
    assert out.startswith(f"note: {hostile / 'config.json'} was changed after the export\n")
    change_about(hostile, about())  # an older version recorded nothing
    code, out, _ = call(capsys, "eval", hostile, "--episodes", 1)
    assert code == 0 and "note:" not in out
