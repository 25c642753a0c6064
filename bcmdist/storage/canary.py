"""The canary: a temporary entry in a model directory, to check which machines can read the directory."""

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def canary(store) -> Iterator[Callable[[], str]]:
    """Write a temporary entry and yield a probe: a function that reads the entry.

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
