"""`sibe eval --video`: real time, the size asked for, and the same numbers."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from sibe.cli import main as cli


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    return int(stop.value.code or 0)


def test_a_video_is_of_the_size_asked_for_and_in_real_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained, video = str(tmp_path / "run"), tmp_path / "out.mp4"
    small = "--env-steps 1000 --eval-episodes 1 --threads 1 --background noise --method none"
    assert run("train", "--preset", "debug", *small.split(), "--out", trained) == 0
    written = [*(tmp_path / "run" / "video").glob("*.mp4"), video]
    capsys.readouterr()
    line = ("eval", trained, "--episodes")
    assert run(*line, "2", "--video", str(video), "--video-size", "256") == 0
    two = capsys.readouterr().out.splitlines()
    # One episode, one result: however many are played, and however they are filmed.
    assert run(*line, "1") == 0
    assert capsys.readouterr().out.splitlines()[0] == two[0]
    sizes = []
    for path in written:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            sizes.append((stream.height, stream.width))
            # 1000 control steps of 0.01 s, and the first state, shown for 8 of them.
            assert float(stream.duration * stream.time_base) == pytest.approx(10.08)
    assert sizes[-1] == (256, 256) and len(sizes) == 2
