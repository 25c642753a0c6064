import re
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.partition import Partition, aligned_partitions, partitions, refuse_overlap, steady_partitions
from bcmdist.data.row_ranges import RowRanges
from bcmdist.data.rows import read_all, read_rows, row_numbers
from bcmdist.errors import DataDamaged, DataNotFound, InvalidData, InvalidDtype, InvalidOption, MisalignedChunks

MANY = {"rows": st.integers(1, 5000), "chunk_rows": st.integers(1, 3000), "wanted": st.integers(1, 1500)}


def remaining_parts(parts, keys):
    absorbed = RowRanges(keys)
    return [left for part in parts for left in absorbed.remaining(part)]


def shape_only(rows, chunk_rows=100):
    return Dataset("data.zarr", "X", "y", rows, 3, chunk_rows, False)


@given(**MANY)
def test_partitions_cover_every_row_once_along_chunks(rows, chunk_rows, wanted):
    parts = partitions(shape_only(rows, chunk_rows), wanted)
    assert [p.start for p in parts] == [0, *(p.stop for p in parts[:-1])]
    assert parts[-1].stop == rows
    assert all(p.rows > 0 for p in parts)
    assert len({p.key for p in parts}) == len(parts)
    for p in parts:
        inside = p.start // chunk_rows == (p.stop - 1) // chunk_rows
        whole = p.start % chunk_rows == 0 and (p.stop % chunk_rows == 0 or p.stop == rows)
        assert inside or whole
        assert p.rows <= 2 * wanted or whole


@settings(deadline=None)
@given(**MANY, more=st.integers(0, 3000))
def test_steady_partitions_stay_as_they_are_when_rows_are_added(rows, chunk_rows, wanted, more):
    now, later = (steady_partitions(shape_only(n, chunk_rows), wanted) for n in (rows, rows + more))
    assert [p.key for p in now] == [p.key for p in later][: len(now)]
    stop = now[-1].stop if now else 0
    assert [p.start for p in now] == [0, *(p.stop for p in now[:-1])][: len(now)]
    assert rows - stop < 1.5 * max(wanted, chunk_rows)
    last = rows // chunk_rows * chunk_rows
    batch = [p.key for p in partitions(shape_only(rows, chunk_rows), wanted)]
    assert all(p.key in batch for p in now if p.stop <= last)


def ranges_of(draw_from):
    return st.lists(st.tuples(st.integers(0, draw_from), st.integers(1, 30)), max_size=12)


@given(ranges_of(100), st.integers(1, 40), st.randoms())
def test_unheard_rows_are_those_that_no_key_names(absorbed, wanted, random):
    data, other = shape_only(120, 10), Dataset("other.zarr", "X", "y", 120, 3, 10, ())
    keys = [Partition(data, a, a + n).key for a, n in absorbed] + [Partition(other, 0, 120).key]
    random.shuffle(keys)
    parts = partitions(data, wanted)
    random.shuffle(parts)
    left = remaining_parts(parts, keys)
    named = {row for a, n in absorbed for row in range(a, a + n)}
    covered = [row for part in left for row in range(part.start, part.stop)]
    assert set(covered) == set(range(120)) - named
    assert len(set(covered)) == len(covered)
    whole = [part for part in parts if named.isdisjoint(range(part.start, part.stop))]
    assert [part for part in left if part in parts] == whole  # the same partitions, in the same order
    assert remaining_parts(left, keys) == left
    assert remaining_parts(parts, [part.key for part in parts]) == []
    refuse_overlap(left, list({Partition(data, a, a + 1).key for a in named}))


def test_the_tail_of_a_partition_that_was_heard_shorter():
    part = Partition(shape_only(1000), 900, 1000, weight=2.0)
    (left,) = remaining_parts([part], [Partition(shape_only(950), 900, 950).key])
    assert left == Partition(shape_only(1000), 950, 1000, weight=2.0)


def test_one_large_chunk_is_cut_into_even_ranges():
    parts = partitions(shape_only(65_536, 65_536), 1000)
    assert len(parts) == 66
    assert {p.rows for p in parts} == {992, 993}


def test_small_chunks_are_joined():
    assert {p.rows for p in partitions(shape_only(3000, 100), 1000)} == {1000}


def test_aligned_partitions_own_whole_output_chunks():
    assert [(p.start, p.stop) for p in aligned_partitions(shape_only(250), 100)] == [(0, 100), (100, 200), (200, 250)]


def test_key_does_not_depend_on_the_working_directory(wave, monkeypatch, tmp_path):
    path, *_ = wave
    monkeypatch.chdir(tmp_path)
    assert partitions(open_data("wave.zarr"), 100)[0].key == partitions(open_data(path), 100)[0].key


def test_rows_per_expert_must_be_positive():
    with pytest.raises(InvalidOption, match="rows per expert: expected at least 1, got 0"):
        partitions(shape_only(10), 0)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
def test_rows_are_read_exactly_from_both_formats(tmp_path, rng, zarr_format, dtype):
    X = (10 * rng.standard_normal((37, 3))).astype(dtype)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("X", data=X, chunks=(10, 2))
    group.create_array("y", data=X[:, 0], chunks=(10,))
    rows = [r for _, r in read_all(partitions(open_data(tmp_path / "a.zarr"), 8))]
    np.testing.assert_array_equal(np.concatenate([r.X for r in rows]), X.astype(float))
    np.testing.assert_array_equal(np.concatenate([r.obs.y for r in rows]), X[:, 0].astype(float))


def test_shards_count_as_chunks(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", shape=(80, 2), dtype="f8", chunks=(10, 2), shards=(40, 2))[...] = 1.0
    group.create_array("y", shape=(80,), dtype="f8", chunks=(40,))[...] = 1.0
    assert [p.rows for p in partitions(open_data(tmp_path / "a.zarr"), 40)] == [40, 40]


def test_urls_of_other_stores_are_read(rng):
    group = zarr.open_group("memory://bcmdist-test/a.zarr", mode="w")
    group.create_array("X", data=rng.standard_normal((6, 2)))
    group.create_array("y", data=rng.standard_normal(6))
    assert open_data("memory://bcmdist-test/a.zarr").rows == 6


def test_digest_names_the_content(make_data, rng):
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    changed = X.copy()
    changed[3, 1] = np.nextafter(changed[3, 1], 9)

    def digests(name, **columns):
        return [r.digest for _, r in read_all(partitions(open_data(make_data(name, 10, **columns)), 10))]

    first = digests("a.zarr", X=X, y=y)
    assert first == digests("b.zarr", X=X, y=y)
    other = digests("c.zarr", X=changed, y=y)
    assert (first[0] == other[0], first[1] == other[1]) == (False, True)
    assert first != digests("d.zarr", X=X, y=y, weight=np.full(20, 2.0))


def test_neighbours_are_read_in_one_go(wave, monkeypatch):
    path, *_ = wave
    reads = []
    import bcmdist.data.rows as module

    original = module._read
    monkeypatch.setattr(module, "_read", lambda data, a, b: reads.append((a, b)) or original(data, a, b))
    parts = partitions(open_data(path), 25)
    list(read_all([*parts[:3], parts[5]]))
    assert reads == [(0, 75), (125, 150)]


# --- Bad input: each error names what came, where, and what to do ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_numbers_that_are_not_finite(make_data, value):
    X, y, shown = np.ones((100, 5)), np.ones(100), re.escape(str(value))
    X[41, 3] = X[43, 0] = y[77] = value
    data = open_data(make_data(X=X, y=np.ones(100)))
    with pytest.raises(InvalidData, match=rf"in X, got {shown} at row 41, column 3 \(chunk 0; 2 such values in rows 0"):
        list(read_all(partitions(data, 50)))
    data = open_data(make_data("b.zarr", X=np.ones((100, 5)), y=y))
    with pytest.raises(InvalidData, match=rf"in y, got {shown} at row 77 \(chunk 1;"):
        list(read_all(partitions(data, 50)))


def test_a_damaged_chunk_is_named(make_data, tmp_path):
    path = make_data(X=np.random.default_rng(0).standard_normal((100, 2)), y=np.ones(100))
    chunk = tmp_path / "data.zarr/X/c/1/0"
    data = bytearray(chunk.read_bytes())
    for broken in (bytes([data[0] ^ 1]) + data[1:], data[: len(data) // 2], b""):
        chunk.write_bytes(broken)
        with pytest.raises(DataDamaged, match=r"key X/c/1/0: (its hash differs|\d+ of \d+ bytes)"):
            list(read_all(partitions(open_data(path), 50)))


def test_a_missing_chunk_is_not_read_as_zeros(make_data, tmp_path):
    path = make_data(X=np.zeros((100, 2)), y=np.zeros(100))
    assert open_data(path).rows == 100  # zeros that were stored are data
    (tmp_path / "data.zarr/X/c/1/0").unlink()
    with pytest.raises(DataDamaged, match=r"expected all chunks of X, some are missing \(key X/c/1/0\); restore"):
        open_data(path)


def test_metadata_that_cannot_be_read(make_data, tmp_path):
    path = make_data(X=np.ones((4, 2)), y=np.ones(4))
    (tmp_path / "data.zarr/X/zarr.json").write_text("{nonsense")
    with pytest.raises(DataDamaged, match="the metadata of X cannot be read"):
        open_data(path)


def test_weights_must_be_positive(make_data):
    data = open_data(make_data(X=np.ones((4, 1)), y=np.ones(4), weight=np.array([1.0, 2.0, 0.0, 1.0])))
    with pytest.raises(InvalidData, match=r"positive weights, got 0.0 at row 2; drop the row"):
        list(read_all(partitions(data, 10)))


def raw_group(tmp_path, **arrays):
    group = zarr.open_group(tmp_path / "raw.zarr", mode="w")
    for name, (value, chunks) in arrays.items():
        group.create_array(name, data=value, chunks=chunks)
    return tmp_path / "raw.zarr"


BAD = {
    "no target": ({"X": (np.ones((4, 2)), (4, 2))}, DataNotFound, r"expected an array 'y', found \['X'\]; name"),
    "complex": (
        {"X": (np.ones((4, 2), complex), (4, 2)), "y": (np.ones(4), (4,))},
        InvalidDtype,
        "real numbers in X, got dtype complex128; convert",
    ),
    "text": (
        {"X": (np.ones((4, 2)), (4, 2)), "y": (np.array(["a"] * 4, "U1"), (4,))},
        InvalidDtype,
        "real numbers in y, got dtype <U1",
    ),
    "one column": (
        {"X": (np.ones(4), (4,)), "y": (np.ones(4), (4,))},
        InvalidData,
        r"X with shape \(N, D\), got \(4,\)",
    ),
    "two targets": (
        {"X": (np.ones((4, 2)), (4, 2)), "y": (np.ones((4, 2)), (4, 2))},
        InvalidData,
        r"y with shape \(N,\), got \(4, 2\); store one target",
    ),
    "lengths": (
        {"X": (np.ones((4, 2)), (4, 2)), "y": (np.ones(5), (5,))},
        InvalidData,
        "expected 4 rows in y as in X, got 5",
    ),
    "chunks": (
        {"X": (np.ones((40, 2)), (10, 2)), "y": (np.ones(40), (7,))},
        MisalignedChunks,
        "nest with the 10 rows per chunk of X, got 7 rows; rechunk y to 10",
    ),
    "empty": (
        {"X": (np.ones((0, 2)), (1, 2)), "y": (np.ones(0), (1,))},
        InvalidData,
        r"at least one row and one column in X, got shape \(0, 2\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:The data type")  # zarr has no v3 specification for text yet
def test_refused_before_rows_are_read(tmp_path, case):
    arrays, error, text = BAD[case]
    with pytest.raises(error, match=text):
        open_data(raw_group(tmp_path, **arrays))


@pytest.mark.parametrize("place", ["nothing", "file", "folder"])
def test_no_zarr_group(tmp_path, place):
    path = tmp_path / "a.zarr"
    if place == "file":
        path.write_text("x")
    if place == "folder":
        path.mkdir()
    with pytest.raises(DataNotFound, match=r"expected a Zarr group at .*a.zarr, found none .* `bcmdist import"):
        open_data(path)


def test_some_rows_are_those_of_the_whole(make_data, rng):
    columns = {"X": rng.standard_normal((90, 3)), "y": rng.standard_normal(90), "exposure": rng.uniform(1, 2, 90)}
    data = open_data(make_data("d.zarr", rows_per_chunk=20, **columns))
    for rows in [np.array([0, 19, 20, 63, 89]), np.arange(90), np.array([41])]:
        X, obs = read_rows(data, rows)
        np.testing.assert_array_equal(X, columns["X"][rows])
        np.testing.assert_array_equal(obs.y, columns["y"][rows])
        np.testing.assert_array_equal(obs.exposure, columns["exposure"][rows])
        np.testing.assert_array_equal(obs.weight, 1.0)
        assert X.dtype == obs.y.dtype == np.float64
    inputs_only = open_data(data.url, y=None)
    assert np.all(np.isnan(read_rows(inputs_only, np.array([3, 4]))[1].y))


def test_a_damaged_chunk_is_refused_by_who_reads_some_rows(make_data, rng):
    data = open_data(make_data("d.zarr", rows_per_chunk=20, X=rng.standard_normal((90, 3)), y=np.zeros(90)))
    chunk = Path(data.url, "X/c/2/0")
    flipped = bytearray(chunk.read_bytes())
    flipped[30] ^= 1
    chunk.write_bytes(flipped)
    assert read_rows(data, np.array([0, 39, 60]))[0].shape == (3, 3)
    with pytest.raises(DataDamaged, match=r"key X/c/2/0: its hash differs, .*restore"):
        read_rows(data, np.array([10, 45]))


def test_row_numbers_of_a_reordered_data_set(make_data, rng):
    row = rng.permutation(90)
    data = open_data(make_data("d.zarr", rows_per_chunk=20, X=np.zeros((90, 1)), y=np.zeros(90), row=row))
    np.testing.assert_array_equal(row_numbers(Partition(data, 17, 66)), row[17:66])
    assert row_numbers(Partition(data, 17, 66)).dtype == np.int64
