"""Advisory locks of files: one process at a time, among those of one machine; the system releases those of the dead."""

import contextlib
import math
import os
import time
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # not on Windows: there nothing is locked
    fcntl = None  # type: ignore[assignment]

LOOK_SECONDS = 0.005  # between two attempts
CAN_LOCK = fcntl is not None


@contextlib.contextmanager
def locked(path: str, *, seconds: float = math.inf) -> Iterator[bool]:
    """Hold the lock of a file, which is made if missing and not removed; yield whether it was free within `seconds`.

    Raises
    ------
    FileNotFoundError
        The directory of the file is missing.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _take(handle, seconds)
    finally:
        os.close(handle)  # this releases the lock


def _take(handle, seconds):
    if fcntl is None:
        return True
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if seconds == math.inf else fcntl.LOCK_NB))
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        else:
            return True


@contextlib.contextmanager
def range_locked(handle: int) -> Iterator[None]:
    """Hold the lock of an open file against other processes; threads of this one must have a lock of their own."""
    fcntl.lockf(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(handle, fcntl.LOCK_UN)
