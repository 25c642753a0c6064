"""Storage of a model directory on a disk: named byte strings, written once and durably.

A name is put only if it is absent: of two writers one succeeds, and nothing is overwritten.
"""

import contextlib
import errno
import os
import shutil
import stat
from typing import Any

from bcmdist.errors import InvalidOption, NotAFile
from bcmdist.storage.interface import TEMPORARY
from bcmdist.storage.paths import leads_nowhere, makes_nothing, room_for
from bcmdist.storage.temporary import abandoned, owned
from bcmdist.storage.urls import FORMS, Location

READ_BYTES = 1 << 24  # read at a time; arbitrary
FOLDER_TRIES = 100  # to put a file, while other processes remove its empty folder; arbitrary


class LocalStorage:
    """A directory as storage.

    A put writes a temporary file, fsyncs it, links it to its name (which fails if the name is taken), unlinks the
    temporary file, and fsyncs the directories. A put that has returned, True or False, is durable, even if another
    process made the folders above: after a power cut the name exists with its bytes. The bytes of a put that has not
    returned exist completely or not at all.

    Parameters
    ----------
    disk : provider of the primitive operations: `os`, or a simulated disk that loses unsynced data
    """

    def __init__(self, root: Location, disk: Any = os) -> None:
        if "://" in str(root) or not str(root):
            raise InvalidOption(
                f"model: expected a path on a disk that all workers share, or {FORMS}, got {str(root)!r:.80}; give one"
            )
        self.url = os.path.abspath(root)
        self.disk = disk
        self._durable: set[str] = set()
        self._swept: set[str] = set()

    def __reduce__(self):
        """Workers open it by its path: a module such as `os` cannot be pickled."""
        return LocalStorage, (self.url, *([] if self.disk is os else [self.disk]))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = os.path.join(self.url, name)
        folder = os.path.dirname(path)
        try:
            for _ in range(FOLDER_TRIES - 1):
                with contextlib.suppress(FileNotFoundError):  # another process has removed the folder, which was empty
                    return self._put(folder, path, data)
            return self._put(folder, path, data)
        except NotADirectoryError as error:
            raise _no_folder(folder) from error
        except FileNotFoundError as error:
            if leads_nowhere(self.url):
                raise
            raise makes_nothing(self.url) from error

    def put_own(self, name, data) -> None:
        self.put_if_absent(name, data)

    def _put(self, folder, path, data):
        with room_for(path, len(data)):
            return self._put_there(folder, path, data)

    def _put_there(self, folder, path, data):
        self._make_folder(folder)
        self._sweep(folder)
        absent = not self.disk.access(path, os.F_OK) and self._link(folder, path, data)
        sync_directory(folder, self.disk)
        self._sync_above(folder)
        return absent

    def _link(self, folder, path, data):
        temporary = os.path.join(folder, owned(TEMPORARY))
        handle = self.disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[self.disk.write(handle, view) :]
                self.disk.fsync(handle)
            finally:
                self.disk.close(handle)
            self.disk.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                self.disk.unlink(temporary)
        return True

    def get(self, name: str) -> bytes:
        handle = open_file(os.path.join(self.url, name), disk=self.disk)
        try:
            parts = []
            while part := self.disk.read(handle, READ_BYTES):
                parts.append(part)
            return b"".join(parts)
        finally:
            self.disk.close(handle)

    def stored_at(self, name) -> float:
        return os.stat(os.path.join(self.url, name)).st_mtime

    def names(self, folder: str) -> list[str]:
        return sorted(n for n in self._listed(folder) if not n.startswith(TEMPORARY))

    def temporary(self, folder) -> list[str]:
        return [f"{folder}/{n}" for n in self._listed(folder) if n.startswith(TEMPORARY)]

    def _listed(self, folder):
        path = os.path.join(self.url, folder)
        try:
            return self.disk.listdir(path)
        except FileNotFoundError:
            return []
        except NotADirectoryError as error:
            if self.disk.access(path, os.F_OK) and not self._is_file(path):
                raise _no_folder(path) from error
            return []

    def _is_file(self, path):
        try:
            self.disk.close(open_file(path, disk=self.disk))
        except NotAFile:
            return False
        return True

    def remove(self, name: str) -> None:
        path = os.path.join(self.url, name)
        with contextlib.suppress(FileNotFoundError):
            self.disk.unlink(path)
        for folder in (os.path.dirname(path), self.url):
            with contextlib.suppress(OSError):  # not empty, or gone
                self.disk.rmdir(folder)
                self._durable.discard(folder)

    def settle(self, folder) -> None:
        with contextlib.suppress(FileNotFoundError):
            sync_directory(os.path.join(self.url, folder), self.disk)

    def _make_folder(self, folder):
        if self.disk.access(folder, os.F_OK):
            return
        self._make_folder(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            self.disk.mkdir(folder)

    def _sweep(self, folder):
        """Remove temporary files of killed processes from a folder, once per folder."""
        if folder in self._swept:
            return
        for name in abandoned(self.disk.listdir(folder)):
            with contextlib.suppress(OSError):  # already removed, or no permission
                self.disk.unlink(os.path.join(folder, name))
        self._swept.add(folder)

    def _sync_above(self, folder):
        """Make folders durable up to the model directory, once: another process may have made them without a sync."""
        if folder in self._durable:
            return
        with contextlib.suppress(PermissionError):  # a folder of another user, which existed before
            sync_directory(os.path.dirname(folder), self.disk)
        if folder != self.url:
            self._sync_above(os.path.dirname(folder))
        self._durable.add(folder)

    def remove_all(self) -> None:
        shutil.rmtree(self.url, ignore_errors=True)


# Errors of opening or reading something other than a regular file.
NO_FILE = (errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ELOOP)
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a directory", stat.S_IFSOCK: "a socket"}


def open_file(path, flags=os.O_RDONLY, *, disk: Any = os) -> int:
    """Open a regular file and return its descriptor. Pipes, on which opening could block, and devices are refused.

    Raises
    ------
    NotAFile, FileNotFoundError
    """
    try:
        handle = disk.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except NotADirectoryError as error:
        raise _no_folder(os.path.dirname(path)) from error
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise _no_file(path, error.strerror) from error
    mode = disk.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        disk.close(handle)
        raise _no_file(path, KINDS.get(stat.S_IFMT(mode), "a device"))
    return handle


def read_file(path) -> bytes:
    """Return the bytes of a file, opened by `open_file`."""
    with os.fdopen(open_file(path), "rb") as file:
        return file.read()


def _no_file(path, found):
    return NotAFile(f"{path}: expected a file, found {found}; remove it, and restore the file that stood there")


def _no_folder(path):
    return NotAFile(f"{path}: expected a folder, found something else; remove it, and restore what stood there")


def sync_directory(path, disk: Any = os) -> None:
    """Make the names in a directory durable (fsync)."""
    handle = disk.open(path, os.O_RDONLY)
    try:
        disk.fsync(handle)
    finally:
        disk.close(handle)
