"""What the Dask runtime promises beyond the facade's tests: size of tasks, faults, refusals."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import distributed
import numpy as np
import pytest
import threadpoolctl
from processes import free_port, wait_until

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import (
    InvalidOption,
    NotPositiveDefinite,
    SchedulerLost,
    SchedulerUnreachable,
    WorkerCannotRead,
    WorkerLost,
)
from bcmdist.experts.contributions import Expert
from bcmdist.learning.evidence.local_tasks import Evidence, LocalEvidence
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.scaling import Scaling
from bcmdist.runtime.dask import batches, connection
from bcmdist.runtime.dask import cluster as module
from bcmdist.runtime.dask.cluster import DaskRuntime
from bcmdist.runtime.interface import run_batch
from bcmdist.storage.commits import Reference
from problems import GIVEN, assert_same_committee

pytestmark = pytest.mark.alone


@dataclass(frozen=True)
class Rows:
    """Adds up rows."""

    def __call__(self, part, rows):
        return len(rows.X)


@dataclass(frozen=True)
class KillOnce:
    """Kills its worker the first time it meets one partition, then counts the runs of each."""

    folder: str
    victim: int

    def __call__(self, part, rows):
        with open(os.path.join(self.folder, "runs.txt"), "a") as file:
            file.write(f"{part.start}\n")
        flag = Path(self.folder, "killed")
        if part.start == self.victim and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Evidence(1.0, np.full(2, float(part.start)), 0)


@dataclass(frozen=True)
class KillAlways:
    """A partition that no worker survives."""

    def __call__(self, part, rows):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fail:
    """A partition whose matrix is not positive definite."""

    def __call__(self, part, rows):
        raise NotPositiveDefinite("R: not today")


@pytest.mark.slow
def test_sum_over_many_batches_is_the_serial_sum(wave, cluster):
    path, *_ = wave
    parts = partitions(open_data(path), 50)
    many = [part.head(rows) for part in parts for rows in range(1, 41)]
    seen = []
    cluster.progress = lambda label, done, total: seen.append((label, done, total))
    try:
        assert cluster.sum(Rows(), many, label="count") == SerialRuntime().sum(Rows(), many, label="count")
    finally:
        cluster.progress = lambda *_: None
    assert seen[0] == ("count", 0, 200)
    assert seen[-1] == ("count", 200, 200)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_tasks_carry_references_and_not_data(wave):
    path, *_ = wave
    parts = partitions(open_data(path), 15)[: batches.BATCH_PARTITIONS]
    D = 100
    scaling = Scaling(np.ones(D), np.ones(D), 0.0, 1.0)
    kernel = parse_kernel("se", inputs=D).with_parameters({"lengthscale": np.full(D, 1.0 / 3)})
    learn = LocalEvidence(scaling, kernel, "constant", Gaussian(0.1), None)
    for task in (Expert(Reference("/some/long/path/to/a/model", 1, "d" * 64)), learn):
        assert len(pickle.dumps((run_batch, task, parts))) <= 10_000


@pytest.mark.slow
def test_work_in_flight_is_bounded(wave, cluster, monkeypatch):
    path, *_ = wave
    many = [part.head(1) for part in partitions(open_data(path), 50)] * 40
    flying = []
    original = DaskRuntime._wait

    def count(self, futures, pulse):
        flying.append(len(futures))
        return original(self, futures, pulse)

    monkeypatch.setattr(DaskRuntime, "_wait", count)
    cluster.sum(Rows(), many, label="bounded")
    assert max(flying) <= module.WINDOW * cluster.threads


def test_batches_are_small_enough_to_redo_and_many_enough_to_balance():
    for partitions_, threads in [(1, 2), (10, 2), (64, 2), (10_000, 4)]:
        found = batches.batches_of(list(range(partitions_)), threads)
        assert [p for batch in found for p in batch] == list(range(partitions_))
        assert max(map(len, found)) <= batches.BATCH_PARTITIONS
        assert len(found) >= min(partitions_, batches.BATCHES_PER_THREAD * threads)


def test_blas_is_limited_to_one_thread_per_worker_thread(cluster):
    facts = cluster._client.run(connection.worker_facts)
    assert len(facts) == 2
    for fact in facts.values():
        assert fact["blas"]
        assert set(fact["blas"].values()) == {1}


def test_a_client_that_leaves_leaves_the_limit_to_others(cluster):
    with DaskRuntime(cluster._client.scheduler.address):
        pass
    for fact in cluster._client.run(connection.worker_facts).values():
        assert set(fact["blas"].values()) == {1}


def test_the_last_to_leave_gives_back_the_threads():
    def threads():
        return set(connection.worker_facts()["blas"].values())

    one, other = connection.LimitBlas("one"), connection.LimitBlas("other")
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        one.setup(None)
        other.setup(None)
        one.teardown(None)
        assert threads() == {1}
        other.teardown(None)
        assert threads() == {2}


def test_everything_of_a_local_cluster_listens_on_loopback(cluster):
    import psutil

    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for opened in process.net_connections(kind="inet"):
            if opened.status == psutil.CONN_LISTEN:
                assert opened.laddr.ip in ("127.0.0.1", "::1"), process


# --- Faults ---


@pytest.mark.slow
def test_kill_9_of_a_worker_changes_nothing(wave, tmp_path):
    path, *_ = wave
    parts = partitions(open_data(path), 50)
    many = [part.head(rows) for part in parts for rows in range(1, 9)]
    with DaskRuntime(workers=2) as runtime:
        total = runtime.sum(KillOnce(str(tmp_path), many[20].start), many, label="killed")
    assert (tmp_path / "killed").exists()
    assert total.value == len(many)
    np.testing.assert_array_equal(total.gradient, np.full(2, float(sum(p.start for p in many))))


@pytest.mark.slow
def test_kill_9_of_a_worker_during_fit(make_data, tmp_path, rng):
    """The whole fit, killed from outside in the middle of the experts' work."""
    X = rng.uniform(-2, 2, (4000, 2))
    path = make_data("large.zarr", rows_per_chunk=200, X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(4000))
    settings = Settings(partition="chunks", kernel="se", learn=False, query=300, rows_per_expert=200)
    calm = GBCM.fit(path, settings, model=tmp_path / "calm")
    killed = []

    def kill(label, done, total):
        if label == "experts" and done >= 4 and not killed:
            killed.append(next(iter(runtime._client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with DaskRuntime(workers=2, progress=kill) as runtime:
        start = time.monotonic()
        gbcm = GBCM.fit(path, settings, model=tmp_path / "killed", runtime=runtime)
        assert time.monotonic() - start < 120  # no hang
    assert killed
    assert_same_committee(gbcm.committee, calm.committee)
    assert gbcm.ledger == calm.ledger


@dataclass(frozen=True)
class Slow:
    """Takes a while."""

    def __call__(self, part, rows):
        time.sleep(0.3)
        return 1


def start_dask(what, *options, log):
    """A scheduler or worker of its own on loopback, which can import the tests' tasks."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
    loopback = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    paths = os.pathsep.join(map(str, Path(__file__).parents[:2]))  # where the tasks of tests are, and what these import
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.Popen([*command, *loopback], stderr=log, env=environment)


@pytest.mark.slow
def test_a_scheduler_that_dies_is_an_error_and_no_hang(wave, tmp_path):
    path, *_ = wave
    parts = [part.head(1) for part in partitions(open_data(path), 50)] * 40
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with open(tmp_path / "log.txt", "w") as log:
        scheduler = start_dask("scheduler", "--port", str(port), log=log)
        worker = start_dask("worker", address, "--nthreads", "1", log=log)

        def kill(label, done, total):
            if done >= 2:
                scheduler.kill()

        try:
            with DaskRuntime(address, progress=kill, connect_seconds=30) as runtime:
                start = time.monotonic()
                with pytest.raises(SchedulerUnreachable, match=r"slow: the scheduler went away after \d+ of 200"):
                    runtime.sum(Slow(), parts, label="slow")
                assert time.monotonic() - start < 60
        finally:
            for process in (scheduler, worker):
                process.terminate()
                process.wait(timeout=30)


@dataclass(frozen=True)
class SlowToAdd:
    """A result that takes its time to be added to another."""

    folder: Path

    def __call__(self, part, rows):
        (self.folder / f"{part.start}").touch()
        return self

    def __add__(self, other):
        time.sleep(3)
        return self


def test_what_is_done_is_counted_while_the_sum_is_not_there(wave, tmp_path, cluster, monkeypatch):
    """Afterwards, when futures were lost with the scheduler, nobody can tell."""
    path, *_ = wave
    parts = partitions(open_data(path), 50)[:2]

    def lose(pulse, error):
        raise pulse.lost() from error

    def cancel():
        wait_until(lambda: all((tmp_path / f"{part.start}").exists() for part in parts), "both partitions")
        time.sleep(0.3)  # less than a pulse
        cluster._client.cancel(_futures(cluster._client))

    monkeypatch.setattr(module.Heartbeat, "check_lost", lose)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(SchedulerLost, match="slow: the scheduler went away after 2 of 2 partitions"):
        cluster.sum(SlowToAdd(tmp_path), parts, label="slow")
    canceller.join()


def _futures(client):
    return [distributed.Future(key, client) for key in client.futures]


class Answers:
    """A client whose workers answer in turn so, and then no more."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def run(self, function, on_error):
        return self.answers.pop(0) if self.answers else {}

    def scheduler_info(self, n_workers):
        return {"workers": {"tcp://b": {"nthreads": 1}}}


def test_the_only_worker_dies_while_it_is_asked(monkeypatch):
    """Its successor is waited for, and where none comes that is said."""
    died, good = {"tcp://a": OSError("closed")}, {"tcp://b": {"blas": {}}}
    assert connection.answering_workers(Answers(died, {}, good))[0] == good
    monkeypatch.setattr(connection, "WORKERS_SECONDS", 0)
    with pytest.raises(SchedulerUnreachable, match=r"expected at least one worker that answers, .* start workers"):
        connection.answering_workers(Answers(died))
    with pytest.raises(ImportError, match="no psutil"):
        connection.answering_workers(Answers({"tcp://b": ImportError("no psutil")}))


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [2, module.MOST_DEATHS + 1])
def test_workers_die_while_they_are_told(monkeypatch, deaths):
    """As Dask tells of it: the closed connection of the worker, though the others have been told."""
    register, left = distributed.Client.register_plugin, [deaths]

    def told(client, plugin, *more):
        if left[0]:
            left[0] -= 1
            raise distributed.comm.CommClosedError("in <TCP (closed) ConnectionPool.register_worker_plugin>")
        return register(client, plugin, *more)

    monkeypatch.setattr(distributed.Client, "register_plugin", told)
    if deaths > module.MOST_DEATHS:
        with pytest.raises(OSError, match="register_worker_plugin"):
            DaskRuntime(workers=1)
    else:
        with DaskRuntime(workers=1) as runtime:
            assert runtime.threads == 1


@pytest.mark.slow
def test_a_partition_that_kills_every_worker_is_named(wave):
    path, *_ = wave
    parts = partitions(open_data(path), 50)
    with (
        DaskRuntime(workers=1) as runtime,
        pytest.raises(
            WorkerLost, match=r"X\[0:50\] to .*workers died each time they were computed.*lower --rows-per-expert"
        ),
    ):
        runtime.sum(KillAlways(), parts[:1], label="poison")


@pytest.mark.slow
def test_errors_of_experts_name_the_partition(wave, cluster):
    path, *_ = wave
    parts = partitions(open_data(path), 50)
    for runtime in (cluster, SerialRuntime()):
        with pytest.raises(NotPositiveDefinite, match=r"wave.zarr/X\[100:150\]: R: not today"):
            runtime.sum(Fail(), parts[2:3], label="fail")
    assert cluster.sum(Rows(), parts, label="after") == 240  # the cluster is still of use


@dataclass(frozen=True)
class SlowThenFail:
    """The first partition takes a while, the others fail at once."""

    def __call__(self, part, rows):
        if part.start == 0:
            return Slow()(part, rows)
        return Fail()(part, rows)


def test_an_error_is_told_while_others_are_still_running(wave, cluster):
    path, *_ = wave
    parts = partitions(open_data(path), 50)[:2]
    with pytest.raises(NotPositiveDefinite, match=r"\[50:100\]: R: not today"):
        cluster.sum(SlowThenFail(), parts, label="fail")


# --- Refusals ---


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer():
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(
        SchedulerUnreachable, match=rf"expected a Dask scheduler at {address}, none answered within 1 s"
    ):
        DaskRuntime(address, connect_seconds=1)


@pytest.mark.slow
def test_something_listens_that_is_no_scheduler():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SchedulerUnreachable, match=f"at {address}, none answered within 1 s"):
            DaskRuntime(address, connect_seconds=1)


FOREIGN = [
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.9\r\n",
    bytes(64),
    bytes([1, *bytes(7), 5, *bytes(7)]) + b"hello",
    b"\xff" * 64,
]


@pytest.mark.parametrize("greeting", FOREIGN)
def test_something_answers_that_is_no_scheduler(greeting):
    """Its first bytes are no length of a message: no memory is taken for 3 EiB of it."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def greet():
            line, _ = server.accept()
            with line:
                line.sendall(greeting)
                line.recv(1)

        pool.submit(greet)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SchedulerUnreachable, match=f"expected a Dask scheduler at {address}, "):
            DaskRuntime(address, connect_seconds=5)


@pytest.mark.parametrize("given", [8786, ["tcp://127.0.0.1:8786"], b"tcp://127.0.0.1:8786"])
def test_an_address_of_another_type_is_named(given):
    with pytest.raises(InvalidOption, match=rf"expected the address of a scheduler.*, got {type(given).__name__}"):
        DaskRuntime(given)


def test_a_cluster_can_be_joined_from_inside_an_event_loop(cluster):
    """As in a notebook."""

    async def join():
        with DaskRuntime(cluster._client.scheduler.address) as runtime:
            return runtime.threads

    assert asyncio.run(join()) == 2


def test_an_address_that_is_none():
    with pytest.raises(SchedulerUnreachable, match="expected a Dask scheduler at"):
        DaskRuntime("nonsense://1", connect_seconds=1)


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text("from bcmdist import DaskRuntime\nwith DaskRuntime(workers=1):\n    print('fitted')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert "if __name__ == '__main__':" in done.stderr
    assert "every worker imports the script" in done.stderr


def test_workers_must_be_positive():
    with pytest.raises(InvalidOption, match="workers: expected at least 1, got 0"):
        DaskRuntime(workers=0)


def test_workers_that_see_something_else_are_named(cluster):
    def probe():
        return f"process {os.getpid()}"

    with pytest.raises(WorkerCannotRead, match=r"worker tcp://127.0.0.1:\d+ must see /data/a.zarr as the client does"):
        cluster.check_same(probe, url="/data/a.zarr")


def test_fit_is_refused_where_workers_cannot_see_the_data(wave, tmp_path, cluster):
    """A worker with another file system: here, one that sees an empty directory instead of the data."""
    path, *_ = wave
    hidden = tmp_path / "hidden.zarr"
    cluster._client.run(_hide, path, str(hidden))
    try:
        with pytest.raises(WorkerCannotRead, match=rf"worker tcp://.* must see {path} .*expected a Zarr group at"):
            GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=cluster)
    finally:
        cluster._client.run(_unhide)
    assert not (tmp_path / "model").exists()


def test_fit_is_refused_where_workers_cannot_see_the_model(wave, tmp_path, cluster):
    path, *_ = wave
    cluster._client.run(_blind)
    try:
        with pytest.raises(WorkerCannotRead, match=rf"worker tcp://.* must see {tmp_path}/model as the client does"):
            GBCM.fit(path, GIVEN, model=tmp_path / "model", runtime=cluster)
    finally:
        cluster._client.run(_see_again)
    assert not (tmp_path / "model").exists()


def _blind():
    from bcmdist.storage import disk

    def get(self, name):
        raise FileNotFoundError(f"{self.url}/{name}")

    disk.original_get, disk.LocalStorage.get = disk.LocalStorage.get, get


def _see_again():
    from bcmdist.storage import disk

    disk.LocalStorage.get = disk.original_get


def _hide(path, elsewhere):
    from bcmdist.data import groups

    groups.hidden_original = groups.absolute_url
    groups.absolute_url = lambda url: elsewhere if str(url) == path else groups.hidden_original(url)


def _unhide():
    from bcmdist.data import groups

    groups.absolute_url = groups.hidden_original
