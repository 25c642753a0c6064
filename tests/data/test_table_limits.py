"""Columns and lines beyond any use: refused by name before they take memory."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from bcmdist.data.dataset import open_data, read_schema
from bcmdist.data.schema import MOST_COLUMNS
from bcmdist.data.tables import delimited, tables
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.tables import open_table
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, UnsafeData

pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pa = pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = "expected at most 20,000 columns"


@pytest.mark.parametrize("chunk_columns", [3, 10**6])
def test_metadata_that_declare_many_columns_are_refused(tmp_path, chunk_columns):
    write_dataset(tmp_path / "a.zarr", {"X": np.ones((100, 3)), "y": np.ones(100)})
    path = tmp_path / "a.zarr/X/zarr.json"
    document = json.loads(path.read_text())
    document["shape"] = [100, 10**9]
    document["chunk_grid"]["configuration"]["chunk_shape"] = [100, chunk_columns]
    path.write_text(json.dumps(document))
    for read in (open_data, read_schema):
        with pytest.raises(UnsafeData, match=rf"{COLUMNS} in X, its metadata declare shape \(100, 1000000000\)"):
            read(tmp_path / "a.zarr")


def write(path, text):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wb") as file:
        file.write(text)


def never(*args, **kwargs):
    raise AssertionError("pandas was asked")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_of_many_columns_is_refused_from_its_first_line(tmp_path, monkeypatch, name, mark):
    names = mark.join(f"c{k}" for k in range(100_000))
    write(tmp_path / name, f"{names}\n{mark.join('1' * 100_000)}\n".encode())
    monkeypatch.setattr(delimited.Delimited, "_cells", never)
    with pytest.raises(InvalidData, match=rf"{name}: {COLUMNS}, got 100,000; leave out"):
        open_table(tmp_path / name)


def test_other_tables_of_many_columns_are_refused(tmp_path):
    rows = np.ones((1, MOST_COLUMNS + 2))
    np.save(tmp_path / "a.npy", rows)
    table = pa.table({str(k): values for k, values in enumerate(rows.T)})
    pq.write_table(table, tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=rows, y=rows[:, 0])
    for name in ("a.npy", "a.parquet", "a.npz"):
        with pytest.raises(InvalidData, match=rf"{name}: {COLUMNS}, got 20,00[23]; leave out"):
            import_file(tmp_path / name, tmp_path / "a.zarr")


def test_levels_of_categories_count_as_columns(tmp_path, monkeypatch):
    monkeypatch.setattr("bcmdist.data.schema.MOST_COLUMNS", 5)
    levels = "".join(f"{'abcdef'[k % 6]},{k}\n" for k in range(36))
    (tmp_path / "a.csv").write_text("place,y\n" + levels)
    with pytest.raises(InvalidData, match=r"a.csv: expected at most 5 columns, got 6; leave out"):
        import_file(tmp_path / "a.csv", tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("before", [b"", b"a,y\n1,2\n"], ids=["first line", "third line"])
def test_a_line_that_does_not_end_is_refused_where_it_is_too_long(tmp_path, name, before):
    write(tmp_path / name, before + b"1" * (delimited.MOST_LINE_BYTES + 2**20))
    with pytest.raises(InvalidData, match=rf"{name}: expected lines of at most 1,048,576 bytes, got a longer one"):
        import_file(tmp_path / name, tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


def test_a_quote_that_is_not_closed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "MOST_PIECE_BYTES", 2**20)
    rows = b"1,2\n" * (2**18 - 10)
    (tmp_path / "a.csv").write_bytes(b"a,y\n" + rows)
    assert sum(len(piece["y"].values) for piece in open_table(tmp_path / "a.csv").pieces(1000)) == 2**18 - 10
    (tmp_path / "a.csv").write_bytes(b'a,y\n1,"2\n' + rows * 2)
    with pytest.raises(InvalidData, match=r"a.csv: expected at most 1,048,576 bytes in 65,536 rows, .*quote"):
        list(open_table(tmp_path / "a.csv").pieces())


def test_pieces_of_wide_tables_have_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "PIECE_CELLS", 1000)
    np.save(tmp_path / "a.npy", np.ones((40, 100)))
    assert [len(piece["y"].values) for piece in open_table(tmp_path / "a.npy").pieces()] == [10] * 4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_line_that_does_not_end_takes_little_memory(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(256):
            file.write(b"1" * 2**20)
    program = """
import re, sys
from pathlib import Path
from bcmdist.app.cli.main import cli
try:
    cli(["import", *sys.argv[1:]])
except SystemExit as exit:  # the peak is not that of `resource`, which is inherited from the process before
    peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
    print(exit.code, peak // 1024)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.csv.gz"), str(tmp_path / "a.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    code, megabytes = map(int, done.stdout.split())
    assert "expected lines of at most" in done.stderr
    assert code == 1
    assert megabytes < 400  # of which Python and its packages take 200
