"""One BLAS thread for each task, in every process that computes: this one, a worker, the service.

Threads of BLAS wait for each other in every product. Beside another busy process they wait for as long as it keeps
their core, and a fit takes ten times as long or more; on a free machine, matrices of a few thousand rows gain little.
Several cores are for several workers instead.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import threadpoolctl


class _Limit:
    """One BLAS thread in this process for as long as somebody needs it; any thread may ask.

    Most libraries have one number of threads for the whole process: the first who needs the limit sets it, and the last
    one gives back what was before. A number that was 1 before, or that somebody else has changed meanwhile, is left.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._needed = 0
        self._before: dict[str, tuple[Any, int]] = {}
        self._libraries: list[Any] = []
        self._modules = 0

    def acquire(self) -> list[Any]:
        """Limit the libraries that are loaded by now; those whose number is the calling thread's own are returned."""
        with self._lock:
            if len(sys.modules) != self._modules:  # libraries come with modules; to look for them takes a millisecond
                self._libraries = threadpoolctl.ThreadpoolController().lib_controllers
                self._modules = len(sys.modules)
            self._needed += 1
            for library in filter(_of_process, self._libraries):
                if (threads := library.num_threads or 1) > 1:
                    self._before.setdefault(library.filepath, (library, threads))
                    _set(library, 1)
            return [library for library in self._libraries if not _of_process(library)]

    def release(self) -> None:
        """Give back what was before, where nobody else needs the limit."""
        with self._lock:
            self._needed -= 1
            if self._needed:
                return
            for library, threads in self._before.values():
                if library.num_threads == 1:
                    _set(library, threads)
            self._before.clear()


def _of_process(library) -> bool:
    """Whether all threads share a library's number of threads, as opposed to one for each that calls it."""
    by_thread = library.internal_api == "mkl" or getattr(library, "threading_layer", None) == "openmp"
    return library.user_api == "blas" and not by_thread


def _set(library, threads) -> None:
    """Set a number that all threads share; `threadpoolctl` from 3.8 on ignores threads other than the last that did."""
    let_go = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if let_go is None:
        library.set_num_threads(threads)
        return
    let_go(force=True)
    library.set_num_threads(threads)
    let_go(force=True)


_limit = _Limit()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A context, or a decorator, in which BLAS has one thread in this process, and OpenMP one in this thread.

    Contexts may be nested, and entered by several threads at a time. Numbers of threads are never raised, and importing
    the package changes none.
    """
    own = [(library, library.num_threads) for library in _limit.acquire()]
    try:
        for library, _ in own:
            library.set_num_threads(1)
        yield
    finally:
        for library, threads in own:
            library.set_num_threads(threads)
        _limit.release()
