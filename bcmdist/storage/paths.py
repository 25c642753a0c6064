"""Errors of paths on a disk: full disks, symbolic links without a target, and folders that hold no files."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

from bcmdist.errors import DiskFull, NotAFile

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk full, quota exceeded, file size limit


@contextlib.contextmanager
def room_for(place, needed: int | None = None) -> Iterator[None]:
    """Turn a full-disk error into `DiskFull` while `needed` bytes (None: unknown) are written to `place`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFull) or error.errno not in FULL:
            raise
        what = "what was to be written" if needed is None else f"{needed / 1e6:.3g} MB"
        raise disk_full(place, error, what) from error


def make_folders(path, place) -> None:
    """Make a folder and its parents, in order to write `place`.

    Raises
    ------
    DiskFull
    NotAFile
        No files can be made in a parent folder, such as /proc.
    """
    try:
        with room_for(place):
            os.makedirs(path, exist_ok=True)
    except FileNotFoundError as error:
        if leads_nowhere(path):
            raise
        raise makes_nothing(place) from error


def makes_nothing(place) -> NotAFile:
    """Return the error for a path in a folder where no files can be made, such as /proc."""
    return NotAFile(
        f"{place}: expected a folder in which files can be made, found one in which none can be made; choose another"
    )


def disk_full(place, error, needed) -> DiskFull:
    """Return the error for a full disk, with path and free space."""
    return DiskFull(
        f"{place}: expected room for {needed}, got: {error.strerror} ({_free(place) / 1e6:.3g} MB free there); free "
        "some, then repeat the command"
    )


def _free(place):
    """Return the free bytes on the disk of a path, which need not exist."""
    path = os.path.abspath(place)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def leads_nowhere(path) -> str:
    """Describe the first broken symbolic link, from the path upwards; return "" if there is none."""
    path = str(path)
    while "://" not in path and path != os.path.dirname(path):
        if os.path.islink(path) and not os.path.exists(path):
            return f"{path} is a link to {os.readlink(path)}, which is not there"
        path = os.path.dirname(path)
    return ""
