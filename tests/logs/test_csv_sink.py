from __future__ import annotations

from pathlib import Path

import pytest

from sibe.errors import UserError
from sibe.logs.csv_sink import CsvSink
from sibe.storage.run_files import RunFiles

COUNTS = {"frame": 1000, "step": 125, "episode": 1, "total_time": 2.5}
MEAN = {**COUNTS, "episode_length": 1000, "episode_reward": 2.0, "episode_reward_std": 1.0}
RETURNS = [
    {"frame": 1000, "step": 125, "eval_episode": i, "seed": 7 + i, "episode_reward": 1.0 + 2 * i}
    for i in range(2)
]


def test_rows_go_to_their_files(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    sink = CsvSink(run, ["kl"])
    sink.episode({**COUNTS, "episode_reward": 3.5, "kl": 0.5})
    sink.evaluation({**MEAN, "episodes": 2}, RETURNS)
    sink.flush()
    sink.close()
    assert run.train_csv.read_text() == (
        "frame,step,episode,episode_length,episode_reward,total_time,fps,buffer_size,updates,kl\n"
        "1000,125,1,,3.5,2.5,,,,0.5\n"
    )
    assert run.eval_csv.read_text() == (
        "frame,step,episode,episode_length,episode_reward,total_time,episode_reward_std,episodes\n"
        "1000,125,1,1000,2.0,2.5,1.0,2\n"
    )
    assert run.eval_episodes_csv.read_text() == (
        "frame,step,eval_episode,seed,episode_length,episode_reward\n"
        "1000,125,0,7,,1.0\n"
        "1000,125,1,8,,3.0\n"
    )


def test_rewind_to_what_a_checkpoint_holds_or_to_nothing(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    CsvSink.rewind(run, {}, print)  # a new run has no files
    assert not list(tmp_path.iterdir())
    sink = CsvSink(run, [])
    sink.episode({**COUNTS, "episode_reward": 3.5})
    copies = sink.copies()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: copy.content() for name, copy in copies.items()} == before
    sink.episode({**COUNTS, "episode_reward": 4.5})
    sink.evaluation(MEAN, RETURNS)
    sink.close()
    CsvSink.rewind(run, copies, print)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    CsvSink.rewind(run, {}, print)
    assert all(path.read_bytes() == b"" for path in tmp_path.iterdir())


def test_a_metric_with_the_name_of_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"already has \(fps\)"):
        CsvSink(RunFiles(tmp_path), ["kl", "fps"])
