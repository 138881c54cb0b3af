"""Several sensors in one c: what is missing has no say, and each sensor can speak alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from method_inputs import seeded
from torch import Tensor

from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.encoder import Encoder
from sibe.nn.late_encoder import LateFusionEncoder
from sibe.nn.sensor_encoder import SensorEncoder, drop_sensors

D, S, SIZE = 6, 3, 20


def make(kind: str = "early", *, shared: bool = False) -> SensorEncoder:
    options: Any = {"features": D, "filters": 4, "strides": (2, 1), "generator": seeded()}

    def camera() -> Encoder | LateFusionEncoder:
        if kind == "late":
            return LateFusionEncoder(SIZE, 3, stack=2, **options)
        return Encoder(SIZE, 6, **options)

    one = camera()
    cameras = {"pixels_0": one, "pixels_1": one if shared else camera()}
    return SensorEncoder(cameras, {"state": S}, features=D, generator=seeded())


def readings(kind: str = "early", seed: int = 0) -> dict[str, Tensor]:
    g, shape = seeded(seed), (2, 5, SIZE, SIZE, 6) if kind == "early" else (3, 5, SIZE, SIZE, 3)
    made = {
        f"pixels_{i}": torch.randint(0, 256, shape, generator=g, dtype=torch.uint8) for i in (0, 1)
    }
    return {**made, "state": 100 * torch.randn(2, 5, S, generator=g)}


@pytest.mark.parametrize("kind", ["early", "late"])
def test_c_has_its_size_and_every_sensor_has_a_say(kind: str) -> None:
    encoder, first, other = make(kind), readings(kind), readings(kind, seed=1)
    c = encoder(first)
    assert c.shape == (2, 5, D) and torch.isfinite(c).all()
    for name in encoder.names:
        assert not torch.allclose(c, encoder({**first, name: other[name]})), name


@pytest.mark.parametrize("kind", ["early", "late"])
def test_a_missing_sensor_has_no_say(kind: str) -> None:
    encoder, first, other = make(kind), readings(kind), readings(kind, seed=1)
    for number, name in enumerate(encoder.names):
        missing = torch.zeros(2, 5, 3, dtype=torch.bool)
        missing[0, :, number] = True
        c, changed = (encoder(one, missing) for one in (first, {**first, name: other[name]}))
        assert torch.equal(c[0], changed[0]) and not torch.allclose(c[1], changed[1])
        assert not torch.allclose(c[0], encoder(first)[0])


@pytest.mark.parametrize("kind", ["early", "late"])
def test_apart_each_sensor_speaks_alone(kind: str) -> None:
    encoder, obs = make(kind), readings(kind)
    together = encoder(obs, apart=True)
    assert together.shape == (4, 2, 5, D)
    torch.testing.assert_close(together[0], encoder(obs))
    for number in range(3):
        missing = torch.ones(2, 5, 3, dtype=torch.bool)
        missing[..., number] = False
        torch.testing.assert_close(together[1 + number], encoder(obs, missing))


def test_single_states_are_encoded_as_in_chunks() -> None:
    encoder, obs = make(), readings()
    flat = {name: part.flatten(0, 1) for name, part in obs.items()}
    missing = torch.rand(2, 5, 3, generator=seeded(3)) < 0.5
    torch.testing.assert_close(encoder.single(flat), encoder(obs).flatten(0, 1))
    torch.testing.assert_close(
        encoder.single(flat, missing.flatten(0, 1)), encoder(obs, missing).flatten(0, 1)
    )


def test_shared_cameras_are_one_network_stored_once() -> None:
    shared, apart = make(shared=True), make()
    convolutions = sum(p.numel() for p in shared.encoders["cameras"].parameters())
    sizes = [sum(p.numel() for p in one.parameters()) for one in (shared, apart)]
    assert sizes[1] - sizes[0] == convolutions
    pointers = [tensor.data_ptr() for tensor in shared.state_dict().values()]
    assert len(set(pointers)) == len(pointers)
    target = frozen_copy(shared)
    update_ema(target, shared, 0.5)
    obs = readings()
    swapped = {**obs, "pixels_0": obs["pixels_1"], "pixels_1": obs["pixels_0"]}
    torch.testing.assert_close(target(obs), shared(obs))
    # One network, and yet the two cameras are told apart.
    assert not torch.allclose(shared(obs), shared(swapped))


def test_what_stands_for_a_missing_sensor_is_learned_where_one_is_missing() -> None:
    encoder, obs = make(), readings()
    encoder(obs).square().sum().backward()
    assert encoder.absent.grad is None
    missing = torch.zeros(2, 5, 3, dtype=torch.bool)
    missing[..., 2] = True
    encoder(obs, missing)[..., 0].sum().backward()
    assert encoder.absent.grad is not None
    moved = encoder.absent.grad.abs().sum(-1) > 0
    assert moved.tolist() == [False, False, True]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sensors", [2, 3])
def test_one_sensor_always_stays(share: float, sensors: int) -> None:
    hidden = drop_sensors((50, 400, sensors), share, seeded(), torch.device("cpu"))
    assert not hidden.all(-1).any()
    # All would go with probability share ** K; one of them then stays.
    expected = share - share**sensors / sensors
    assert hidden.float().mean().item() == pytest.approx(expected, abs=0.01)
    assert torch.equal(
        hidden, drop_sensors((50, 400, sensors), share, seeded(), torch.device("cpu"))
    )
