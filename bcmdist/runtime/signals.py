"""Interrupts: what a request to stop does to a command."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

REQUESTS = (signal.SIGINT, signal.SIGTERM)
AGAIN_SECONDS = 0.02  # until a request that cannot be heeded now is made once more; arbitrary


def heeded(*requests) -> tuple[int, ...]:
    """Those of the requests that this process does not ignore."""
    return tuple(number for number in requests if signal.getsignal(number) not in (signal.SIG_IGN, None))


@contextlib.contextmanager
def interruptible(*requests) -> Iterator[None]:
    """A context in which requests raise `KeyboardInterrupt`, also those that a shell in the background ignores.

    So do errors that others make of it on its way. It is raised where it can come through (`_deaf`), and once more
    where a destructor or a callback, whose errors are only printed, has swallowed it.
    """
    told: list[int] = []

    def interrupt(number, frame):
        if _deaf(frame):
            _repeat(number)
        else:
            told.append(number)
            raise KeyboardInterrupt

    with _handled_by(interrupt, requests), _repeated_if_swallowed(told):
        try:
            yield
        except Exception as error:
            if told:
                raise KeyboardInterrupt from error
            raise


def _repeat(number):
    """Make a request once more, soon."""
    again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


@contextlib.contextmanager
def _repeated_if_swallowed(received):
    """A context in which the last received request is made once more where its interrupt could not be raised."""
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
    """Whether an interrupt would be lost here, or come to more than one.

    1. In the midst of an import: it may be loading a library in C, or be called where errors are only printed.
    2. Within an `exec` of text: Python would end by the signal, whatever is done about the interrupt.
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
    """A context that is finished before a request that came meanwhile is heeded; the second one is at once."""
    told: list[int] = []
    with _handled_by(_note_in(told), heeded(*REQUESTS)):
        yield
    if told:
        signal.raise_signal(told[0])


@contextlib.contextmanager
def withheld(*requests) -> Iterator[None]:
    """A context in which started processes ignore these signals: they inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):  # where there are no such masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, requests)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def deferred_interrupts(told: list[int]) -> contextlib.AbstractContextManager[None]:
    """A context in which the first request is only noted, so that what is under way is finished; the second raises."""
    return _handled_by(_note_in(told), REQUESTS)


def _note_in(told):
    def note(number, frame):
        if told:
            raise KeyboardInterrupt
        told.append(number)

    return note


@contextlib.contextmanager
def _handled_by(handler, requests):
    mine = threading.current_thread() is threading.main_thread()  # others may not set handlers
    before = {number: signal.signal(number, handler) for number in requests if mine}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
