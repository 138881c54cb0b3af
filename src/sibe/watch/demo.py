"""`sibe demo`: the policy that comes with the package, behind noise, video and nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from sibe.errors import UserError
from sibe.watch.page import render
from sibe.watch.server import Answer, Answers

SETTINGS = {
    "noise": ("White noise", "as in training"),
    "video": ("Video", "never seen in training"),
    "clean": ("Clean", "never seen in training"),
}
"""By the name of a background: its title, and what it is to the policy."""
COLORS = {"noise": "#0072B2", "video": "#D55E00", "clean": "#009E73"}


class Demo:
    """An episode behind each background, played one after the other.

    Args:
        seed: which episodes.
        play: plays one, and is told where to report how much of it is done (default: the
            policy in this package).
    """

    def __init__(self, seed: int, play: Callable[..., dict[str, Any]] | None = None) -> None:
        self.seed = seed
        self._play = play or _play
        self._done = dict.fromkeys(SETTINGS, 0.0)
        self._errors: dict[str, str] = {}
        self._episodes: dict[str, dict[str, Any]] = {}

    def play_all(self, say: Callable[[str], None]) -> None:
        """Play all episodes; one that cannot be played is named, and the others are played.

        Raises:
            UserError: if none could be played.
        """
        for name, (title, _) in SETTINGS.items():
            try:
                self._episodes[name] = self._play(name, self.seed, self._progress(name))
            except UserError as error:
                self._errors[name] = str(error)
                say(f"{title}: {error}")
            else:
                say(f"{title}: return {sum(self._episodes[name]['reward']):.1f}")
        if not self._episodes:
            raise UserError(self._errors["noise"])

    def _progress(self, name: str) -> Callable[[float], None]:
        def report(part: float) -> None:
            self._done[name] = part

        return report

    def state(self) -> dict[str, dict[str, Any]]:
        """Return how far each episode is."""
        return {
            name: {
                "ready": name in self._episodes,
                "progress": self._done[name],
                "error": self._errors.get(name, ""),
            }
            for name in SETTINGS
        }

    def answers(self) -> Answers:
        """Return what the demo's server answers."""

        def page() -> Answer:
            return self._page(live=True)

        def state() -> Answer:
            return _json(self.state())

        def episode(name: str) -> Callable[[], Answer | None]:
            return lambda: _json(self._episodes[name]) if name in self._episodes else None

        episodes = {f"/episode/{name}.json": episode(name) for name in SETTINGS}
        return {"/": page, "/state.json": state, **episodes}

    def saved(self) -> bytes:
        """Return the page as one file that needs no server."""
        return self._page(live=False).body

    def _page(self, *, live: bool) -> Answer:
        about = provenance()
        rows = {
            name: f"{np.mean(values):.0f} ± {np.std(values):.0f}"
            for name, values in about["returns"].items()
        }
        data = {
            "settings": [
                {"name": name, "label": title, "color": COLORS[name]}
                for name, (title, _) in SETTINGS.items()
            ],
            "state": self.state(),
            "episodes": {} if live else self._episodes,
        }
        return render(
            "demo", data, live=live, settings=SETTINGS, about=about, usual=rows, seed=self.seed
        )


def provenance() -> dict[str, Any]:
    """Return where the policy comes from and what it reaches."""
    text = (files("sibe.watch") / "data" / "policy" / "provenance.json").read_text("utf-8")
    about: dict[str, Any] = json.loads(text)
    return about


def _play(name: str, seed: int, progress: Callable[[float], None]) -> dict[str, Any]:
    # Here, not above: the page is up before the agent and MuJoCo are loaded.
    from sibe.policy.load import load_policy
    from sibe.training.evaluation import numbered_seeds
    from sibe.watch.episode import play

    with as_file(files("sibe.watch") / "data" / "policy") as folder:
        policy = load_policy(folder, device="cpu")
    return asdict(play(policy, name, numbered_seeds(seed, 1)[0], progress))


def _json(value: Any) -> Answer:
    return Answer("application/json", json.dumps(value).encode())
