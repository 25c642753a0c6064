"""Outputs that appear under their name whole, or not at all."""

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
from bcmdist.storage.unfinished import partial
from bcmdist.storage.urls import answering, on_objects

# Times that what a failed output has left is removed, and seconds until it is looked at again.
REMOVALS, REMOVAL_SECONDS = 20, 0.1


def refuse_existing(url) -> None:
    """Raise `DataExists` where an output on a local disk would overwrite something."""
    where = absolute_url(url)
    if "://" not in where and os.path.lexists(where):
        found = leads_nowhere(where) or f"{url} exists"
        raise DataExists(f"output: expected a new path, {found}; choose another path or remove it")


@contextlib.contextmanager
def new_output(url) -> Iterator[str]:
    """Where to write a group that is to appear at `url`: all of it, or nothing.

    On a local disk a directory beside it, renamed at the end and removed on failure; a task that
    writes late writes to a name nobody reads. On an object store the URL itself, which is emptied
    on failure: what was not removed lacks chunks, and is refused where it is read. Elsewhere the URL itself.

    Raises
    ------
    DataExists
        There is something at `url`.
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
    """Remove an output that nobody needs."""
    where = absolute_url(url)
    if on_objects(where):
        open_objects(where).remove_all()
    elif "://" not in where:
        _remove(where)


def _remove(place):
    """Until nothing is there: threads that were writing chunks when one of them failed may go on for a while."""
    for _ in range(REMOVALS):
        shutil.rmtree(place, ignore_errors=True)
        time.sleep(REMOVAL_SECONDS)
        if not os.path.exists(place):
            return


@contextlib.contextmanager
def taken_meanwhile(url) -> Iterator[None]:
    """Where an output gets its name: `DataExists` where something has taken it."""
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
        raise InvalidOption(f"output: expected s3://BUCKET/PREFIX, got {url} without a prefix; give one")
    storage = open_objects(where)
    if storage.names(""):
        raise DataExists(f"output: expected a new URL, {url} holds something; choose another path or remove it")
    try:
        with answering(where):
            yield
    except DataExists:  # somebody else was faster
        raise
    except BaseException:
        storage.remove_all()
        raise
