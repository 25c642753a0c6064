"""The canary: a passing entry in a model directory, to see who can read what is written there."""

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def canary(store) -> Iterator[Callable[[], str]]:
    """A passing entry, to see who can read this directory: yields a probe that reads it.

    The probe returns the entry's text on every machine that shares the directory.
    """
    name, text = f"canary/{uuid.uuid4().hex}", uuid.uuid4().hex
    store.storage.put_if_absent(name, text.encode())
    try:
        yield functools.partial(_read_text, store.storage, name)
    finally:
        store.storage.remove(name)


def _read_text(storage, name):
    return storage.get(name).decode()
