"""Where a model directory lies: named byte strings that are written once, durably.

A name is put if it is absent: of two writers one wins, and nothing is overwritten.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from bcmdist.errors import InvalidOption


class Storage(Protocol):
    """Named byte strings that are written once. Names are relative, with `/` between parts."""

    url: str

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write durably; False, and no effect, where the name is taken."""

    def get(self, name: str) -> bytes:
        """The bytes; FileNotFoundError where there are none."""

    def names(self, folder: str) -> list[str]:
        """Sorted last parts of the names in a folder."""

    def remove(self, name: str) -> None:
        """Forget a name, and folders that it leaves empty; no error where there is none."""


class LocalStorage:
    """A directory: temporary file, fsync, link (which fails if taken), unlink, fsync of the directory."""

    def __init__(self, root):
        if "://" in str(root) or not str(root):
            raise InvalidOption(f"model: expected a path on a disk that all workers share, got {str(root)!r}; give one")
        self.url = os.path.abspath(root)

    def put_if_absent(self, name, data):
        path = Path(self.url, name)
        if path.exists():
            return False
        _make_directory(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
        return True

    def get(self, name):
        return Path(self.url, name).read_bytes()

    def names(self, folder):
        path = Path(self.url, folder)
        return sorted(n for n in os.listdir(path) if not n.startswith(".tmp-")) if path.is_dir() else []

    def remove(self, name):
        path = Path(self.url, name)
        path.unlink(missing_ok=True)
        for folder in (path.parent, Path(self.url)):
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()


def _make_directory(path):
    """Make a directory and its parents, each entry durable."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path):
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_storage(url) -> Storage:
    """The storage behind a path."""
    return LocalStorage(url)
