"""Numbers by name that the worker processes of a service share, in a file that each of them maps into its memory."""

import contextlib
import hashlib
import mmap
import os
import threading
from collections.abc import Iterator

import numpy as np

from bcmdist.storage.locks import range_locked

SLOTS, WAYS = 2**14, 8  # slots of a table; slots that a name may take
SLOT = np.dtype([("name", "<u8"), ("level", "<f8"), ("time", "<f8")])


class SharedTable:
    """A level and a time by name; of the names that may take the same slots, those with the oldest time are forgotten.

    Methods may be called from any thread. If a process is killed during a change, that one entry may be wrong.

    Parameters
    ----------
    path : file of the table, made if missing; None: the table is of this process only
    """

    def __init__(self, path: str | None = None):
        self._lock, self._file = threading.Lock(), -1
        size = SLOTS * SLOT.itemsize
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self._file, size)
        self._slots = np.frombuffer(mmap.mmap(self._file, size), dtype=SLOT)

    @contextlib.contextmanager
    def entry(self, name: str) -> Iterator[np.void]:
        """Yield the entry of a name, to be read and changed; no other thread or process has it meanwhile.

        A name without an entry gets a new one, with the level 0 and the time -inf.
        """
        digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        first = digest % (SLOTS - WAYS + 1)
        choice = self._slots[first : first + WAYS]
        of_processes = range_locked(self._file) if self._file >= 0 else contextlib.nullcontext()
        with self._lock, of_processes:
            found = np.flatnonzero(choice["name"] == digest)
            if len(found):
                yield choice[found[0]]
            else:
                slot = choice[np.argmin(np.where(choice["name"] == 0, -np.inf, choice["time"]))]
                slot["name"], slot["level"], slot["time"] = digest, 0.0, -np.inf
                yield slot

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
