"""Heartbeats of ingesters that wait for rows: alive, ended, killed, copied, taken over."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from bcmdist.storage import heartbeats as module
from bcmdist.storage.commits import open_store
from bcmdist.storage.heartbeats import STALE_SECONDS, beating, heartbeats, sweep
from bcmdist.storage.leases import this_process


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "model")


def files(store):
    return store.storage.names("ingesters")


def age(store, seconds):
    for name in files(store):
        then = time.time() - seconds
        os.utime(f"{store.storage.url}/ingesters/{name}", (then, then))


def left(store, source, **process):
    """The heartbeat of an ingester that did not end properly."""
    content = {"model": store.storage.url, "source": source, "process": this_process() | process}
    number = len(files(store))
    store.storage.put_if_absent(f"ingesters/{number:032x}-00000000", json.dumps(content).encode())


def test_a_heartbeat_is_there_while_an_ingester_runs(store):
    assert heartbeats(store) == []
    with beating(store, "a"):
        (found,) = heartbeats(store)
        assert (found.source, found.alive) == ("a", True)
        assert 0.0 <= found.seconds < STALE_SECONDS
    assert heartbeats(store) == []
    assert files(store) == []
    assert store.foreign() == []


def test_a_heartbeat_is_renewed(store, monkeypatch):
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    with beating(store, "a"):
        (first,) = files(store)
        deadline = time.monotonic() + 10
        while first in files(store) or not files(store):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert len(heartbeats(store)) == 1


def test_an_ingester_that_fails_leaves_a_heartbeat_that_becomes_stale(store):
    with pytest.raises(RuntimeError, match="lost"), beating(store, "a"):
        raise RuntimeError("lost")
    age(store, STALE_SECONDS + 1)
    (found,) = heartbeats(store)
    assert not found.alive
    assert found.seconds > STALE_SECONDS


def test_an_ingester_that_was_killed_here_is_known_to_be_dead_at_once(store):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left(store, "a", pid=int(ended.stdout))
    (found,) = heartbeats(store)
    assert (found.alive, found.seconds < STALE_SECONDS) == (False, True)


def test_another_ingester_of_the_source_takes_over(store):
    left(store, "a", pid=-1)
    left(store, "b", pid=-1)
    with beating(store, "a"):
        assert {one.source: one.alive for one in heartbeats(store)} == {"a": True, "b": False}
    assert [one.source for one in heartbeats(store)] == ["b"]
    sweep(store, "b")
    assert heartbeats(store) == []


def test_one_of_two_ingesters_of_a_source_may_die(store):
    with beating(store, "a"):
        left(store, "a", pid=-1)
        assert [one.alive for one in heartbeats(store)] == [True]


def test_heartbeats_of_a_copy_are_those_of_its_original(store, tmp_path):
    with beating(store, "a"):
        shutil.copytree(tmp_path / "model", tmp_path / "copy")
    assert heartbeats(open_store(tmp_path / "copy")) == []


def test_what_cannot_be_read_is_no_heartbeat(store):
    store.storage.put_if_absent("ingesters/junk", b"{")
    assert heartbeats(store) == []
