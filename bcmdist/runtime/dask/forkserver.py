"""The process from which the workers of a local cluster are forked. It imports what they need once.

A command starts it first, so that its imports take place while the command imports and checks its own things.
"""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker

from bcmdist.runtime.signals import withheld

# Modules that are imported once for all local workers: a replacement of a dead worker then starts in a fraction of a
# second.
PRELOADED = [
    "distributed",
    "bcmdist.methods.every",
    "bcmdist.prediction.errors.arrivals",
    "bcmdist.prediction.scored_rows",
    "bcmdist.runtime.dask.connection",
]


def start() -> bool:
    """Start the process unless it runs; return False on systems without fork, where there is none."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return False
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # started first, since it unblocks SIGINT in the calling thread
    with withheld(signal.SIGINT):  # a terminal sends it to all processes; we handle it and end the workers
        forkserver.ensure_running()
    return True
