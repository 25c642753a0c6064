"""Clusters whose workers come and go while work is under way, or that start none before there is work."""

import contextlib
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import distributed
import pytest
from processes import no_hang

from bcmdist import GBCM, DaskRuntime, SerialRuntime
from bcmdist.data.partition import Span
from bcmdist.errors import SchedulerLost, SchedulerUnreachable, VersionMismatch, WorkerCannotRead
from bcmdist.runtime.dask import connection, heartbeat, versions
from bcmdist.runtime.dask.allotment import Usable
from bcmdist.runtime.dask.existing import ExistingCluster, existing_cluster
from bcmdist.runtime.interface import Parted
from problems import GIVEN, assert_same_committee

pytestmark = pytest.mark.alone

SPANS = [Span(k, k + 1) for k in range(60)]


@dataclass(frozen=True)
class Names:
    """Names of spans; can be weighted by 1."""

    names: tuple[str, ...]

    def __add__(self, other):
        return Names(self.names + other.names)

    def weighted(self, weight):
        return self


@dataclass(frozen=True)
class Busy:
    """Takes a while and says where."""

    folder: str
    seconds: float = 0.1
    parted: ClassVar[bool] = True

    def __call__(self, part, rows):
        worker = distributed.get_worker().address
        with open(Path(self.folder) / "runs.txt", "a") as file:
            file.write(f"{worker}\n")
        time.sleep(self.seconds)
        return Parted(((part.key, worker),), Names((part.key,)))


@contextlib.contextmanager
def local(workers, **options):
    with (
        no_hang(180),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", **options
        ) as cluster,
    ):
        yield cluster


@dataclass(frozen=True)
class Listed:
    """A probe that finds the same in the processes that a file lists only."""

    path: str

    def __call__(self):
        return "same" if str(os.getpid()) in Path(self.path).read_text().split() else "other"


def test_workers_that_join_are_checked_as_those_that_were_there(tmp_path, monkeypatch):
    task, listed, found = Busy(str(tmp_path)), tmp_path / "listed", versions._of_workers
    with local(1) as cluster, DaskRuntime(cluster.scheduler_address) as runtime:
        known = [os.getpid(), *runtime._client.run(os.getpid).values()]
        listed.write_text(" ".join(map(str, known)))
        runtime.check_same(Listed(str(listed)), url="/data/a.zarr")
        cluster.scale(2)
        with pytest.raises(WorkerCannotRead, match=r"worker tcp://.* must see /data/a.zarr as .* got 'other'"):
            list(runtime.each(((task, [span]) for span in SPANS * 4), label="joined"))
        monkeypatch.setattr(
            versions,
            "_of_workers",
            lambda *asked: {where: one | {"numpy": "1.0"} for where, one in found(*asked).items()},
        )
        with pytest.raises(VersionMismatch, match=r"expected .*: numpy .*, got 1.0 on tcp://"):
            list(runtime.each(((task, [span]) for span in SPANS * 4), label="joined"))


def test_workers_that_join_become_busy_and_one_that_retires_loses_nothing(tmp_path):
    task = Busy(str(tmp_path))
    with local(1) as cluster, DaskRuntime(cluster.scheduler_address) as runtime:
        outcomes = runtime.each(((task, [span]) for span in SPANS * 2), label="joined")
        found = [next(outcomes) for _ in range(5)]
        assert runtime.threads == 1
        cluster.scale(4)
        found += [next(outcomes) for _ in range(60)]
        assert runtime.threads > 1
        first = found[0].result[0][1]
        runtime._client.retire_workers([first])
        found += list(outcomes)
        runs = Counter(Path(tmp_path, "runs.txt").read_text().split())
        assert len(runs) == 4
        assert not any(outcome.error for outcome in found)
        names = sorted(name for outcome in found for name, _ in outcome.result)
        assert names == sorted(2 * [span.key for span in SPANS])
        kept = found[0].kept
        for outcome in found[1:]:
            kept += outcome.kept
        assert sorted(runtime.total(kept, label="total").names) == names


def test_a_sum_uses_workers_that_join(tmp_path):
    task = Counted(str(tmp_path))
    with local(1) as cluster, DaskRuntime(cluster) as runtime:
        scaled = []

        def progress(label, done, total):
            if done >= 2 and not scaled:
                scaled.append(cluster.scale(3))

        runtime.progress = progress
        assert runtime.sum(task, SPANS * 6, label="joined") == 360
    assert len(set(Path(tmp_path, "runs.txt").read_text().split())) == 3


def test_a_cluster_that_adapts_runs_a_fit_from_nothing(wave):
    path, *_ = wave
    with local(0) as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="200ms")
        said = []
        with DaskRuntime(cluster, waits=said.append) as runtime:
            model = GBCM.fit(path, GIVEN, runtime=runtime)
        assert said == [f"waiting for a worker: the cluster at {cluster.scheduler_address} has none"]
    assert_same_committee(model.committee, GBCM.fit(path, GIVEN, runtime=SerialRuntime()).committee)


def test_a_runtime_waits_for_workers_that_are_starting(monkeypatch):
    monkeypatch.setattr(connection, "WORKERS_SECONDS", 0.5)
    with local(0) as cluster:
        with pytest.raises(SchedulerUnreachable, match=r"none came within 0\.5 s and none is known to be starting"):
            DaskRuntime(cluster.scheduler_address)
        asked = []

        def starting(existing):
            if len(asked) == 2:
                cluster.scale(1)
            asked.append(existing)
            return True

        monkeypatch.setattr(ExistingCluster, "starting", starting)
        with DaskRuntime(cluster) as runtime:
            assert runtime.threads == 1
        assert len(asked) >= 3


class NoWorkers:
    """A client of a scheduler without workers."""

    status = "running"

    def run_on_scheduler(self, function, *_, **__):
        return Usable("scheduler", {}, {}, 0)

    id = "client"


@pytest.mark.parametrize("starts", [True, False])
def test_work_waits_as_long_as_workers_are_starting(monkeypatch, starts):
    monkeypatch.setattr(heartbeat, "WORKERS_SECONDS", 0.0)
    pulse = heartbeat.Heartbeat(NoWorkers(), "scheduler", "fit", 7, starting=lambda: starts)
    if starts:
        assert pulse.check() == []
    else:
        with pytest.raises(SchedulerLost, match=r"fit: expected a worker, there was none for 0\.0 s after 0 of 7"):
            pulse.check()


def test_a_cluster_is_named_by_address_client_or_object():
    with local(1) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        for where in (cluster.scheduler_address, client, cluster):
            found = existing_cluster(where)
            assert found.address == cluster.scheduler_address
            with DaskRuntime(where) as runtime:
                assert runtime.sum(Count(), SPANS, label="count") == 60
        assert (existing_cluster(client).cluster, existing_cluster(cluster).cluster) == (cluster, cluster)
        assert client.submit(os.getpid, pure=False).result(60)  # neither was closed


@pytest.mark.parametrize(
    ("plan", "observed", "expected"), [({0, 1}, {0, 1}, False), ({0, 1}, {0}, True), (set(), set(), False)]
)
def test_workers_are_starting_where_fewer_are_there_than_planned(plan, observed, expected):
    class Queue:
        """Like a cluster of dask-jobqueue, whose jobs may wait in a queue."""

        scheduler_address = "tcp://127.0.0.1:1"

    queue = Queue()
    queue.plan, queue.observed = plan, observed
    assert existing_cluster(queue).starting() is expected
    assert existing_cluster(queue).address == queue.scheduler_address


@dataclass(frozen=True)
class Counted:
    """Counts spans, and says where."""

    folder: str

    def __call__(self, part, rows):
        Busy(self.folder, 0.05)(part, rows)
        return 1


@dataclass(frozen=True)
class Count:
    """Counts spans."""

    def __call__(self, part, rows):
        return 1
