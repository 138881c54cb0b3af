"""Ctrl-C as one kind of exception, wherever it arrives.

Libraries with parts in C may answer it with an error of their own: ctypes, and with it OpenGL,
turns a KeyboardInterrupt into an ArgumentError, a half-imported module into an ImportError. So the
signal itself is noted, and whatever ends the work after it counts as the interrupt.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sibe.errors import Stopped


class Interrupts:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.seen = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal: note it, and raise KeyboardInterrupt as Python does."""
        self.seen = True
        signal.default_int_handler(number, frame)

    def check(self) -> None:
        """Raise KeyboardInterrupt if one was swallowed on the way here."""
        if self.seen:
            raise KeyboardInterrupt


@contextmanager
def interruptible(describe: Callable[[], str]) -> Iterator[Interrupts]:
    """Raise ``Stopped`` with what ``describe`` returns if Ctrl-C ends the block.

    A handler that is not Python's own, nor one of these, stays in place.
    """
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler or isinstance(
        getattr(before, "__self__", None), Interrupts
    )
    install = ours and threading.current_thread() is threading.main_thread()
    if install:
        signal.signal(signal.SIGINT, interrupts.note)
    try:
        yield interrupts
    except Stopped:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if interrupts.seen or isinstance(error, KeyboardInterrupt):
            raise Stopped(describe()) from error
        raise
    finally:
        if install:
            signal.signal(signal.SIGINT, before)
