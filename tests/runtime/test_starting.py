"""Workers of a cluster on this machine that are killed while they start."""

import threading

import dask
import distributed
import psutil
import pytest
from processes import no_hang

from bcmdist.errors import WorkerLost
from bcmdist.runtime.dask import connection
from bcmdist.runtime.dask.cluster import DaskRuntime

pytestmark = pytest.mark.alone


class Starting:
    """Stands for Dask's cluster, some of whose workers die while they start."""

    def __init__(self, deaths):
        self.deaths, self.tries = deaths, 0

    def __call__(self, **_):
        self.tries += 1
        if self.tries <= self.deaths:
            raise RuntimeError("Nanny failed to start.")
        return self


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_cluster_whose_worker_dies_at_the_start_is_started_again(monkeypatch, tmp_path, deaths):
    starting = Starting(deaths)
    monkeypatch.setattr(distributed, "LocalCluster", starting)
    assert connection.local_cluster(2, str(tmp_path)) is starting
    assert starting.tries == deaths + 1


def test_a_cluster_whose_workers_always_die_at_the_start_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(distributed, "LocalCluster", Starting(1000))
    with pytest.raises(WorkerLost, match=r"expected 2 workers to start on this machine, .* in each of 3 tries"):
        connection.local_cluster(2, str(tmp_path))


def test_servers_of_a_local_cluster_are_rarely_sampled_and_the_configuration_stays(cluster):
    callbacks = cluster._client.run(lambda dask_worker: list(dask_worker.periodic_callbacks)).values()
    assert all("tick" in names and "profile" not in names for names in callbacks)
    for server in (cluster._cluster.scheduler, *cluster._cluster.workers.values()):
        assert server.periodic_callbacks["tick"].callback_time == 500.0  # milliseconds
    assert dask.config.get("distributed.worker.profile.enabled")


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_starts_is_replaced():
    """The first process that a cluster forks for a worker, as soon as it is there."""
    me, killed = psutil.Process(), threading.Event()
    before = set(me.children(recursive=True))

    def kill():
        while not killed.wait(0.002):
            workers = [c for c in set(me.children(recursive=True)) - before if "forkserver" in " ".join(c.cmdline())]
            for worker in (c for c in workers if c.ppid() != me.pid):
                worker.kill()
                killed.set()
                break

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with no_hang(90), DaskRuntime(workers=2) as runtime:
            assert runtime.threads == 2
    finally:
        early = killed.is_set()
        killed.set()
        killer.join()
    assert early
