"""Whole fits on a cluster that grows, restarts, idles or has a slow worker."""

import contextlib
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
from processes import no_hang, wait_until

from bcmdist import GBCM, DaskRuntime, Settings
from bcmdist.data.partition import Span
from bcmdist.errors import SchedulerLost
from problems import GIVEN, assert_same_committee

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SPANS = [Span(k, k + 1) for k in range(40)]


@contextlib.contextmanager
def threads(workers):
    """A cluster in this process, whose workers start at once."""
    options = {"processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": None}
    with no_hang(120), distributed.LocalCluster(n_workers=workers, threads_per_worker=1, **options) as cluster:
        yield cluster


class Executed(distributed.SchedulerPlugin):
    """Counts the tasks that each worker has done."""

    def __init__(self, of):
        self.of, self.tasks = of, Counter()

    def transition(self, key, start, finish, *_, worker=None, **__):
        if self.of in str(key) and (start, finish) == ("processing", "memory"):
            self.tasks[worker] += 1


def test_all_of_eleven_workers_that_join_a_fit_are_used(make_data, rng):
    X = rng.uniform(-2, 2, (160_000, 2))
    path = make_data("large.zarr", rows_per_chunk=2000, X=X, y=np.sin(2 * X[:, 0]))
    settings = Settings(kernel="se", learn=False, query=400, rows_per_expert=400, partition="chunks", effort="quick")
    executed = Executed("each-experts")
    with threads(1) as cluster, DaskRuntime(cluster) as runtime:
        cluster.scheduler.add_plugin(executed)
        runtime.progress = lambda label, done, total: label == "experts" and done and cluster.scale(12)
        gbcm = GBCM.fit(path, settings, runtime=runtime)
        assert runtime.threads == 12
    assert len(executed.tasks) == 12
    assert gbcm.info()["partitions"] == 400


def test_a_fit_whose_workers_are_restarted_is_that_of_calm_ones(wave):
    calm = GBCM.fit(wave[0], GIVEN)
    restarted = []
    with no_hang(120), DaskRuntime(workers=2) as runtime:

        def progress(label, done, total):
            if label in ("survey", "experts") and done and label not in restarted:
                restarted.append(label)
                runtime._client.restart()

        runtime.progress = progress
        gbcm = GBCM.fit(wave[0], GIVEN, runtime=runtime)
    assert restarted == ["survey", "experts"]
    assert_same_committee(gbcm.committee, calm.committee)
    assert sorted(entry.key for entry in gbcm.ledger) == sorted(entry.key for entry in calm.ledger)


@dataclass(frozen=True)
class SlowOnOne:
    """Takes a while, on one worker until long after another has begun the same; each run leaves a line."""

    folder: str
    slow: str

    def __call__(self, span, rows):
        worker, path = distributed.get_worker().address, Path(self.folder) / "runs.txt"
        with open(path, "a") as file:
            file.write(f"{span.start} {worker}\n")
        time.sleep(0.2)
        if worker == self.slow:
            wait_until(
                lambda: len({other for n, other in runs_in(path) if n == span.start}) > 1, f"{span} on two workers"
            )
            time.sleep(1.0)
        return 1


def runs_in(path):
    """Numbers and workers of the runs, of whole lines."""
    lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(int(number), worker) for number, worker in lines]


def test_a_partition_on_a_worker_that_is_far_slower_is_tried_elsewhere(tmp_path):
    with threads(2) as cluster, DaskRuntime(cluster) as runtime:
        task = SlowOnOne(str(tmp_path), next(iter(cluster.scheduler.workers)))
        outcomes = list(runtime.each(((task, [span]) for span in SPANS[:16]), label="late"))
    assert sorted(part.start for one in outcomes for part in one.parts) == list(range(16))
    runs = runs_in(tmp_path / "runs.txt")
    again = [number for number, count in Counter(number for number, _ in runs).items() if count > 1]
    assert again
    assert all({worker == task.slow for number, worker in runs if number == one} == {True, False} for one in again)


def three_seconds(span, rows):
    time.sleep(3.0)
    return 1


def test_a_scheduler_with_an_idle_time_out_waits_for_work_and_its_end_is_an_error():
    times = {"distributed.scheduler.idle-timeout": "1s", "distributed.comm.timeouts.connect": "1s"}
    with dask.config.set(times), threads(1) as cluster:
        runtime = DaskRuntime(cluster)
        with runtime:
            assert runtime.sum(three_seconds, SPANS[:1], label="long") == 1
            wait_until(lambda: cluster.scheduler.status.name == "closed", "the end of the scheduler")
            with pytest.raises(SchedulerLost, match=r"after: the scheduler went away .* start it again"):
                runtime.sum(three_seconds, SPANS[:1], label="after")
