from __future__ import annotations

import csv
import io
import math
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sibe.errors import UserError
from sibe.logs import csv_log
from sibe.logs.amounts import count, size
from sibe.logs.console import Progress, duration
from sibe.logs.csv_log import CsvLog, read_csv
from sibe.logs.tensorboard import TensorBoardLog
from sibe.logs.video import enlarge, write_mp4

# --- csv ---------------------------------------------------------------------------------------


def test_columns_are_those_of_drq() -> None:
    drq = ["frame", "step", "episode", "episode_length", "episode_reward", "total_time"]
    assert list(csv_log.TRAIN_COLUMNS) == [*drq, "fps", "buffer_size", "updates"]
    assert list(csv_log.EVAL_COLUMNS) == [*drq, "episode_reward_std", "episodes"]
    assert csv_log.EVAL_EPISODE_COLUMNS[2:4] == ("eval_episode", "seed")


def test_rows_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with CsvLog(path, ("frame", "x", "y")) as log:
        assert log.position == path.stat().st_size == len("frame,x,y\n")
        log.append({"y": np.float64(0.1), "frame": np.int64(3), "x": torch.tensor(0.5)})
        # Visible at once, without closing: the row left the process in one piece.
        assert path.read_bytes() == b"frame,x,y\n3,0.5,0.1\n"
        log.append({"frame": 4, "x": None})
        log.append({"x": math.nan, "y": -math.inf})
        log.append({"x": np.float32(0.1), "y": 1e22})
        log.sync()
        assert log.position == path.stat().st_size
    assert path.read_bytes() == (
        b"frame,x,y\n3,0.5,0.1\n4,,\n,nan,-inf\n,0.10000000149011612,1e+22\n"
    )
    with path.open(newline="") as file:
        assert next(csv.DictReader(file)) == {"frame": "3", "x": "0.5", "y": "0.1"}


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.tuples(st.floats(), st.one_of(st.none(), st.floats())), min_size=1))
def test_every_float_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float, float | None]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with CsvLog(path, ("a", "b")) as log:
        for a, b in values:
            log.append({"a": a, "b": b})
    table = read_csv(path)
    assert list(table) == ["a", "b"]
    np.testing.assert_array_equal(table["a"], [a for a, _ in values])
    np.testing.assert_array_equal(table["b"], [math.nan if b is None else b for _, b in values])


def test_unknown_column_writes_nothing(tmp_path: Path) -> None:
    with CsvLog(tmp_path / "a.csv", ("a",)) as log:
        with pytest.raises(ValueError, match="no column typo"):
            log.append({"a": 1, "typo": 2})
        assert (tmp_path / "a.csv").read_text() == "a\n"


@pytest.mark.parametrize("content", ["b,a\n1,2\n", "a,b,c\n", "a\n", "something else", "\n"])
def test_foreign_file_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError, match="other columns"):
        CsvLog(path, ("a", "b"))
    assert path.read_text() == content


def test_killed_at_any_byte_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    whole = b"a,b\n1,2.5\n3,4.5\n"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with CsvLog(path, ("a", "b")) as log:
            kept = max(4, whole[:length].rfind(b"\n") + 1)
            assert log.position == kept
            log.append({"a": 9})
        assert path.read_bytes() == whole[:kept] + b"9,\n"


def test_resume_repeats_the_uninterrupted_run(tmp_path: Path) -> None:
    rows = [{"a": i, "b": i / 3} for i in range(9)]
    with CsvLog(tmp_path / "whole.csv", ("a", "b")) as log:
        for row in rows:
            log.append(row)
    path = tmp_path / "killed.csv"
    with CsvLog(path, ("a", "b")) as log:
        for row in rows[:4]:
            log.append(row)
        position = log.position
        for row in rows[4:7]:
            log.append(row)
    with path.open("ab") as file:
        file.write(b"7,2.33")
    CsvLog.truncate(path, position)
    assert path.stat().st_size == position
    with CsvLog(path, ("a", "b")) as log:
        assert log.position == position
        for row in rows[4:]:
            log.append(row)
    assert path.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_truncate_refuses_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n12\n")
    for position in (3, 4, 6, 100):
        with pytest.raises(UserError, match="does not fit its checkpoint"):
            CsvLog.truncate(path, position)
    assert path.read_text() == "a\n12\n"
    CsvLog.truncate(path, 0)
    assert path.read_text() == ""
    CsvLog.truncate(tmp_path / "missing.csv", 0)
    with pytest.raises(UserError, match="missing"):
        CsvLog.truncate(tmp_path / "missing.csv", 5)


def test_full_disk_leaves_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with CsvLog(path, ("a", "b")) as log:
        log.append({"a": 1, "b": 2})
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.position + 3, hard))
        try:
            with pytest.raises(UserError, match="No space left"):
                log.append({"a": 123456, "b": 123456})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_text() == "a,b\n1,2\n"
        log.append({"a": 3})
    assert path.read_text() == "a,b\n1,2\n3,\n"
    with pytest.raises(UserError, match="cannot write"):
        CsvLog(tmp_path / "no" / "a.csv", ("a",))


def test_read_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"frame,x\r\n1,\r\n2,3.5\r\n3,4.")
    table = read_csv(path)
    np.testing.assert_array_equal(table["frame"], [1, 2])
    np.testing.assert_array_equal(table["x"], [math.nan, 3.5])
    path.write_text("frame,x\n")
    assert {name: len(column) for name, column in read_csv(path).items()} == {"frame": 0, "x": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no header"),
        (b"frame,x", "no header"),
        (b"\n", "no header"),
        (b"1,2.5\n", "no header"),
        (b"a,b\n1,2\n3\n4,5\n", "line 3 is damaged"),
        (b"a,b\n1,2,3\n", "line 2 is damaged"),
        (b"a,b\n1,x\n", "line 2 is damaged"),
        (b"\xff\xfe\n", "cannot read"),
    ],
)
def test_read_csv_refuses(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_csv(path)


def test_read_csv_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_csv(tmp_path / "a.csv")


# --- tensorboard -------------------------------------------------------------------------------


def _events(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def _age(folder: Path) -> None:
    """Make an attempt's event files older; TensorBoard sorts them by the seconds in the name."""
    for index, file in enumerate(sorted(folder.iterdir())):
        seconds = file.name.split(".")[3]
        aged = file.name.replace(seconds, str(int(seconds) - 100 + index))
        file.rename(file.with_name(aged))


def test_tensorboard_hides_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path, resume_at=None)
    for env_step in (0, 1000, 2000, 3000):
        log.episode({"frame": env_step, "step": 1, "return": env_step / 1000, "absent": None})
    log.flush()
    assert _events(tmp_path, "train/return") == [(0, 0), (1000, 1), (2000, 2), (3000, 3)]
    log.close()
    _age(tmp_path)
    log = TensorBoardLog(tmp_path, resume_at=2000)
    log.episode({"frame": 3000, "return": torch.tensor(7.0)})
    log.close()
    assert _events(tmp_path, "train/return") == [(0, 0), (1000, 1), (2000, 2), (3000, 7)]
    for name in ("absent", "frame", "step"):
        with pytest.raises(KeyError):
            _events(tmp_path, f"train/{name}")


def test_tensorboard_from_the_beginning_hides_an_earlier_attempt(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path, resume_at=None)
    log.evaluation({"frame": 0, "return": 1.0}, [])
    log.close()
    _age(tmp_path)
    log = TensorBoardLog(tmp_path, resume_at=None)
    log.evaluation({"frame": 0, "return": 2.0}, [])
    log.close()
    assert _events(tmp_path, "eval/return") == [(0, 2)]


# --- console -----------------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


EVALUATION = {"frame": 3000, "episode_reward": 120.4, "episode_reward_std": 3.26, "episodes": 10}


def test_plain_line_is_self_contained() -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(100_000, stream=stream, clock=clock)
    # 5 s per 1000 env steps and 125 updates: 25 updates/s, and 97 000 steps take 485 s.
    progress.episode({"episode_reward": 83.06})
    for env_step in (0, 1000, 2000, 3000):
        progress.update(env_step, env_step // 8, env_step // 8)
        clock.now += 5
    assert stream.getvalue() == (
        "env_step 2000/100000 (2 %) agent_step 250 return 83.1 eval - 25.0 updates/s 8m10s left\n"
    )
    progress.line("a message")
    progress.evaluation(EVALUATION, [])
    progress.update(4000, 500, 500)
    progress.close()
    message, evaluation, last = stream.getvalue().splitlines()[1:]
    assert message == "a message"
    assert evaluation == "eval at env_step 3000: return 120.4 ± 3.3 (10 episodes)"
    assert last.endswith("agent_step 500 return 83.1 eval 120.4 25.0 updates/s 8m00s left")


@pytest.mark.parametrize(("seconds", "lines"), [(0.001, 1), (1.0, 100)])
def test_plain_lines_are_rare(seconds: float, lines: int) -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(1000, stream=stream, clock=clock)
    for env_step in range(1, 1001):
        clock.now += seconds
        progress.update(env_step, env_step, env_step)
    progress.close()
    # One per 10 s, and the last.
    assert len(stream.getvalue().splitlines()) == lines
    assert "env_step 1000/1000 (100 %)" in stream.getvalue().splitlines()[-1]


def test_slow_steps_get_a_line_each_ten_seconds() -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(1_000_000, stream=stream, clock=clock)
    for env_step in range(1, 101):
        clock.now += 1
        progress.update(env_step, env_step, env_step)
    assert len(stream.getvalue().splitlines()) == 10


def test_time_left_of_a_resumed_run_counts_this_life_alone() -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(100_000, start_env_step=90_000, stream=stream, clock=clock)
    for i in range(11):
        progress.update(90_000 + 100 * i, 0, 50_000 + 30 * i)
        clock.now += 1
    # 100 env steps and 30 updates a second.
    assert "(91 %)" in stream.getvalue()
    assert stream.getvalue().endswith(" 30.0 updates/s 1m30s left\n")


def test_speed_is_recent() -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(1_000_000, stream=stream, clock=clock)
    env_step = 0
    for speed, seconds in ((1000, 300), (10, 200)):
        for _ in range(seconds):
            env_step += speed
            clock.now += 1
            progress.update(env_step, env_step, env_step)
    last = stream.getvalue().splitlines()[-1]
    assert " 10.0 updates/s" in last
    assert last.endswith(f"{duration((1_000_000 - env_step) / 10)} left")


def test_the_last_line_shows_the_last_evaluation() -> None:
    stream, clock = io.StringIO(), _Clock()
    progress = Progress(3000, stream=stream, clock=clock)
    clock.now += 10
    progress.update(3000, 375, 300)  # shown, with no evaluation yet
    progress.evaluation({**EVALUATION, "episodes": 1}, [])
    progress.close()
    first, evaluation, last = stream.getvalue().splitlines()
    assert " eval - " in f"{first} " and evaluation.endswith("(1 episode)")
    assert last == "env_step 3000/3000 (100 %) agent_step 375 return - eval 120.4"
    progress.close()  # nothing new to show
    assert stream.getvalue().count("\n") == 3


def test_a_resumed_run_shows_what_came_before() -> None:
    stream = io.StringIO()
    progress = Progress(
        9000, start_env_step=3000, episode_return=83.06, eval_return=120.4, stream=stream
    )
    progress.update(3008, 376, 301)
    progress.close()
    assert stream.getvalue().endswith("agent_step 376 return 83.1 eval 120.4\n")


def test_an_episode_that_is_played_out_is_not_more_than_everything() -> None:
    stream = io.StringIO()
    progress = Progress(16, stream=stream)
    progress.update(200, 25, 0)
    progress.close()
    assert stream.getvalue().startswith("env_step 200 (100 %) agent_step 25 ")


def test_amounts() -> None:
    assert [count(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    sizes = (1, 96_400, 999_600, 15.2e6, 999.6e6, 3.24e9, 1e15)
    assert [size(n) for n in sizes] == [
        *("1 kB", "96 kB", "1 MB", "15 MB", "1.0 GB", "3.2 GB", "1000000.0 GB")
    ]


def test_durations() -> None:
    texts = [duration(s) for s in (-1, 0.4, 59, 59.6, 552, 3599.9, 4140, 86_399, 90_000)]
    assert texts == ["0s", "0s", "59s", "1m00s", "9m12s", "1h00m", "1h09m", "23h59m", "1d01h"]


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    progress = Progress(10, stream=stream, quiet=True)
    for env_step in range(11):
        progress.update(env_step, env_step, env_step)
    progress.evaluation(EVALUATION, [])
    progress.line("nothing")
    progress.close()
    assert stream.getvalue() == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    terminal, clock = _Terminal(), _Clock()
    progress = Progress(1000, stream=terminal, clock=clock)
    progress.episode({"episode_reward": 83.06})
    progress.evaluation(EVALUATION, [])
    for env_step in (100, 200, 250):
        progress.update(env_step, env_step, env_step)
        clock.now += 2
    progress.line("[red] a message")
    progress.close()
    text = terminal.getvalue()
    assert "━" in text
    assert "[red] a message" in text
    assert "250/1000 env steps  return 83.1  eval 120.4  37.5 updates/s  20s left" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") > -1, "the cursor is shown again"


def test_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = _Terminal()
    progress = Progress(1000, stream=terminal)
    progress.update(20, 20, 20)
    progress.close()
    assert terminal.getvalue() == "env_step 20/1000 (2 %) agent_step 20 return - eval -\n"


# --- video -------------------------------------------------------------------------------------

_COLORS = [(200, 40, 40), (40, 160, 60), (30, 60, 200), (128, 128, 128), (240, 220, 40)]


def _clip(height: int, width: int) -> list[np.ndarray]:
    return [np.full((height, width, 3), color, np.uint8) for color in _COLORS]


def _decode(path: Path) -> tuple[str, float, list[np.ndarray]]:
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.pix_fmt == "yuv420p"
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        return stream.codec_context.name, float(stream.average_rate), frames


@pytest.mark.parametrize(
    ("size", "expected"),
    [((84, 84), (252, 252)), ((49, 51), (246, 256)), ((241, 301), (242, 302)), ((480, 640),) * 2],
)
def test_video_decodes_to_what_went_in(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    path = tmp_path / "new" / "a.mp4"
    write_mp4(path, iter(_clip(*size)), fps=12)
    codec, rate, frames = _decode(path)
    assert codec == "h264"
    assert rate == 12
    assert len(frames) == len(_COLORS)
    for frame, color in zip(frames, _COLORS, strict=True):
        assert frame.shape == (*expected, 3)
        assert np.abs(frame.astype(int) - color).max() <= 10
    assert [file.name for file in path.parent.iterdir()] == ["a.mp4"]


def test_video_without_h264(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import av

    real = av.container.OutputContainer.add_stream

    class Proxy:
        def __init__(self, container: Any) -> None:
            self.container = container

        def __enter__(self) -> Proxy:
            return self

        def __exit__(self, *_: object) -> None:
            self.container.close()

        def __getattr__(self, name: str) -> object:
            return getattr(self.container, name)

        def add_stream(self, codec: str, **options: object) -> object:
            if codec == "libx264":
                raise av.codec.codec.UnknownCodecError(codec)
            return real(self.container, codec, **options)

    opened = av.open
    monkeypatch.setattr(av, "open", lambda *a, **k: Proxy(opened(*a, **k)))
    write_mp4(tmp_path / "a.mp4", _clip(84, 84), fps=25)
    monkeypatch.undo()
    codec, rate, frames = _decode(tmp_path / "a.mp4")
    assert (codec, rate, len(frames)) == ("mpeg4", 25, len(_COLORS))
    assert np.abs(frames[0].astype(int) - _COLORS[0]).max() <= 12


def test_enlarge_keeps_pixels_as_blocks() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (81, 79, 3), dtype=np.uint8)
    large = enlarge(frame)
    assert large.shape == (244, 238, 3)
    for y, x in np.ndindex(243, 237):
        assert (large[y, x] == frame[y // 3, x // 3]).all()
    assert (large[243, :237] == large[242, :237]).all()
    assert (large[:, 237] == large[:, 236]).all()


def test_equal_frames_give_equal_bytes_and_replace_the_old_file(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (10, 64, 64, 3), dtype=np.uint8)
    (tmp_path / "a.mp4").write_text("old")
    write_mp4(tmp_path / "a.mp4", frames, fps=10)
    write_mp4(tmp_path / "b.mp4", frames, fps=10)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize("bad", [np.zeros((8, 9, 3), np.uint8), np.zeros((8, 8, 3), np.float32)])
def test_failed_video_leaves_the_old_file(tmp_path: Path, bad: np.ndarray) -> None:
    path = tmp_path / "a.mp4"
    path.write_text("old")
    with pytest.raises(ValueError, match="in a video of uint8"):
        write_mp4(path, [np.zeros((8, 8, 3), np.uint8), bad], fps=10)
    with pytest.raises(ValueError, match="at least one frame"):
        write_mp4(path, [], fps=10)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert path.read_text() == "old"


def test_full_disk_leaves_the_old_video(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_text("old")
    frames = np.random.default_rng(0).integers(0, 256, (20, 64, 64, 3), dtype=np.uint8)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(UserError, match="cannot write"):
            write_mp4(path, frames, fps=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert path.read_text() == "old"


def test_video_errors_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"must be an \.mp4 file"):
        write_mp4(tmp_path / "a.gif", _clip(8, 8), fps=10)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        write_mp4(tmp_path / "file" / "a.mp4", _clip(8, 8), fps=10)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UserError, match=r"pip install 'sibe\[video\]'"):
        write_mp4(tmp_path / "a.mp4", _clip(8, 8), fps=10)
