"""What is written in C against its plain twin, and what happens where it cannot be compiled."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sibe.bench.workloads import _random_chunk
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.kernels import convolution, crops, frame_convolutions, library
from sibe.nn.convolution import _ConvolutionReLU, convolve_relu
from sibe.nn.encoder import Encoder
from sibe.replay.frames import FrameStore

compiled = pytest.mark.skipif(
    library.library() is None, reason=f"nothing to compare: {library.find().reason}"
)
# Remainders of 1 to 6 pixels in a row, 1 to 4 frames, all strides, more threads than rows.
SHAPES = [
    # images, height, width, channels, stride, filters, threads
    (1, 3, 3, 3, 1, 16, 1),
    (1, 3, 3, 9, 3, 32, 3),
    (2, 7, 4, 3, 1, 16, 2),
    (3, 9, 5, 6, 1, 48, 2),
    (2, 8, 6, 12, 1, 16, 1),
    (2, 11, 7, 9, 1, 16, 2),
    (2, 10, 8, 9, 1, 32, 2),
    (2, 9, 9, 3, 1, 16, 2),
    (5, 12, 13, 9, 2, 32, 2),
    (4, 14, 22, 9, 3, 16, 3),
    (3, 10, 11, 32, 1, 32, 2),
    (3, 11, 10, 16, 2, 16, 1),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def switch(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    for module in (convolution, crops, frame_convolutions):
        monkeypatch.setattr(module, "available", lambda: on)


def inputs(shape: tuple[int, ...], *, bytes_: bool) -> tuple[Tensor, Tensor, Tensor, int]:
    images, height, width, channels, stride, filters, threads = shape
    torch.set_num_threads(threads)
    pixels = torch.randint(0, 256, (images, height, width, channels), generator=seeded())
    x = pixels.to(torch.uint8 if bytes_ else torch.float32).permute(0, 3, 1, 2)
    weight = torch.randn(filters, channels, 3, 3, generator=seeded(1)) / 255
    return x, weight, torch.randn(filters, generator=seeded(2)), stride


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def close(ours: Tensor, exact: Tensor) -> None:
    """Equal but for the rounding of float32 sums: 1e-5 of the largest."""
    atol = 1e-5 * float(exact.detach().abs().max())
    torch.testing.assert_close(ours, exact.float(), atol=atol, rtol=0)


@compiled
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_convolved_as_pytorch_convolves_doubles(
    shape: tuple[int, ...], threads: None
) -> None:
    x, weight, bias, stride = inputs(shape, bytes_=True)
    exact = F.relu(F.conv2d(x.double(), weight.double(), bias.double(), stride))
    ours = convolution.convolve_bytes(x, weight, bias, stride)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert 0 < (exact > 0).float().mean() < 1 or exact.numel() < 100  # both sides of the ReLU
    close(ours, exact)


@compiled
@pytest.mark.parametrize("bytes_", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_weight_and_bias_are_autograds_in_doubles(
    shape: tuple[int, ...], bytes_: bool, threads: None
) -> None:
    x, weight, bias, stride = inputs(shape, bytes_=bytes_)
    exact = (weight.double().requires_grad_(), bias.double().requires_grad_())
    linear = F.conv2d(x.double(), *exact, stride)
    linear.retain_grad()
    y = linear.relu()
    gradient = channels_last(torch.randn(y.shape, generator=seeded(3)))
    (y * gradient).sum().backward()
    y, passed = channels_last(y.detach().float()), torch.empty_like(gradient)
    ours = convolution.weight_gradient(x, gradient, y, stride, passed=passed)
    assert linear.grad is not None and torch.equal(passed, linear.grad.float())
    again = convolution.weight_gradient(x, gradient, y, stride)
    for mine, same, other in zip(ours, again, exact, strict=True):
        assert other.grad is not None
        close(mine, other.grad)
        assert torch.equal(mine, same)


@compiled
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("bytes_", [True, False])
@pytest.mark.parametrize("channels", [1, 9])
def test_the_layer_learns_as_the_plain_one(
    channels: int, bytes_: bool, stride: int, monkeypatch: pytest.MonkeyPatch, threads: None
) -> None:
    def gradients(on: bool) -> list[Tensor]:
        switch(monkeypatch, on)
        x, weight, bias, _ = inputs((4, 13, 12, channels, stride, 16, 2), bytes_=bytes_)
        x = x.contiguous() if channels == 1 else x  # one channel lies both ways at once
        leaves = [weight.requires_grad_(), bias.requires_grad_()]
        if not bytes_:
            leaves.append(x.requires_grad_())
        y = convolve_relu(x, weight, bias, stride)
        assert ("_ConvolutionReLU" in type(y.grad_fn).__name__) is on
        # Every other filter of it is used, in another layout than it came in.
        return [y, *torch.autograd.grad((y[:, ::2].contiguous() ** 2).sum(), leaves)]

    for mine, other in zip(gradients(True), gradients(False), strict=True):
        close(mine, other)


@compiled
def test_what_is_not_a_number_passes_and_is_not_hidden_by_the_relu(threads: None) -> None:
    x, weight, bias, _ = inputs((2, 9, 9, 3, 1, 16, 2), bytes_=True)
    weight[3, 0, 0, 0] = torch.nan
    y = convolution.convolve_bytes(x, weight, bias, 1)
    assert y[:, 3].isnan().all()
    assert not y[:, :3].isnan().any()
    gradient = torch.ones_like(y)
    of_weight, _ = convolution.weight_gradient(x, gradient, y, 1)
    assert (of_weight[3] > 0).any()  # as PyTorch: the ReLU lets the gradient of a nan pass


@compiled
@pytest.mark.parametrize(
    "why", ["double", "8 filters", "channels first", "autocast", "no learning", "a wide image"]
)
def test_what_the_kernels_cannot_do_is_left_to_pytorch(
    why: str, monkeypatch: pytest.MonkeyPatch, threads: None
) -> None:
    monkeypatch.setattr(convolution, "available", lambda: True)
    x, weight, bias, _ = inputs((2, 9, 9, 16, 1, 16, 1), bytes_=False)
    weight.requires_grad_(why != "no learning")
    if why == "double":
        x, weight, bias = x.double(), weight.double(), bias.double()
    elif why == "8 filters":
        weight, bias = weight[:8], bias[:8]
    elif why == "channels first":
        x = x.contiguous()
    elif why == "a wide image":
        x = torch.zeros(1, 3, 5000, 16).permute(0, 3, 1, 2)
    monkeypatch.setattr(_ConvolutionReLU, "apply", None)  # not to be called
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
        assert convolve_relu(x, weight, bias, 1).shape[1] == len(weight)


@compiled
@pytest.mark.parametrize("pixels", [(9, 9, 3), (9, 9, 12), (2, 9, 9), (9, 1, 9)])
def test_sizes_that_do_not_fit_are_refused_as_by_pytorch(
    pixels: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "available", lambda: True)
    x = torch.zeros(2, *pixels, dtype=torch.uint8).permute(0, 3, 1, 2)
    with pytest.raises(RuntimeError, match=r"channels|size"):
        convolve_relu(x, torch.zeros(16, 9, 3, 3), torch.zeros(16), 1)


@compiled
def test_a_bias_with_gaps_is_read_right(threads: None) -> None:
    x, weight, _, _ = inputs((2, 9, 9, 3, 1, 16, 2), bytes_=True)
    bias = torch.randn(32, generator=seeded())[::2]
    exact = F.relu(F.conv2d(x.double(), weight.double(), bias.double()))
    close(convolution.convolve_bytes(x, weight, bias, 1), exact)


@compiled
def test_one_input_gives_one_result_bit_for_bit(threads: None) -> None:
    x, weight, bias, stride = inputs((16, 20, 20, 9, 2, 32, 2), bytes_=True)
    y = convolution.convolve_bytes(x, weight, bias, stride)
    gradient = channels_last(torch.randn(y.shape, generator=seeded()))
    first = convolution.weight_gradient(x, gradient, y, stride)
    for _ in range(20):
        assert torch.equal(convolution.convolve_bytes(x, weight, bias, stride), y)
        again = convolution.weight_gradient(x, gradient, y, stride)
        assert all(map(torch.equal, again, first))


def graph(tensor: Tensor) -> str:
    """The names of what computed ``tensor``."""
    nodes, seen = [tensor.grad_fn], []
    while nodes:
        if (node := nodes.pop()) is not None:
            seen.append(type(node).__name__)
            nodes += [following for following, _ in node.next_functions]
    return " ".join(seen)


@compiled
@pytest.mark.parametrize("strides", [(2, 1, 1, 1), (3, 2, 1, 1)])
@pytest.mark.parametrize("center", [True, False])
def test_the_encoder_and_its_gradient_are_those_without_kernels(
    strides: tuple[int, ...], center: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(48, 9, filters=16, strides=strides, center=center, generator=seeded())
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pixels = torch.randint(0, 256, (2, 3, 48, 48, 9), generator=seeded(1), dtype=torch.uint8)

    def run(on: bool) -> list[Tensor]:
        switch(monkeypatch, on)
        c = encoder(pixels)
        assert ("_ConvolutionReLU" in graph(c)) is on
        weights = torch.randn(c.shape, generator=seeded(2))
        gradients = torch.autograd.grad((c * weights).sum(), list(encoder.parameters()))
        return [c.detach(), *gradients]

    for mine, other in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5 * float(other.abs().max()), rtol=0)


@compiled
def test_updates_are_those_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset_config("debug", background="noise")
    config = replace(config, encoder=replace(config.encoder, filters=16))
    chunk = _random_chunk(config, config.sac.batch)

    def losses(on: bool) -> list[float]:
        switch(monkeypatch, on)
        agent = build_sac(config, 1, seeded(), torch.device("cpu"))
        assert ("_ConvolutionReLU" in graph(agent.encoder(chunk.obs))) is on
        metrics = [agent.update(chunk) for _ in range(3)]
        return [float(step[name]) for step in metrics for name in agent.must_be_finite]

    assert losses(True) == pytest.approx(losses(False), rel=1e-4)


@compiled
@pytest.mark.parametrize("threads_", [1, 2, 5])
@pytest.mark.parametrize("stack", [1, 2, 3, 4])
@pytest.mark.parametrize(("height", "width", "pad"), [(2, 1, 0), (5, 1, 2), (6, 9, 4), (20, 31, 1)])
def test_stacked_crops_are_the_bytes_that_numpy_makes(
    height: int,
    width: int,
    pad: int,
    stack: int,
    threads_: int,
    monkeypatch: pytest.MonkeyPatch,
    threads: None,
) -> None:
    torch.set_num_threads(threads_)
    rng = np.random.default_rng(0)
    store = FrameStore(7, (height, width, 3), pad)
    for slot in range(7):
        store.put(slot, rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    slots, shifts = rng.integers(0, 7, (11, stack)), rng.integers(0, 2 * pad + 1, (11, 2))

    def stacks(on: bool) -> Tensor:
        switch(monkeypatch, on)
        return store.stacks(slots, shifts)

    assert torch.equal(stacks(True), stacks(False))


# --- the compiler ---------------------------------------------------------------------------------

_LEARN = """
import torch
from sibe.kernels.library import find
from sibe.nn.encoder import Encoder
encoder = Encoder(32, 9, filters=16, generator=torch.Generator().manual_seed(0))
encoder(torch.zeros(2, 32, 32, 9, dtype=torch.uint8)).sum().backward()
print("has" if find().library else "lacks", "|", find().reason)
"""


def learn(cache: Path, **environment: str) -> str:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), **environment}
    command = [sys.executable, "-c", _LEARN]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@compiled
def test_it_is_compiled_once_and_kept(tmp_path: Path) -> None:
    assert learn(tmp_path).startswith("has")
    (kept,) = (tmp_path / "sibe" / "kernels").iterdir()  # and nothing else is left behind
    assert kept.parent.stat().st_mode & 0o077 == 0
    written = kept.stat().st_mtime_ns
    assert learn(tmp_path).startswith("has")
    assert kept.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"SIBE_KERNELS": "0"}, "SIBE_KERNELS"),
        ({"CC": "no-such-compiler"}, "no C compiler"),
        ({"CC": "false"}, "returned non-zero"),
        ({"CC": "'"}, "No closing quotation"),
    ],
)
def test_without_it_everything_works(
    environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    said = learn(tmp_path, **environment)
    assert said.startswith("lacks")
    assert reason in said


def test_a_cache_that_is_a_file_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "sibe").write_text("not a folder")
    assert learn(tmp_path).startswith("lacks")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a compiled library."""
    path = tmp_path_factory.mktemp("cache")
    assert learn(path).startswith("has")
    return path


def truncate(kept: Path, whole: bytes) -> None:
    kept.write_bytes(whole[: len(whole) // 2])  # loading it would end the process


def flip(kept: Path, whole: bytes) -> None:
    kept.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])


def empty(kept: Path, whole: bytes) -> None:
    """A library without our functions, under the right hash."""
    source = kept.with_name("a.c")
    source.write_text("int other(void) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(kept)], check=True)
    source.unlink()
    start = kept.name.rpartition("-")[0]
    kept.rename(kept.with_name(f"{start}-{hashlib.sha256(kept.read_bytes()).hexdigest()}.so"))


def link(kept: Path, whole: bytes) -> None:
    elsewhere = kept.parent.parent / "planted.so"
    elsewhere.write_bytes(whole)
    kept.unlink()
    kept.symlink_to(elsewhere)


@compiled
@pytest.mark.parametrize("damage", [truncate, flip, empty, link])
def test_what_is_not_as_it_was_written_is_compiled_again(
    damage: Callable[[Path, bytes], None], cache: Path, tmp_path: Path
) -> None:
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    (kept,) = (tmp_path / "sibe" / "kernels").iterdir()
    whole = kept.read_bytes()
    damage(kept, whole)
    assert learn(tmp_path).startswith("has")
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert kept.read_bytes() == whole and not kept.is_symlink()


@compiled
@pytest.mark.parametrize("open_to_all", ["sibe", "sibe/kernels"])
def test_nothing_is_loaded_from_a_folder_that_others_can_write_to(
    open_to_all: str, cache: Path, tmp_path: Path
) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    folder = tmp_path / "cache" / "sibe" / "kernels"
    (tmp_path / "cache" / open_to_all).chmod(0o777)
    (kept,) = folder.iterdir()
    before = kept.stat()
    (tmp_path / "tmp").mkdir()
    said = learn(tmp_path / "cache", TMPDIR=str(tmp_path / "tmp"))
    assert said.startswith("has") and "at each start" in said
    assert not list((tmp_path / "tmp").iterdir())  # nor is anything left
    assert list(folder.iterdir()) == [kept] and kept.stat() == before


@compiled
def test_a_killed_compilation_is_cleaned_up_at_the_next_start(cache: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nkill -9 $PPID\n")
    compiler.chmod(0o755)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CC": str(compiler)}
    done = subprocess.run([sys.executable, "-c", _LEARN], env=env, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    folder = tmp_path / "sibe" / "kernels"
    assert len(list(folder.iterdir())) == 1
    (kept,) = (cache / "sibe" / "kernels").iterdir()
    shutil.copy(kept, folder)  # with nothing left to compile, too
    assert learn(tmp_path).startswith("has")
    assert [path.name for path in folder.iterdir()] == [kept.name]


@compiled
def test_the_compiler_may_be_named_with_options(tmp_path: Path) -> None:
    assert learn(tmp_path, CC="cc -g").startswith("has")


@compiled
@pytest.mark.parametrize(("slot", "shift"), [(5, 0), (-1, 0), (0, 3), (0, -1)])
def test_crops_outside_of_the_frames_are_refused(slot: int, shift: int) -> None:
    frames, out = np.zeros((5, 8, 8, 3), np.uint8), np.zeros((1, 6, 6, 3), np.uint8)
    with pytest.raises(IndexError):
        crops.stack_crops(frames, np.array([[slot]]), np.array([[0, shift]]), out)


def test_checkpoints_from_before_the_kernels_still_fit() -> None:
    names = {f"rest.{i}.{kind}" for i in (1, 3, 5) for kind in ("weight", "bias")}
    assert {name for name in Encoder(32, 9).state_dict() if name.startswith("rest")} == names
