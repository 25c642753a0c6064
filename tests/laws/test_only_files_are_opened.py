"""A pipe, device, socket or directory in the place of a file: an error that names it, at once, and never a wait."""

import itertools
import json
import os
import shutil
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.jobs import spawn
from bcmdist.app.journal import Journal, open_job
from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistError, NotAFile, UnsafeData
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.model.loading import _model
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage import commits
from bcmdist.storage.commits import open_store
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.locate import open_storage

SECONDS = 10


def socket_at(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device_at(path):
    os.symlink("/dev/zero", path)  # a node of one's own needs rights


def loop_at(path):
    os.symlink(path.name, path)


MAKE = {"pipe": os.mkfifo, "device": device_at, "socket": socket_at, "directory": os.mkdir}
NO_FILES = {**MAKE, "link": loop_at}


class Waits(BaseException):
    """For something that never comes."""


@pytest.fixture(autouse=True)
def _no_waiting():
    """Whoever waits for a pipe is woken."""

    def woken(*_):
        raise Waits

    before = signal.signal(signal.SIGALRM, woken)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def short(tmp_path, monkeypatch):
    """The working directory: names of sockets are short."""
    monkeypatch.chdir(tmp_path)
    return Path()


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """A model with cells, whose data can be predicted."""
    folder, rng = tmp_path_factory.mktemp("cells"), np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    write_dataset(folder / "data.zarr", {"X": X, "y": X[:, 0]}, rows_per_chunk=20)
    given = Settings(kernel="se", query=5, rows_per_expert=20, learn=False, partition="spatial", effort="quick")
    GBCM.fit(folder / "data.zarr", given, model=folder / "model")
    return folder


def put(what, path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    NO_FILES[what](path)


@pytest.mark.parametrize("what", NO_FILES)
def test_a_storage_reads_files_only(short, what):
    storage = LocalStorage(short / "m")
    storage.put_if_absent("a/b", b"x")
    put(what, short / "m/a/b")
    with pytest.raises(NotAFile, match=r"/m/a/b: expected a file, found .*; remove it"):
        storage.get("a/b")
    assert not storage.put_if_absent("a/b", b"y")  # a name is taken, by whatever


@pytest.mark.parametrize("what", sorted(MAKE.keys() - {"directory"}))
def test_a_storage_lists_folders_only(short, what):
    storage = LocalStorage(short / "m")
    storage.put_if_absent("a/b", b"x")
    put(what, short / "m/a")
    for use in (lambda: storage.names("a"), lambda: storage.get("a/b"), lambda: storage.put_if_absent("a/c", b"z")):
        with pytest.raises(NotAFile, match=r"/m/a.*: expected a folder"):
            use()


PLACES = ["commits", "blobs", "halos", "cells.zarr/zarr.json", "cells.zarr/X/c/0/0", "cells.zarr"]


@pytest.mark.slow
@pytest.mark.parametrize("what", MAKE)
@pytest.mark.parametrize("place", PLACES)
def test_in_a_model(cells, monkeypatch, what, place):
    monkeypatch.chdir(cells)
    model, kept = Path("model"), Path("kept")
    shutil.copytree(model, kept)
    try:
        loaded = GBCM.load(model)
        record = loaded.store.record(loaded.commit)
        cells_facts = record["facts"]["fit"]["cells"]
        path = model / {
            "commits": f"commits/{loaded.commit:08d}.json",
            "blobs": f"blobs/{record['arrays']['eta']}",
            "halos": f"blobs/{cells_facts['halos']}",
        }.get(place, place)
        put(what, path)
        forget_loaded()
        error = BcmdistError if "zarr" in place else NotAFile  # of data by their own names
        with pytest.raises(error) as caught:
            GBCM.load(model).predict(np.zeros((1, 2)))
        assert Path(place).name.split(".")[0] in str(caught.value) or str(path) in str(caught.value)
    finally:
        shutil.rmtree(model)
        kept.rename(model)


def forget_loaded():
    """What was read before is kept in memory, by the hash of its record."""
    kept = (commits.load_record, load_fitted, load_arrangement, _model, commits.load_array)
    for load in (*kept, load_neighbours):
        load.cache_clear()


@pytest.mark.parametrize("what", MAKE)
def test_among_holds(short, what):
    store = open_store(short / "m")
    store.commit(1, arrays=store.put_arrays({"a": np.ones(1)}), facts={}, segments=(), offsets={})
    with store.hold(1):
        (name,) = store.storage.names("holds")
        put(what, short / "m/holds" / name)
        with pytest.raises(NotAFile, match=f"holds/{name}: expected a file"):
            store.prune(1)
        put("directory", short / "m/holds" / name)
        (short / "m/holds" / name).rmdir()


JOB_PLACES = itertools.product(MAKE, ["request.json", "events/00000001.json", ""])


@pytest.mark.parametrize(("what", "place"), sorted({*JOB_PLACES} - {("directory", "")}))
def test_in_a_job(short, what, place):
    job = "20260101-000000-aaaa"
    storage = open_storage(short / "jobs")
    request = {"command": "fit", "request": {}, "places": {}}
    storage.put_if_absent(f"{job}/request.json", json.dumps(request).encode())
    Journal(storage, job).append("submitted", scheduler="s")
    put(what, short / "jobs" / job / place)
    # A device is a link here, and links out of a job are refused as such.
    error, text = (UnsafeData, "it is a link to /dev/zero") if what == "device" else (NotAFile, "expected a f")
    with pytest.raises(error, match=f"{job}.*: .*{text}"):
        open_job(short / "jobs", job)
    said = CliRunner().invoke(cli, ["status", job, "--jobs", str(short / "jobs"), "--json"])
    assert said.exit_code == 1
    assert error.__name__ in said.output


@pytest.mark.parametrize("what", MAKE)
def test_what_a_coordinator_prints(short, what):
    job = "20260101-000000-aaaa"
    open_storage(short / "jobs").put_if_absent(f"{job}/request.json", b"{}")
    NO_FILES[what](short / "jobs" / job / "output.txt")
    error, text = (
        (UnsafeData, "expected a job of this directory") if what == "device" else (NotAFile, "expected a file")
    )
    with pytest.raises(error, match=rf"output.txt: {text}"):
        spawn(short / "jobs", job)


@pytest.mark.parametrize("what", MAKE)
def test_where_evaluations_are_remembered(short, what):
    NO_FILES[what](short / "evaluations.jsonl")
    with pytest.raises(NotAFile, match=r"evaluations.jsonl: expected a file"):
        CachedObjective(None, short / "evaluations.jsonl")


@pytest.mark.parametrize("what", MAKE)
def test_among_sorted_runs(short, what):
    shuffle = Shuffle(str(short / "runs"))
    shuffle.create()
    run = Run(np.arange(3), np.arange(3), {"y": np.ones(3)})
    shuffle.write("a", run)
    put(what, short / "runs/a.npy")
    for use in (lambda: shuffle.gather(0, 3), lambda: shuffle.write("a", run), lambda: shuffle.has("a")):
        with pytest.raises(NotAFile, match=r"runs/a.npy: expected a file"):
            use()
