"""`sibe watch`: a run's page, served and refreshing itself, or saved."""

from __future__ import annotations

import json
from pathlib import Path

from sibe.watch.page import render
from sibe.watch.run_data import newest_video, run_data
from sibe.watch.server import Answer, Answers


def watch_answers(path: Path) -> Answers:
    """Return what the server of a run's page answers; only the three paths there are."""

    def page() -> Answer:
        return render("watch", {"run": run_data(path)}, live=True, path=str(path), video=None)

    def state() -> Answer:
        return Answer("application/json", json.dumps(run_data(path)).encode())

    def video() -> Answer | None:
        content = newest_video(path)
        return None if content is None else Answer("video/mp4", content)

    return {"/": page, "/state.json": state, "/video.mp4": video}


def saved_watch(path: Path) -> bytes:
    """Return the run's page as one file that needs no server."""
    data = {"run": run_data(path)}
    return render("watch", data, live=False, path=str(path), video=newest_video(path)).body
