"""Serve a page until the user ends it: open it in the browser, or say how to get there."""

from __future__ import annotations

import getpass
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping

from sibe.experiments.engine import stop_on_signals
from sibe.watch.server import Answers, PageServer

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def serve(
    answers: Answers, *, port: int, browser: bool, meanwhile: Callable[[], None] | None = None
) -> None:
    """Serve ``answers`` until Ctrl-C, SIGTERM or SIGHUP, and do ``meanwhile`` once the page is up.

    Raises:
        KeyboardInterrupt: in the end; the port is free then.
    """
    with stop_on_signals():
        server = PageServer(answers, port)
        with server.running():
            _announce(server, browser)
            if meanwhile is not None:
                meanwhile()
            threading.Event().wait()


def _announce(server: PageServer, browser: bool) -> None:
    print(f"{server.url}  (Ctrl-C ends it)", flush=True)
    if (command := forwarding(server.server_port, os.environ)) is not None:
        print(f"first, on your own machine: {command}", flush=True)
    elif browser and has_display(os.environ):
        webbrowser.open(server.url)


def forwarding(port: int, environ: Mapping[str, str]) -> str | None:
    """Return the command that brings the port to the user's own machine; None if this is it."""
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:  # address and port of the client, address and port of this machine
        return None
    where = f"{getpass.getuser()}@{words[2]}"
    return f"ssh -N -L {port}:127.0.0.1:{port} {where}" + (
        "" if words[3] == "22" else f" -p {words[3]}"
    )


def has_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Tell whether a browser that is opened here would be seen."""
    return platform == "darwin" or any(environ.get(name) for name in _DISPLAYS)
