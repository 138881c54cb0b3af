"""Any content of any file: a value, or one line that says what is wrong with it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import changed_bytes, changed_json, fuzz
from hypothesis import strategies as st
from PIL import Image

from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import check, read_run_config, to_json
from sibe.envs.backgrounds.clips import FRAMES, MANIFEST, ClipBank, Footage, write_bank
from sibe.envs.backgrounds.decode import Source, _frames
from sibe.logs.csv_log import count_lines, last_return, read_csv, read_results
from sibe.logs.video import write_mp4
from sibe.policy.load import load_policy
from sibe.policy.weights import WEIGHTS, read_weights, write_weights
from sibe.replay.episodes import Episode, read_episode, write_episode
from sibe.storage import checkpoint

Reader = Callable[[Any], Any]
CPU = torch.device("cpu")


# --- checkpoints ----------------------------------------------------------------------------


def checkpoint_reader(folder: Path) -> Reader:
    path = folder / "checkpoint" / "checkpoint_000000020.pt"
    path.parent.mkdir()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        checkpoint.recorded(path.parent)
        checkpoint.needed_episodes(path.parent)
        checkpoint.keep_newest(path.parent)
        checkpoint.load_newest(path.parent, map_location="cpu", report=lambda line: None)

    return read


def payload(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def assembled(header: Any, payload: bytes) -> bytes:
    """Return a checkpoint whose checksums are right, whatever else is wrong with it."""
    if isinstance(header, dict):
        header = {**header, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    text = json.dumps(header).encode() + b"\n"
    return b" ".join((b"sibe-checkpoint-1", hashlib.sha256(text).hexdigest().encode(), text)) + (
        payload
    )


STATE = {"agent": {"actor": torch.zeros(3)}, "logs": {}, "elapsed": 1.0, "sample_rng": "{}"}
HEADER = {"env_step": 20, "needs": [0, 1], "logs": {"train.csv": [3, "0"]}}


def test_checkpoint(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "good", 20, STATE, needs=[0], logs={"train.csv": (3, "0")})
    fuzz(changed_bytes(path.read_bytes()), checkpoint_reader(tmp_path))


def test_checkpoint_header(tmp_path: Path) -> None:
    headers = changed_json(HEADER)
    good = payload(STATE)
    fuzz(headers.map(lambda header: assembled(header, good)), checkpoint_reader(tmp_path))


def test_checkpoint_payload(tmp_path: Path) -> None:
    payloads = changed_bytes(payload(STATE))
    fuzz(payloads.map(lambda bad: assembled(HEADER, bad)), checkpoint_reader(tmp_path))


# --- configs --------------------------------------------------------------------------------


def read_config(folder: Path) -> Reader:
    def read(data: bytes) -> None:
        (folder / "config.json").write_bytes(data)
        check(read_run_config(folder))

    return read


def test_config_bytes(tmp_path: Path) -> None:
    good = json.dumps(to_json(preset_config("debug"))).encode()
    fuzz(changed_bytes(good), read_config(tmp_path))


@pytest.mark.parametrize("method", ["sibe", "plan2explore"])
def test_config_values(tmp_path: Path, method: str) -> None:
    good = json.loads(json.dumps(to_json(preset_config("debug", method=method))))
    texts = changed_json(good).map(lambda values: json.dumps(values).encode())
    fuzz(texts, read_config(tmp_path))


# --- exports --------------------------------------------------------------------------------


@pytest.fixture
def export(tmp_path: Path) -> Path:
    config = preset_config("debug", method="none")
    agent = build_agent(config, 1, torch.Generator(), CPU, 0)
    (tmp_path / "config.json").write_text(json.dumps(to_json(config)))
    write_weights(tmp_path / WEIGHTS, agent.policy_networks(), 20, 1)
    return tmp_path


def test_weights(export: Path) -> None:
    good = (export / WEIGHTS).read_bytes()

    def read(data: bytes) -> None:
        (export / WEIGHTS).write_bytes(data)
        read_weights(export / WEIGHTS, CPU)

    fuzz(changed_bytes(good), read)


def test_weights_header(export: Path) -> None:
    data = (export / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]

    def read(values: Any) -> None:
        text = json.dumps(values).encode()
        (export / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + rest)
        load_policy(export)

    about = st.builds(
        lambda text: {**header, "__metadata__": {"sibe": text}},
        changed_json(json.loads(next(iter(header["__metadata__"].values())))).map(json.dumps),
    )
    fuzz(changed_json(header) | about, read)


def test_config_of_an_export(export: Path) -> None:
    good = json.loads((export / "config.json").read_text())

    def read(values: Any) -> None:
        (export / "config.json").write_text(json.dumps(values))
        load_policy(export)

    fuzz(changed_json(good), read)


# --- clip banks and clips -------------------------------------------------------------------


def test_manifest(tmp_path: Path) -> None:
    frames = np.zeros((2, 8, 8, 3), np.uint8)
    footage = [Footage(name, "", frames) for name in ("a", "b")]
    folder = tmp_path / "bank"
    write_bank(folder, footage, lambda names: ["train", "eval"], kind="videos", size=8)
    good = (folder / MANIFEST).read_bytes()
    assert (folder / FRAMES).stat().st_size == 4 * 8 * 8 * 3

    def read(data: bytes) -> None:
        (folder / MANIFEST).write_bytes(data)
        ClipBank.open(folder)

    texts = changed_json(json.loads(good)).map(lambda values: json.dumps(values).encode())
    fuzz(changed_bytes(good) | texts, read)


def picture_bytes(kind: str) -> bytes:
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)) for _ in "123"]
    buffer = io.BytesIO()
    more: dict[str, Any] = {"save_all": True, "append_images": images[1:]} if kind == "gif" else {}
    images[0].save(buffer, format=kind, **more)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["mp4", "gif", "png", "jpeg", "bmp"])
def test_clip(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"clip.{kind}"
    if kind == "mp4":
        frames = np.random.default_rng(0).integers(0, 256, (3, 24, 32, 3), dtype=np.uint8)
        write_mp4(path, frames, 25.0)
    else:
        path.write_bytes(picture_bytes(kind))

    def read(data: bytes) -> None:
        path.write_bytes(data)
        for frame in _frames(Source("clip", (path,)), 16, 50, lambda line: None):
            assert frame.shape == (16, 16, 3)

    fuzz(changed_bytes(path.read_bytes()), read)


# --- logs and episodes ----------------------------------------------------------------------


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "eval.csv"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        count_lines(path)
        read_results(path)
        if "episode_reward" in read_csv(path):
            last_return(path)

    good = b"frame,step,episode_reward\n1000,125,3.5\n2000,250,\n3000,375,nan\n"
    field = st.sampled_from(
        ["", "1e400", "-1", "inf", "nan", "frame", "0x1", "1_0", "٣", "\0", " "]
    )
    rows = st.lists(st.lists(field, max_size=4).map(",".join), max_size=4).map("\n".join)
    fuzz(changed_bytes(good) | rows.map(lambda text: good + text.encode()), read)


def test_episode(tmp_path: Path) -> None:
    ones = np.ones(3, np.float32)
    episode = Episode(np.zeros((4, 6, 6, 3), np.uint8), ones[:, None], ones, ones)
    path = write_episode(tmp_path, 0, episode)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_episode(path)

    good = path.read_bytes()
    long_name = good[:26] + b"\x00\x08" + good[28:]  # the error quoted all of the name
    fuzz(changed_bytes(good), read, findings=[long_name])
