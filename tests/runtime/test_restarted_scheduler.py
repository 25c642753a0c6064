"""A scheduler that is replaced by another one at its address: Dask's client connects to it and goes on as if nothing
had happened, while plugins, futures and parts of the cluster are gone. That is `SchedulerLost`, at once."""

import contextlib
import threading

import distributed
import pytest
from processes import free_port, no_hang, wait_until
from test_cluster import Rows

from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import SchedulerLost
from bcmdist.runtime.dask import cluster as module
from bcmdist.runtime.dask.cluster import DaskRuntime


class Restarted:
    """A scheduler in this process, on a port that its successor takes, and a worker of each."""

    def __init__(self):
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.cluster = distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            host="127.0.0.1",
            scheduler_port=self.port,
            dashboard_address=None,
        )

    def restart(self, client):
        """Another scheduler; returns when the client works with it."""
        before = client.scheduler_info(n_workers=0)["id"]
        comm = client.scheduler_comm.comm
        self.cluster.close()
        self.start()
        if not comm.closed():
            client.loop.add_callback(comm.abort)
        wait_until(lambda: client.status == "running" and self._of(client) not in (None, before), "another scheduler")

    def _of(self, client):
        with contextlib.suppress(OSError):
            return client.scheduler_info(n_workers=0)["id"]


@pytest.fixture
def restarted():
    with no_hang(60):
        found = Restarted()
        yield found
        found.cluster.close()


def test_work_after_a_restart_is_refused(restarted, wave):
    parts = partitions(open_data(wave[0]), 50)
    with DaskRuntime(restarted.address) as runtime:
        assert runtime.sum(Rows(), parts, label="rows") == 240
        restarted.restart(runtime._client)
        with pytest.raises(SchedulerLost, match="rows: the scheduler went away after 0 of 5 partitions"):
            runtime.sum(Rows(), parts, label="rows")
        with pytest.raises(SchedulerLost, match="each: the scheduler went away"):
            list(runtime.each([(Rows(), [part]) for part in parts], label="each"))
        with pytest.raises(SchedulerLost, match="check of check: the scheduler went away"):
            runtime.check_same(str, url="check")


@pytest.mark.parametrize("share", [None, 1.0])
@pytest.mark.parametrize("step", ["check_versions", "LimitBlas", "DeathIsFinal", "check_blas", "ask"])
def test_a_restart_while_a_command_starts_is_refused(restarted, monkeypatch, step, share):
    """At whatever step: before this it waited for answers to questions that the other scheduler does not know."""
    if step == "ask" and share is None:
        pytest.skip("only who asks for a part waits")
    clients, once = [], threading.Event()
    monkeypatch.setattr(
        module, "EventChannel", lambda client, make=module.EventChannel: clients.append(client) or make(client)
    )

    def restart_once(*_):
        if not once.is_set():
            once.set()
            restarted.restart(clients[0])

    if step == "ask":
        run = module.Heartbeat.on_scheduler
        monkeypatch.setattr(
            module.Heartbeat,
            "on_scheduler",
            lambda pulse, function, *given: (
                (function.__name__ == step and restart_once()) or run(pulse, function, *given)
            ),
        )
    else:
        before = getattr(module, step)
        monkeypatch.setattr(module, step, lambda *given: restart_once() or before(*given))
    with (
        pytest.raises(SchedulerLost, match="the scheduler went away"),
        DaskRuntime(restarted.address, share=share) as own,
    ):
        list(own.each([], label="each"))
