"""Where a caller wants work to run, as a runtime: here, on a scheduler by its address, or where a Dask client is."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bcmdist.errors import InvalidOption
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime

Where = Any
"""None for a loop in this process, a `Runtime`, the address of a Dask scheduler, or a Dask client"""
Method = TypeVar("Method", bound=Callable[..., Any])


@contextlib.contextmanager
def running(runtime: Where) -> Iterator[Runtime]:
    """A runtime for as long as it is needed; one that was given is left open.

    Raises
    ------
    InvalidOption, SchedulerUnreachable, VersionMismatch
    """
    if runtime is None:
        yield SerialRuntime()
    elif hasattr(runtime, "check_same"):
        yield runtime
    else:
        from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

        with DaskRuntime(address_of(runtime)) as ours:
            yield ours


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
