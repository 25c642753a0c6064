"""Finding a cluster, and whether its workers can be trusted: same versions, one BLAS thread per worker thread."""

import asyncio
import logging
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import forkserver, resource_tracker
from typing import Any

import dask
import distributed
import scipy.linalg  # noqa: F401  (loads the BLAS whose threads are limited)
import threadpoolctl
from dask.system import CPU_COUNT
from distributed.comm import connect as open_comm
from distributed.utils import get_mp_context

from bcmdist.errors import BcmdistWarning, InvalidOption, SchedulerUnreachable, VersionMismatch, WorkerLost
from bcmdist.runtime.allocation import keep_pages
from bcmdist.runtime.dask.security import refuse_plain, refuse_strangers, security_for
from bcmdist.runtime.signals import withheld
from bcmdist.runtime.threads import one_thread

PACKAGES = ("bcmdist", "numpy", "zarr")  # whose versions must agree
CONNECT_SECONDS = 10
START_TRIES = 3  # of a cluster on this machine, whose workers may be killed before they have started
WORKERS_SECONDS = 60  # how long to wait for a first, or a new, worker
UNANSWERED = (OSError, TimeoutError, ValueError)  # what Dask raises where nobody is there, or the address is none
AGAIN_SECONDS = 0.2  # until workers that died are looked for again
# A cluster on this machine gives up, for good, a worker that was killed and has not started again by then. Dask's
# 15 s are too short where the machine is busy.
LOST_WORKER = "1 day"
# What worker processes of this machine have imported before they start: a server that has done so forks them, and one
# that takes the place of a dead one is there in a fraction of a second.
PRELOADED = [
    "distributed",
    "bcmdist.methods",
    "bcmdist.prediction.errors.arrivals",
    "bcmdist.prediction.scored_rows",
    "bcmdist.runtime.dask.connection",
]


class LimitBlas(distributed.WorkerPlugin):
    """Keeps BLAS at one thread per worker thread for as long as a client needs it, on workers that come later too.

    Several clients may share a worker: the last to leave gives back what was before (`one_thread`).
    """

    def __init__(self, client_id: str):
        self.name = f"bcmdist-limit-blas-{client_id}"

    def setup(self, worker) -> None:
        """Limit the libraries that are loaded."""
        self._limited = one_thread()
        self._limited.__enter__()

    def teardown(self, worker) -> None:
        """Give back what the worker had before, where nobody else needs it."""
        self._limited.__exit__(None, None, None)


class KeepPages(distributed.WorkerPlugin):
    """Lets workers keep the memory that tasks free, workers that come later too; see `keep_pages`.

    There is nothing to tear down: a worker cannot know what it had before, and goes on so for its life.
    """

    def __init__(self, client_id: str):
        self.name = f"bcmdist-keep-pages-{client_id}"

    def setup(self, worker) -> None:
        """For all threads of the process."""
        keep_pages()


class IgnoreInterrupts(distributed.WorkerPlugin):
    """Leaves Ctrl-C, which a terminal sends to workers too, to the process that they work for and that ends them."""

    name = "bcmdist-ignore-interrupts"

    def setup(self, worker) -> None:
        """For the life of the process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for what a cluster of this machine spills, which is removed with it."""
    where = dask.config.get("temporary-directory")
    return tempfile.TemporaryDirectory(prefix="bcmdist-", dir=where, ignore_cleanup_errors=True)


def local_cluster(workers: int | None, scratch) -> distributed.LocalCluster:
    """A cluster of processes on this machine.

    Parameters
    ----------
    scratch : directory for what its workers spill; they leave an empty directory there

    Raises
    ------
    InvalidOption
    WorkerLost
        A worker ended before it had started, in every try.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidOption(
            "a cluster of processes needs the script's main part under\n    if __name__ == '__main__':\n"
            "        ...\nbecause every worker imports the script; move the calls there, or use the serial runtime"
        )
    dask.config.set({"distributed.deploy.lost-worker-timeout": LOST_WORKER})
    environment = None
    if "forkserver" in multiprocessing.get_all_start_methods():
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        get_mp_context().set_forkserver_preload(PRELOADED)
        environment = dict(os.environ)  # else workers would have the one of the first cluster
        resource_tracker.ensure_running()  # it gives its starter back a mask without SIGINT
        with withheld(signal.SIGINT):  # which a terminal sends to all; it is ours, and we end the workers
            forkserver.ensure_running()
    with dask.config.set({"temporary-directory": scratch}):  # of the scheduler and the nannies too
        return _started(workers or CPU_COUNT, environment)


def _started(workers, environment):
    """A cluster, begun again where a worker dies before it has started: Dask replaces those that die later only."""
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
                silence_logs=logging.CRITICAL,  # workers that die and are replaced are part of the plan
            )
        except RuntimeError as error:
            failed = error
    raise WorkerLost(
        f"expected {workers} workers to start on this machine, one ended before it had started, in each of "
        f"{START_TRIES} tries ({failed}); see whether memory runs out, or give fewer --workers or --serial"
    ) from failed


def connect(where, seconds, security=None) -> distributed.Client:
    """A client of a cluster of ours, or of the scheduler at an address, which has a worker.

    Raises
    ------
    SchedulerUnreachable, CertificateRefused, InvalidOption
    """
    if not isinstance(where, distributed.deploy.Cluster):
        return with_workers(client_of(where, seconds, security), where)
    try:
        client = distributed.Client(where, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise unanswered("the local cluster", seconds) from error
    return with_workers(client, "the local cluster")


def client_of(address, seconds, security=None) -> distributed.Client:
    """A client of the scheduler at an address, which may have no workers; raises as `connect`."""
    if not isinstance(address, str):
        raise InvalidOption(
            f"expected the address of a scheduler, such as tcp://HOST:8786, got {type(address).__name__}; give its "
            "address (of a client: client.scheduler.address)"
        )
    security = security_for(address, security)
    refuse_strangers(address, security)
    try:
        in_a_thread(shake_hands(address, seconds, security))
        return distributed.Client(address, timeout=seconds, set_as_default=False, security=security)
    except UNANSWERED as error:
        refuse_plain(address)
        raise unanswered(address, seconds) from error


def unanswered(name, seconds) -> SchedulerUnreachable:
    """The error where nobody is there."""
    return SchedulerUnreachable(
        f"expected a Dask scheduler at {name}, none answered within {seconds:g} s; start one with `dask scheduler` and "
        "name its address by --scheduler, or work on this machine without one"
    )


def with_workers(client, name) -> distributed.Client:
    """The client, once its cluster has a worker."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError as error:
        client.close()
        raise SchedulerUnreachable(
            f"expected at least one worker at the scheduler {name}, none came within {WORKERS_SECONDS} s; start "
            f"workers with `dask worker {name}`"
        ) from error
    return client


async def shake_hands(address, seconds, security) -> None:
    """Fail in time where something listens that is no scheduler: a client would wait for ever."""
    shown = security.get_connection_args("client")
    try:
        comm = await asyncio.wait_for(open_comm(address, timeout=seconds, **shown), seconds)
    except UNANSWERED:
        raise
    except Exception as error:  # whatever its first bytes are to Dask: the length of a message beyond all memory, say
        raise SchedulerUnreachable(
            f"expected a Dask scheduler at {address}, something else answers there ({type(error).__name__}); give the "
            "address that `dask scheduler` prints, not that of its dashboard"
        ) from error
    comm.abort()


def in_a_thread(coroutine) -> Any:
    """Run a coroutine to its end; a notebook's own event loop is busy in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def answering_workers(client) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts of the workers that answer, at least one, and what the scheduler knows of all, by address.

    Raises
    ------
    SchedulerUnreachable
        Those there were died before they answered, and no others came in time.
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
    import psutil

    return {
        "blas": {lib["filepath"]: lib["num_threads"] for lib in _blas()},
        "memory": psutil.virtual_memory().total,
    }


def _blas():
    return [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]


def check_versions(client) -> None:
    # A function of the standard library: it runs on machines that have none of the packages too.
    for name in PACKAGES:
        ours = version(name)
        theirs = client.run(version, name, on_error="return")
        theirs = {worker: found for worker, found in theirs.items() if not isinstance(found, OSError)}  # it has died
        try:
            theirs["the scheduler"] = client.run_on_scheduler(version, name)
        except PackageNotFoundError as error:
            theirs["the scheduler"] = error
        wrong = {where: found for where, found in theirs.items() if found != ours}
        if wrong:
            where, found = next(iter(wrong.items()))
            shown = "none" if isinstance(found, PackageNotFoundError) else found
            raise VersionMismatch(
                f"expected {name} {ours} on the scheduler and every worker, got {shown} on {where} ({len(wrong)} "
                "differ); install the same versions everywhere"
            )


def check_blas(facts) -> None:
    for worker, f in facts.items():
        if not f["blas"]:
            text = f"no BLAS that can be limited was found on {worker}; set OMP_NUM_THREADS=1 there, and its like"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        if any(threads != 1 for threads in f["blas"].values()):
            raise InvalidOption(
                f"expected one BLAS thread per worker thread, got {f['blas']} on {worker}; set OMP_NUM_THREADS, "
                "OPENBLAS_NUM_THREADS and MKL_NUM_THREADS to 1 before starting workers"
            )
