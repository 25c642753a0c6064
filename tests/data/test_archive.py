"""Data sets in one file: the same as in a directory, and archives that should not be read are refused."""

import contextlib
import io
import zipfile

import numpy as np
import pytest

from bcmdist.data import archive
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.schema import Schema
from bcmdist.data.writing import packed_dataset, write_dataset
from bcmdist.errors import BcmdistError, CorruptChunk, DataNotFound, MissingChunk, UnsafeData

COLUMNS = {"X": np.arange(20.0).reshape(10, 2), "y": np.arange(10.0)}
SCHEMA = Schema(("a", "b"), ())


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rows.zarr.zip").write_bytes(packed_dataset(COLUMNS, rows_per_chunk=4, schema=SCHEMA))
    return tmp_path / "rows.zarr.zip"


def read(path):
    """Values of a data set: inputs and targets of each partition."""
    found = [rows for _, rows in read_all(partitions(open_data(path), 4))]
    return [(rows.X.tolist(), rows.obs.y.tolist(), rows.digest) for rows in found]


def changed(path, change):
    """Rewrite an archive with other members: `change` of name and bytes, None where it is to be left out."""
    with zipfile.ZipFile(path) as before:
        members = {name: change(name, before.read(name)) for name in before.namelist()}
    with zipfile.ZipFile(path, "w") as after:
        for name, data in members.items():
            if data is not None:
                after.writestr(name, data)


def test_rows_are_those_of_a_directory(path, tmp_path):
    write_dataset(tmp_path / "rows.zarr", COLUMNS, rows_per_chunk=4, schema=SCHEMA)
    assert read(path) == read(tmp_path / "rows.zarr")
    assert open_data(path, schema=Schema(("b", "a"), ())).take == (1, 0)


def test_the_same_rows_are_the_same_bytes(path):
    assert path.read_bytes() == packed_dataset(COLUMNS, rows_per_chunk=4, schema=SCHEMA)


def test_compression_is_refused(path):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as after:
        after.writestr("bomb", bytes(10_000))
    with pytest.raises(UnsafeData, match="expected a ZIP archive without compression"):
        open_data(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(path):
    with zipfile.ZipFile(path, "a") as after:
        after.writestr("zarr.json", b"{}")
    with pytest.raises(UnsafeData, match="each byte and name of a ZIP archive once"):
        open_data(path)


def test_bytes_that_several_members_share_are_refused(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as after:
        after.writestr("a", bytes(1000))
        for number in range(9):
            after.filelist.append(zipfile.ZipInfo(f"b{number}"))  # which points to the bytes of the first
            for name in ("file_size", "compress_size", "CRC", "header_offset"):
                setattr(after.filelist[-1], name, getattr(after.filelist[0], name))
    (tmp_path / "shared.zarr.zip").write_bytes(file.getvalue())
    with pytest.raises(UnsafeData, match="each byte and name of a ZIP archive once"):
        open_data(tmp_path / "shared.zarr.zip")


def test_large_archives_are_refused_unread(path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_BYTES", 100)
    monkeypatch.setattr(archive, "read_file", None)
    with pytest.raises(UnsafeData, match="expected at most 100 bytes, the archive has"):
        open_data(path)


def test_a_chunk_that_is_missing_is_named(path):
    changed(path, lambda name, data: None if name == "y/c/1" else data)
    with pytest.raises(
        MissingChunk, match=r"rows\.zarr\.zip: expected all chunks of y, some are missing \(key y/c/1\)"
    ):
        open_data(path)


def test_a_chunk_that_was_changed_is_named(path):
    changed(path, lambda name, data: data[:-1] + b"\0" if name == "y/c/1" else data)
    with pytest.raises(CorruptChunk, match=r"rows\.zarr\.zip: key y/c/1"):
        read(path)


def test_no_flipped_or_missing_byte_goes_unnoticed(path):
    data, expected = path.read_bytes(), read(path)
    for place in range(0, len(data), 11):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with contextlib.suppress(BcmdistError):
            assert read(path) == expected  # a date, say, which is not read
    path.write_bytes(data[:-30])
    with pytest.raises(CorruptChunk, match="expected a ZIP archive, it cannot be read"):
        open_data(path)


def test_nothing_is_named_as_such(tmp_path):
    with pytest.raises(DataNotFound, match="expected a Zarr group at"):
        open_data(tmp_path / "none.zarr.zip")
