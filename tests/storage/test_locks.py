"""Turns of those who commit to a model directory on one machine."""

import threading
import time
from types import SimpleNamespace

import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.storage import locks
from bcmdist.storage.locks import CAN_LOCK, commit_turn

needs_locks = pytest.mark.skipif(not CAN_LOCK, reason="this system has no locks of files")


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


@needs_locks
def test_one_waits_for_the_other(directory, monkeypatch):
    waiting, order = threading.Event(), []
    sleeping = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: waiting.set() or time.sleep(0.01))
    monkeypatch.setattr(locks, "time", sleeping)

    def second():
        with commit_turn(directory) as waited:
            order.append(("second", waited))

    with commit_turn(directory) as waited:
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(60)
        order.append(("first", waited))
    thread.join()
    assert order == [("first", False), ("second", True)]


def test_nobody_waits_for_ever(directory, monkeypatch):
    monkeypatch.setattr(locks, "TURN_SECONDS", 0.05)
    with commit_turn(directory), commit_turn(directory) as waited:
        assert waited == CAN_LOCK


def test_where_nothing_can_be_locked_nobody_waits(tmp_path):
    with commit_turn(str(tmp_path / "none")) as one, commit_turn("s3://bucket/model") as other:
        assert (one, other) == (False, False)


@needs_locks
@pytest.mark.parametrize("options", [IngestOptions(), IngestOptions(commit_every=1)], ids=["at the end", "each"])
def test_a_slow_writer_commits_beside_quick_ones(wave, make_data, tmp_path, monkeypatch, options):
    """Without turns the slow one loses each time that a quick one has committed in the middle of its commit."""
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=60, X=X, y=y)
    settings = Settings(kernel="se", learn=False, query=20, rows_per_expert=60)
    gbcm = GBCM.fit(path, settings, model=tmp_path / "model")
    more = make_data("more.zarr", rows_per_chunk=60, X=X + 5.0, y=y)
    committed, slow = Snapshot.committed, threading.local()

    def delayed(self):
        if getattr(slow, "seconds", 0.0) and self.pending:
            time.sleep(slow.seconds)
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", delayed)
    monkeypatch.setattr(locks, "TURN_SECONDS", 60.0)
    begun, done = threading.Event(), threading.Event()

    def quick():
        number = 0
        while not done.is_set():
            number += 1
            new = X[:5] + 0.01 * number
            GBCM.load(gbcm.url).partial_fit(new, y[:5])
            begun.set()

    thread = threading.Thread(target=quick)
    thread.start()
    try:
        assert begun.wait(60)
        slow.seconds = 0.3
        _, report = GBCM.load(gbcm.url).ingest(more, options)
    finally:
        done.set()
        thread.join()
    assert report.rows == len(y)
    commits = 1 if options.commit_every is None else report.partitions
    assert report.retries <= commits  # another commit may come between loading and the turn
    assert GBCM.load(gbcm.url).committee.total.rows > 2 * len(y)
