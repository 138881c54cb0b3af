"""``hf://user/name`` against a stand-in of the Hub: up, down, from the cache, and not trusted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_stand_in import Hub, hub_on_this_machine
from huggingface_hub import ModelCard

import sibe
from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import to_json
from sibe.cli import main as cli
from sibe.errors import UserError
from sibe.policy.export import CARD
from sibe.policy.hub import hub_name, push
from sibe.policy.model_card import model_card
from sibe.policy.weights import WEIGHTS, write_weights
from sibe.storage.run_files import CONFIG_JSON

STATES = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 9), dtype=np.uint8)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sibe export` writes, of an agent that has learned nothing."""
    folder = tmp_path_factory.mktemp("hub") / "exported"
    folder.mkdir()
    config = replace(preset_config("debug", method="none", background="noise"), threads=1)
    agent = build_agent(config, 1, torch.Generator().manual_seed(0), torch.device("cpu"))
    write_weights(folder / WEIGHTS, agent.policy_networks(), 1000, 1)
    (folder / CONFIG_JSON).write_text(json.dumps(to_json(config)))
    card = model_card(config, 1000, [1.0, 3.0], 0, {}, video=False, source="hf://ann/cart")
    (folder / CARD).write_text(card)
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    from huggingface_hub import constants

    # Read by huggingface_hub when it is imported, and that has happened.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_token")
    with hub_on_this_machine() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def test_what_is_pushed_comes_back_bit_for_bit(exported: Path, hub: Hub) -> None:
    assert push(exported, "ann/cart") == f"{hub.endpoint}/ann/cart"
    assert hub.repositories["ann/cart"] == {
        path.name: path.read_bytes() for path in exported.iterdir()
    }
    assert "library_name: sibe" in hub.validated[0]  # the Hub is asked about the card's head
    ours, theirs = sibe.load_policy(exported), sibe.load_policy("hf://ann/cart")
    assert theirs.config == ours.config and theirs.env_step == 1000
    np.testing.assert_array_equal(theirs.act(STATES), ours.act(STATES))
    pinned = sibe.load_policy(f"hf://ann/cart@{hub.revision('ann/cart')}")
    np.testing.assert_array_equal(pinned.act(STATES), ours.act(STATES))
    # The card does not come along, and neither would anything else that was put there.
    assert not [request for request in hub.requests if "resolve" in request and CARD in request]


def test_without_a_network_the_cache_serves(exported: Path, hub: Hub) -> None:
    push(exported, "ann/cart")
    policy = sibe.load_policy("hf://ann/cart")
    hub.status = 503
    again = sibe.load_policy("hf://ann/cart")
    np.testing.assert_array_equal(again.act(STATES), policy.act(STATES))


def test_a_tag_is_on_the_card_once() -> None:
    card = model_card(preset_config("debug"), 1000, [1.0], 0, {}, video=False)
    tags = card.split("tags:\n")[1].split("model-index:")[0].replace('"', "").splitlines()
    assert sorted(tags) == sorted(set(tags)) and "- sibe" in tags


def test_the_card_is_what_a_hub_reads(exported: Path) -> None:
    card = ModelCard.load(exported / CARD)
    assert card.data.library_name == "sibe"
    assert card.data.pipeline_tag == "reinforcement-learning"
    assert {"reinforcement-learning", "sibe", "none", "cartpole_swingup"} <= set(card.data.tags)
    (result,) = card.data.eval_results
    assert (result.task_type, result.metric_type) == ("reinforcement-learning", "mean_reward")
    assert (result.dataset_name, result.dataset_type) == (
        "cartpole_swingup (noise)",
        "cartpole_swingup-noise",
    )
    assert result.metric_value == "2.0 +/- 1.0"
    assert 'sibe.load_policy("hf://ann/cart")' in card.text


def test_what_comes_from_the_hub_is_checked_as_any_export(exported: Path, hub: Hub) -> None:
    files = {path.name: path.read_bytes() for path in exported.iterdir()}
    bad = {
        "ann/empty": ({"README.md": b"hello"}, "is not a policy of sibe"),
        "ann/run": (
            {CONFIG_JSON: files[CONFIG_JSON], "checkpoints/env_step_1.pt": b"pickle"},
            "is not a policy of sibe",
        ),
        "ann/damaged": ({**files, WEIGHTS: files[WEIGHTS][:-9]}, "is damaged"),
        "ann/other": (
            {**files, CONFIG_JSON: files[CONFIG_JSON].replace(b'"none"', b'"no\\u0000ne"')},
            "comes from a plug-in that is not installed here",
        ),
    }
    for name, (content, words) in bad.items():
        hub.repositories[name] = content
        with pytest.raises(UserError, match=words) as caught:
            sibe.load_policy(f"hf://{name}")
        assert "\n" not in str(caught.value)
    assert not [request for request in hub.requests if ".pt" in request]


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "cannot load hf://ann/nowhere"), (401, "hf auth login"), (500, "cannot load hf://")],
)
def test_what_the_hub_refuses_is_one_line(
    hub: Hub, capsys: pytest.CaptureFixture[str], status: int, words: str
) -> None:
    hub.status = status
    with pytest.raises(SystemExit) as stop:
        cli.main(["eval", "hf://ann/nowhere"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and words in said and said.count("\n") == 1


def test_a_failed_push_says_that_the_export_is_there(exported: Path, hub: Hub) -> None:
    hub.status = 403
    with pytest.raises(UserError, match=r"is written, but cannot be pushed .* HF_TOKEN"):
        push(exported, "ann/cart")


@pytest.mark.parametrize("name", ["cart", "ann/cart/more", "ann/", "../ann", ""])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="is user/name"):
        sibe.load_policy(f"hf://{name}")


def test_a_path_is_not_an_address_and_an_address_survives_being_a_path() -> None:
    assert hub_name("runs/hf/seed1") is hub_name(Path("/tmp/hf:/a")) is None
    assert hub_name(Path("hf://ann/cart@v1")) == hub_name("hf://ann/cart@v1") == "ann/cart@v1"


def test_without_huggingface_hub_the_line_to_type_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'sibe\[hub\]'"):
        sibe.load_policy("hf://ann/cart")
