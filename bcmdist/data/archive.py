"""Zarr groups stored as one file: NAME.zarr.zip, an uncompressed ZIP archive of the keys, for small data sets.

The archive is built in memory and written as one file. It is also read into memory as a whole; its chunks then pass
the same checks as those of any other group (`bcmdist.data.checks.checked_store`).
"""

import io
import os
import zipfile
from collections.abc import Mapping

from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import MemoryStore

from bcmdist.errors import CorruptChunk, UnsafeData
from bcmdist.storage.disk import read_file
from bcmdist.storage.locate import open_storage
from bcmdist.storage.urls import on_objects

SUFFIX = ".zarr.zip"
LARGEST_BYTES = 2**30  # of a file, which is read as a whole


def packed(store: Mapping[str, Buffer]) -> bytes:
    """Return the keys of an in-memory store as an archive. Equal keys and bytes give an equal archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for key in sorted(store):
            archive.writestr(zipfile.ZipInfo(key), store[key].to_bytes())
    return file.getvalue()


def unpacked(path: str) -> MemoryStore:
    """Read an archive, on a disk or an object store, into a read-only store in memory.

    Raises
    ------
    CorruptChunk
        The file is damaged, or is not a ZIP archive.
    UnsafeData
        The file is too large, or has compressed, encrypted, overlapping or duplicate members.
    """
    data, buffer = _bytes_of(path), default_buffer_prototype().buffer
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if any(one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1 for one in members):
                raise UnsafeData(f"{path}: expected a ZIP archive without compression, got another; unpack it")
            if sum(one.file_size for one in members) > len(data) or len({one.filename for one in members}) < len(
                members
            ):
                raise UnsafeData(
                    f"{path}: expected each byte and name of a ZIP archive once, some are shared; unpack it"
                )
            keys = {one.filename: buffer.from_bytes(archive.read(one)) for one in members}
    except UnsafeData:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, OSError) as error:
        raise CorruptChunk(
            f"{path}: expected a ZIP archive, it cannot be read ({str(error)[:80]}); restore it from a copy"
        ) from error
    return MemoryStore(keys, read_only=True)


def _bytes_of(path):
    if on_objects(path):
        folder, _, name = path.rpartition("/")
        data = open_storage(folder).get(name)
        _refuse_large(path, len(data))
        return data
    _refuse_large(path, os.path.getsize(path))
    return read_file(path)


def _refuse_large(path, size):
    if size > LARGEST_BYTES:
        raise UnsafeData(f"{path}: expected at most {LARGEST_BYTES:,} bytes, the archive has {size:,}; unpack it")
