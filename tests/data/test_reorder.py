"""A data set in the order of its cells and back: against numpy, on both runtimes, and through faults."""

import errno
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcmdist import SerialRuntime
from bcmdist.committee.surveyed import refuse_changed
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, Span, partitions
from bcmdist.data.predictions import create_predictions
from bcmdist.data.reorder import reorder as module
from bcmdist.data.reorder.external_sort import Run, Shuffle, room_for
from bcmdist.data.reorder.reorder import Gather, Scatter, reorder, restore
from bcmdist.data.writing import write_dataset, write_rows
from bcmdist.errors import DataChanged, DataDamaged, DataExists, DiskFull, InvalidOption
from bcmdist.runtime.interface import run_batch
from bcmdist.storage.commits import open_store

CELLS = 7


@dataclass(frozen=True)
class Floor:
    """Cell k holds the rows whose first column is in [k, k + 1)."""

    def __call__(self, X):
        return np.floor(X[:, 0]).astype(np.int64)


@dataclass(frozen=True)
class PutBack:
    """Writes reordered rows to runs by their original row, as predictions in the order of cells would be."""

    shuffle: Shuffle

    def __call__(self, part, rows):
        row = zarr.open_group(part.data.url, mode="r")["row"][part.start : part.stop]
        run = Run(row, np.arange(part.start, part.stop), {"mean": rows.obs.y, "twice": 2 * rows.X})
        self.shuffle.write(f"{part.start}", run)
        return 1


@dataclass(frozen=True)
class KillOnce:
    """Kills the first worker that asks."""

    flag: str

    def __call__(self, X):
        if not os.path.exists(self.flag):
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Floor()(X)


@dataclass(frozen=True)
class FullDisk:
    """Meets a full disk where a run is to be written."""

    def __call__(self, X):
        with room_for("runs", 1e6):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


class Killed(BaseException):
    """Stands for the end of the client."""


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "model")


@pytest.fixture
def source(make_data, rng):
    """103 rows in chunks of 20, cells 0, 3 and 6 empty: open data, columns."""
    X = np.column_stack([rng.choice([1, 2, 4, 5], 103) + rng.uniform(0, 0.9, 103), rng.standard_normal(103)])
    columns = {"X": X, "y": rng.standard_normal(103), "exposure": rng.uniform(1, 2, 103)}
    assert X.shape == (103, 2)
    return open_data(make_data("source.zarr", rows_per_chunk=20, **columns)), columns


def reordered(data, place, store, runtime=None, *, chunk_rows=8, job="job", rows_per_expert=13):
    parts = partitions(data, rows_per_expert)
    runtime = runtime or SerialRuntime()
    return reorder(data, Floor(), CELLS, place, store, runtime, chunk_rows=chunk_rows, parts=parts, job=job)


def assert_in_order(new, edges, columns):
    """Rows, companions and offsets are those of a stable sort by cell."""
    cells = Floor()(columns["X"])
    order = np.argsort(cells, kind="stable")
    group = zarr.open_group(new.url, mode="r")
    assert sorted(group.array_keys()) == sorted([*columns, "row", "edges"])
    assert np.array_equal(group["row"][...], order)
    for name, column in columns.items():
        assert np.array_equal(group[name][...], column[order])
    assert np.array_equal(edges, np.searchsorted(cells[order], np.arange(CELLS + 1)))


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def left(place):
    """What stands beside a place, by name."""
    return [p.name for p in Path(place).parent.iterdir() if ".partial" in p.name]


def runs_of(place):
    return {p.name: p.stat().st_mtime_ns for p in Path(place).parent.glob("*.partial-*/runs/*.npy")}


def killed_after_the_scatter(data, place, store, patch):
    with patch.context() as p:
        p.setattr(module, "_gather", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            reordered(data, place, store)


def test_reordered_rows_are_in_the_order_of_a_stable_sort(source, tmp_path, store):
    data, columns = source
    before = files(data.url)
    new, edges, entries = reordered(data, tmp_path / "new.zarr", store)
    assert_in_order(new, edges, columns)
    assert (new.rows, new.inputs, new.chunk_rows, new.companions) == (103, 2, 8, ("exposure",))
    assert set(entries) == {part.key for part in partitions(data, 13)}
    assert sum(entry.rows for entry in entries.values()) == 103
    assert files(data.url) == before
    assert left(new.url) == []
    assert store.storage.names("blobs") == []


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(st.integers(0, CELLS - 1), min_size=1, max_size=30) | st.just([4] * 30),
    source_rows=st.integers(1, 9),
    chunk_rows=st.integers(1, 40),
    span_bytes=st.sampled_from([1, 300, 2**20]),
)
def test_any_cells_and_any_chunks(tmp_path_factory, store, monkeypatch, cells, source_rows, chunk_rows, span_bytes):
    monkeypatch.setattr(module, "SPAN_BYTES", span_bytes)
    folder = tmp_path_factory.mktemp("any")
    columns = {"X": np.array(cells)[:, None] + 0.5, "y": np.arange(len(cells)) + 1.0}
    write_dataset(folder / "a.zarr", columns, rows_per_chunk=source_rows)
    new, edges, _ = reordered(open_data(folder / "a.zarr"), folder / "b.zarr", store, chunk_rows=chunk_rows)
    assert_in_order(new, edges, columns)


def test_inputs_alone_are_reordered_without_targets(source, tmp_path, store):
    data, columns = source
    new, edges, _ = reordered(open_data(data.url, y=None), tmp_path / "new.zarr", store)
    assert new.y is None
    assert_in_order(new, edges, {name: columns[name] for name in ("X", "exposure")})


def test_dask_writes_the_same_bytes(source, tmp_path, store, cluster, monkeypatch):
    monkeypatch.setattr(module, "SPAN_BYTES", 1)  # one chunk per task
    data, _ = source
    serial = reordered(data, tmp_path / "serial.zarr", store)
    dask = reordered(data, tmp_path / "dask.zarr", store, cluster)
    assert files(tmp_path / "serial.zarr") == files(tmp_path / "dask.zarr")
    assert np.array_equal(serial[1], dask[1])
    assert serial[2] == dask[2]


@pytest.mark.parametrize("on_dask", [False, True])
def test_restoring_undoes_reordering(source, tmp_path, store, request, on_dask):
    runtime = request.getfixturevalue("cluster") if on_dask else SerialRuntime()
    data, columns = source
    new, _, _ = reordered(data, tmp_path / "new.zarr", store, runtime)
    shuffle, out = Shuffle(str(tmp_path / "runs")), str(tmp_path / "out.zarr")
    shuffle.create()
    runtime.sum(PutBack(shuffle), partitions(new, 16), label="predict")
    chunk_rows = create_predictions(out, data, {"mean": np.zeros(1), "twice": np.zeros((1, 2))}, {})
    restore(shuffle, out, data.rows, chunk_rows, runtime)
    group = zarr.open_group(out, mode="r")
    assert np.array_equal(group["mean"][...], columns["y"])
    assert np.array_equal(group["twice"][...], 2 * columns["X"])


def test_a_killed_reordering_resumes_without_writing_runs_again(source, tmp_path, store, monkeypatch):
    data, columns = source
    place = tmp_path / "new.zarr"
    killed_after_the_scatter(data, place, store, monkeypatch)
    assert not place.exists()
    before = runs_of(place)
    assert len(before) == len(partitions(data, 13))
    lost = min(before)
    next(tmp_path.glob(f"*.partial-*/runs/{lost}")).unlink()
    after = {}
    gather = module._gather
    monkeypatch.setattr(module, "_gather", lambda *a, **k: (after.update(runs_of(place)), gather(*a, **k)))
    new, edges, _ = reordered(data, place, store)
    assert [name for name in after if after[name] != before[name]] == [lost]
    assert_in_order(new, edges, columns)
    assert left(place) == []


def test_runs_of_rows_that_have_changed_since_are_not_used(source, tmp_path, store, monkeypatch):
    data, columns = source
    killed_after_the_scatter(data, tmp_path / "new.zarr", store, monkeypatch)
    columns["y"][50] += 1.0
    with recorded(data.url) as group:
        group["y"][50] = columns["y"][50]
    new, edges, _ = reordered(data, tmp_path / "new.zarr", store, rows_per_expert=20)
    assert_in_order(new, edges, columns)


def test_changed_rows_are_seen_by_their_entries(source, tmp_path, store):
    data, _ = source
    _, _, surveyed = reordered(data, tmp_path / "first.zarr", store)
    with recorded(data.url) as group:
        group["exposure"][50] = 9.0
    _, _, entries = reordered(data, tmp_path / "second.zarr", store)
    with pytest.raises(DataChanged, match="expected the rows that were surveyed"):
        refuse_changed(entries.values(), surveyed.values())


def test_a_complete_place_is_used_as_it_is(source, tmp_path, store, monkeypatch):
    data, _ = source
    first = reordered(data, tmp_path / "new.zarr", store)
    before = files(tmp_path / "new.zarr")
    monkeypatch.setattr(Scatter, "__call__", None)
    second = reordered(data, tmp_path / "new.zarr", store)
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1])
    assert first[2] == second[2]
    assert files(tmp_path / "new.zarr") == before


def test_a_place_of_another_job_is_refused(source, tmp_path, store):
    data, _ = source
    reordered(data, tmp_path / "new.zarr", store)
    with pytest.raises(DataExists, match="expected the reordered data of this job"):
        reordered(data, tmp_path / "new.zarr", store, job="another")


@pytest.mark.parametrize("name", ["X", "row"])
def test_a_chunk_that_was_lost_from_a_complete_place_is_missed(source, tmp_path, store, name):
    data, _ = source
    new, _, _ = reordered(data, tmp_path / "new.zarr", store)
    shutil.rmtree(Path(new.url, name, "c", "3"), ignore_errors=True)
    Path(new.url, name, "c", "3").unlink(missing_ok=True)
    with pytest.raises(DataDamaged, match=f"chunks of {name}"):
        reordered(data, tmp_path / "new.zarr", store)


def test_damaged_edges_are_named(source, tmp_path, store):
    data, _ = source
    new, _, _ = reordered(data, tmp_path / "new.zarr", store)
    path = Path(new.url, "edges", "c", "0")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataDamaged, match="expected to read edges"):
        reordered(data, tmp_path / "new.zarr", store)


def test_places_elsewhere_are_refused(source, store):
    with pytest.raises(InvalidOption, match="a path on a disk that all workers share"):
        reordered(source[0], "s3://bucket/new.zarr", store)


def test_a_failure_leaves_runs_and_no_output(source, tmp_path, store, monkeypatch):
    data, columns = source
    place = tmp_path / "new.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(Gather, "__call__", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reordered(data, place, store)
    assert not place.exists()
    assert [p.name for p in tmp_path.glob("*.partial-*/*")] == ["runs"]
    new, edges, _ = reordered(data, place, store)
    assert_in_order(new, edges, columns)


@pytest.mark.parametrize(
    "where", ["bcmdist.data.reorder.reorder.write_rows", "bcmdist.data.reorder.reorder.write_array", "os.fsync"]
)
def test_a_full_disk_leaves_nothing(source, tmp_path, store, monkeypatch, where):
    data, columns = source
    place = tmp_path / "new.zarr"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(where, full)
        with pytest.raises(DiskFull, match=r"expected room for .* MB, got: No space left"):
            reordered(data, place, store)
    assert not place.exists()
    assert left(place) == []
    new, edges, _ = reordered(data, place, store)
    assert_in_order(new, edges, columns)


def test_a_lost_run_is_named(source, tmp_path, store, monkeypatch):
    data, _ = source
    monkeypatch.setattr(Shuffle, "write", lambda *_: None)
    with pytest.raises(DataDamaged, match=r"0-20-\w+\.npy: expected a sorted run"):
        reordered(data, tmp_path / "new.zarr", store, rows_per_expert=20)


def test_an_output_with_rows_that_lack_or_come_twice_is_refused(tmp_path):
    shuffle = Shuffle(str(tmp_path / "runs"))
    shuffle.create()
    shuffle.write("a", Run(np.array([0, 1, 1, 3]), np.arange(4), {"y": np.zeros(4)}))
    for span in (Span(0, 2), Span(1, 4)):
        with pytest.raises(DataDamaged, match=r"rows with keys . to . for output"):
            run_batch(Gather(shuffle, str(tmp_path / "out.zarr"), None), [span])


def test_parts_may_be_some_of_the_rows(source, tmp_path, store):
    data, columns = source
    part = Partition(data, 20, 60)
    new, edges, _ = reorder(
        data, Floor(), CELLS, tmp_path / "new.zarr", store, SerialRuntime(), chunk_rows=16, parts=[part], job="job"
    )
    cells = Floor()(columns["X"][20:60])
    assert np.array_equal(zarr.open_group(new.url)["row"][...], 20 + np.argsort(cells, kind="stable"))
    assert edges[-1] == 40


def test_a_span_of_zeros_is_stored(make_data):
    """Zarr leaves out chunks of zeros by itself, and one that is not there counts as lost."""
    path = make_data(X=np.ones((4, 1)), y=np.ones(4), rows_per_chunk=2)
    write_rows(path, 2, {"y": np.zeros(2)})
    assert Path(path, "y", "c", "1").exists()
    assert open_data(path).rows == 4


def test_a_full_disk_of_a_worker_is_told_to_the_client(tmp_path, store, cluster):
    n = 3000
    write_dataset(tmp_path / "a.zarr", {"X": np.ones((n, 2)), "y": np.ones(n)})
    data, place = open_data(tmp_path / "a.zarr"), tmp_path / "new.zarr"
    with pytest.raises(DiskFull, match=r"runs: expected room for .* MB, got: .*; free some"):
        reorder(data, FullDisk(), CELLS, place, store, cluster, chunk_rows=64, parts=partitions(data, 50), job="job")
    assert not place.exists()


@pytest.mark.slow
@pytest.mark.alone
def test_workers_that_die_change_nothing(source, tmp_path, store, cluster):
    data, columns = source
    parts, router = partitions(data, 13), KillOnce(str(tmp_path / "killed"))
    new, edges, _ = reorder(
        data, router, CELLS, tmp_path / "new.zarr", store, cluster, chunk_rows=8, parts=parts, job="job"
    )
    assert (tmp_path / "killed").exists()
    assert_in_order(new, edges, columns)
