"""Threads that work while others wait for answers: where two want one core, predictions go first.

On Linux each thread has a priority of its own. Elsewhere priorities are those of processes, and nothing is changed.
"""

import os
import sys
import threading
from collections.abc import Callable

NICER = 10  # than those who answer: a tenth of a core that both want (sched(7))
LEAST = 19  # priority there is, in the same units


def lower_priority() -> None:
    """Lower the priority of this thread below that of its process."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(LEAST, os.getpriority(os.PRIO_PROCESS, thread) + NICER))


def in_background(work: Callable[[], None], name: str) -> threading.Thread:
    """A daemon thread that is started, and whose priority is lower than that of its process."""

    def run():
        lower_priority()
        work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
