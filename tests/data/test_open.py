"""What holds for every source: the same again, in pieces, from an offset, and nothing where nothing is new."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, from_key, partitions
from bcmdist.data.rows import read_all
from bcmdist.data.sources.delivery import Listed
from bcmdist.data.sources.directory import Directory, GrownArray
from bcmdist.data.sources.open import open_source
from bcmdist.data.writing import append_rows, write_dataset
from bcmdist.errors import BcmdistWarning, DataChanged, DataNotFound, InvalidData, MissingChunk, UnsafeData
from bcmdist.testing import check_source

OPTIONS = {"x": "X", "y": "y", "rows_per_expert": 20}


def some_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, X[:, 0] + rng.standard_normal(n)


def grown(tmp_path, request, watch=True):
    path = tmp_path / "a.zarr"
    for k in range(6):
        append_rows(path, *some_rows(20, k), rows_per_chunk=10)
    return lambda: open_source(path, watch=watch, **OPTIONS)


def still(tmp_path, request):
    return grown(tmp_path, request, watch=False)


def directory(tmp_path, request):
    for k in (3, 1, 2):
        X, y = some_rows(40, k)
        write_dataset(tmp_path / f"{k}.zarr", {"X": X, "y": y}, rows_per_chunk=20)
    return lambda: open_source(tmp_path, watch=True, **OPTIONS)


def stream(tmp_path, request):
    from bcmdist.data.entries import publish

    server = request.getfixturevalue("redis_server")
    for k in range(6):
        publish(server.url(), *some_rows(20, k))
    return lambda: open_source(server.url(), watch=True, consumer="one", **OPTIONS)


SOURCES = {make.__name__: make for make in (grown, still, directory, stream)}


def keys_of(deliveries):
    return [part.key for delivery in deliveries for part in delivery.parts]


def read_on(source, after, most=1):
    """All deliveries there are, a few at a time."""
    found = []
    while more := source.read(after, most):
        assert sum(len(d.parts) for d in more) <= most
        found += more
        after = json.loads(json.dumps(more[-1].offset))
        assert after == more[-1].offset
    return found


def bad(deliveries):
    """Name and error of the only delivery that is bad."""
    (found,) = [delivery.bad for delivery in deliveries if delivery.bad]
    return found


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("kind", SOURCES)
def test_conformance(kind, most, tmp_path, request):
    check_source(SOURCES[kind](tmp_path, request), most=most)


def test_conformance_of_a_list(tmp_path):
    parts = tuple(partitions(open_data(data_set(tmp_path, "a")), 20))
    check_source(lambda: Listed(parts))


@pytest.mark.parametrize("kind", SOURCES)
def test_order_positions_and_lag(kind, tmp_path, request):
    opened = SOURCES[kind](tmp_path, request)
    source = opened()
    assert "://" in source.name or os.path.isabs(source.name)
    lag = source.lag(None)
    assert lag in (6, None)
    whole = source.read(None, 100)
    keys = keys_of(whole)
    assert len(keys) == 6
    assert keys_of(source.read(None, 4)) == keys[:4]
    counted = [None] * 6 if kind == "directory" else [20, 40, 60, 80, 100, 120]  # data sets have no order of their own
    assert [d.position for d in whole] == counted
    for delivery in whole[:2]:  # committed
        source.ack(delivery.offset, keys_of([delivery]))
    source.close()
    restarted = opened()
    assert keys_of(read_on(restarted, whole[1].offset)) == keys[2:]
    assert keys_of(restarted.read(whole[3].offset, 1)) == keys[4:5]
    assert lag is None or restarted.lag(whole[1].offset) == lag * 4 // 6
    restarted.close()


# --- Directories ---


def data_set(folder, name, rows=40, seed=0):
    X, y = some_rows(rows, seed)
    write_dataset(folder / name, {"X": X, "y": y}, rows_per_chunk=20)
    return folder / name


def of_directory(folder, watch=True):
    return Directory(folder, x="X", y="y", rows_per_expert=20, watch=watch)


def stores(deliveries):
    return [os.path.basename(p.data.url) for d in deliveries for p in d.parts]


def test_late_stores_are_delivered_too(tmp_path):
    data_set(tmp_path, "b")
    source = of_directory(tmp_path)
    first = source.read(None, 1)
    data_set(tmp_path, "a")  # late, while b is half delivered
    rest = read_on(source, first[-1].offset)
    assert stores(first + rest) == ["b", "b", "a", "a"]
    data_set(tmp_path, "c")
    assert stores(read_on(source, rest[-1].offset)) == ["c", "c"]
    assert stores(read_on(of_directory(tmp_path), rest[-1].offset)) == ["c", "c"]


def test_a_restart_that_cannot_tell_what_is_new_delivers_all(tmp_path):
    data_set(tmp_path, "b")
    after = of_directory(tmp_path).read(None, 10)[-1].offset
    data_set(tmp_path, "a")
    again = read_on(of_directory(tmp_path), after)
    assert stores(again) == ["a", "a", "b", "b"]
    assert of_directory(tmp_path).read(again[-1].offset, 10) == []


def test_a_restart_opens_only_new_stores(tmp_path, monkeypatch):
    for k in range(5):
        data_set(tmp_path, f"{k}")
    after = of_directory(tmp_path).read(None, 100)[-1].offset
    data_set(tmp_path, "5")
    opened = []
    import bcmdist.data.sources.directory as module

    original = module.open_data
    monkeypatch.setattr(module, "open_data", lambda url, **options: opened.append(url) or original(url, **options))
    assert stores(of_directory(tmp_path).read(after, 100)) == ["5", "5"]
    assert len(opened) == 1


@pytest.mark.parametrize("lacks", ["chunk", "array", "metadata"])
def test_a_store_that_is_being_written_waits(tmp_path, lacks):
    data_set(tmp_path, "a")
    data_set(tmp_path, "b")
    path = {"chunk": "b/X/c/1/0", "array": "b/y/zarr.json", "metadata": "b/zarr.json"}[lacks]
    os.rename(tmp_path / path, tmp_path / "later")
    assert stores(read_on(of_directory(tmp_path), None)) == ["a", "a"]
    name, error = bad(of_directory(tmp_path, watch=False).read(None, 10))
    assert name == str(tmp_path / "b")
    with pytest.raises(MissingChunk, match=r"/b: expected a data set with all its chunks, .* is missing; let its"):
        raise error
    source = of_directory(tmp_path)
    after = source.read(None, 10)[-1].offset
    os.rename(tmp_path / "later", tmp_path / path)
    assert stores(read_on(source, after)) == ["b", "b"]


def test_what_is_no_data_set_yet_is_ignored(tmp_path):
    data_set(tmp_path, "a")
    data_set(tmp_path, ".hidden")
    data_set(tmp_path, "b.zarr.partial-0a1b2c3d")
    (tmp_path / "notes.txt").write_text("x")
    assert set(stores(read_on(of_directory(tmp_path), None))) == {"a"}


def test_links_out_of_the_directory_are_refused(tmp_path):
    data_set(tmp_path, "elsewhere")
    root = tmp_path / "root"
    root.mkdir()
    data_set(root, "a")
    (root / "b").symlink_to(root / "a")
    assert stores(of_directory(root).read(None, 10)) == ["a", "a", "b", "b"]
    (root / "c").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeData, match=r"root/c: expected a data set within .*root, it is a link to .*elsewhere; "):
        of_directory(root).read(None, 10)


def test_a_directory_that_is_gone(tmp_path):
    with pytest.raises(DataNotFound, match="expected a directory of data sets"):
        of_directory(tmp_path / "nothing").read(None, 10)


def test_a_store_that_shrank(tmp_path):
    data_set(tmp_path, "a", rows=60)
    after = of_directory(tmp_path).read(None, 2)[-1].offset
    os.rename(tmp_path / "a", tmp_path / ".a")
    data_set(tmp_path, "a", rows=20)
    data_set(tmp_path, "b", rows=20)
    (_, error), source = bad(of_directory(tmp_path).read(after, 2)), of_directory(tmp_path)
    with pytest.raises(DataChanged, match=r"/a: expected at least the 40 rows that were delivered before, it has 20"):
        raise error
    assert stores(read_on(source, after)) == ["b"]


# --- Data sets that grow ---


def of_array(path, watch=True, rows=20):
    return GrownArray(path, x="X", y="y", rows_per_expert=rows, watch=watch)


def test_a_shrunk_data_set_is_refused(tmp_path):
    append_rows(tmp_path / "a", *some_rows(30), rows_per_chunk=10)
    for watch in (True, False):
        with pytest.raises(DataChanged, match="expected at least the 40 rows that were delivered before, it has 30"):
            of_array(tmp_path / "a", watch).read(40, 5)


def test_growth_leaves_what_was_delivered_as_it_is(tmp_path):
    for wanted, chunk in [(20, 10), (20, 50)]:
        path = tmp_path / f"{wanted}-{chunk}"
        watched, after, absorbed = of_array(path, rows=wanted), None, []
        for k in range(3):
            append_rows(path, *some_rows(91, k), rows_per_chunk=chunk)
            found = read_on(watched, after, most=3)
            after = found[-1].offset if found else after
            absorbed += keys_of(found)
        assert absorbed == keys_of(read_on(of_array(path, rows=wanted), None, most=100))
        batch = keys_of(read_on(of_array(path, watch=False, rows=wanted), None, most=100))
        stop = from_key(absorbed[-1], y="y").stop
        assert 273 - stop < 1.5 * wanted
        full = min(stop, 273 // chunk * chunk)  # a batch cuts the last chunk by the rows it has so far
        in_full_chunks = [[k for k in keys if from_key(k, y="y").stop <= full] for keys in (absorbed, batch)]
        assert in_full_chunks[0] == in_full_chunks[1]


def test_a_foreign_writer_counts_by_whole_chunks_that_are_stored(tmp_path):
    import zarr

    group = zarr.open_group(tmp_path / "a", mode="w")
    X = group.create_array("X", shape=(100, 3), chunks=(10, 2), dtype="f8")
    y = group.create_array("y", shape=(80,), chunks=(20,), dtype="f8")
    weight = group.create_array("weight", shape=(100,), chunks=(10,), dtype="f8")
    source = of_array(tmp_path / "a")
    X[:50], weight[:] = 1.0, 1.0
    assert source.read(None, 9) == []
    y[:60] = 1.0
    assert [d.offset for d in source.read(None, 9)] == [20, 40]
    X[60:, :2] = 1.0  # a chunk is missing before, and others beside
    assert [d.offset for d in source.read(20, 9)] == [40]
    X[50:60] = 1.0
    assert [d.offset for d in source.read(20, 9)] == [40, 60]
    X[60:, 2:] = 1.0
    y.resize((95,))
    y[60:] = 1.0
    assert [d.offset for d in source.read(60, 9)] == [80]  # the last chunks are not full


WRITER = """
import sys, numpy as np
from bcmdist.data.writing import append_rows
for k in range(40):
    append_rows(sys.argv[1], np.full((13, 3), k + 1.0), np.full(13, k + 1.0), rows_per_chunk=10)
"""


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_only_what_was_written(tmp_path):
    path = tmp_path / "a"
    append_rows(path, np.full((13, 3), 7.0), np.full(13, 7.0), rows_per_chunk=10)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    after, absorbed, reads = 0, [], 0
    while 520 + 13 - after >= 20:
        finished = writer.poll() is not None
        for delivery in of_array(path).read(after, 5):
            ((part, rows),) = read_all(delivery.parts)
            assert part.start == after
            assert np.all(rows.X > 0)
            np.testing.assert_array_equal(rows.X, np.repeat(rows.obs.y[:, None], 3, axis=1))
            absorbed.append(rows.obs.y)
            after = delivery.offset
            reads += not finished
    assert writer.wait() == 0
    expected = np.concatenate([np.full(13, 7.0), np.repeat(np.arange(1.0, 41.0), 13)])
    np.testing.assert_array_equal(np.concatenate(absorbed), expected[:after])
    assert reads > 0, "the writer was done before anything was read"


def test_rows_are_appended_only_to_arrays_of_their_shapes(tmp_path):
    path, (X, y) = tmp_path / "a", some_rows(10)
    append_rows(path, X, y, weight=y**2, rows_per_chunk=4)
    for columns in [{"X": X, "y": y}, {"X": X[:, :2], "y": y, "weight": y}, {"X": X, "y": y[1:], "weight": y}]:
        with pytest.raises(
            InvalidData, match=r"/a: expected rows of .*'weight'.*, got .* with lengths .*; give the same"
        ):
            append_rows(path, **columns)
    assert open_data(path).rows == 10
    assert open_data(path).chunk_rows == 4


def test_rows_are_appended_to_what_was_imported(tmp_path):
    data_set(tmp_path, "a", rows=30)
    append_rows(tmp_path / "a", *some_rows(5, 1))
    ((_, rows),) = read_all([Partition(open_data(tmp_path / "a"), 0, 35)])
    np.testing.assert_array_equal(rows.obs.y, np.concatenate([some_rows(30)[1], some_rows(5, 1)[1]]))


@pytest.mark.parametrize("died", ["create_array", "_make_durable"])
def test_a_writer_that_died_at_its_first_rows(tmp_path, monkeypatch, died):
    import bcmdist.data.writing as module

    original, calls = getattr(module, died), []

    def dies(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, died, dies)
        with pytest.raises(KeyboardInterrupt):
            append_rows(tmp_path / "a", *some_rows(9))
    append_rows(tmp_path / "a", *some_rows(7, 1))
    assert open_data(tmp_path / "a").rows == 7


def test_rows_of_a_writer_that_died_do_not_exist(tmp_path, monkeypatch):
    import bcmdist.data.writing as module

    path = tmp_path / "a"
    append_rows(path, *some_rows(25), rows_per_chunk=10)
    calls = []

    def dies(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_make_durable", dies)
        with pytest.raises(KeyboardInterrupt):
            append_rows(path, *some_rows(50, 1))
    for watch in (True, False):
        assert sum(p.rows for d in of_array(path, watch, rows=5).read(None, 99) for p in d.parts) == 25
    append_rows(path, *some_rows(7, 2))
    ((_, rows),) = read_all([Partition(of_array(path, False).read(None, 1)[0].parts[0].data, 0, 32)])
    np.testing.assert_array_equal(rows.X, np.concatenate([some_rows(25)[0], some_rows(7, 2)[0]]))


@pytest.mark.parametrize("watch", [False, True])
def test_what_is_no_data_set_is_left_out_of_a_directory(tmp_path, watch):
    """It stops nothing; what may become one is waited for."""
    write_dataset(tmp_path / "b.zarr", dict(zip("Xy", some_rows(40), strict=True)), rows_per_chunk=20)
    (tmp_path / "a-model/commits").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    source = Directory(tmp_path, watch=watch, **OPTIONS)
    with pytest.warns(BcmdistWarning, match="expected a data set") as told:
        assert source.lag(None) == 2
    found = source.read(None, 10)  # which does not warn again
    assert source.read(found[-1].offset, 10) == []
    assert [delivery.bad for delivery in found] == [None, None]
    expected = [f"{tmp_path}/a-model: expected a data set, found another directory; left out"]
    if not watch:
        expected.append(f"{tmp_path}/empty: expected a data set, found an empty directory; left out")
    assert [str(warning.message) for warning in told] == expected
