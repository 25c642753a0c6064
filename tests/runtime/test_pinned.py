"""Partitions that workers hold: the same sums, asked for directly, and what happens when nobody answers."""

import os
import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest
from processes import wait_until

from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import NotPositiveDefinite, WorkerLost
from bcmdist.runtime.dask import cluster as module
from bcmdist.runtime.dask import pinned
from bcmdist.runtime.dask.cluster import DaskRuntime
from bcmdist.runtime.interface import SerialRuntime

pytestmark = pytest.mark.alone


@dataclass(frozen=True)
class Weighted:
    """A sum whose last digits depend on the order of its terms."""

    factor: float

    def __call__(self, part, rows):
        return np.array([float(np.sum(rows.X)) * self.factor, rows.obs.y.sum() / self.factor])


@dataclass(frozen=True)
class Fails:
    """Cannot do one partition."""

    start: int

    def __call__(self, part, rows):
        if part.start == self.start:
            raise NotPositiveDefinite("R: not today")
        return 1


@dataclass(frozen=True)
class Kills:
    """Kills whoever computes it: always, or where there is no mark yet."""

    mark: str

    def __call__(self, part, rows):
        if not self.mark or not os.path.exists(self.mark):
            if self.mark:
                open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return 1


def kept_parts(path, content="blocks"):
    return [replace(part, data=replace(part.data, kept=content)) for part in partitions(open_data(path), 30)]


@pytest.fixture
def private_cluster():
    with DaskRuntime(workers=2) as runtime:
        yield runtime


def refuse_tasks(*_):
    raise AssertionError("a sum was made by tasks")


def test_the_sum_is_the_serial_one_to_the_last_digit(wave, cluster, monkeypatch):
    path, *_ = wave
    parts = kept_parts(path)
    monkeypatch.setattr(DaskRuntime, "_sum", refuse_tasks)
    for factor in (1.0, 1 / 3, 0.1):
        expected = SerialRuntime().sum(Weighted(factor), parts, label="held")
        np.testing.assert_array_equal(cluster.sum(Weighted(factor), parts, label="held"), expected)


@pytest.mark.slow
def test_workers_forget_what_was_held_longest_ago(wave, cluster):
    path, *_ = wave
    for k in range(2 * module.HELD_AT_A_TIME):
        cluster.sum(Weighted(1.0), kept_parts(path, f"round {k}"), label="held")
    assert len(cluster._held) == module.HELD_AT_A_TIME
    most = 2 * module.HELD_AT_A_TIME  # holders: the rest are of other tests
    wait_until(lambda: sum("Holder" in key for key in cluster._client.futures) <= most, "others to be released")


def test_an_error_names_the_partition(wave, cluster):
    path, *_ = wave
    parts = kept_parts(path)
    with pytest.raises(NotPositiveDefinite, match=rf"X\[{parts[2].start}:{parts[2].stop}\]: R: not today"):
        cluster.sum(Fails(parts[2].start), parts, label="held")


@pytest.mark.slow
def test_a_worker_dies_on_the_way(wave, private_cluster, tmp_path):
    """Its successor, or another, answers; partitions are held again afterwards."""
    path, *_ = wave
    parts = kept_parts(path)
    assert private_cluster.sum(Kills(str(tmp_path / "mark")), parts, label="held") == len(parts)
    expected = SerialRuntime().sum(Weighted(1.0), parts, label="held")
    np.testing.assert_array_equal(private_cluster.sum(Weighted(1.0), parts, label="held"), expected)
    assert len(private_cluster._held) == 1


@pytest.mark.slow
def test_a_worker_dies_in_between(wave, private_cluster):
    path, *_ = wave
    parts = kept_parts(path)
    expected = private_cluster.sum(Weighted(1.0), parts, label="held")
    os.kill(next(iter(private_cluster._client.run(os.getpid).values())), signal.SIGKILL)
    np.testing.assert_allclose(
        private_cluster.sum(Weighted(1.0), parts, label="held"), expected, rtol=1e-14
    )  # another order


@pytest.mark.slow
def test_what_kills_every_worker_is_said(wave, private_cluster):
    path, *_ = wave
    with pytest.raises(WorkerLost, match="workers died each time they were computed"):
        private_cluster.sum(Kills(""), kept_parts(path), label="held")


def test_partitions_are_spread_by_their_rows():
    assert pinned.distribute([500, 500, 300, 250], {"b": 1, "a": 1}) == {"a": [[0, 2]], "b": [[1, 3]]}
    assert pinned.distribute([3, 2, 1], {"a": 4, "b": 1}) == {"a": [[0], [2]], "b": [[1]]}
    assert pinned.distribute([1], {"a": 2, "b": 2}) == {"a": [[0]]}
