"""Where a caller wants work to run, as a runtime: here, on a scheduler by its address, or where a Dask client is."""

import contextlib
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bcmdist.errors import InvalidOption
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.runtime.threads import one_thread

# Rows from which on a cluster of one's own is started: some fifty experts take as long as that; arbitrary.
WORTH_ROWS = 50_000

Where = Any
"""None for a loop in this process, a `Runtime`, the address of a Dask scheduler, or a Dask client"""
Method = TypeVar("Method", bound=Callable[..., Any])


@contextlib.contextmanager
def running(runtime: Where) -> Iterator[Runtime]:
    """A runtime for as long as it is needed; one that was given is left open. BLAS has one thread here meanwhile.

    Raises
    ------
    InvalidOption, SchedulerUnreachable, VersionMismatch
    """
    with one_thread(), contextlib.ExitStack() as opened:
        if runtime is None:
            yield SerialRuntime()
        elif hasattr(runtime, "check_same"):
            yield runtime
        else:
            from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

            security = getattr(runtime, "security", None)
            yield opened.enter_context(DaskRuntime(address_of(runtime), security=security))


@contextlib.contextmanager
def running_for(runtime: Where, rows: int) -> Iterator[Runtime]:
    """As `running`; None also stands for a cluster of this machine's own, where so many rows are worth it."""
    if runtime is None and worth_a_cluster(rows):
        from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

        with DaskRuntime() as ours:
            yield ours
    else:
        with running(runtime) as place:
            yield place


def worth_a_cluster(rows: int) -> bool:
    """Whether processes should share the work.

    1. Not below `WORTH_ROWS`: to start them takes some seconds, as do the experts of that many rows.
    2. Not on one core, and not in a process that somebody has started to share his work.
    3. Not in a script: each process would run it again, but for what it guards by `if __name__ == "__main__"`, which
       nobody is asked to know. A notebook or a prompt has no file; scripts name a runtime.
    """
    several = (os.cpu_count() or 1) > 1 and multiprocessing.parent_process() is None
    return rows >= WORTH_ROWS and several and not hasattr(sys.modules["__main__"], "__file__")


def address_of(runtime: Where) -> str:
    """Address of the scheduler that a client works with, or the one given.

    Raises
    ------
    InvalidOption
        It is neither.
    """
    address = runtime if isinstance(runtime, str) else getattr(getattr(runtime, "scheduler", None), "address", None)
    if not isinstance(address, str) or not address:
        raise InvalidOption(
            "runtime: expected None, a Dask client, the address of a scheduler or a bcmdist runtime, got "
            f"{type(runtime).__name__}; give one of these"
        )
    return address


def runs(method: Method) -> Method:
    """A method whose keyword `runtime` may be all that `running` takes."""

    @functools.wraps(method)
    def run(*args, runtime=None, **kwargs):
        with running(runtime) as place:
            return method(*args, runtime=place, **kwargs)

    return run  # type: ignore[return-value]
