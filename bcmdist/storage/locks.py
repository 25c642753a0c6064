"""Advisory locks of files: one process of a machine at a time. The system releases locks of processes that end."""

import contextlib
import os
import time
from collections.abc import Iterator

from bcmdist.storage.urls import Location, on_objects

try:
    import fcntl
except ImportError:  # not on Windows: there nothing is locked
    fcntl = None  # type: ignore[assignment]

LOOK_SECONDS = 0.005  # between two attempts
TURN_SECONDS = 5.0  # for which a commit waits for others, arbitrary
CAN_LOCK = fcntl is not None


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is made if missing and not removed.

    Raises
    ------
    FileNotFoundError
        The directory of the file is missing.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # this releases the lock


def _locked_within(handle: int, seconds: float) -> bool:
    """Lock an open file; return whether that was possible within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        else:
            return True


@contextlib.contextmanager
def commit_turn(url: Location) -> Iterator[bool]:
    """Hold the lock of those processes of this machine that commit to a model directory; yield whether another process
    held it.

    It only saves work: of two commits at once one fails and is made again, which a slow process beside quick ones may
    have to do many times. After `TURN_SECONDS`, and where there are no such locks (object stores, Windows,
    some network disks), the context is entered without the lock.
    """
    waited = False
    with contextlib.ExitStack() as stack:
        if fcntl is not None and not on_objects(url):
            with contextlib.suppress(OSError):
                handle = os.open(url, os.O_RDONLY)
                stack.callback(os.close, handle)  # this releases the lock
                waited = not _locked_within(handle, 0.0)
                if waited:
                    _locked_within(handle, TURN_SECONDS)
        yield waited


@contextlib.contextmanager
def range_locked(handle: int) -> Iterator[None]:
    """Hold the lock of an open file against other processes; threads of this one must have a lock of their own."""
    fcntl.lockf(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(handle, fcntl.LOCK_UN)
