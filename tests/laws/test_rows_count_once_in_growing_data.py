"""Data sets and directories that grow while they are watched: every row once, also after a restart."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.checks.checked_store import CheckedStore
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import append_rows, write_dataset
from problems import assert_same_committee

pytestmark = pytest.mark.alone

ROWS = 20


def some_rows(seed, rows):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(rows)


@pytest.fixture
def prepared(tmp_path):
    """A model that has absorbed nothing."""
    X, y = some_rows(0, 200)
    write_dataset(tmp_path / "first.zarr", {"X": X, "y": y})
    settings = Settings(kernel="se", learn=False, query=15, rows_per_expert=ROWS)
    return GBCM.prepare(tmp_path / "first.zarr", settings, model=tmp_path / "model")


@pytest.fixture
def chunks_read(monkeypatch):
    """Keys of all chunks that are read."""
    read, original = [], CheckedStore._chunk

    def noting(self, key, prototype):
        read.append(f"{self.root}/{key}")
        return original(self, key, prototype)

    monkeypatch.setattr(CheckedStore, "_chunk", noting)
    return read


def write_on(path, X, y):
    """Rows added as any software would that knows nothing of manifests: resize, then write."""
    group = zarr.open_group(path, mode="r+")
    start = group["y"].shape[0]
    for name, values in (("X", X), ("y", y)):
        group[name].resize((start + len(values), *values.shape[1:]))
        group[name][start:] = values


def write_stored(path):
    """A data set as `import` makes it, with a manifest."""
    X, y = some_rows(1, 50)
    write_dataset(path, {"X": X, "y": y}, rows_per_chunk=10)


def write_plain(path):
    group = zarr.open_group(path, mode="w")
    for name, values in zip("Xy", some_rows(1, 50), strict=True):
        group.create_array(name, data=values, chunks=(10, *values.shape[1:]))


def write_growing(path):
    append_rows(path, *some_rows(1, 50), rows_per_chunk=10)


def watch(gbcm, path, monkeypatch, events, **wishes):
    """Ingest from a watched source, where one of some events happens whenever nothing is new, until none is left."""
    events, left = list(events), [True]

    def wait(seconds):
        left[0] = bool(events)
        if events:
            events.pop(0)()

    monkeypatch.setattr("bcmdist.committee.ingest.loop.time.sleep", wait)
    return gbcm.ingest(
        gbcm.source(path, watch=True), IngestOptions(watch=True, grow=False, stop=lambda: not left[0], **wishes)
    )


# Not `write_on` to what `append_rows` has begun: such rows count when `rows_complete` says so.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "add"),
    [(write, add) for write in (write_stored, write_plain) for add in (write_on, append_rows)]
    + [(write_growing, append_rows)],
)
def test_a_data_set_to_which_somebody_adds_rows(prepared, tmp_path, monkeypatch, chunks_read, write, add):
    path = str(tmp_path / "grown.zarr")
    write(path)
    grow = [lambda k=k: add(path, *some_rows(k, 30)) for k in range(2, 5)]
    after, tally = watch(prepared, path, monkeypatch, grow)
    assert (tally.rows, tally.duplicates, tally.waiting) == (140, 0, 0)
    assert len(chunks_read) == len(set(chunks_read)) == 28  # X and y, 14 chunks each
    again, tally = watch(GBCM.load(prepared.url), path, monkeypatch, [])
    assert (tally.partitions, tally.duplicates, again.commit) == (0, 0, after.commit)
    add(path, *some_rows(5, 20))
    again, tally = watch(again, path, monkeypatch, [])
    assert (tally.rows, tally.duplicates) == (20, 0)
    assert len(chunks_read) == len(set(chunks_read)) == 32
    parts = partitions(open_data(path), ROWS)
    peaceful = prepared.committee.absorb(
        prepared.snapshot.compute_messages(parts, SerialRuntime(), label="peace").message
    )
    assert_same_committee(again.committee, peaceful)
    _whole, tally = again.ingest(again.source(path))  # and without watching: all is compared, nothing is new
    assert (tally.partitions, tally.duplicates) == (0, 8)


@pytest.mark.slow
def test_stores_that_appear_late_and_out_of_order(prepared, tmp_path, monkeypatch, chunks_read):
    folder = tmp_path / "days"
    folder.mkdir()

    def appear(day):
        X, y = some_rows(day, 40)
        return lambda: write_dataset(folder / f"{day:02d}.zarr", {"X": X, "y": y}, rows_per_chunk=20)

    appear(5)()
    _after, tally = watch(prepared, str(folder), monkeypatch, [appear(day) for day in (7, 2, 6)])
    assert (tally.rows, tally.duplicates, tally.waiting) == (160, 0, 0)
    appear(8)()
    again, tally = watch(GBCM.load(prepared.url), str(folder), monkeypatch, [appear(9)])
    assert (tally.rows, tally.duplicates) == (80, 0)  # the stores were the first by name: recognised without a look
    appear(1)()
    again, tally = watch(GBCM.load(prepared.url), str(folder), monkeypatch, [])
    assert tally.rows == 40
    read = len(chunks_read)
    assert read - len(set(chunks_read)) <= 2 * 2 * 6  # a store came before them: all are compared once more
    assert again.committee.total.rows == 280
    _last, tally = watch(GBCM.load(prepared.url), str(folder), monkeypatch, [])
    assert (tally.partitions, len(chunks_read)) == (0, read)


WRITER = """
import sys, time
from test_rows_count_once_in_growing_data import some_rows
from bcmdist.data.writing import append_rows
for k in range(30):
    append_rows(sys.argv[1], *some_rows(k, 13), rows_per_chunk=10)
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_writer_and_an_ingester_that_is_killed(prepared, tmp_path):
    path, model = str(tmp_path / "grown.zarr"), prepared.url
    append_rows(path, *some_rows(99, 13), rows_per_chunk=10)
    folders = map(str, Path(__file__).parents[:2])  # of this file and of what it imports
    paths = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "bcmdist", "ingest", model, path, "--serial", "--json", "--watch", "--no-grow"]
    store = prepared.store

    def start():
        return subprocess.Popen(
            [*command, "--commit-every", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )

    def until(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    writer, first = subprocess.Popen([sys.executable, "-c", WRITER, path], env=env), start()
    until(lambda: store.head() > 3)
    first.kill()
    first.communicate()
    second = start()
    until(lambda: GBCM.load(model).committee.total.rows == 400)
    assert writer.wait() == 0
    second.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    told = json.loads(out)
    assert (told["duplicates"], told["waiting"]) == (0, 1)  # 3 rows wait for 17 others
    last, tally = GBCM.load(model).ingest(prepared.source(path))
    assert (tally.rows, last.committee.total.rows) == (3, 403)
    parts = partitions(open_data(path), ROWS)
    assert_same_committee(
        last.committee,
        prepared.committee.absorb(prepared.snapshot.compute_messages(parts, SerialRuntime(), label="").message),
    )
