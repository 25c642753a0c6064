"""Turns of those who commit to a model directory on one machine."""

import threading
import time

import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.storage import locks
from bcmdist.storage.locks import CAN_LOCK, commit_turn
from problems import Shuffled

needs_locks = pytest.mark.skipif(not CAN_LOCK, reason="this system has no locks of files")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "commits").mkdir()
    return str(tmp_path)


@needs_locks
def test_one_waits_for_the_other(directory):
    order, inside = [], threading.Event()

    def first():
        with commit_turn(directory) as waited:
            order.append(("first", waited))
            inside.set()
            time.sleep(0.2)
            order.append(("first leaves", waited))

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with commit_turn(directory) as waited:
        order.append(("second", waited))
    thread.join()
    assert order == [("first", False), ("first leaves", False), ("second", True)]


def test_nobody_waits_for_ever(directory, monkeypatch):
    monkeypatch.setattr(locks, "TURN_SECONDS", 0.05)
    with commit_turn(directory), commit_turn(directory) as waited:
        assert waited == CAN_LOCK


def test_where_nothing_can_be_locked_nobody_waits(tmp_path):
    with commit_turn(str(tmp_path / "none")) as one, commit_turn("s3://bucket/model") as other:
        assert (one, other) == (False, False)


@needs_locks
def test_a_slow_writer_commits_beside_quick_ones(wave, make_data, tmp_path, monkeypatch):
    """Without turns the slow one loses each time that a quick one has committed in the middle of its commit."""
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=10, X=X, y=y)
    settings = Settings(kernel="se", learn=False, query=20, rows_per_expert=10)
    gbcm = GBCM.prepare(path, settings, model=tmp_path / "model")
    parts = partitions(open_data(path), 10)
    committed, slow = Snapshot.committed, threading.local()

    def delayed(self):
        if getattr(slow, "seconds", 0.0) and self.pending:
            time.sleep(slow.seconds)
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", delayed)
    begun, done = threading.Event(), threading.Event()

    def quick():
        begun.set()
        for part in parts[4:]:
            if done.is_set():
                break
            GBCM.load(gbcm.url).ingest(Shuffled((part,), "quick"), IngestOptions(commit_every=1, keep=1000))

    thread = threading.Thread(target=quick)
    thread.start()
    begun.wait()
    slow.seconds = 0.3
    _, report = gbcm.ingest(Shuffled(tuple(parts[:1]), "slow"), IngestOptions(commit_every=1, keep=1000))
    done.set()
    thread.join()
    assert report.partitions == 1
    assert report.retries <= 1  # another commit may come between loading and the turn
    assert GBCM.load(gbcm.url).ledger.holds(parts[0].key)
