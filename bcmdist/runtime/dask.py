"""The Dask runtime: the same sum on a cluster. The only door to dask.

A batch of neighbouring partitions is one Dask task, whose result is already a partial sum and
stays on its worker; every `FAN_IN` results are added by another task, and so on up the tree, in an
order that depends on the number of partitions and threads only. At most `WINDOW` batches per
thread are in flight, or all of them where they are few.

On retry: tasks are pure, Dask recomputes what a dead worker held. On duplicate: results are keyed
by the batch, a second run replaces the first. On loss of all workers or of the scheduler: an
error says so; nothing was committed.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version

import distributed
import scipy.linalg  # noqa: F401  (loads the BLAS whose threads are limited)
import threadpoolctl
from dask.system import CPU_COUNT
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError, connect

from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    InvalidOption,
    SchedulerUnreachable,
    VersionMismatch,
    WorkerCannotRead,
    WorkerLost,
)
from bcmdist.partition import Work
from bcmdist.runtime import Progress, silent
from bcmdist.tasks import run_batch

PACKAGES = ("bcmdist", "numpy", "zarr")  # whose versions must agree
CONNECT_SECONDS = 10
WORKERS_SECONDS = 60  # how long to wait for a first, or a new, worker
WINDOW = 3  # batches in flight per thread: one runs, one is ready, one is on its way
FAN_IN = 8
SUM_PRIORITY = 10  # above batches: sums free memory
BATCHES_PER_THREAD = 8  # enough that the last batches end at about the same time
BATCH_PARTITIONS = 16  # a batch in flight is redone when its worker dies, with the sums it held
PAUSE_SHARE = 0.8  # of its memory limit at which a Dask worker starts no further task


class LimitBlas(distributed.WorkerPlugin):
    """Keeps BLAS at one thread per worker thread, on workers that come later too."""

    name = "bcmdist-limit-blas"

    def setup(self, worker):
        """Limit the libraries that are loaded; they stay limited for the life of the process."""
        self.limits = threadpoolctl.threadpool_limits(1, user_api="blas")

    def teardown(self, worker):
        """Give back what the worker had before."""
        self.limits.restore_original_limits()


class DaskRuntime:
    """A cluster: its own on this machine, or one that listens at an address.

    Parameters
    ----------
    address : str, optional
        Of a running scheduler, such as `tcp://127.0.0.1:8786`. Without it a `LocalCluster` is
        started, on loopback only, and ended with the runtime.
    workers : int, optional
        Worker processes of the `LocalCluster`, of one thread each; by default one per core.

    Raises
    ------
    SchedulerUnreachable, VersionMismatch, InvalidOption
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        progress: Progress = silent,
        connect_seconds: float = CONNECT_SECONDS,
    ):
        self.progress = progress
        self._cluster = None if address else _local_cluster(workers)
        try:
            self._client = _connect(address or self._cluster, connect_seconds)
            self._prepare_workers()
        except BaseException:
            self.close()
            raise

    def _prepare_workers(self):
        _check_versions(self._client)
        self._client.register_plugin(LimitBlas())
        facts = self._client.run(_worker_facts)
        _check_blas(facts)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self.threads = sum(w["nthreads"] for w in workers.values())
        # A worker without a limit may use what its machine has.
        self.allowed_bytes = PAUSE_SHARE * min(
            (w["memory_limit"] or facts[address]["memory"]) / w["nthreads"]
            for address, w in workers.items()
            if address in facts
        )

    def sum(self, task, parts, *, label):
        """Sum of a task over partitions; batches run anywhere, results add up in a fixed tree."""
        tree = _Tree(self._client, label)
        batches = _batches(parts, self.threads)
        waiting = iter(batches)
        flying: dict[distributed.Future, list[Work]] = {}
        done = 0
        self.progress(label, 0, len(parts))
        try:
            if len(batches) <= BATCHES_PER_THREAD * self.threads:
                return self._at_once(tree, task, batches, flying, label)
            while True:
                while len(flying) < WINDOW * self.threads and (batch := next(waiting, None)):
                    flying[tree.submit(run_batch, task, batch)] = batch
                if not flying:
                    return self._result(tree.total(), parts)
                for future in self._wait(list(flying)):
                    batch = flying.pop(future)
                    _raise_failure(future, batch)
                    done += len(batch)
                    self.progress(label, done, len(parts))
        except (CommClosedError, FutureCancelledError, FuturesCancelledError) as error:
            raise SchedulerUnreachable(
                f"{label}: the scheduler went away after {done} of {len(parts)} partitions; nothing of them was "
                "committed: start it again and repeat the command"
            ) from error
        finally:
            if self._client.status == "running":
                self._client.cancel(list(flying))

    def _at_once(self, tree, task, batches, flying, label):
        """The sum of few batches: all are in flight, and only the end is waited for. Learning does this often."""
        flying |= {tree.submit(run_batch, task, batch): batch for batch in batches}
        total = tree.total()
        self._wait([total])
        for future, batch in flying.items():
            if future.status in ("error", "cancelled"):  # others may still be running
                _raise_failure(future, batch)
        parts = [part for batch in batches for part in batch]
        flying.clear()
        self.progress(label, len(parts), len(parts))
        return self._result(total, parts)

    def _result(self, future, parts):
        self._wait([future])
        _raise_failure(future, parts)
        return future.result()

    def _wait(self, futures):
        """The futures that are finished, at least one."""
        idle = 0.0
        while True:
            try:
                with self._client.as_current():
                    return list(distributed.wait(futures, CONNECT_SECONDS, "FIRST_COMPLETED").done)
            except TimeoutError:
                idle = 0.0 if self._client.nthreads() else idle + CONNECT_SECONDS
            if idle >= WORKERS_SECONDS:
                raise SchedulerUnreachable(
                    f"expected a worker, there was none for {idle:.0f} s; start workers and repeat the command"
                )

    def check_same(self, probe, *, url):
        """Run `probe` here and on every worker; all must return the same text."""
        expected = probe()
        for worker, found in self._client.run(_answer, probe, on_error="return").items():
            # An exception here is a worker that died meanwhile: its successor asks for itself.
            if isinstance(found, str) and found != expected:
                raise WorkerCannotRead(
                    f"worker {worker} must see {url} as the client does: expected {expected!r}, got {found!r}; use "
                    "a path or URL that all workers share"
                )

    def watch_workers(self, lost: Callable[[str], None]):
        """Call `lost` with the address of each worker that goes away unexpectedly; from another thread."""

        def told(event):
            message = event[1]
            if message.get("action") == "remove-worker" and not message.get("expected"):
                lost(message["worker"])

        self._client.subscribe_topic("all", told)

    def close(self):
        """Leave the cluster; end it where it is our own."""
        client = getattr(self, "_client", None)
        if client is not None:
            if self._cluster is None and client.status == "running":
                with contextlib.suppress(OSError, ValueError):  # the plugin never came, or all is gone
                    client.unregister_worker_plugin(LimitBlas.name)
            client.close()
        if self._cluster is not None:
            self._cluster.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Tree:
    """Submits batches and adds their results in a fixed order: a counter in base `FAN_IN`."""

    def __init__(self, client, label):
        self.client = client
        self.prefix = f"{label}-{uuid.uuid4().hex[:12]}"
        self.submitted = 0
        self.levels: list[list] = []

    def submit(self, function, *arguments):
        """Run a function whose result belongs to the sum; its future."""
        future = self._submit(function, *arguments)
        self._add(future, 0)
        return future

    def total(self):
        """Future of the sum of everything that was submitted."""
        rest = [future for level in reversed(self.levels) for future in level]
        return rest[0] if len(rest) == 1 else self._submit(_add_all, rest, priority=SUM_PRIORITY)

    def _add(self, future, level):
        if level == len(self.levels):
            self.levels.append([])
        self.levels[level].append(future)
        if len(self.levels[level]) == FAN_IN:
            full, self.levels[level] = self.levels[level], []
            self._add(self._submit(_add_all, full, priority=SUM_PRIORITY), level + 1)

    def _submit(self, function, *arguments, priority=0):
        self.submitted += 1
        key = f"{self.prefix}-{self.submitted}"
        return self.client.submit(function, *arguments, key=key, pure=False, priority=priority)


def _add_all(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _batches(parts, threads):
    """Neighbouring partitions in groups: several per thread, none too large to redo."""
    size = min(BATCH_PARTITIONS, max(1, len(parts) // (BATCHES_PER_THREAD * threads)))
    return [list(parts[k : k + size]) for k in range(0, len(parts), size)]


def _raise_failure(future, parts):
    """Raise what kept a future about some partitions from finishing."""
    if future.status == "finished":
        return
    if future.status == "cancelled":
        raise FutureCancelledError(future.key, "scheduler lost")
    error = future.exception()
    if isinstance(error, distributed.KilledWorker):
        raise WorkerLost(
            f"partitions {parts[0].key} to {parts[-1].key}: workers died each time they were computed, last on "
            f"{error.last_worker.address}; give workers more memory or lower --rows-per-expert"
        ) from error
    raise error


def _local_cluster(workers):
    if workers is not None and workers < 1:
        raise InvalidOption(f"workers: expected at least 1, got {workers}; give a positive number")
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidOption(
            "a cluster of processes needs the script's main part under\n    if __name__ == '__main__':\n"
            "        ...\nbecause every worker imports the script; move the calls there, or use the serial runtime"
        )
    return distributed.LocalCluster(
        n_workers=workers or CPU_COUNT,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,  # workers that die and are replaced are part of the plan
    )


def _connect(where, seconds):
    name = where if isinstance(where, str) else "the local cluster"
    try:
        if isinstance(where, str):
            _in_a_thread(_shake_hands(where, seconds))
        client = distributed.Client(where, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SchedulerUnreachable(
            f"expected a Dask scheduler at {name}, none answered within {seconds:g} s; start one with "
            "`dask scheduler`, or leave out --scheduler to work on this machine"
        ) from error
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError as error:
        client.close()
        raise SchedulerUnreachable(
            f"expected at least one worker at the scheduler {name}, none came within {WORKERS_SECONDS} s; start "
            f"workers with `dask worker {name}`"
        ) from error
    return client


async def _shake_hands(address, seconds):
    """Fail in time where something listens that is no scheduler: a client would wait for ever."""
    comm = await asyncio.wait_for(connect(address, timeout=seconds), seconds)
    comm.abort()


def _in_a_thread(coroutine):
    """Run a coroutine to its end; a notebook's own event loop is busy in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _worker_facts():
    import psutil

    return {
        "blas": {lib["filepath"]: lib["num_threads"] for lib in _blas()},
        "memory": psutil.virtual_memory().total,
    }


def _blas():
    return [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]


def _check_versions(client):
    # A function of the standard library: it runs on machines that have none of the packages too.
    for name in PACKAGES:
        ours = version(name)
        theirs = client.run(version, name, on_error="return")
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


def _check_blas(facts):
    for worker, f in facts.items():
        if not f["blas"]:
            text = f"no BLAS that can be limited was found on {worker}; set OMP_NUM_THREADS=1 there, and its like"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        if any(threads != 1 for threads in f["blas"].values()):
            raise InvalidOption(
                f"expected one BLAS thread per worker thread, got {f['blas']} on {worker}; set OMP_NUM_THREADS, "
                "OPENBLAS_NUM_THREADS and MKL_NUM_THREADS to 1 before starting workers"
            )


def _answer(probe):
    try:
        return probe()
    except (BcmdistError, OSError) as error:
        return str(error)
