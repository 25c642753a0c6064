"""Processes that ingest and are killed, stopped or raced: nothing is lost, nothing counts twice."""

import os
import shutil
import signal
import time

import numpy as np
import psutil
import pytest
from processes import finish, start_ingesting

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from problems import assert_same_committee

ROWS, PARTITIONS, SEED = 50, 200, 5
GIVEN = Settings(kernel="se", learn=False, query=20, rows_per_expert=ROWS)
DEADLINE = 120.0


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A folder with a prepared model, a data set of 200 partitions, and their committee computed in peace."""
    print(f"seed {SEED}")
    rng, folder = np.random.default_rng(SEED), tmp_path_factory.mktemp("stream")
    X = rng.uniform(-2, 2, (ROWS * PARTITIONS, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    write_dataset(folder / "data.zarr", {"X": X, "y": y}, rows_per_chunk=ROWS)
    gbcm = GBCM.prepare(folder / "data.zarr", GIVEN, model=folder / "prepared")
    parts = partitions(open_data(folder / "data.zarr"), ROWS)
    assert len(parts) == PARTITIONS
    return folder, gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="peace").message)


@pytest.fixture
def model(stream, tmp_path):
    """A copy of the prepared model."""
    shutil.copytree(stream[0] / "prepared", tmp_path / "model")
    return tmp_path / "model"


def check(model, peaceful):
    gbcm = GBCM.load(model)
    keys = [entry.key for entry in gbcm.ledger]
    assert len(keys) == len(set(keys)) == PARTITIONS
    assert gbcm.committee.total.rows == ROWS * PARTITIONS
    assert_same_committee(gbcm.committee, peaceful)
    return gbcm


def wait_for_commits(model, more, process):
    """Until so many further commits are there, or the process has ended."""
    store, deadline = GBCM.load(model).store, time.monotonic() + DEADLINE
    wanted = store.head() + more
    while store.head() < wanted and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.alone
@pytest.mark.slow
def test_two_processes_ingest_the_same(stream, model):
    folder, peaceful = stream
    racers = [start_ingesting(model, folder / "data.zarr", "--commit-every", "4") for _ in range(2)]
    figures = [finish(racer) for racer in racers]
    check(model, peaceful)
    assert sum(f["partitions"] for f in figures) == PARTITIONS


@pytest.mark.alone
@pytest.mark.slow
def test_a_stopped_writer_wakes_up_late(stream, model):
    folder, peaceful = stream
    sleeper = start_ingesting(model, folder / "data.zarr", "--commit-every", "2")
    wait_for_commits(model, 5, sleeper)
    sleeper.send_signal(signal.SIGSTOP)
    finish(start_ingesting(model, folder / "data.zarr", "--commit-every", "10"))
    before = check(model, peaceful)
    sleeper.send_signal(signal.SIGCONT)
    finish(sleeper)
    assert check(model, peaceful).ledger == before.ledger


def killed_again_and_again(stream, model, kills, every):
    """Kill ingesting processes at random moments; the number that were really killed."""
    folder, peaceful = stream
    print(f"seed {SEED}")
    rng, killed = np.random.default_rng(SEED), 0
    for _ in range(kills):
        process = start_ingesting(model, folder / "data.zarr", "--commit-every", every, "--max-partitions", "12")
        wait_for_commits(model, int(rng.integers(1, 6)), process)
        time.sleep(rng.uniform(0.0, 0.02))
        killed += process.poll() is None
        process.kill()
        process.communicate()
        GBCM.load(model)  # readable at any time
        if len(GBCM.load(model).ledger) == PARTITIONS:
            check(model, peaceful)
            shutil.rmtree(model)
            shutil.copytree(folder / "prepared", model)
    finish(start_ingesting(model, folder / "data.zarr"))
    check(model, peaceful)
    return killed


@pytest.mark.alone
@pytest.mark.slow
def test_killed_while_ingesting(stream, model):
    """BCMDIST_KILLS=200 for a long night."""
    kills = int(os.environ.get("BCMDIST_KILLS", "20"))
    killed = killed_again_and_again(stream, model, kills, "1")
    print(f"{killed} of {kills} processes were killed at work")
    assert killed > kills // 2


@pytest.mark.slow
@pytest.mark.nightly
def test_memory_of_an_ingester_is_flat(tmp_path):
    """10,000 partitions of 50 rows, Q = 50: the resident set stays, and the sum of so many messages does not drift."""
    print(f"seed {SEED}")
    rng, count = np.random.default_rng(SEED), 10_000
    X = rng.uniform(-2, 2, (ROWS * count, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    write_dataset(tmp_path / "data.zarr", {"X": X, "y": y}, rows_per_chunk=10 * ROWS)
    settings = Settings(kernel="se", learn=False, query=50, rows_per_expert=ROWS)
    gbcm = GBCM.prepare(tmp_path / "data.zarr", settings, model=tmp_path / "model")
    process = start_ingesting(tmp_path / "model", tmp_path / "data.zarr", "--commit-every", "50")
    sizes, store, begun = {}, gbcm.store, time.monotonic()
    while process.poll() is None:
        sizes[store.head()] = psutil.Process(process.pid).memory_info().rss
        time.sleep(0.2)
    finish(process)
    print(f"{count / (time.monotonic() - begun):.0f} partitions/s")
    early = max(size for commit, size in sizes.items() if commit < 60)  # 3000 of 10,000 partitions
    grown = max(sizes.values()) - early
    print(f"resident {early / 2**20:.0f} MiB after 3,000 partitions, {grown / 2**20:.1f} MiB more after 10,000")
    assert grown < 30 * 2**20  # the ledger itself is 7,000 entries of about 1 KB
    parts = partitions(open_data(tmp_path / "data.zarr"), ROWS)
    assert len(parts) == count
    batch = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="batch").message)
    assert_same_committee(GBCM.load(tmp_path / "model").committee, batch, tolerance=1e-8)
