from __future__ import annotations

import math
from typing import Any

import numpy as np
import oscillator
import pytest
import torch


def test_z_keeps_what_can_be_predicted() -> None:
    results = oscillator.main()

    untrained, trained, information = results["noise"]
    assert untrained.oscillator < 0.5 and untrained.distraction > 0.1
    assert trained.oscillator > 0.95
    assert abs(trained.distraction) < 0.05
    assert 0.8 * information < trained.bound < information

    # Distraction that drifts is predictable too, and there is more of it.
    _, trained, _ = results["drift"]
    assert trained.oscillator < 0.2 < trained.distraction


def test_a_start_that_gets_stuck_is_not_the_one_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    recording = oscillator.record(oscillator.make_system(0.0, rng), rng)
    lengths = iter((1, 60, 1))  # the second start alone gets anywhere
    train = oscillator.train

    def cut_short(bottleneck: Any, recording: Any, updates: int, seed: int) -> None:
        train(bottleneck, recording, next(lengths), seed)
        fitted.append(bottleneck)

    fitted: list[Any] = []
    monkeypatch.setattr(oscillator, "train", cut_short)
    kept = oscillator.fit(recording, oscillator.CONFIG, updates=60, seed=0)
    assert len(fitted) == 3 and kept is fitted[1]


@pytest.mark.parametrize("memory", [0.0, 0.95])
def test_the_closed_form_agrees_with_a_recording(
    memory: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 100_000
    monkeypatch.setattr(oscillator, "STEPS", steps)
    rng = np.random.default_rng(1)
    system = oscillator.make_system(memory, rng)
    channels, actions, _ = oscillator.record(system, rng)
    past = torch.cat((channels[:-1], actions[:-1]), dim=1)
    joint = torch.cat((past, channels[1:]), dim=1).double()
    logdet = [torch.logdet(x.T.cov()) for x in (past.double(), channels[1:].double(), joint)]
    estimate = (logdet[0] + logdet[1] - logdet[2]).item() / 2
    bias = 40 * 41 / (2 * steps)  # of an estimate from samples, to first order
    assert oscillator.predictive_information(system) == pytest.approx(estimate - bias, abs=0.03)


def test_without_sensor_noise_it_is_the_information_of_the_oscillator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = oscillator.make_system(0.0, np.random.default_rng(1))
    monkeypatch.setattr(oscillator, "SENSOR_NOISE", 1e-3)
    determinant = np.linalg.det(system.covariance[:2, :2]) / np.linalg.det(system.noise[:2, :2])
    expected = math.log(determinant) / 2
    assert oscillator.predictive_information(system) == pytest.approx(expected, abs=1e-3)
