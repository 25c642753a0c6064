"""Conversion of the `runtime` argument of public methods (None, address, client, cluster, `Runtime`) to a `Runtime`."""

import contextlib
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bcmdist.api.notebook import learning_shown
from bcmdist.errors import InvalidOption
from bcmdist.runtime.interface import Runtime, SerialRuntime
from bcmdist.runtime.threads import one_thread

# From this many rows on a local cluster is started: about fifty experts take as long as the start. Arbitrary.
WORTH_ROWS = 50_000

Where = Any
"""None (a notebook's active Dask client, or serial, in this process), a `Runtime`, the address of a Dask scheduler, a
Dask client or cluster object"""
Method = TypeVar("Method", bound=Callable[..., Any])


@contextlib.contextmanager
def running(runtime: Where) -> Iterator[Runtime]:
    """Context manager: the runtime for an argument of type `Where`. BLAS uses one thread in this process meanwhile.

    A `Runtime` passed in is not closed on exit. A notebook shows the progress of learning; where it has an active Dask
    client, None is that client.

    Raises
    ------
    InvalidOption, SchedulerUnreachable, VersionMismatch
    """
    runtime = runtime if runtime is not None else _active()
    with one_thread(), learning_shown(), contextlib.ExitStack() as opened:
        if runtime is None:
            yield SerialRuntime()
        elif hasattr(runtime, "check_same"):
            yield runtime
        else:
            from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

            address_of(runtime)  # raises the error that names all choices
            yield opened.enter_context(DaskRuntime(runtime))


@contextlib.contextmanager
def running_for(runtime: Where, rows: int) -> Iterator[Runtime]:
    """As `running`, for rows in memory, which workers read from this machine's directory for temporary files.

    None starts a local cluster where `worth_a_cluster(rows)` and no Dask client is active; it is an active client only
    if its workers run on this machine.
    """
    if runtime is None and (client := _active()) is not None:
        runtime = client if _is_near(client) else SerialRuntime()
    if runtime is None and worth_a_cluster(rows):
        from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

        with DaskRuntime() as ours:
            yield ours
    else:
        with running(runtime) as place:
            yield place


def worth_a_cluster(rows: int) -> bool:
    """Whether to start a local cluster for a fit to this many rows without an explicit runtime.

    1. Not below `WORTH_ROWS`: starting the processes takes some seconds, as do the experts of that many rows.
    2. Not on one core, and not in a child process of `multiprocessing`.
    3. Not in a script: each new process would import the script, and run again whatever is not guarded by
       `if __name__ == "__main__"`. A notebook or a prompt has no `__file__`. Scripts must pass a runtime.
    """
    return rows >= WORTH_ROWS and (os.cpu_count() or 1) > 1 and _interactive()


def _interactive() -> bool:
    return multiprocessing.parent_process() is None and not hasattr(sys.modules["__main__"], "__file__")


def _active() -> Any:
    """Return the Dask client that is active in a notebook or at a prompt; None in scripts, which pass theirs."""
    if not _interactive() or "distributed" not in sys.modules:
        return None
    from bcmdist.runtime.dask.existing import active_client  # quick start

    return active_client()


def _is_near(client: Any) -> bool:
    from bcmdist.runtime.dask.existing import on_this_machine  # quick start

    return on_this_machine(client)


def address_of(runtime: Where) -> str:
    """Return the scheduler address of a Dask client or cluster object, or the address itself.

    Raises
    ------
    InvalidOption
        `runtime` is neither a client, nor a cluster object, nor an address.
    """
    scheduler = getattr(runtime, "scheduler", None)
    address = getattr(runtime, "scheduler_address", None) or getattr(scheduler, "address", None)
    address = runtime if isinstance(runtime, str) else address
    if not isinstance(address, str) or not address:
        raise InvalidOption(
            "runtime: expected None, a Dask client or cluster, the address of a scheduler or a bcmdist runtime, got "
            f"{type(runtime).__name__}; give one of these"
        )
    return address


def runs(method: Method) -> Method:
    """Decorator: the method receives a `Runtime`; its callers may pass anything that `running` accepts."""

    @functools.wraps(method)
    def run(*args: Any, runtime: Where = None, **kwargs: Any) -> Any:
        with running(runtime) as place:
            return method(*args, runtime=place, **kwargs)

    return run  # type: ignore[return-value]
