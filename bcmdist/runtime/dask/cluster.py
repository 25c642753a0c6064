"""The Dask runtime: sums of tasks over partitions on a Dask cluster.

A batch of neighbouring partitions is one Dask task. Its result is a partial sum that stays on its worker; further tasks
add `FAN_IN` results each, up a tree whose order depends on the number of partitions and threads only. At most `WINDOW`
batches per thread are in flight, or all batches if there are few.

Partitions of data sets whose rows are cached in memory are pinned to workers, which compute on them on request
(`PinnedPartitions`).

On retry: tasks are pure, and Dask recomputes what a dead worker held. On duplicate: results are keyed by the batch, so
a second run replaces the first. On loss of all workers or of the scheduler: `SchedulerLost`; nothing was committed.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import distributed

from bcmdist.data.partition import Partition, Work
from bcmdist.errors import BcmdistError, InvalidOption, WorkerLost
from bcmdist.runtime.dask.batches import BATCHES_PER_THREAD, Tree, batches_of
from bcmdist.runtime.dask.connection import (
    AGAIN_SECONDS,
    CONNECT_SECONDS,
    IgnoreInterrupts,
    KeepPages,
    LimitBlas,
    answering_workers,
    await_worker,
    check_blas,
    connect,
    connect_local,
    local_cluster,
    scratch_directory,
)
from bcmdist.runtime.dask.existing import existing_cluster, nothing_starts
from bcmdist.runtime.dask.heartbeat import Heartbeat, Live, Orphaned, await_portion
from bcmdist.runtime.dask.one_by_one import WINDOW, DeathIsFinal, OneByOne
from bcmdist.runtime.dask.pinned import NoAnswer, PinnedPartitions
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.versions import check_versions
from bcmdist.runtime.interface import (
    Outcome,
    Progress,
    SumLost,
    Task,
    answer_of,
    refuse_other_answers,
    run_batch,
    silent,
)
from bcmdist.runtime.portion import ALL, Portion, untold
from bcmdist.runtime.signals import finished_first

LOOK_SECONDS = 0.1  # between checks for results; a lost scheduler would never report them
MOST_DEATHS = 10  # of workers during one broadcast: a batch queue that shrinks kills several; arbitrary
MOST_PROBES = 4  # of the latest data and models, repeated on workers that join
HELD_AT_A_TIME = 4  # sets of pinned partitions: learning and cross-validation alternate between several
PAUSE_SHARE = 0.8  # of its memory limit at which a Dask worker starts no further task


class DaskRuntime:
    """Runs tasks on a local cluster of its own, or on a running cluster.

    Parameters
    ----------
    address : str, distributed.Client or cluster object, optional
        Address of a running scheduler, such as `tcp://127.0.0.1:8786`, a client of it, or a cluster object such as
        `LocalCluster` or those of dask-jobqueue; it stays running. Without it a `LocalCluster` is started, on
        loopback only, and ended with the runtime.
    workers : int, optional
        Without an address: number of worker processes of the `LocalCluster`, with one thread each; by default one per
        core. With an address: largest number of the cluster's workers to use.
    share : float, optional
        With an address: largest share of the cluster's worker threads to use, at least one worker. With `share` or
        `workers` the runtime has its workers to itself: no other runtime that asks for a portion gets them, and
        the runtime waits while no worker is free.
    security : distributed.Security, optional
        Certificates for an address `tls://HOST:PORT`; by default those of the client or cluster object, or of Dask's
        configuration.
    progress : Progress
        Called with the progress of sums.
    waits : callable
        Called with a description of what the runtime waits for, before it has a worker.
    connect_seconds : float
        Timeout of the connection to the scheduler.

    A cluster without workers is given a task, so that a cluster that adapts starts some; the runtime waits for as long
    as a cluster object has workers to start, and otherwise a minute. Workers that join later are used, too: their
    versions are compared, and what they see of the latest data and models, within seconds of their arrival.

    Raises
    ------
    SchedulerUnreachable, CertificateRefused, VersionMismatch, InvalidOption

    Examples
    --------
    >>> with bcmdist.DaskRuntime(workers=1) as runtime:
    ...     fitted = bcmdist.GBCM.fit(X, y, settings, runtime=runtime)
    >>> fitted.ledger.rows
    80
    """

    def __init__(
        self,
        address: Any = None,
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
        self._starting: Callable[[], bool] = nothing_starts
        self._live = Live()
        self._held: dict[tuple, PinnedPartitions] = {}
        self._probes: dict[str, Callable[[], str]] = {}
        self._lent: list[LimitBlas | KeepPages] = []  # registered on workers while this client is connected
        try:
            if not address:
                self._scratch = scratch_directory()
                with finished_first():  # a half-started cluster cannot be closed
                    self._cluster = local_cluster(workers, self._scratch.name)
            if self._cluster is not None:
                self._client, self._address = connect_local(self._cluster, connect_seconds), "the local cluster"
            else:
                existing = existing_cluster(address)
                self._client = connect(existing, connect_seconds, security, waits)
                self._address, self._starting = existing.address, existing.starting
            self._scheduler = self._client.scheduler_info(n_workers=0)["id"]
            self._channel = EventChannel(self._client)
            pulse = self._pulse("start")
            with pulse.connected():
                self._prepare_workers(waits)
            pulse.check_scheduler()
        except BaseException:
            self.close()
            raise

    def _prepare_workers(self, waits):
        if self._cluster is None:
            self._live.checked, self._live.check = check_versions(self._client), self._check_joined
        self._lent = [LimitBlas(self._client.id), KeepPages(self._client.id)]
        for plugin in self._lent:
            self._bring(plugin)
        if self._cluster is not None:
            self._bring(IgnoreInterrupts())
        self._bring(DeathIsFinal(self._client.id))
        if self._portion:
            await_portion(self._pulse("workers"), self._portion, waits)
        facts, workers = self._answering_workers()
        check_blas(facts)
        self._live.threads = sum(w["nthreads"] for w in workers.values())
        # A worker without a memory limit may use all memory of its machine.
        self.allowed_bytes = PAUSE_SHARE * min(
            (w["memory_limit"] or facts[address]["memory"]) / w["nthreads"]
            for address, w in workers.items()
            if address in facts
        )

    def _bring(self, plugin):
        """Register a plugin; retry up to `MOST_DEATHS` times if a worker dies during the registration."""
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
        """Facts of the workers that answer, and the scheduler's records of our workers.

        Waits until at least one of our workers answers.
        """
        pulse = self._pulse("workers")
        while True:
            await_worker(self._client, self._address, self._starting)
            facts, addresses = answering_workers(self._client)
            workers = {address: addresses[address] for address in pulse.check() if address in addresses}
            if workers.keys() & facts.keys():
                return facts, workers
            time.sleep(AGAIN_SECONDS)

    def _pulse(self, label, partitions=None):
        seen = {"live": self._live, "starting": self._starting}
        return Heartbeat(self._client, self._scheduler, label, partitions, **seen)

    @property
    def threads(self) -> int:
        """Number of tasks that run at the same time: threads of our workers when last seen, at least 1."""
        return self._live.threads

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a `task` over partitions `parts`, named by `label`; any worker runs batches; added in a fixed tree."""
        while True:
            pulse = self._pulse(label, len(parts))
            try:
                with pulse.connected():
                    if all(isinstance(part, Partition) and part.data.kept for part in parts):
                        with contextlib.suppress(NoAnswer):
                            return self._asked(task, parts, label, pulse)
                    return self._sum(task, parts, label, pulse)
            except distributed.CancelledError as error:
                pulse.check_lost(error)  # otherwise workers were restarted: repeat the sum
            except Orphaned:  # all our workers have left: repeat the sum on those that take their place
                continue

    def _asked(self, task, parts, label, pulse):
        """The sum over pinned partitions, which are pinned first if necessary."""
        key = tuple((part.data.kept, part.start, part.stop, part.weight) for part in parts)
        self.progress(label, 0, len(parts))
        held = self._held.pop(key, None) or PinnedPartitions(self._client, parts, pulse.threads(), pulse)
        try:
            total = held.sum(task, pulse)
        except NoAnswer:
            held.release()
            raise
        self._held[key] = held  # moved to the end: most recently used
        for oldest in list(self._held)[:-HELD_AT_A_TIME]:
            self._held.pop(oldest).release()
        self.progress(label, len(parts), len(parts))
        return total

    def _sum(self, task, parts, label, pulse):
        pulse.check()
        tree = Tree(pulse)
        batches = batches_of(parts, self.threads)
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
                pulse.check_sometimes()
                for future in self._wait(list(flying), pulse):
                    batch = flying.pop(future)
                    _raise_failure(future, batch)
                    pulse.done += len(batch)
                    self.progress(label, pulse.done, len(parts))
        finally:
            if self._client.status == "running":
                self._client.cancel(list(flying))

    def each(self, work: Iterable[tuple[Task, Sequence[Work]]], *, label: str) -> Iterator[Outcome]:
        """Yield the outcome of each pair of a task and partitions in `work`, by completion; `label` as in `sum`."""
        pulse = self._pulse(label)
        pulse.check()
        return OneByOne(self._channel, pulse).outcomes(work)

    def total(self, kept: Any, *, label: str) -> Any:
        """Fetch the sum of the `kept` results, after their workers have added them; `label` as in `sum`."""
        pulse = self._pulse(label)
        pulse.done, pulse.on = kept.partitions, kept.on
        try:
            with pulse.connected():
                return self._fetched(kept.added(), pulse)
        except distributed.CancelledError as error:
            pulse.check_lost(error)
            raise SumLost(f"{label}: workers were restarted") from error
        except Orphaned as error:
            raise SumLost(f"{label}: the workers of our portion have left") from error

    def _fetched(self, term, pulse):
        try:
            while not self._wait([term.future], pulse):
                pass
            error = term.future.exception() if term.future.status == "error" else None
            if error is None:
                try:
                    return self._gathered(term.future, pulse).kept.weighted(term.weight)
                except (distributed.KilledWorker, BcmdistError) as failed:  # its worker has died since
                    error = failed
            if isinstance(error, (distributed.KilledWorker, BcmdistError, OSError)):  # failed while being recomputed
                raise SumLost(f"{pulse.label}: {error}") from error
            raise error
        finally:
            term.future.release()

    def _at_once(self, tree, task, batches, flying, pulse):
        """The sum of few batches: all are in flight at once, and only the total is waited for."""
        flying |= {tree.submit(run_batch, task, batch): batch for batch in batches}
        total = tree.total()
        parts = [part for batch in batches for part in batch]
        while not self._wait([total], pulse):
            pulse.done = max(pulse.done, sum(len(batch) for future, batch in flying.items() if future.done()))
            if pulse.done < len(parts):
                self.progress(pulse.label, pulse.done, len(parts))
        for future, batch in flying.items():
            if future.status in ("error", "cancelled"):  # the other batches may still be running
                _raise_failure(future, batch)
        flying.clear()
        self.progress(pulse.label, len(parts), len(parts))
        return self._result(total, parts, pulse)

    def _result(self, future, parts, pulse):
        while not self._wait([future], pulse):
            pass
        _raise_failure(future, parts)
        return self._gathered(future, pulse)

    def _gathered(self, future, pulse):
        return pulse.finished(self._client.gather(future, asynchronous=True)).result()

    def _wait(self, futures, pulse):
        """Return the futures that have finished; [] if none has within `LOOK_SECONDS` and the cluster is alive."""
        try:
            with self._client.as_current():
                return list(distributed.wait(futures, LOOK_SECONDS, "FIRST_COMPLETED").done)
        except TimeoutError:
            pulse.check_sometimes()
            return []

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Run `probe` in this process and on every worker; raise `WorkerCannotRead` if it reads `url` differently."""
        expected = probe()
        self._probes.pop(url, None)
        self._probes = dict([*self._probes.items(), (url, probe)][-MOST_PROBES:])
        pulse = self._pulse(f"check of {url}")
        pulse.check_scheduler()
        with pulse.connected():
            self._compare(url, probe, expected)

    def _check_joined(self, workers) -> set[str]:
        """Check workers that joined as those that were there; return the addresses of those that answer."""
        answering = check_versions(self._client, workers)
        for url, probe in self._probes.items():
            self._compare(url, probe, answer_of(probe), sorted(answering))
        return answering

    def _compare(self, url, probe, expected, workers=None):
        answers = self._client.run(answer_of, probe, workers=workers, on_error="return")
        refuse_other_answers(url, expected, answers)

    def watch_workers(self, lost: Callable[[str], None]) -> None:
        """Call `lost`, from another thread, with the address of each worker that leaves unexpectedly."""

        def remove_worker(event):
            message = event[1]
            if message.get("action") == "remove-worker" and not message.get("expected"):
                lost(message["worker"])

        self._client.subscribe_topic("all", remove_worker)

    def close(self) -> None:
        """Disconnect from the cluster; shut down a local cluster that this runtime started."""
        client, channel = getattr(self, "_client", None), getattr(self, "_channel", None)
        if client is not None:
            if channel is not None and client.status == "running":
                channel.close()
            if self._cluster is None and client.status == "running":
                for plugin in self._lent:
                    with contextlib.suppress(OSError, ValueError):  # never registered, or the cluster is gone
                        client.unregister_worker_plugin(plugin.name)
            client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_):
        self.close()


def _raise_failure(future, parts):
    """Raise the error of a future that computes `parts`; do nothing if it has finished."""
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
