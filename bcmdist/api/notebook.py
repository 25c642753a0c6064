"""Progress of learning in a notebook: one output that is updated in place."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from bcmdist.runtime.progress import LEARNING, as_line

FIRST_SECONDS, REFRESH_SECONDS = 2.0, 0.5  # before the line appears, and between its updates


class _Line(logging.Handler):
    """Shows the latest evaluation of a search as an output of the running cell."""

    def __init__(self, display: Callable[..., Any]) -> None:
        super().__init__()
        self.display, self.output = display, None
        self.drawn = time.monotonic() + FIRST_SECONDS - REFRESH_SECONDS

    def emit(self, record: logging.LogRecord) -> None:
        """Show an evaluation, unless one was shown a moment ago."""
        now = time.monotonic()
        if now - self.drawn < REFRESH_SECONDS:
            return
        self.drawn = now
        event: Any = record.msg
        self.show(f"learning: {as_line(event)}")

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        bundle = {"text/plain": text}
        if self.output is None:
            self.output = self.display(bundle, raw=True, display_id=True)
        else:
            self.output.update(bundle, raw=True)


@contextlib.contextmanager
def learning_shown() -> Iterator[None]:
    """Context manager: show the progress of learning, if this is the process of a notebook that does not do so yet."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell" or any(isinstance(one, _Line) for one in LEARNING.handlers):
        yield
        return
    line = _Line(import_module("IPython.display").display)
    level, begun = LEARNING.level, time.monotonic()
    LEARNING.addHandler(line)
    LEARNING.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LEARNING.removeHandler(line)
        LEARNING.setLevel(level)
        if line.output is not None:
            line.show(f"learned, {time.monotonic() - begun:.0f} s in all")
