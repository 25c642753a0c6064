"""Row counts of Parquet footers, which are compared with the values that are stored."""

import struct

import numpy as np
import pytest

from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.tables import open_table
from bcmdist.errors import InvalidData

pa = pytest.importorskip("pyarrow", reason="Parquet: pip install 'bcmdist[tables]'")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 200


def varint(count):
    """A field that is a count, as Thrift's compact protocol writes it."""
    count, digits = 2 * count, []
    while count > 127:
        digits.append(count % 128 + 128)
        count //= 128
    return b"\x16" + bytes([*digits, count])  # the field after the one before, of 64 bits


def forged(path, count, places):
    """A table of `ROWS` rows whose footer says `count` at some of the places where it says `ROWS`."""
    columns = {"a": np.arange(float(ROWS)), "y": np.ones(ROWS)}
    pq.write_table(pa.table(columns), path, write_statistics=False)
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    parts = data[start:-8].split(varint(ROWS))
    assert len(parts) == 5  # the file, two columns, the row group
    counts = [varint(count if k in places else ROWS) for k in range(4)]
    footer = b"".join(part + said for part, said in zip(parts, [*counts, b""], strict=True))
    path.write_bytes(data[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    assert pq.ParquetFile(path).metadata.num_columns == 2


@pytest.mark.parametrize("count", [1, 199, 201, 300])
@pytest.mark.parametrize("places", [{3}, {0, 3}, {0, 1, 2, 3}, {0}], ids=["group", "group, file", "all", "file"])
def test_a_footer_that_miscounts_its_rows_is_refused(tmp_path, count, places):
    forged(tmp_path / "a.parquet", count, places)
    with pytest.raises(InvalidData, match=r"a.parquet: expected .* rows .*; write the file again$") as caught:
        import_file(tmp_path / "a.parquet", tmp_path / "a.zarr")
    assert f"{count} rows" in str(caught.value)
    assert "200 rows" in str(caught.value)
    assert not (tmp_path / "a.zarr").exists()


def test_a_true_footer_is_taken(tmp_path):
    forged(tmp_path / "a.parquet", ROWS, set())
    assert import_file(tmp_path / "a.parquet", tmp_path / "a.zarr")["rows"] == ROWS


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"use_dictionary": True, "write_page_index": True}])
def test_values_are_counted_in_many_pages_and_groups(tmp_path, version, options, rng):
    columns = {
        "long": np.array([("x" * 3000 if k % 7 else "") + str(k) for k in range(1000)], object),
        "gaps": [None if k % 3 else float(k) for k in range(1000)],
        "nothing": pa.nulls(1000),
        "lists": [[1.0] * (k % 4) for k in range(1000)],
        "y": rng.standard_normal(1000),
    }
    options = {"row_group_size": 300, "data_page_size": 2000, "data_page_version": version} | options
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
    pieces = open_table(tmp_path / "a.parquet").pieces(64)
    assert sum(len(piece["y"].values) for piece in pieces) == 1000


def test_no_rows_are_counted_as_none(tmp_path):
    pq.write_table(pa.table({"a": np.empty(0), "y": np.empty(0)}), tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match="expected at least one row without gaps, found none"):
        import_file(tmp_path / "a.parquet", tmp_path / "a.zarr")


def test_pages_that_cannot_be_read_name_the_file(tmp_path):
    forged(tmp_path / "a.parquet", ROWS, set())
    data = tmp_path.joinpath("a.parquet").read_bytes()
    for byte in (0x00, 0x1C, 0xFF):
        (tmp_path / "a.parquet").write_bytes(data[:4] + bytes([byte]) * 20 + data[24:])
        with pytest.raises(InvalidData, match=r"a.parquet: expected "):
            open_table(tmp_path / "a.parquet")
