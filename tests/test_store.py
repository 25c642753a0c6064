import itertools
import json
import math
import os
import stat

import numpy as np
import pytest

from bcmdist.errors import CommitConflict, ModelDamaged, ModelNotFound, VersionMismatch
from bcmdist.store import Entry, open_store


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "model")


def put(store, number, value=1.0, entries=()):
    arrays = store.put_arrays({"a": np.full(3, value), "b": np.eye(2)})
    segments = [store.put_segment(list(entries))]
    return store.commit(number, arrays=arrays, facts={"value": value}, segments=segments, offsets={"source": number})


def test_commits_come_back_bit_for_bit(store):
    entry = Entry("data.zarr/X[0:10]", "d" * 64, 10)
    put(store, 1, 1 / 3, [entry])
    put(store, 2, 2 / 3)
    assert store.head() == 2
    commit = store.load(1)
    assert commit.arrays["a"].tobytes() == np.full(3, 1 / 3).tobytes()
    assert commit.facts == {"value": 1 / 3}
    assert commit.ledger == (entry,)
    assert commit.offsets == {"source": 1}
    assert store.load().number == 2


def test_a_number_is_taken_once(store):
    put(store, 1, 1.0)
    before = store.storage.get("commits/00000001.json")
    with pytest.raises(CommitConflict, match="expected to write commit 1, but it is taken"):
        put(store, 1, 2.0)
    assert store.storage.get("commits/00000001.json") == before


def test_arrays_that_did_not_change_are_stored_once(store):
    put(store, 1, 1.0)
    put(store, 2, 2.0)
    assert len(store.storage.names("blobs")) == 4  # two values of a, one of b, one empty segment


def test_a_blob_without_a_record_is_no_commit(store):
    store.put_arrays({"a": np.ones(3)})
    assert store.head() == 0
    with pytest.raises(ModelNotFound, match=r"expected a model directory, found no commits; .* `bcmdist fit"):
        store.load()


def test_commits_that_do_not_exist_and_files_that_are_none(store, tmp_path):
    put(store, 1)
    put(store, 2)
    (tmp_path / "model/commits/notes.txt").touch()
    assert store.numbers() == [1, 2]
    with pytest.raises(ModelNotFound, match="expected commit 7, it holds 1 to 2; name one of these"):
        store.load(7)


def test_a_canary_leaves_nothing(store, tmp_path):
    with store.canary() as probe:
        assert probe() == probe()
    assert not (tmp_path / "model").exists()


def test_nothing_is_left_of_a_failed_put(store, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    store.storage.put_if_absent("blobs/w", b"data")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.storage.put_if_absent("blobs/x", b"data")
    assert os.listdir(os.path.join(store.storage.url, "blobs")) == ["w"]


def test_every_put_is_synced_and_linked(store, monkeypatch):
    synced = []
    original = os.fsync

    def record(handle):
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        original(handle)

    monkeypatch.setattr(os, "fsync", record)
    store.storage.put_if_absent("commits/x", b"data")
    assert synced == [True, True, False, True]  # where two directories were made; the file; its directory


def flip(path, position=-10):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("position", [5, -40])
def test_a_flipped_bit_in_a_record(store, tmp_path, position):
    put(store, 1)
    flip(tmp_path / "model/commits/00000001.json", position)
    with pytest.raises(ModelDamaged, match="commit 1 does not match its checksum; restore"):
        store.load()


def test_a_flipped_bit_in_a_blob(store, tmp_path):
    put(store, 1)
    digest = store.record(1)["arrays"]["a"]
    flip(tmp_path / "model/blobs" / digest)
    with pytest.raises(ModelDamaged, match=f"blob {digest[:12]} does not match its checksum"):
        store.load()
    os.unlink(tmp_path / "model/blobs" / digest)
    with pytest.raises(ModelDamaged, match=f"blob {digest[:12]} is missing"):
        store.load()


def test_a_newer_format_is_refused(store, tmp_path):
    from bcmdist.store import _canonical, _sha

    put(store, 1)
    path = tmp_path / "model/commits/00000001.json"
    record = json.loads(path.read_text())
    del record["checksum"]
    record["format"] = 99
    path.write_bytes(_canonical(record | {"checksum": _sha(_canonical(record))}))
    with pytest.raises(VersionMismatch, match=r"expected model format 2 or older, got 99; use bcmdist \d"):
        store.load()


def test_arrays_of_objects_are_never_unpickled(store):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        store.put_arrays({"a": np.array([print], dtype=object)})


def entries(count, start=0):
    return [Entry(f"k{i}", f"d{i}", 1, position=i) for i in range(start, start + count)]


@pytest.mark.parametrize(
    "sizes", [[1] * 100, [100, *range(99, 0, -1)], [1, 2, 3, 50, 1, 1, 0, 7], [0], [64, *[1] * 70]]
)
def test_segments_grow_as_a_binary_counter(store, sizes):
    segments, count, written, put = (), 0, 0, store.put_segment

    def counted(lines):
        nonlocal written
        written += len(lines)
        return put(lines)

    store.put_segment = counted
    for size in sizes:
        segments = store.extended(segments, entries(size, count))
        count += size
        lengths = [len(store.get_segment(s)) for s in segments]
        assert all(a >= 2 * b for a, b in itertools.pairwise(lengths))
        assert len(segments) <= 1 + math.log2(max(count, 1))
    assert [e for s in segments for e in store.get_segment(s)] == entries(count)
    assert written <= max(count, 1) * (1 + math.log(max(count, 1), 1.5))


def test_a_ledger_of_many_old_segments_is_merged_by_the_next_commit(store):
    segments = [store.put_segment(entries(1, i)) for i in range(40)]
    assert len(store.extended(segments, entries(1, 40))) == 1


def test_history_reads_no_arrays(store):
    put(store, 1)
    put(store, 2)
    for name in store.storage.names("blobs"):
        store.storage.remove(f"blobs/{name}")
    assert [(line["number"], line["offsets"]) for line in store.history()] == [(1, {"source": 1}), (2, {"source": 2})]
