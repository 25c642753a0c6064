"""Interrupts: what a request to stop does to a command."""

import contextlib
import signal
import threading

REQUESTS = (signal.SIGINT, signal.SIGTERM)


def interruptible(*requests):
    """A context in which requests raise `KeyboardInterrupt`, also those that a shell in the background ignores."""
    return _handled_by(signal.default_int_handler, requests)


def noting(told: list[int]):
    """A context in which the first request is only noted, so that what is under way is finished; the second raises."""

    def note(number, frame):
        if told:
            raise KeyboardInterrupt
        told.append(number)

    return _handled_by(note, REQUESTS)


@contextlib.contextmanager
def _handled_by(handler, requests):
    mine = threading.current_thread() is threading.main_thread()  # others may not set handlers
    before = {number: signal.signal(number, handler) for number in requests if mine}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
