"""The Dask runtime: the same sum on a cluster. The only door to dask.

A batch of neighbouring partitions is one Dask task, whose result is already a partial sum and
stays on its worker; every `FAN_IN` results are added by another task, and so on up the tree, in an
order that depends on the number of partitions and threads only. At most `WINDOW` batches per
thread are in flight, or all of them where they are few.

Partitions whose rows are kept where they are read stay on workers, which are asked about them (`held`).

On retry: tasks are pure, Dask recomputes what a dead worker held. On duplicate: results are keyed
by the batch, a second run replaces the first. On loss of all workers or of the scheduler:
`SchedulerLost`; nothing was committed.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import distributed

from bcmdist.data.partition import Partition, Work
from bcmdist.errors import BcmdistError, InvalidOption, WorkerCannotRead, WorkerLost
from bcmdist.runtime.dask.allotment import await_allotment
from bcmdist.runtime.dask.connection import (
    AGAIN_SECONDS,
    CONNECT_SECONDS,
    IgnoreInterrupts,
    KeepPages,
    LimitBlas,
    answering_workers,
    check_blas,
    check_versions,
    connect,
    local_cluster,
    scratch_directory,
)
from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.dask.one_by_one import WINDOW, DeathIsFinal, OneByOne
from bcmdist.runtime.dask.pinned import NoAnswer, PinnedPartitions
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.sums import FAN_IN, SUM_PRIORITY
from bcmdist.runtime.interface import Outcome, Progress, SumLost, silent
from bcmdist.runtime.portion import ALL, Portion, untold
from bcmdist.runtime.signals import finished_first
from bcmdist.runtime.task import run_batch

BATCHES_PER_THREAD = 8  # enough that the last batches end at about the same time
BATCH_PARTITIONS = 16  # a batch in flight is redone when its worker dies, with the sums it held
LOOK_SECONDS = 0.1  # between looks at what is done, which nobody can tell once the scheduler is lost
MOST_DEATHS = 10  # of workers while all are told something: a queue that shrinks kills several; arbitrary
HELD_AT_A_TIME = 4  # sums that alternate over the same partitions, as learning and its judges do
PAUSE_SHARE = 0.8  # of its memory limit at which a Dask worker starts no further task


class DaskRuntime:
    """A cluster: its own on this machine, or one that listens at an address.

    Parameters
    ----------
    address : str, optional
        Of a running scheduler, such as `tcp://127.0.0.1:8786`. Without it a `LocalCluster` is
        started, on loopback only, and ended with the runtime.
    workers : int, optional
        Worker processes of the `LocalCluster`, of one thread each; by default one per core. At an address: workers
        of it that are used at most.
    share : float, optional
        At an address: part of its worker threads that are used at most, one worker at least. With `share` or `workers`
        these are its own: no other runtime that asks for a part is given them, and it waits where none is free.
    security : distributed.Security, optional
        Certificates for an address `tls://HOST:PORT`; by default those of Dask's configuration.
    waits : callable
        Told what is waited for, in words, before there is a worker.

    Raises
    ------
    SchedulerUnreachable, CertificateRefused, VersionMismatch, InvalidOption
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        share: float | None = None,
        security: distributed.Security | None = None,
        progress: Progress = silent,
        waits: Callable[[str], None] = untold,
        connect_seconds: float = CONNECT_SECONDS,
    ):
        portion = Portion(share, workers)
        if share is not None and not address:
            raise InvalidOption("share: expected the address of a cluster beside it, got none; give one")
        self.progress = progress
        self._portion = portion if address else ALL
        self._cluster, self._scratch = None, None
        self._held: dict[tuple, PinnedPartitions] = {}
        self._lent: list[LimitBlas | KeepPages] = []  # to workers, while we are there
        try:
            if not address:
                self._scratch = scratch_directory()
                with finished_first():  # one that is there by half cannot be ended
                    self._cluster = local_cluster(workers, self._scratch.name)
            self._client = connect(address or self._cluster, connect_seconds, security)
            self._scheduler = self._client.scheduler_info(n_workers=0)["id"]
            self._telling = EventChannel(self._client)
            pulse = self._pulse("start")
            with pulse.connected():
                self._prepare_workers(waits)
            pulse.check_scheduler()
        except BaseException:
            self.close()
            raise

    def _prepare_workers(self, waits):
        check_versions(self._client)
        self._lent = [LimitBlas(self._client.id), KeepPages(self._client.id)]
        for plugin in self._lent:
            self._bring(plugin)
        if self._cluster is not None:
            self._bring(IgnoreInterrupts())
        self._bring(DeathIsFinal(self._client.id))
        if self._portion:
            await_allotment(self._pulse("workers"), self._portion, waits)
        facts, workers = self._answering_workers()
        check_blas(facts)
        self.threads = sum(w["nthreads"] for w in workers.values())
        # A worker without a limit may use what its machine has.
        self.allowed_bytes = PAUSE_SHARE * min(
            (w["memory_limit"] or facts[address]["memory"]) / w["nthreads"]
            for address, w in workers.items()
            if address in facts
        )

    def _bring(self, plugin):
        """Register a plugin; once more where a worker died while it was told, as many as die may."""
        for more in range(MOST_DEATHS, -1, -1):
            try:
                self._client.register_plugin(plugin)
            except OSError:
                if not more or self._client.status != "running":
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                return

    def _answering_workers(self):
        """Facts of workers that answer, and what the scheduler knows of ours, of which at least one does."""
        pulse = self._pulse("workers")
        while True:
            facts, known = answering_workers(self._client)
            workers = {address: known[address] for address in pulse.check() if address in known}
            if workers.keys() & facts.keys():
                return facts, workers
            time.sleep(AGAIN_SECONDS)

    def _pulse(self, label, partitions=None):
        return Heartbeat(self._client, self._scheduler, label, partitions, allotted=bool(self._portion))

    def sum(self, task, parts, *, label) -> Any:
        """Sum of a task over partitions; batches run anywhere, results add up in a fixed tree."""
        while True:
            pulse = self._pulse(label, len(parts))
            try:
                with pulse.connected():
                    if all(isinstance(part, Partition) and part.data.kept for part in parts):
                        with contextlib.suppress(NoAnswer):
                            return self._asked(task, parts, label, pulse)
                    return self._sum(task, parts, label, pulse)
            except distributed.CancelledError as error:
                pulse.check_lost(error)  # else begin again

    def _asked(self, task, parts, label, pulse):
        """The sum over partitions that workers hold, or from now on do."""
        key = tuple((part.data.kept, part.start, part.stop, part.weight) for part in parts)
        self.progress(label, 0, len(parts))
        held = self._held.pop(key, None) or PinnedPartitions(self._client, parts, pulse.threads(), pulse)
        try:
            total = held.sum(task, pulse)
        except NoAnswer:
            held.release()
            raise
        self._held[key] = held  # the last that was used
        for oldest in list(self._held)[:-HELD_AT_A_TIME]:
            self._held.pop(oldest).release()
        self.progress(label, len(parts), len(parts))
        return total

    def _sum(self, task, parts, label, pulse):
        pulse.check_scheduler()
        tree = _Tree(self._client, label)
        batches = _batches(parts, self.threads)
        waiting = iter(batches)
        flying: dict[distributed.Future, list[Work]] = {}
        self.progress(label, 0, len(parts))
        try:
            if len(batches) <= BATCHES_PER_THREAD * self.threads:
                return self._at_once(tree, task, batches, flying, pulse)
            while True:
                while len(flying) < WINDOW * self.threads and (batch := next(waiting, None)):
                    flying[tree.submit(run_batch, task, batch)] = batch
                if not flying:
                    return self._result(tree.total(), parts, pulse)
                for future in self._wait(list(flying), pulse):
                    batch = flying.pop(future)
                    _raise_failure(future, batch)
                    pulse.done += len(batch)
                    self.progress(label, pulse.done, len(parts))
        finally:
            if self._client.status == "running":
                self._client.cancel(list(flying))

    def each(self, work, *, label) -> Iterator[Outcome]:
        """Outcome of each pair of a task and partitions, in the order of completion."""
        pulse = self._pulse(label)
        pulse.check_scheduler()
        return OneByOne(self._telling, self.threads, pulse).outcomes(work)

    def total(self, kept, *, label) -> Any:
        """What was kept, added up by the workers that have it."""
        pulse = self._pulse(label)
        pulse.done = kept.partitions
        try:
            with pulse.connected():
                return self._fetched(kept.added(), pulse)
        except distributed.CancelledError as error:
            pulse.check_lost(error)
            raise SumLost(f"{label}: workers were restarted") from error

    def _fetched(self, term, pulse):
        try:
            while not self._wait([term.future], pulse):
                pass
            error = term.future.exception() if term.future.status == "error" else None
            if error is None:
                try:
                    return term.future.result().kept.weighted(term.weight)
                except (distributed.KilledWorker, BcmdistError) as failed:  # who had it has died since
                    error = failed
            if isinstance(error, (distributed.KilledWorker, BcmdistError, OSError)):  # on the way to have it again
                raise SumLost(f"{pulse.label}: {error}") from error
            raise error
        finally:
            term.future.release()

    def _at_once(self, tree, task, batches, flying, pulse):
        """The sum of few batches: all are in flight, and only the end is waited for."""
        flying |= {tree.submit(run_batch, task, batch): batch for batch in batches}
        total = tree.total()
        parts = [part for batch in batches for part in batch]
        while not self._wait([total], pulse):
            pulse.done = max(pulse.done, sum(len(batch) for future, batch in flying.items() if future.done()))
            if pulse.done < len(parts):
                self.progress(pulse.label, pulse.done, len(parts))
        for future, batch in flying.items():
            if future.status in ("error", "cancelled"):  # others may still be running
                _raise_failure(future, batch)
        flying.clear()
        self.progress(pulse.label, len(parts), len(parts))
        return self._result(total, parts, pulse)

    def _result(self, future, parts, pulse):
        while not self._wait([future], pulse):
            pass
        _raise_failure(future, parts)
        return future.result()

    def _wait(self, futures, pulse):
        """The futures that are finished; none after `LOOK_SECONDS` in which the cluster was alive."""
        try:
            with self._client.as_current():
                return list(distributed.wait(futures, LOOK_SECONDS, "FIRST_COMPLETED").done)
        except TimeoutError:
            pulse.check_sometimes()
            return []

    def check_same(self, probe, *, url) -> None:
        """Run `probe` here and on every worker; all must return the same text."""
        expected = probe()
        pulse = self._pulse(f"check of {url}")
        pulse.check_scheduler()
        with pulse.connected():
            answers = self._client.run(_answer, probe, on_error="return")
        for worker, found in answers.items():
            # An exception here is a worker that died meanwhile: its successor asks for itself.
            if isinstance(found, str) and found != expected:
                raise WorkerCannotRead(
                    f"worker {worker} must see {url} as the client does: expected {expected!r}, got {found!r}; use "
                    "a path or URL that all workers share"
                )

    def watch_workers(self, lost: Callable[[str], None]) -> None:
        """Call `lost` with the address of each worker that goes away unexpectedly; from another thread."""

        def told(event):
            message = event[1]
            if message.get("action") == "remove-worker" and not message.get("expected"):
                lost(message["worker"])

        self._client.subscribe_topic("all", told)

    def close(self) -> None:
        """Leave the cluster; end it where it is our own."""
        client, telling = getattr(self, "_client", None), getattr(self, "_telling", None)
        if client is not None:
            if telling is not None and client.status == "running":
                telling.close()
            if self._cluster is None and client.status == "running":
                for plugin in self._lent:
                    with contextlib.suppress(OSError, ValueError):  # the plugin never came, or all is gone
                        client.unregister_worker_plugin(plugin.name)
            client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._scratch is not None:
            self._scratch.cleanup()

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
        future.result()
    error = future.exception()
    if isinstance(error, distributed.KilledWorker):
        raise WorkerLost(
            f"partitions {parts[0].key} to {parts[-1].key}: workers died each time they were computed, last on "
            f"{error.last_worker.address}; give workers more memory or lower --rows-per-expert"
        ) from error
    raise error


def _answer(probe):
    try:
        return probe()
    except (BcmdistError, OSError) as error:
        return str(error)
