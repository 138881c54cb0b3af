"""`sibe demo`: a trained policy to look at, at once and offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from sibe.config.values import Bounds, Natural, configuration


@configuration()
class DemoCommand:
    """Watch a trained policy play behind noise, video and nothing, on a page in your browser."""

    seed: Natural = 0
    """Which episodes; evaluation seeds, as of `sibe eval`."""
    port: Annotated[int, Bounds(0, 65535)] = 0
    """Port of the page on 127.0.0.1; 0 takes one that is free."""
    browser: bool = True
    """Open the page, where there is a display."""
    save: Path | None = None
    """Write the page to this .html file instead of serving it."""

    def run(self) -> int:
        """Serve the page until Ctrl-C, or write it."""
        from sibe.watch.demo import Demo
        from sibe.watch.saving import check_html, save_page
        from sibe.watch.serve import serve

        demo = Demo(self.seed)
        if self.save is None:
            serve(
                demo.answers(),
                port=self.port,
                browser=self.browser,
                meanwhile=lambda: demo.play_all(_say),
            )
            return 0
        check_html(self.save)
        demo.play_all(_say)
        save_page(self.save, demo.saved())
        return 0


def _say(line: str) -> None:
    print(line, flush=True)
