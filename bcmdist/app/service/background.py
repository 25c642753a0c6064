"""Background threads with a low priority, so that predictions get the processor first.

On Linux each thread has its own priority. Other systems have priorities per process only: nothing is changed there.
"""

import os
import sys
import threading
from collections.abc import Callable

NICER = 10  # added niceness: a tenth of a core shared with a thread of normal niceness (sched(7))
LEAST = 19  # highest niceness, which is the lowest priority


def lower_priority() -> None:
    """Lower the priority of the current thread below its process's priority; no effect outside Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(LEAST, os.getpriority(os.PRIO_PROCESS, thread) + NICER))


def in_background(work: Callable[[], None], name: str) -> threading.Thread:
    """Start and return a daemon thread with lowered priority."""

    def run():
        lower_priority()
        work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
