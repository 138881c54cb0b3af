from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sibe.logs.csv_log import TRAIN_COLUMNS
from sibe.logs.sink import Row
from sibe.storage.run_files import RunFiles
from sibe.training.evaluation import EvalEpisode
from sibe.training.recorder import Recorder

ROW = {name: 1.0 for name in TRAIN_COLUMNS} | {"frame": 1000}
COUNTS = {"frame": 1000, "step": 125, "episode": 1, "total_time": 2.5}


class ListSink:
    """Remembers its calls; fails from call number ``fails_at`` on."""

    def __init__(self, fails_at: int = 1000) -> None:
        self.calls: list[str] = []
        self.means: list[Row] = []
        self.fails_at = fails_at

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) > self.fails_at:
            raise ConnectionError("no route\nto host")

    def episode(self, row: Row) -> None:
        self._call("episode")

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        self._call("evaluation")
        self.means.append(row)

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")


def test_a_resumed_run_shows_the_last_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for env_step in (0, 1000):
        recorder = Recorder(RunFiles(tmp_path), 5000)
        recorder.open([], env_step)
        recorder.tick(env_step + 8, 1, 1)
        if not env_step:
            recorder.episode({**ROW, "episode_reward": 83.06})
            recorder.evaluation(COUNTS, [EvalEpisode(7, 10.0, 1000)])
        recorder.close()
    assert "return 83.1 eval 10.0" in capsys.readouterr().out.splitlines()[-1]


def record(recorder: Recorder) -> None:
    recorder.open([], env_step=0)
    recorder.tick(1000, 125, 100)
    recorder.episode(ROW)
    recorder.evaluation(COUNTS, [EvalEpisode(7, 10.0, 1000), EvalEpisode(8, 14.0, 900)])
    recorder.copies()
    recorder.close()


def test_every_sink_gets_every_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = ListSink()
    record(Recorder(RunFiles(tmp_path), 2000, optional=[sink]))
    assert sink.calls == ["episode", "evaluation", "flush", "close"]
    expected = {"episode_length": 950.0, "episode_reward": 12.0, "episode_reward_std": 2.0}
    assert sink.means == [{**COUNTS, **expected, "episodes": 2}]
    assert (tmp_path / "eval.csv").read_text().endswith("\n1000,125,1,950.0,12.0,2.5,2.0,2\n")
    assert list((tmp_path / "tensorboard").iterdir())
    assert "eval at env_step 1000: return 12.0 ± 2.0 (2 episodes)\n" in capsys.readouterr().out


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_an_optional_sink_that_fails_is_reported_once_and_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fails_at: int
) -> None:
    for folder in ("plain", "tracked"):
        (tmp_path / folder).mkdir()
    record(Recorder(RunFiles(tmp_path / "plain"), 2000))
    broken, sound = ListSink(fails_at), ListSink()
    record(Recorder(RunFiles(tmp_path / "tracked"), 2000, optional=[broken, sound]))
    assert len(broken.calls) == fails_at + 1 and len(sound.calls) == 4
    assert capsys.readouterr().out.count("note: no route to host; the run goes on without it") == 1
    for name in ("train.csv", "eval.csv", "eval_episodes.csv"):
        plain, tracked = (tmp_path / folder / name for folder in ("plain", "tracked"))
        assert plain.read_bytes() == tracked.read_bytes()
