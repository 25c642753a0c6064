"""Connect to a cluster and check its workers: one BLAS thread per worker thread."""

import asyncio
import logging
import multiprocessing
import os
import signal
import tempfile
import time
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import distributed
import scipy.linalg  # noqa: F401  (loads the BLAS whose threads are limited)
import threadpoolctl
from dask.system import CPU_COUNT
from distributed.comm import connect as open_comm

from bcmdist.errors import BcmdistWarning, InvalidOption, SchedulerUnreachable, WorkerLost
from bcmdist.runtime.allocation import keep_pages
from bcmdist.runtime.dask import forkserver
from bcmdist.runtime.dask.existing import ExistingCluster, existing_cluster, nothing_starts
from bcmdist.runtime.dask.security import refuse_plain, refuse_strangers, security_for
from bcmdist.runtime.portion import untold
from bcmdist.runtime.threads import one_thread

CONNECT_SECONDS = 10
START_TRIES = 3  # attempts to start a local cluster, whose workers may be killed during their start
WORKERS_SECONDS = 60  # timeout for the first worker, or for a new one after all have died
UNANSWERED = (OSError, TimeoutError, ValueError)  # raised by Dask if nothing answers, or if the address is invalid
AGAIN_SECONDS = 0.2  # between two attempts to reach workers that died
# Time after which a local cluster gives up a killed worker that has not restarted. Dask's default of 15 s is too short
# on a busy machine.
LOST_WORKER = "1 day"
# By default Dask wakes each scheduler, nanny and worker 50 times a second to time its event loop, and samples the stack
# of each worker 100 times a second: idle, 6 % of a core with two workers. Nobody looks at these of a local cluster.
FEW_SAMPLES = {"distributed.admin.tick.interval": "500ms", "distributed.worker.profile.enabled": False}


class LimitBlas(distributed.WorkerPlugin):
    """Limits BLAS to one thread per worker thread while a client needs the limit; applies to later workers too.

    Several clients may share a worker: when the last client leaves, the previous number is restored (`one_thread`).
    """

    def __init__(self, client_id: str):
        self.name = f"bcmdist-limit-blas-{client_id}"

    def setup(self, worker) -> None:
        """Limit the BLAS libraries loaded in the worker."""
        self._limited = one_thread()
        self._limited.__enter__()

    def teardown(self, worker) -> None:
        """Restore the previous number of threads, unless another client needs the limit."""
        self._limited.__exit__(None, None, None)


class KeepPages(distributed.WorkerPlugin):
    """Makes workers keep the memory that tasks free (`keep_pages`); applies to later workers too.

    There is no teardown: the previous settings cannot be queried, so the change lasts for the life of the worker.
    """

    def __init__(self, client_id: str):
        self.name = f"bcmdist-keep-pages-{client_id}"

    def setup(self, worker) -> None:
        """Apply the settings to the whole worker process."""
        keep_pages()


class IgnoreInterrupts(distributed.WorkerPlugin):
    """Makes local workers ignore Ctrl-C, which a terminal sends to them too; the client process handles it and ends
    them."""

    name = "bcmdist-ignore-interrupts"

    def setup(self, worker) -> None:
        """Ignore SIGINT for the life of the process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """A temporary directory for files that a local cluster spills; removed when the cluster is closed."""
    where = dask.config.get("temporary-directory")
    return tempfile.TemporaryDirectory(prefix="bcmdist-", dir=where, ignore_cleanup_errors=True)


def local_cluster(workers: int | None, scratch) -> distributed.LocalCluster:
    """Start a cluster of processes on this machine.

    Parameters
    ----------
    workers : number of worker processes; None for one per core
    scratch : directory for files that workers spill; they leave an empty directory behind

    Raises
    ------
    InvalidOption
        The calling script is being imported by a child process: its main part is not guarded.
    WorkerLost
        In every attempt a worker ended before it had started.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidOption(
            "a cluster of processes needs the script's main part under\n    if __name__ == '__main__':\n"
            "        ...\nbecause every worker imports the script; move the calls there, or use the serial runtime"
        )
    dask.config.set({"distributed.deploy.lost-worker-timeout": LOST_WORKER})
    environment = None
    if forkserver.start():
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        environment = dict(os.environ)  # otherwise workers get the environment of the first cluster's forkserver
    with dask.config.set({"temporary-directory": scratch} | FEW_SAMPLES):  # for the scheduler and the nannies too
        return _started(workers or CPU_COUNT, environment)


def _started(workers, environment):
    """Start a cluster, again if a worker dies during its start: Dask only replaces workers that die later."""
    failed = None
    for _ in range(START_TRIES):
        try:
            return distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                env=environment,
                silence_logs=logging.CRITICAL,  # workers that die and are replaced are expected
            )
        except RuntimeError as error:
            failed = error
    raise WorkerLost(
        f"expected {workers} workers to start on this machine, one ended before it had started, in each of "
        f"{START_TRIES} tries ({failed}); see whether memory runs out, or give fewer --workers or --serial"
    ) from failed


def connect_local(cluster, seconds) -> distributed.Client:
    """Connect to a local cluster of our own; return the client once there is a worker.

    Raises
    ------
    SchedulerUnreachable
    """
    try:
        client = distributed.Client(cluster, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise unanswered("the local cluster", seconds) from error
    return with_workers(client, "the local cluster")


def connect(existing: ExistingCluster, seconds, security=None, waits=untold) -> distributed.Client:
    """Connect to the scheduler of an existing cluster; return the client once there is a worker.

    Raises
    ------
    SchedulerUnreachable, CertificateRefused, InvalidOption
    """
    client = client_of(existing.address, seconds, security or existing.security)
    return with_workers(client, existing.address, starting=existing.starting, waits=waits)


def client_of(address, seconds, security=None) -> distributed.Client:
    """Connect to the scheduler at an address, with or without workers; raises the same errors as `connect`."""
    address = existing_cluster(address).address
    security = security_for(address, security)
    refuse_strangers(address, security)
    try:
        in_a_thread(shake_hands(address, seconds, security))
        return distributed.Client(address, timeout=seconds, set_as_default=False, security=security)
    except UNANSWERED as error:
        refuse_plain(address)
        raise unanswered(address, seconds) from error


def unanswered(name, seconds) -> SchedulerUnreachable:
    """The error for a scheduler that did not answer within `seconds`."""
    return SchedulerUnreachable(
        f"expected a Dask scheduler at {name}, none answered within {seconds:g} s; start one with `dask scheduler` and "
        "name its address by --scheduler, or work on this machine without one"
    )


def with_workers(client, name, *, starting=nothing_starts, waits=untold) -> distributed.Client:
    """Wait until the cluster of `client` has a worker and return the client, or close it; `name` is for the error."""
    try:
        await_worker(client, name, starting, waits)
    except BaseException:
        client.close()
        raise
    return client


def await_worker(client, name, starting, waits=untold) -> None:
    """Wait for a worker, at most `WORKERS_SECONDS` and for as long as workers are `starting`.

    A task waits, too: without one, a cluster that adapts starts no worker, or ends an idle one before it has any work.

    Raises
    ------
    SchedulerUnreachable
    """
    probe, deadline = None, time.monotonic() + WORKERS_SECONDS
    while not client.scheduler_info(n_workers=0)["n_workers"]:
        if probe is None:
            waits(f"waiting for a worker: the cluster at {name} has none")
            probe = client.submit(str, key=f"await-worker-{uuid.uuid4().hex}", pure=False)
        if time.monotonic() >= deadline and not starting():
            probe.cancel()
            raise SchedulerUnreachable(
                f"expected at least one worker at the scheduler {name}, none came within {WORKERS_SECONDS} s and none "
                f"is known to be starting; start workers with `dask worker {name}`"
            )
        time.sleep(AGAIN_SECONDS)


async def shake_hands(address, seconds, security) -> None:
    """Open and close a connection, to fail in time if the listener is no scheduler: a Dask client would hang."""
    shown = security.get_connection_args("client")
    try:
        comm = await asyncio.wait_for(open_comm(address, timeout=seconds, **shown), seconds)
    except UNANSWERED:
        raise
    except Exception as error:  # Dask may read the first bytes as anything, such as a huge message length
        raise SchedulerUnreachable(
            f"expected a Dask scheduler at {address}, something else answers there ({type(error).__name__}); give the "
            "address that `dask scheduler` prints, not that of its dashboard"
        ) from error
    comm.abort()


def in_a_thread(coroutine) -> Any:
    """Run a coroutine in a new thread and return its result; a notebook's event loop already runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def answering_workers(client) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `worker_facts` of the workers that answer (at least one) and the scheduler's records of all workers.

    Both are dicts by worker address.

    Raises
    ------
    SchedulerUnreachable
        All workers died before they answered, and no new worker came in time.
    """
    deadline = time.monotonic() + WORKERS_SECONDS
    while True:
        answers = client.run(worker_facts, on_error="return")
        workers = client.scheduler_info(n_workers=-1)["workers"]
        facts = {worker: found for worker, found in answers.items() if not isinstance(found, OSError)}
        for error in (found for found in facts.values() if isinstance(found, Exception)):
            raise error
        if workers.keys() & facts.keys():
            return facts, workers
        if time.monotonic() >= deadline:
            raise SchedulerUnreachable(
                f"expected at least one worker that answers, those there were died while they were asked, and none "
                f"came within {WORKERS_SECONDS} s; see what ended them, and start workers with `dask worker`"
            )
        time.sleep(AGAIN_SECONDS)


def worker_facts() -> dict[str, Any]:
    """Return `blas`, the number of threads by library path, and `memory`, the machine's memory in bytes."""
    import psutil

    return {
        "blas": {lib["filepath"]: lib["num_threads"] for lib in _blas()},
        "memory": psutil.virtual_memory().total,
    }


def _blas():
    return [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]


def check_blas(facts) -> None:
    """Raise `InvalidOption` if a worker's BLAS has several threads; warn if a worker's BLAS is not recognised."""
    for worker, f in facts.items():
        if not f["blas"]:
            text = f"no BLAS that can be limited was found on {worker}; set OMP_NUM_THREADS=1 there, and its like"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        if any(threads != 1 for threads in f["blas"].values()):
            raise InvalidOption(
                f"expected one BLAS thread per worker thread, got {f['blas']} on {worker}; set OMP_NUM_THREADS, "
                "OPENBLAS_NUM_THREADS and MKL_NUM_THREADS to 1 before starting workers"
            )
