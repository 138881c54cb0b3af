"""`sibe watch`: a run on a page that refreshes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from sibe.config.values import Bounds, configuration


@configuration()
class WatchCommand:
    """Watch a run, while it trains or later: curves, metrics and newest video on a page."""

    run_: Positional[Path]
    """A run directory."""
    port: Annotated[int, Bounds(0, 65535)] = 0
    """Port of the page on 127.0.0.1; 0 takes one that is free."""
    browser: bool = True
    """Open the page, where there is a display."""
    save: Path | None = None
    """Write the page to this .html file instead of serving it."""

    def run(self) -> int:
        """Serve the page until Ctrl-C, or write it."""
        from sibe.analysis.runs import read_run
        from sibe.errors import UserError
        from sibe.policy.weights import is_export
        from sibe.watch.saving import check_html, save_page
        from sibe.watch.serve import serve
        from sibe.watch.watch import saved_watch, watch_answers

        read_run(self.run_, str(self.run_))  # later it may vanish; now it is a mistyped path
        if is_export(self.run_):
            raise UserError(
                f"{self.run_} is an exported policy, not a run: give the directory of a run"
            )
        if self.save is None:
            serve(watch_answers(self.run_), port=self.port, browser=self.browser)
            return 0
        check_html(self.save)
        save_page(self.save, saved_watch(self.run_))
        return 0
