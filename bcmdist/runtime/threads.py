"""Limit BLAS to one thread per task, in every process that computes: client, worker or service.

BLAS threads synchronise in every matrix product. When another busy process occupies one of their cores, all of them
wait for it, and a fit takes ten times as long or more. On an idle machine, matrices of a few thousand rows gain little
from several threads. Use several workers to use several cores.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import threadpoolctl


class _Limit:
    """Reference-counted limit of one BLAS thread in this process; safe to use from any thread.

    Most BLAS libraries have one number of threads for the whole process: the first `acquire` sets the number to 1, and
    the last `release` restores the previous number. A number that was 1 before, or that other code has changed
    meanwhile, is left alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needed = 0
        self._before: dict[str, tuple[Any, int]] = {}
        self._libraries: list[Any] = []
        self._modules = 0

    def acquire(self) -> list[Any]:
        """Limit the libraries loaded so far; return the libraries whose number of threads is set per calling thread."""
        with self._lock:
            if len(sys.modules) != self._modules:  # imports load libraries; searching for them takes a millisecond
                self._libraries = threadpoolctl.ThreadpoolController().lib_controllers
                self._modules = len(sys.modules)
            self._needed += 1
            for library in filter(_of_process, self._libraries):
                if (threads := library.num_threads or 1) > 1:
                    self._before.setdefault(library.filepath, (library, threads))
                    _set(library, 1)
            return [library for library in self._libraries if not _of_process(library)]

    def release(self) -> None:
        """Restore the previous numbers of threads, unless the limit is still in use elsewhere."""
        with self._lock:
            self._needed -= 1
            if self._needed:
                return
            for library, threads in self._before.values():
                if library.num_threads == 1:
                    _set(library, threads)
            self._before.clear()


def _of_process(library: Any) -> bool:
    """Whether a library has one number of threads for the whole process, rather than one per calling thread."""
    by_thread = library.internal_api == "mkl" or getattr(library, "threading_layer", None) == "openmp"
    return library.user_api == "blas" and not by_thread


def _set(library, threads) -> None:
    """Set a process-wide number of threads.

    From version 3.8 on, `threadpoolctl` ignores calls from any thread but the last one that set the number, unless that
    record is cleared.
    """
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
    """Context or decorator in which BLAS has one thread in this process, and OpenMP has one in the calling thread.

    Contexts may be nested and entered by several threads at the same time. Numbers of threads are never raised, and
    importing the package does not change them.
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
