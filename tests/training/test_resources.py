"""What a run needs is known before it starts."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import PRESETS, preset_config
from sibe.catalogue.registry import ENTRIES, find_agent
from sibe.config.schema import RunConfig
from sibe.envs.tasks import PAPER_TASKS
from sibe.errors import UserError
from sibe.training.resources import check_resources, learning_ram_bytes, replay_ram_bytes

GIGA = 10**9


def on_cpu(preset: str, method: str, task: str = "cartpole_swingup") -> RunConfig:
    return replace(preset_config(preset, task=task, method=method), device="cpu")


@pytest.mark.parametrize("method", ENTRIES)
def test_every_preset_fits_into_a_machine_of_24_gigabytes(method: str) -> None:
    for preset in PRESETS:
        for task in PAPER_TASKS:
            config = on_cpu(preset, method, task)
            assert replay_ram_bytes(config) + learning_ram_bytes(config) < 20 * GIGA


@pytest.mark.parametrize(
    ("preset", "method", "measured"),
    [("cpu", "sibe", 183e6), ("paper", "sibe", 1.36e9), ("paper", "plan2explore", 7.04e9)],
)
def test_the_estimate_is_near_what_was_measured(preset: str, method: str, measured: float) -> None:
    """The peak of the resident set over two updates, without libraries (0.1 GB) and kernels."""
    config = on_cpu(preset, method)
    assert 0.8 < find_agent(method).update_bytes(config) / measured < 1.3


def test_the_estimate_counts_cameras() -> None:
    one = on_cpu("cpu", "sibe")
    two, none = (
        replace(one, env=replace(one.env, **env))
        for env in ({"cameras": (0, 1)}, {"sensors": ("state",)})
    )
    update = find_agent("sibe").update_bytes
    heads = update(none)
    assert 0 < heads < update(one) / 2
    assert update(two) - heads == pytest.approx(2 * (update(one) - heads))
    checkpoint = find_agent("sibe").checkpoint_bytes
    shared = replace(two, encoder=replace(two.encoder, share_cameras=True))
    assert checkpoint(none) < checkpoint(one) == checkpoint(shared) < checkpoint(two)


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("method", ["sibe", "plan2explore"])
def test_the_size_of_a_checkpoint_is_about_right(preset: str, method: str) -> None:
    config = on_cpu(preset, method)
    agent = build_agent(config, 1, torch.Generator(), torch.device("cpu"))
    weights = io.BytesIO()
    torch.save({name: one.state_dict() for name, one in agent.networks().items()}, weights)
    # Beside them, two moments of each that is not a target.
    networks = agent.networks().items()
    learned = sum(
        p.nbytes for name, one in networks for p in one.parameters() if "target" not in name
    )
    whole = len(weights.getvalue()) + 2 * learned
    assert 0.8 < find_agent(method).checkpoint_bytes(config) / whole < 1.4


def test_a_replay_takes_no_more_than_the_run_collects() -> None:
    short = on_cpu("cpu", "sibe")  # 12 500 agent steps, room for 100 000
    long = replace(short, schedule=replace(short.schedule, env_steps=10**7))
    assert replay_ram_bytes(short) < 0.4 * GIGA < 2 * GIGA < replay_ram_bytes(long)
    longer = replace(long, schedule=replace(long.schedule, env_steps=10**8))
    assert replay_ram_bytes(longer) == replay_ram_bytes(long)


def test_what_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = on_cpu("paper", "sibe")
    ram, learning = replay_ram_bytes(config), learning_ram_bytes(config)

    def check(free: int, device: str = "cpu") -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
        check_resources(replace(config, device=device), tmp_path)

    with pytest.raises(UserError, match=r"the replay needs 1\.6 GB of RAM and 1\.6 GB are free"):
        check(ram - 1)
    with pytest.raises(UserError, match=r"learning needs about 2\.1 GB.*use a smaller batch"):
        check(ram + learning - 1)
    check(ram + learning)
    check(ram + GIGA, device="cuda")  # updates are made elsewhere
