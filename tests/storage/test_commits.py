import itertools
import json
import math
import multiprocessing
import os
import shutil
import stat

import numpy as np
import pytest

from bcmdist.errors import CommitConflict, InvalidOption, ModelDamaged, ModelNotFound, VersionMismatch
from bcmdist.storage import ledger
from bcmdist.storage.commits import open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.leases import is_dead, this_process


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "model")


def put(store, number, value=1.0, entries=()):
    arrays = store.put_arrays({"a": np.full(3, value), "b": np.eye(2)}, before=store.arrays_before(number))
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
    assert len(store.storage.names("blobs")) == 5  # two values of a, one of b, two empty segments


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
    with pytest.raises(ModelNotFound, match="expected commit 7, found 1 to 2; name one of these"):
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
    assert synced == [False, True, True, True]  # the file; its directory, the model's, and the one that holds this


def flip(path, position=-10):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("text", ["[]", "null", "{}", "3", ""])
def test_a_record_that_is_none(store, tmp_path, text):
    put(store, 1)
    (tmp_path / "model/commits/00000001.json").write_text(text)
    with pytest.raises(ModelDamaged, match="commit 1: expected the content of its checksum, found another; restore"):
        store.load()


def test_a_format_that_is_no_number(store, tmp_path):
    from bcmdist.storage.blobs import canonical_json, sha256

    put(store, 1)
    path = tmp_path / "model/commits/00000001.json"
    record = json.loads(path.read_bytes()) | {"format": "x"}
    del record["checksum"]
    path.write_bytes(canonical_json(record | {"checksum": sha256(canonical_json(record))}))
    with pytest.raises(ModelDamaged, match="commit 1: expected the content of its checksum, found another; restore"):
        store.load()


@pytest.mark.parametrize("position", [5, -40])
def test_a_flipped_bit_in_a_record(store, tmp_path, position):
    put(store, 1)
    flip(tmp_path / "model/commits/00000001.json", position)
    with pytest.raises(ModelDamaged, match="commit 1: expected the content of its checksum, found another; restore"):
        store.load()


def test_a_flipped_bit_in_a_blob(store, tmp_path):
    put(store, 1)
    digest = store.record(1)["arrays"]["a"]
    flip(tmp_path / "model/blobs" / digest)
    with pytest.raises(ModelDamaged, match=f"blob {digest[:12]}: expected the content of its checksum"):
        store.load()
    os.unlink(tmp_path / "model/blobs" / digest)
    with pytest.raises(ModelDamaged, match=f"blob {digest[:12]}: expected a file, found none"):
        store.load()


def test_a_newer_format_is_refused(store, tmp_path):
    from bcmdist.storage.blobs import canonical_json, sha256

    put(store, 1)
    path = tmp_path / "model/commits/00000001.json"
    record = json.loads(path.read_text())
    del record["checksum"]
    record["format"] = 99
    path.write_bytes(canonical_json(record | {"checksum": sha256(canonical_json(record))}))
    with pytest.raises(VersionMismatch, match=r"expected model format 6 or older, got 99; use bcmdist \d"):
        store.load()


def test_arrays_of_objects_are_never_unpickled(store):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        store.put_arrays({"a": np.array([print], dtype=object)})


def entries(count, start=0):
    return [Entry(f"k{i}", f"d{i}", 1, position=i) for i in range(start, start + count)]


@pytest.mark.parametrize("sizes", [[1] * 100, [*range(20, 0, -1)], [1, 2, 3, 50, 1, 1, 0, 7], [0], [64, *[1] * 70]])
def test_segments_grow_as_a_binary_counter(store, monkeypatch, sizes):
    segments, count, written, put = (), 0, 0, ledger._put

    def counted(store, made):
        nonlocal written
        written += len(made)
        return put(store, made)

    monkeypatch.setattr(ledger, "_put", counted)
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
    assert [line["operation"] for line in store.history()] == ["prepare", "absorb"]


def heads(store):
    return store.numbers(), store.pruned()


def test_pruning_removes_what_only_old_commits_name(store):
    for number in range(1, 6):
        put(store, number, number, entries(1, number))
    found = store.prune(2)
    assert (found["kept"], found["removed"], found["held"], found["tidied"]) == ([4, 5], [1, 2, 3], {}, 0)
    assert found["blobs"] == 6  # three values of a, three segments
    assert heads(store) == ([4, 5], 3)
    assert [store.load(n).arrays["a"][0] for n in (4, 5)] == [4.0, 5.0]
    with pytest.raises(ModelNotFound, match="expected commit 2, found 4 to 5"):
        store.load(2)
    assert len(store.storage.names("blobs")) == 5
    assert store.prune(2) == {"kept": [4, 5], "removed": [], "held": {}, "blobs": 0, "tidied": 0}


def test_the_newest_commit_cannot_be_pruned(store):
    put(store, 1)
    with pytest.raises(InvalidOption, match="expected at least 1 commit, got 0"):
        store.prune(0)
    assert store.prune(7)["kept"] == [1]
    with pytest.raises(ModelNotFound, match="found no commits"):
        open_store(store.storage.url + "2").prune(1)


def test_a_held_commit_stays_until_it_is_let_go(store):
    for number in range(1, 5):
        put(store, number, number)
    with store.hold(2):
        found = store.prune(1)
        assert (found["kept"], found["removed"]) == ([2, 4], [1, 3])
        assert list(found["held"]) == ["2"]
        assert f"process {os.getpid()} on " in found["held"]["2"][0]
        assert store.load(2).arrays["a"][0] == 2.0
        assert store.numbers() == [2, 4]
    assert store.numbers() == [4]
    assert store.prune(1)["removed"] == [2]
    with pytest.raises(ModelNotFound, match="expected commit 2, found it pruned; load a later one"), store.hold(2):
        pass
    assert store.storage.names("holds") == []


def test_holds_of_dead_processes_are_none(store):
    put(store, 1)
    put(store, 2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(hold_for_ever, (store.storage.url, 1))
        assert list(store.prune(1)["held"]) == ["1"]
        pool.terminate()
        pool.join()
    found = store.prune(1)
    assert (found["held"], found["removed"]) == ({}, [1])
    assert store.storage.names("holds") == []


def hold_for_ever(url, number):
    hold_for_ever.kept = open_store(url).hold(number)
    hold_for_ever.kept.__enter__()


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({}, False),
        ({"host": "elsewhere"}, False),  # nobody here knows
        ({"boot": "before"}, True),
        ({"started": -1}, True),  # its number came again
        ({"namespace": "pid:[1]", "started": -1}, False),
    ],
)
def test_whose_process_is_dead(change, dead):
    assert is_dead(this_process() | change) == dead


def test_what_a_hold_says_may_be_unreadable(store):
    put(store, 1)
    put(store, 2)
    store.storage.put_if_absent("holds/00000001-x", b"torn{")
    assert store.prune(1)["held"] == {"1": ["unreadable holds/00000001-x"]}


def test_loose_blobs_and_temporary_files_go_when_nobody_holds(store):
    put(store, 1)
    store.put_arrays({"c": np.ones(4)})
    open(os.path.join(store.storage.url, "blobs", ".tmp-killed"), "wb").close()
    with store.hold(1):
        assert store.prune(1)["tidied"] == 0
    assert store.prune(1)["tidied"] == 2
    store.load()


def test_what_is_pruned_is_written_once(store):
    for number in range(1, 8):
        put(store, number, number)
        store.prune(1)
        assert store.storage.names("pruned") == [f"{number - 1:08d}"] * (number > 1)


def test_a_number_that_was_pruned_stays_taken(store):
    late = {"arrays": store.put_arrays({"a": np.ones(3)}), "facts": {}, "segments": [], "offsets": {}}
    for number in range(1, 5):
        put(store, number, number)
    store.prune(1)
    with pytest.raises(CommitConflict, match="commit 2, but it is taken"):
        store.commit(2, **late)
    with pytest.raises(CommitConflict, match="commit 2, but it is taken"):
        store.arrays_before(2)
    assert store.recorded() == [4]


def test_the_same_content_of_two_writers_is_two_blobs(store):
    (one,), (two,) = (store.put_arrays({"a": np.arange(3.0)}).values() for _ in range(2))
    assert one != two
    assert store.get_array(one).tobytes() == store.get_array(two).tobytes()
    assert store.put_arrays({"a": np.arange(3.0)}, before={"a": two}) == {"a": two}
    segments = [store.put_segment(entries(2)) for _ in range(2)]
    assert len(set(segments)) == 2
    assert store.get_segment(segments[0]) == store.get_segment(segments[1]) == entries(2)


def test_blobs_that_are_named_by_blobs_stay(store):
    """The ledger names sites, the facts of spatial cells a table of names."""
    names = [store.put_arrays({"": np.full(2, float(i))})[""] for i in range(3)]
    table = store.put_arrays({"": np.array([list(bytes.fromhex(name)) for name in names[:2]], dtype=np.uint8)})[""]
    segments = store.extended((), [Entry("k", "d", 1, state=names[2])])
    facts = {"fit": {"cells": {"halos": table}}}
    for number in (1, 2):
        store.commit(number, arrays={}, facts=facts, segments=segments, offsets={})
    assert store.prune(1)["tidied"] == 0
    assert [store.get_array(name)[0] for name in names] == [0.0, 1.0, 2.0]
    store.commit(3, arrays={}, facts={}, segments=[], offsets={})
    assert store.prune(1)["blobs"] == 5


def test_what_another_prepares_is_not_discarded(store):
    other = open_store(store.storage.url)
    with store.hold(0):
        left = store.put_arrays({"": np.arange(3.0)})[""]
        with other.hold(0):
            other.discard_uncommitted()
        np.testing.assert_array_equal(store.get_array(left), np.arange(3.0))
        store.discard_uncommitted()  # nobody else is there any more
        assert store.storage.names("blobs") == []


def test_commits_and_copies_of_one_model_share_its_identity(store, tmp_path):
    put(store, 1)
    put(store, 2, 2.0)
    identity = store.load(1).identity
    assert len(identity) == 32
    assert store.load(2).identity == identity
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    copy = open_store(tmp_path / "copy")
    put(copy, 3, 3.0)
    assert copy.load().identity == identity


def test_two_models_of_the_same_content_differ_in_identity(store, tmp_path):
    other = open_store(tmp_path / "other")
    put(store, 1)
    put(other, 1)
    assert store.load(1).identity != other.load(1).identity


def test_descent_is_judged_by_identity_and_record_not_by_number(store, tmp_path):
    put(store, 1)
    shutil.copytree(tmp_path / "model", tmp_path / "older")
    second = put(store, 2, 2.0)
    put(store, 3, 3.0)
    identity = store.load(1).identity
    assert store.descends(identity, 2, second.digest)
    older = open_store(tmp_path / "older")
    assert not older.descends(identity, 2, second.digest)  # restored from before that commit
    put(older, 2, 2.5)
    put(older, 3, 3.0)
    assert not older.descends(identity, 2, second.digest)  # went another way since
    another = open_store(tmp_path / "another")
    for number in (1, 2, 3):
        put(another, number, number)
    assert not another.descends(identity, 2, another.reference(2).digest)
    assert not open_store(tmp_path / "nothing").descends(identity, 2, second.digest)


def test_descent_from_a_pruned_commit_is_judged_by_its_number(store):
    references = [put(store, number, number) for number in (1, 2, 3)]
    identity = store.load().identity
    store.prune(1)
    assert store.descends(identity, 1, references[0].digest)
