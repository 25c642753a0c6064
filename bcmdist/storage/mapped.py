"""Bytes as memory of a temporary file, of which the operating system keeps the pages that are used.

The file is a copy: another machine may remove the original, which ends a process that has mapped it over a network.
"""

import mmap
import tempfile

LEAST_MAPPED = 1 << 20  # bytes below which a copy is not worth a file


def mapped(data: bytes) -> bytes | mmap.mmap:
    """Return bytes as memory of a temporary file without a name; few of them as they are."""
    if len(data) < LEAST_MAPPED:
        return data
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def forget_pages(data: bytes | mmap.mmap) -> None:
    """Let pages that were read be dropped from the memory of this process; they are read again where needed."""
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)
