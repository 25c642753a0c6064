"""Atomic outputs: an output appears under its name complete, or not at all."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator

from bcmdist.data.groups import absolute_url
from bcmdist.errors import DataExists, InvalidOption
from bcmdist.storage.locate import open_objects
from bcmdist.storage.paths import leads_nowhere, make_folders, room_for
from bcmdist.storage.temporary import partial
from bcmdist.storage.urls import FORMS, answering, on_objects

# Attempts to remove a failed output, and seconds between them.
REMOVALS, REMOVAL_SECONDS = 20, 0.1


def refuse_existing(url) -> None:
    """Raise `DataExists` if an output on a local disk would overwrite something."""
    where = absolute_url(url)
    if "://" not in where and os.path.lexists(where):
        found = leads_nowhere(where) or f"{url} exists"
        raise DataExists(f"output: expected a new path, {found}; choose another path or remove it")


@contextlib.contextmanager
def new_output(url) -> Iterator[str]:
    """Yield the path or URL to which to write a group that is to appear atomically at `url`.

    On a local disk this is a temporary directory next to `url`, renamed at the end and removed on failure; a late task
    writes to a name that nobody reads. On an object store it is `url` itself, which is emptied on failure; remaining
    objects lack chunks, so readers refuse them. Elsewhere it is `url` itself, without cleanup.

    Raises
    ------
    DataExists
        Something exists at `url`.
    """
    where = absolute_url(url)
    if on_objects(where):
        with _objects(where, url):
            yield where
        return
    if "://" in where:
        yield where
        return
    refuse_existing(where)
    place = partial(where)
    try:
        make_folders(place, where)
        with room_for(where):
            yield place
        with taken_meanwhile(url):
            os.rename(place, where)
    except BaseException:
        _remove(place)
        raise


def discard(url) -> None:
    """Remove an output that is no longer needed."""
    where = absolute_url(url)
    if on_objects(where):
        open_objects(where).remove_all()
    elif "://" not in where:
        _remove(where)


def _remove(place):
    """Remove a directory, with retries: after a failure other threads may still be writing chunks for a while."""
    for _ in range(REMOVALS):
        shutil.rmtree(place, ignore_errors=True)
        time.sleep(REMOVAL_SECONDS)
        if not os.path.exists(place):
            return


@contextlib.contextmanager
def taken_meanwhile(url) -> Iterator[None]:
    """Raise `DataExists` if another output took the name in the meantime."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise DataExists(
            f"output: expected a new path, something has appeared at {url} meanwhile, perhaps of the same command "
            "elsewhere; choose another path, or remove it"
        ) from error


@contextlib.contextmanager
def _objects(where, url):
    if where.count("/") < 3:
        raise InvalidOption(f"output: expected {FORMS}, got {url} without a prefix; give one")
    storage = open_objects(where)
    if storage.names(""):
        raise DataExists(f"output: expected a new URL, {url} holds something; choose another path or remove it")
    try:
        with answering(where):
            yield
    except DataExists:  # another process was faster
        raise
    except BaseException:
        storage.remove_all()
        raise
