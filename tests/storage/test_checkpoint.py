from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pytest
import torch

from sibe.errors import UserError
from sibe.storage import checkpoint
from sibe.storage.atomic import SUFFIX, remove_temporary, write_atomic
from sibe.storage.contained_file import open_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def load(folder: Path) -> tuple[tuple[int, dict[str, Any]] | None, list[str]]:
    lines: list[str] = []
    return checkpoint.load_newest(folder, map_location="cpu", report=lines.append), lines


# --- atomic files ---------------------------------------------------------------------------


def test_write_atomic_syncs_the_file_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def spy_replace(source: Path, target: Path) -> None:
        calls.append(("replace", str(source)))
        assert Path(source).read_bytes() == b"new"
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write_atomic(tmp_path / "a", b"new")
    temporary = calls[0][1]
    assert temporary.endswith(SUFFIX) and Path(temporary).parent == tmp_path
    assert calls == [("sync", temporary), ("replace", temporary), ("sync", str(tmp_path))]
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    write_atomic(tmp_path / "a", b"old")

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(type(error)) as caught:
        write_atomic(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(tmp_path / "a")


def test_a_file_system_that_cannot_sync_folders_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    codes = iter([None, errno.EINVAL, None, errno.EIO])

    def fake(descriptor: int) -> None:
        code = next(codes)
        if code is not None:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fake)
    write_atomic(tmp_path / "a", b"1")
    with pytest.raises(OSError, match="Input/output error"):
        write_atomic(tmp_path / "a", b"2")


def test_remove_temporary_takes_only_what_is_ours(tmp_path: Path) -> None:
    for name in ("a.pt", f"a.pt.01234567{SUFFIX}", "b.tmp"):
        (tmp_path / name).touch()
    remove_temporary(tmp_path)
    assert names(tmp_path) == ["a.pt", "b.tmp"]
    remove_temporary(tmp_path / "missing")


def test_a_path_under_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        write_atomic(tmp_path / "file" / "a", b"1")
    assert caught.value.filename == str(tmp_path / "file" / "a")


# --- what goes in comes out -----------------------------------------------------------------


def make_state() -> dict[str, Any]:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(3)).sum().backward()
    optimizer.step()
    return {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "numpy": np.random.default_rng(3).bit_generator.state,  # 128-bit integers
        "torch": torch.Generator().manual_seed(5).get_state(),
        "plain": [None, True, -1, 2.5, float("inf"), "φ", b"\x00\xff", (1, (2,)), {}, {7: []}],
        "frames": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
    }


def assert_same(a: object, b: object) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, dict):
        assert isinstance(b, dict) and list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert isinstance(b, list | tuple) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


def test_state_comes_back_exactly_and_random_streams_continue(tmp_path: Path) -> None:
    state = make_state()
    path = checkpoint.save(tmp_path / "new", 10_000, state)
    assert path == tmp_path / "new" / "checkpoint_000010000.pt"
    found, lines = load(tmp_path / "new")
    assert found is not None and lines == []
    step, loaded = found
    assert step == 10_000
    assert_same(state, loaded)
    rng = np.random.default_rng()
    rng.bit_generator.state = loaded["numpy"]
    assert rng.random() == np.random.default_rng(3).random()


def test_no_checkpoint_at_all_is_none(tmp_path: Path) -> None:
    assert load(tmp_path) == (None, [])
    assert load(tmp_path / "missing") == (None, [])
    (tmp_path / "checkpoint_1.pt").touch()
    (tmp_path / f"checkpoint_000000001.pt.00000000{SUFFIX}").touch()
    assert load(tmp_path) == (None, [])


def test_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (2_000_000_000, 999_999_999, 30):
        checkpoint.save(tmp_path, step, {"step": step})
    assert checkpoint.list_steps(tmp_path) == [30, 999_999_999, 2_000_000_000]
    assert load(tmp_path)[0] == (2_000_000_000, {"step": 2_000_000_000})


class Arbitrary:
    pass


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([0, {"x": Arbitrary()}], r"state\['a'\]\[1\]\['x'\] is a test_checkpoint\.Arbitrary"),
        (np.float64(1), r"state\['a'\] is a numpy\.float64"),
        (np.zeros(2), r"state\['a'\] is a numpy\.ndarray"),
        ({Arbitrary: 1}, r"a key of state\['a'\] is a builtins\.type"),
        (torch.nn.Linear(1, 1), r"state\['a'\] is a torch\.nn\.modules\.linear\.Linear"),
        (lambda: None, r"state\['a'\] is a builtins\.function"),
    ],
)
def test_objects_are_refused_when_saving(tmp_path: Path, value: object, where: str) -> None:
    with pytest.raises(TypeError, match=where):
        checkpoint.save(tmp_path, 1, {"a": value})
    assert names(tmp_path) == []


def test_a_pickled_class_with_a_good_checksum_is_never_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "pwned"),))

    checkpoint.save(tmp_path, 1, {"good": 1})
    monkeypatch.setattr(checkpoint, "_check_plain", lambda *args: None)
    checkpoint.save(tmp_path, 2, {"a": Evil()})
    found, lines = load(tmp_path)
    assert found == (1, {"good": 1})
    assert len(lines) == 1 and "checkpoint_000000002.pt" in lines[0] and "\n" not in lines[0]
    assert not (tmp_path / "pwned").exists()


def test_an_absent_device_is_not_taken_for_damage(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"a": torch.ones(1)})
    lines: list[str] = []
    with pytest.raises((RuntimeError, AssertionError)):
        checkpoint.load_newest(tmp_path, map_location="cuda:99", report=lines.append)
    assert lines == []


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, bytes]:
    """Two checkpoints; the newer one's file and bytes."""
    checkpoint.save(tmp_path, 1, {"x": torch.full((4,), 1.0)}, needs={1})
    path = checkpoint.save(tmp_path, 2, {"x": torch.full((4,), 2.0)}, needs={2, 30})
    return path, path.read_bytes()


def assert_passed_over(path: Path) -> str:
    found, lines = load(path.parent)
    assert found is not None and found[0] == 1 and found[1]["x"].tolist() == [1.0] * 4
    assert len(lines) == 1 and lines[0].startswith(f"{path.name} is damaged (")
    return lines[0]


def test_a_flipped_bit_anywhere_is_detected(pair: tuple[Path, bytes]) -> None:
    path, data = pair
    rng = random.Random(0)
    header = data.index(b"\n") + 1
    for position in (*range(0, header, 3), *range(header, len(data), 7)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        assert_passed_over(path)


def test_every_flip_in_the_header_is_detected_without_the_payload(pair: tuple[Path, bytes]) -> None:
    path, data = pair
    assert checkpoint.needed_episodes(path.parent) == {1, 2, 30}
    for position in range(data.index(b"\n") + 1):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        assert checkpoint.needed_episodes(path.parent) == {1}


def test_truncation_anywhere_is_detected(pair: tuple[Path, bytes]) -> None:
    path, data = pair
    for length in (0, *range(1, len(data), 9), len(data) - 1):
        path.write_bytes(data[:length])
        assert_passed_over(path)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "empty"),
        (lambda data: bytes(len(data)), "not a checkpoint"),
        (lambda data: b"PK\x03\x04" + data, "not a checkpoint"),
        (lambda data: data.replace(b"sibe-checkpoint-1", b"sibe-checkpoint-2"), "this version"),
        (lambda data: data + b"\x00", "bytes long instead of"),
        (lambda data: data[:-1], "bytes long instead of"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
        (lambda data: data.replace(b'"env_step"', b'"env_stop"'), "checksum of its header"),
    ],
)
def test_the_report_says_what_is_wrong(
    pair: tuple[Path, bytes], damage: Callable[[bytes], bytes], reason: str
) -> None:
    path, data = pair
    path.write_bytes(damage(data))
    assert reason in assert_passed_over(path)


def test_a_renamed_checkpoint_is_not_taken_for_a_newer_one(pair: tuple[Path, bytes]) -> None:
    path, _ = pair
    renamed = path.rename(path.with_name("checkpoint_000000003.pt"))
    assert "made at step 2" in assert_passed_over(renamed)


def test_all_damaged_is_an_error_that_loses_nothing(pair: tuple[Path, bytes]) -> None:
    path, _ = pair
    before = {}
    for name in names(path.parent):
        (path.parent / name).write_bytes(b"garbage")
        before[name] = b"garbage"
    lines: list[str] = []
    with pytest.raises(UserError) as caught:
        checkpoint.load_newest(path.parent, map_location="cpu", report=lines.append)
    message = str(caught.value)
    assert str(path.parent) in message and "--out" in message and "\n" not in message
    assert [line.split()[0] for line in lines] == [path.name, "checkpoint_000000001.pt"]
    assert {name: (path.parent / name).read_bytes() for name in names(path.parent)} == before


def test_a_checkpoint_that_vanishes_while_reading_means_a_newer_one(
    pair: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = pair
    opened = open_file

    def vanish(file: Path, **kwargs: Any) -> Any:
        if file == path and path.exists():  # what a running trainer does to a slow reader
            path.unlink()
            checkpoint.save(path.parent, 3, {"x": 3})
        return opened(file, **kwargs)

    monkeypatch.setattr(checkpoint, "open_file", vanish)
    assert load(path.parent) == ((3, {"x": 3}), [])


def test_an_unreadable_file_is_not_taken_for_damage(
    pair: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = pair
    opened = open_file

    def deny(file: Path, **kwargs: Any) -> Any:
        if file == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return opened(file, **kwargs)

    monkeypatch.setattr(checkpoint, "open_file", deny)
    with pytest.raises(PermissionError):
        load(path.parent)


# --- good checksums, odd content ------------------------------------------------------------


def with_header(data: bytes, header: object) -> bytes:
    text = json.dumps(header).encode() + b"\n"
    magic, payload = data.split(b" ")[0], data[data.index(b"\n") + 1 :]
    return b" ".join((magic, hashlib.sha256(text).hexdigest().encode(), text)) + payload


@pytest.mark.parametrize(
    "change",
    [
        {"needs": None},
        {"needs": [-1]},
        {"needs": ["1"]},
        {"bytes": "many"},
        {"bytes": 1 << 60},
        {"env_step": 2.0},
        {"sha256": 7},
        {"logs": {"train.csv": 3}},
        {"logs": []},
        {"surprise": 1},
    ],
)
def test_an_odd_header_is_damage(pair: tuple[Path, bytes], change: dict[str, Any]) -> None:
    path, data = pair
    header = json.loads(data[: data.index(b"\n")].split(b" ", 2)[2])
    path.write_bytes(with_header(data, {**header, **change}))
    assert_passed_over(path)
    for name in change.keys() & header.keys():
        path.write_bytes(with_header(data, {k: v for k, v in header.items() if k != name}))
        if name != "logs":
            assert_passed_over(path)
    path.write_bytes(with_header(data, [1]))
    assert_passed_over(path)
    assert checkpoint.needed_episodes(path.parent) == {1}


def test_what_is_no_file_is_passed_over_with_a_word(pair: tuple[Path, bytes]) -> None:
    path, _ = pair
    path.unlink()
    (path / "full").mkdir(parents=True)
    found, lines = load(path.parent)
    assert found is not None and found[0] == 1
    assert lines == [f"{path.name} is not a file and is passed over"]
    checkpoint.save(path.parent, 2, {"x": 2})
    assert load(path.parent) == ((2, {"x": 2}), [])
    assert (path.parent / f"{path.name}.damaged" / "full").is_dir()


def test_a_link_out_of_the_run_is_passed_over(pair: tuple[Path, bytes]) -> None:
    path, data = pair
    run = path.parent / "run" / "checkpoint"
    run.mkdir(parents=True)
    (path.parent / "checkpoint_000000001.pt").rename(run / "checkpoint_000000001.pt")
    (run / path.name).symlink_to(path)
    assert "leads out of" in assert_passed_over(run / path.name)
    assert path.read_bytes() == data


def test_a_compressed_payload_is_not_unpacked(pair: tuple[Path, bytes]) -> None:
    path, _ = pair
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
    payload = bomb.getvalue()
    header = {"env_step": 2, "bytes": len(payload), "needs": []}
    header["sha256"] = hashlib.sha256(payload).hexdigest()
    path.write_bytes(with_header(b"sibe-checkpoint-1 \n" + payload, header))
    assert "it is compressed" in assert_passed_over(path)


def test_a_name_with_more_zeros_is_no_checkpoint(pair: tuple[Path, bytes]) -> None:
    path, data = pair
    path.with_name("checkpoint_0000000002.pt").write_bytes(data)
    path.unlink()
    assert checkpoint.list_steps(path.parent) == [1]
    assert load(path.parent)[1] == []


def test_whoever_uses_a_state_may_call_it_damaged(pair: tuple[Path, bytes]) -> None:
    path, _ = pair

    def use(env_step: int, state: dict[str, Any]) -> None:
        if env_step == 2:
            raise checkpoint.Damaged("no\x1b[31m use")

    lines: list[str] = []
    found = checkpoint.load_newest(path.parent, map_location="cpu", report=lines.append, use=use)
    assert found is not None and found[0] == 1
    assert lines == [f"{path.name} is damaged (no?[31m use) and is passed over"]
    checkpoint.set_newer_aside(path.parent, 1)
    assert checkpoint.list_steps(path.parent) == [1]
    assert path.with_name(f"{path.name}.damaged").exists()


# --- which are kept -------------------------------------------------------------------------


def test_two_newest_are_kept_and_their_needs(tmp_path: Path) -> None:
    for step in (100, 200, 300, 400):
        checkpoint.save(tmp_path, step, {"x": step}, needs={step, np.int64(step + 1)})  # type: ignore[arg-type]
    (tmp_path / f"checkpoint_000000500.pt.aaaaaaaa{SUFFIX}").touch()
    (tmp_path / "notes.txt").touch()
    checkpoint.keep_newest(tmp_path)
    assert names(tmp_path) == ["checkpoint_000000300.pt", "checkpoint_000000400.pt", "notes.txt"]
    assert checkpoint.needed_episodes(tmp_path) == {300, 301, 400, 401}
    checkpoint.keep_newest(tmp_path, 1)
    assert checkpoint.list_steps(tmp_path) == [400]


def test_damaged_ones_do_not_push_out_good_ones(tmp_path: Path) -> None:
    for step in (100, 200, 300, 400):
        checkpoint.save(tmp_path, step, {"x": step})
    for step in (300, 400):
        (tmp_path / f"checkpoint_{step:09d}.pt").write_bytes(b"garbage")
    checkpoint.keep_newest(tmp_path)
    assert checkpoint.list_steps(tmp_path) == [100, 200, 300, 400]
    checkpoint.save(tmp_path, 250, {"x": 250})  # the run came back to 200 and went on
    checkpoint.keep_newest(tmp_path)
    assert checkpoint.list_steps(tmp_path) == [200, 250, 300, 400]
    assert load(tmp_path)[0] == (250, {"x": 250})
    for step in (300, 400):
        checkpoint.save(tmp_path, step, {"x": step})
        checkpoint.keep_newest(tmp_path)
    assert checkpoint.list_steps(tmp_path) == [300, 400]


def test_needs_are_read_without_the_payload(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"x": torch.zeros(1000)}, needs=[5, 3])
    line = path.read_bytes().partition(b"\n")[0] + b"\n"
    path.write_bytes(line)
    assert checkpoint.needed_episodes(tmp_path) == {3, 5}
    magic, digest, text = line.split(b" ", 2)  # the documented format, taken apart by hand
    assert magic == b"sibe-checkpoint-1" and hashlib.sha256(text).hexdigest().encode() == digest
    assert json.loads(text)["needs"] == [3, 5]


# --- full disk, kill ------------------------------------------------------------------------


def test_full_disk_leaves_older_checkpoints_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, {"x": 1}, needs={4})

    class FullDisk:
        def __init__(self, file: IO[Any]) -> None:
            self.file = file

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, mode="r": FullDisk(opened(self, mode)) if mode == "xb"
        else opened(self, mode)
    )  # fmt: skip
    with pytest.raises(OSError, match="No space left") as caught:
        checkpoint.save(tmp_path, 2, {"x": 2})
    assert caught.value.filename == str(tmp_path / "checkpoint_000000002.pt")
    assert names(tmp_path) == ["checkpoint_000000001.pt"]
    assert load(tmp_path) == ((1, {"x": 1}), [])


SERVER = """
import os, resource, signal, sys
from pathlib import Path
import torch
from sibe.storage import checkpoint

def run(folder, step, acks, size):
    while True:
        step += 1
        checkpoint.save(folder, step, {"x": torch.full((size,), float(step))}, needs={step})
        os.write(acks, step.to_bytes(8, "big"))
        checkpoint.keep_newest(folder)

def die_at(name, call):
    calls, original = [0], getattr(os, name)
    def wrapper(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(os, name, wrapper)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

for line in sys.stdin:
    folder, acks, prepare, size = line.rstrip("\\n").split("\\t")
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(30)  # nobody may live on when a test has gone wrong
            folder = Path(folder)
            steps = checkpoint.list_steps(folder)
            exec(prepare)
            run(folder, steps[-1] if steps else 0, os.open(acks, os.O_WRONLY | os.O_APPEND), int(size))
        except OSError as error:
            os._exit(error.errno)
        finally:
            os._exit(255)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""  # noqa: E501


class Victims:
    """Processes that save checkpoints in a loop, forked from one that has torch imported."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self.server, self.pid = server, 0
        self.acks = folder / "acks"
        self.acks.touch()
        self.folder = folder / "checkpoint"
        self.folder.mkdir()

    def start(self, prepare: str = "", size: int = 50_000) -> int:
        assert self.server.stdin is not None
        self.server.stdin.write(f"{self.folder}\t{self.acks}\t{prepare}\t{size}\n")
        self.server.stdin.flush()
        self.pid = self._read()
        return self.pid

    def wait(self) -> int:
        """Return how the process ended; a negative number is a signal."""
        status, self.pid = self._read(), 0
        return status

    def _read(self) -> int:
        assert self.server.stdout is not None
        return int(self.server.stdout.readline())

    def acknowledged(self) -> int:
        return int.from_bytes(self.acks.read_bytes()[-8:], "big")

    def check(self) -> int:
        """Nothing that was saved is lost, nothing that loads is incomplete, none is damaged."""
        found, lines = load(self.folder)
        assert lines == []
        if found is None:
            assert self.acknowledged() == 0
            return 0
        step, state = found
        assert step in (self.acknowledged(), self.acknowledged() + 1)
        assert torch.equal(state["x"], torch.full_like(state["x"], float(step)))
        assert step in checkpoint.needed_episodes(self.folder)
        return step


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield server
    server.communicate()  # the end of its input ends it


@pytest.fixture
def victims(server: subprocess.Popen[str], tmp_path: Path) -> Iterator[Victims]:
    victims = Victims(server, tmp_path)
    yield victims
    if victims.pid:  # a failed assertion came before its end
        os.kill(victims.pid, signal.SIGKILL)
        victims.wait()


def test_killed_at_random_instants_the_newest_checkpoint_is_whole(victims: Victims) -> None:
    rng = random.Random(0)
    last = 0
    for _ in range(15):
        size = victims.acks.stat().st_size
        pid = victims.start()
        while victims.acks.stat().st_size == size:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        assert victims.wait() == -signal.SIGKILL
        step = victims.check()
        assert step > last
        last = step
        assert len(checkpoint.list_steps(victims.folder)) <= 3
    checkpoint.keep_newest(victims.folder)
    assert len(names(victims.folder)) == 2


def test_killed_between_any_two_steps_of_saving_it_is_whole_too(victims: Victims) -> None:
    # Per save: sync of the file, rename, sync of the folder; then up to one unlink.
    points = [("fsync", n) for n in range(1, 9)] + [("replace", n) for n in range(1, 5)]
    points += [("unlink", n) for n in range(1, 4)] + [("write", n) for n in range(1, 4)]
    for name, call in points:
        victims.start(f"die_at({name!r}, {call})", size=100)
        assert victims.wait() == -signal.SIGKILL
        victims.check()


def test_the_kernel_refusing_to_write_leaves_older_checkpoints_and_no_rubbish(
    victims: Victims,
) -> None:
    pid = victims.start()
    while victims.acknowledged() < 3:
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    victims.wait()
    checkpoint.keep_newest(victims.folder)
    before = {name: (victims.folder / name).read_bytes() for name in names(victims.folder)}
    victims.start("limit(65536)")
    assert victims.wait() == errno.EFBIG
    after = {name: (victims.folder / name).read_bytes() for name in names(victims.folder)}
    assert after == before and len(before) == 2
    victims.check()
