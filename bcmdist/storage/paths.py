"""What goes wrong with paths on a disk: no room, with path and figures, and links that lead nowhere."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

from bcmdist.errors import DiskFull, NotAFile

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a limit of the size of files


@contextlib.contextmanager
def room_for(place, wanted: int | None = None) -> Iterator[None]:
    """Turn the error of a full disk while `wanted` bytes, or an unknown number, go to a place into `DiskFull`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFull) or error.errno not in FULL:
            raise
        what = "what was to be written" if wanted is None else f"{wanted / 1e6:.3g} MB"
        raise disk_full(place, error, what) from error


def make_folders(path, place) -> None:
    """Make a folder and those above it, where `place` is to be written.

    Raises
    ------
    DiskFull
    NotAFile
        A folder on the way, such as /proc, holds nothing but what it makes itself.
    """
    try:
        with room_for(place):
            os.makedirs(path, exist_ok=True)
    except FileNotFoundError as error:
        if leads_nowhere(path):
            raise
        raise makes_nothing(place) from error


def makes_nothing(place) -> NotAFile:
    """The error of a place in a folder that holds nothing but what it makes itself."""
    return NotAFile(f"{place}: expected a folder in which files can be made, found one that makes none; choose another")


def disk_full(place, error, wanted) -> DiskFull:
    """The error of a full disk in words."""
    return DiskFull(
        f"{place}: expected room for {wanted}, got: {error.strerror} ({_free(place) / 1e6:.3g} MB free there); free "
        "some, then repeat the command"
    )


def _free(place):
    """Bytes that are free where a path leads, or would."""
    path = os.path.abspath(place)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def leads_nowhere(path) -> str:
    """Words about the link on the way to a path that leads nowhere; empty where there is none."""
    path = str(path)
    while "://" not in path and path != os.path.dirname(path):
        if os.path.islink(path) and not os.path.exists(path):
            return f"{path} is a link to {os.readlink(path)}, which is not there"
        path = os.path.dirname(path)
    return ""
