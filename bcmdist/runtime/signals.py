"""Signal handling: how SIGINT and SIGTERM stop a command.

In this module a request is a signal that asks the process to stop.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

REQUESTS = (signal.SIGINT, signal.SIGTERM)
AGAIN_SECONDS = 0.02  # until a signal that cannot be handled now is sent again; arbitrary


def heeded(*requests) -> tuple[int, ...]:
    """Return the signals among `requests` that this process does not ignore."""
    return tuple(number for number in requests if signal.getsignal(number) not in (signal.SIG_IGN, None))


@contextlib.contextmanager
def interruptible(*requests) -> Iterator[None]:
    """Context in which the signals `requests` raise `KeyboardInterrupt`, even if they were ignored before, as SIGINT is
    in a background job of a shell.

    If other code converts the interrupt into another exception, that exception becomes `KeyboardInterrupt` again. The
    signal is sent again later if the interrupt would be lost at the current point (`_deaf`), or if a destructor or a
    callback, whose exceptions are only printed, has swallowed it. Afterwards asyncio does not report calls of Dask's
    client that the interrupt has cut off (`_unexpected`).
    """
    received: list[int] = []

    def interrupt(number, frame):
        if _deaf(frame):
            _repeat(number)
        else:
            received.append(number)
            logging.getLogger("asyncio").addFilter(_unexpected)
            raise KeyboardInterrupt

    with _handled_by(interrupt, requests), _repeated_if_swallowed(received):
        try:
            yield
        except Exception as error:
            if received:
                raise KeyboardInterrupt from error
            raise


def _unexpected(record):
    """Whether a log record of asyncio is about more than a result that nobody fetched because of the interrupt."""
    return not record.exc_info or record.exc_info[0].__name__ != "AllExit"


def _repeat(number):
    """Send a signal to this process again after `AGAIN_SECONDS`."""
    again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


@contextlib.contextmanager
def _repeated_if_swallowed(received):
    """Context that sends the last received signal again if its `KeyboardInterrupt` was unraisable."""
    before = sys.unraisablehook

    def unraisable(error):
        if received and isinstance(error.exc_value, KeyboardInterrupt):
            _repeat(received[-1])
        else:
            before(error)

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = before


def _deaf(frame):
    """Whether an exception raised at this frame would be lost, or would do more than interrupt.

    1. During an import: it may be loading a C library, or run where exceptions are only printed.
    2. Within an `exec` of a string: Python would end by the signal even if the interrupt is caught.
    """
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        return True
    while frame is not None and frame.f_back is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == ("<string>", "<module>"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def finished_first() -> Iterator[None]:
    """Context that defers the first SIGINT or SIGTERM until its end; a second signal interrupts at once."""
    received: list[int] = []
    with _handled_by(_note_in(received), heeded(*REQUESTS)):
        yield
    if received:
        signal.raise_signal(received[0])


@contextlib.contextmanager
def withheld(*requests) -> Iterator[None]:
    """Context in which these signals are blocked; processes started in it inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):  # no signal masks on this platform
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, requests)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def deferred_interrupts(received: list[int]) -> contextlib.AbstractContextManager[None]:
    """Context in which the first signal is only appended to `received`, so that current work finishes; the second
    raises `KeyboardInterrupt`."""
    return _handled_by(_note_in(received), REQUESTS)


def _note_in(received):
    def note(number, frame):
        if received:
            raise KeyboardInterrupt
        received.append(number)

    return note


@contextlib.contextmanager
def _handled_by(handler, requests):
    mine = threading.current_thread() is threading.main_thread()  # other threads may not set handlers
    before = {number: signal.signal(number, handler) for number in requests if mine}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
