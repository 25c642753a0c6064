"""Sorted runs: the order of numpy's stable sort, and what is seen of damage, duplicates and full disks."""

import errno
import itertools
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.errors import DataDamaged, DiskFull


def columns(rows):
    """A matrix, a vector, and an array of small items, which leaves gaps between fields."""
    return {"X": np.sin(np.outer(rows, [1.0, 2.0, 3.0])), "y": np.cos(rows), "label": (rows % 5).astype(np.int16)}


def run_of(keys, start=0):
    rows = np.arange(start, start + len(keys))
    return Run(np.asarray(keys, np.int64), rows, columns(rows))


def assert_rows(run, keys, rows):
    assert np.array_equal(run.keys, keys)
    assert np.array_equal(run.rows, rows)
    for name, expected in columns(rows).items():
        assert run.columns[name].dtype == expected.dtype
        assert np.array_equal(run.columns[name], expected)


@pytest.fixture
def shuffle(tmp_path):
    made = Shuffle(str(tmp_path / "runs"))
    made.create()
    return made


def stored(shuffle):
    return {name: Path(shuffle.url, name).read_bytes() for name in os.listdir(shuffle.url)}


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.integers(-3, 6) | st.sampled_from([-(2**62), 2**62]), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    low=st.integers(-4, 7),
    width=st.integers(0, 8),
)
def test_runs_come_back_in_the_order_of_a_stable_sort(tmp_path_factory, keys, cuts, low, width):
    shuffle = Shuffle(str(tmp_path_factory.mktemp("runs")))
    keys = np.array(keys)
    edges = sorted({0, len(keys), *(min(c, len(keys)) for c in cuts)})
    for a, b in itertools.pairwise(edges):
        shuffle.write(f"{a}-{b}", run_of(keys[a:b], a))
    for first, last in ((low, low + width), (-(2**63), 2**63 - 1)):
        order = np.argsort(keys, kind="stable")
        rows = order[(first <= keys[order]) & (keys[order] < last)]
        assert_rows(shuffle.gather(first, last), keys[rows], rows)


@pytest.mark.parametrize("count", [0, 1])
def test_runs_of_no_and_of_one_row(shuffle, count):
    shuffle.write("a", run_of([3][:count]))
    assert shuffle.has("a")
    assert_rows(shuffle.gather(0, 9), np.full(count, 3), np.arange(count))


def test_writing_twice_changes_nothing(shuffle):
    shuffle.write("a", run_of([2, 1]))
    before = os.stat(Path(shuffle.url, "a.npy"))
    shuffle.write("a", run_of([2, 1]))
    after = os.stat(Path(shuffle.url, "a.npy"))
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_many_writers_of_one_run_leave_one_whole_run(shuffle):
    run = run_of(np.arange(2000)[::-1])
    start, seen = threading.Barrier(6), []

    def write():
        start.wait()
        shuffle.write("a", run)
        seen.append(shuffle.has("a"))

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 6
    assert os.listdir(shuffle.url) == ["a.npy"]
    assert_rows(shuffle.gather(0, 2000), np.arange(2000), np.arange(2000)[::-1])


def test_a_torn_run_is_named_and_written_again(shuffle):
    shuffle.write("whole", run_of([1, 2]))
    shuffle.write("torn", run_of([1, 2], start=2))
    path = Path(shuffle.url, "torn.npy")
    data = path.read_bytes()
    zeroed = data[: len(data) // 2] + bytes(len(data) - len(data) // 2)
    for damage in (b"", data[:5], data[:60], data[: len(data) // 2], data[:-1], data + b"x", zeroed):
        path.write_bytes(damage)
        assert not shuffle.has("torn")
        with pytest.raises(DataDamaged, match=r"torn\.npy"):
            shuffle.gather(0, 9)
    shuffle.write("torn", run_of([1, 2], start=2))
    assert path.read_bytes() == data


def test_every_flipped_bit_is_seen(shuffle, rng):
    """By `has` always. By `gather` in whatever it returns: a flipped key may mislead its search, and rows lack."""
    shuffle.write("a", run_of([5, 5, 6, 7]))
    path = Path(shuffle.url, "a.npy")
    data = path.read_bytes()
    for bit in rng.integers(0, 8 * len(data), 300):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert not shuffle.has("a"), bit
        try:
            found = shuffle.gather(5, 8)
        except DataDamaged:
            continue
        assert len(found.keys) < 4, bit


def test_two_flipped_signs_of_a_row_are_seen(shuffle):
    """Top bits cancel in a sum modulo 2^64 unless they are mixed into lower ones."""
    run = run_of([1], start=3)
    shuffle.write("a", run)
    path = Path(shuffle.url, "a.npy")
    two = run.columns["X"][:, :2]
    assert path.read_bytes().count(two.tobytes()) == 1
    path.write_bytes(path.read_bytes().replace(two.tobytes(), (-two).tobytes()))
    assert not shuffle.has("a")


def test_runs_of_other_columns_do_not_mix(shuffle):
    shuffle.write("a", run_of([1]))
    shuffle.write("b", Run(np.array([1]), np.array([1]), {"y": np.zeros(1)}))
    with pytest.raises(DataDamaged, match=r"b\.npy: expected columns"):
        shuffle.gather(0, 2)


def test_no_runs_at_all_are_an_error(shuffle):
    with pytest.raises(DataDamaged, match="expected sorted runs, found none"):
        shuffle.gather(0, 2)


def test_other_runs_go_and_missing_ones_are_named(shuffle):
    for name in "abc":
        shuffle.write(name, run_of([1]))
    shuffle.keep("ac")
    assert shuffle.names() == ["a", "c"]
    with pytest.raises(DataDamaged, match=r"b\.npy: expected a sorted run, it is not there"):
        shuffle.keep("abc")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_full_disk_leaves_nothing(shuffle, monkeypatch, code, call):
    shuffle.write("before", run_of([1]))
    before = stored(shuffle)

    def full(*_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(DiskFull, match=r"runs: expected room for .* MB, got: .*; free some"):
            shuffle.write("a", run_of([1]))
    assert stored(shuffle) == before
    shuffle.write("a", run_of([1]))
    assert shuffle.has("a")


def test_other_errors_of_the_disk_stay_what_they_are(shuffle, monkeypatch):
    def broken(_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="broken") as caught:
        shuffle.write("a", run_of([1]))
    assert not isinstance(caught.value, DiskFull)
    assert os.listdir(shuffle.url) == []


def test_a_task_that_is_late_does_not_make_the_directory_again(shuffle):
    shuffle.remove()
    with pytest.raises(FileNotFoundError):
        shuffle.write("a", run_of([1]))
    assert not os.path.exists(shuffle.url)


def test_memory_of_gathering_depends_on_what_is_gathered(shuffle, rng):
    """Four times the runs, the same number of rows of a range of keys: within a tenth and what names take."""

    def peak(runs):
        while (k := len(shuffle.names())) < runs:
            shuffle.write(f"{k}", run_of(rng.permutation(2000) * 100 + k, start=2000 * k))
        tracemalloc.start()
        count = len(shuffle.gather(0, 100 * 20_000 // runs).keys)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == 20_000
        return peak

    few = peak(10)
    assert peak(40) < 1.1 * few + 40 * 1000
