"""Ingestion: partitions are read, absorbed, committed and acknowledged, in this order; each counts once.

    source -> Delivery -> Admission -> runtime.each(Absorbing) -> Pending -> total -> commit (put if absent) -> ack

State, ledger and offset of the source are one record. Whatever dies, whenever: what was not committed is delivered
again, what was is in the ledger. A partition that comes twice, late or in another order changes nothing; one that
comes with other bytes under the same key is refused. Of two ingesters one loses the race for a commit number: it reads
the winner's state, leaves out what that has absorbed, adds its own message to it (messages commute) and tries again. A
writer that slept through all this finds its number taken. There are no locks, and no clock decides anything but when
it is time to commit.

What is absorbed is decided by `admission`, which only thinks; here are the source, the runtime, the store and the
clocks.

The total of a batch: what was kept of its messages, wherever that is, as the one message that a commit adds.

Ledger entries come before the total, and whatever computed it may have died meanwhile: what is computed again is of
the rows of now. So a total names what it is of, and is taken only where these are the entries of its batch. Where they
are not, or it is lost, the batch is absorbed again as a whole, message and entries together, or refused as changed
data.
"""

import contextlib
import functools
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bcmdist.committee.cells import absorbed_in_cells, refuse_absorbed_in_cells
from bcmdist.committee.fading import Weighting, chosen_fading, going_on
from bcmdist.committee.ingest.admission import Admission, Instructions, LedgerState
from bcmdist.committee.ingest.digests import Digests, Found, PartitionMessage, identity
from bcmdist.committee.ingest.in_turn import ingest_in_turn
from bcmdist.committee.ingest.lag_meter import LagMeter
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.race import absorbed_again
from bcmdist.committee.ingest.successor import CommitDetails, says_more, successor
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.committee.ingest.watch import Unwatched, Watch
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition, from_keys
from bcmdist.data.sources.open import Source
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    CommitConflict,
    ModelDamaged,
    ModelNotFound,
    PoisonChunk,
    SchedulerLost,
)
from bcmdist.experts.contributions import Contribution
from bcmdist.experts.limits import refuse_large_expert
from bcmdist.experts.precision import refuse_inexact
from bcmdist.runtime.interface import Runtime, SumLost
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import record_digest
from bcmdist.storage.heartbeats import beating, sweep
from bcmdist.storage.ledger import RUNNING


def totalled(
    batch: Batch, runtime: Runtime, to_absorb: Callable[[list[Partition]], Contribution], *, label: str
) -> Batch:
    """A batch with its message, of what was kept.

    Raises
    ------
    SchedulerLost
    DataChanged, ...
        It had to be absorbed again, and cannot be; nothing of it is to be committed.
    """
    if batch.message is None:
        return batch
    try:
        total = runtime.total(batch.message, label=label)
        if total.entries == {key: identity(entry) for key, entry in batch.entries.items()}:
            return replace(batch, message=total.message)
    except SumLost:
        pass
    again = []
    for key, part in batch.parts.items():
        entry = batch.entries[key]
        again.append((replace(part, weight=batch.fading.weight(entry.position)), entry))
    return absorbed_again(batch, again, to_absorb)


# Without --commit-every: this long after the last commit at the earliest, and only so often that commits take at most
# one part in `COMMIT_SHARE` of the time. What is absorbed between two commits is what a crash makes us absorb again.
COMMIT_SECONDS = 5.0
COMMIT_SHARE = 20
# Partitions of one task at most: neighbours are read together and their messages travel as one.
GROUP = 4
# Seconds between two looks at a source that had nothing new.
POLL_SECONDS = 0.5
# The first pause of the loser of a commit, on average; it doubles up to `LONGEST_PAUSE`.
PAUSE, LONGEST_PAUSE = 0.01, 1.0


def ingest(
    snapshot: Snapshot, source: Source, runtime, options: IngestOptions | None = None, *, watch: Watch | None = None
) -> tuple[Snapshot, IngestReport]:
    """Let a committee absorb what a source delivers, once each; `watch` looks on at what was not there at the fit.

    Raises
    ------
    ChunkConflict
        A key that was absorbed comes with other rows.
    CommitConflict
        Another model has been put under the path.
    DataChanged, InvalidData, InvalidOption, MemoryLimit, PoisonChunk, SchedulerLost, SourceUnreachable, ...
        What was good has been committed; the offset stays before what failed.
    """
    options = options or IngestOptions()
    snapshot.refuse_replaced()
    if snapshot.facts.linearise == RUNNING:
        return ingest_in_turn(snapshot, source, runtime, options)
    runtime.check_same(functools.partial(record_digest, snapshot.url, snapshot.commit), url=snapshot.url)
    loop = _Loop(snapshot, source, runtime, options, (source.name and watch) or Unwatched())
    loop.run()
    return loop.snapshot, loop.admission.report


class _Loop:
    """One ingestion: does what `admission` says, and tells it what came of that."""

    def __init__(self, snapshot: Snapshot, source: Source, runtime, options: IngestOptions, watch: Watch):
        self.snapshot, self.source, self.runtime, self.options = snapshot, source, runtime, options
        fading = self._fading()
        if fading.window:
            refuse_inexact(snapshot.model.precision, snapshot.url, "keep a --window")
        self.expert = snapshot.expert()
        self.admission = Admission(self._known(fading), snapshot.surveyed, options, self._unfit)
        self.watch, self.before = watch, snapshot.ledger
        """who looks on; the ledger as it was when this began"""
        self.lag: dict[str, float] | None = None
        """how far behind the source the commit is that is being made"""
        self.read_to = snapshot.offsets.get(source.name) if options.watch else None
        self.given = 0
        """new partitions that were handed out"""
        self.passed_over = 0
        """others that were: of what was absorbed before, or falls out of a window"""
        self.label = "ingest" if source.name else "experts"
        self.behind = LagMeter(source)
        self.failures: list[BcmdistError] = []
        self.committed, self.commit_seconds, self.unpruned = time.monotonic(), 0.0, 0
        self.message_task = self.watch.message_task(self.expert, self.snapshot)

    def _fading(self) -> Weighting:
        """How rows of the source fade, as the newest commit says, which may be somebody else's."""
        return chosen_fading(self.snapshot.facts.fading, self.source.name, self.options.half_life, self.options.window)

    def _fading_on(self) -> Weighting:
        return going_on(self.admission.fading, self._fading(), self.snapshot.url)

    def _known(self, fading) -> LedgerState:
        return LedgerState(self.snapshot.ledger, absorbed_in_cells(self.snapshot), fading)

    def _unfit(self, part):
        """Why a partition cannot be absorbed by this model here; None where it can."""
        try:
            self.snapshot.refuse_unlike([part])
            self.snapshot.model.refuse_unknown_errors(part.data)
            refuse_large_expert([part], self.snapshot.model.shared, self.runtime, self.snapshot.model.likelihood)
        except BcmdistError as error:
            return error
        return None

    def run(self) -> None:
        """Until the source is empty, or somebody says stop."""
        store, name = self.snapshot.store, self.source.name
        try:
            with beating(store, name) if self.options.watch and name else contextlib.nullcontext():
                self._run()
            sweep(store, name)  # whoever waited for rows before, and died, has had a successor
        except SchedulerLost as error:
            raise SchedulerLost(
                f"{error}; {len(self.snapshot.ledger)} partitions are safe in commit {self.snapshot.commit}: repeat "
                "the command, or `bcmdist resume` the job, to go on from there"
            ) from error

    def _run(self):
        self._progress()
        finished = False
        while not finished:
            begun = self.given
            for outcome in self._outcomes():
                self._take(outcome)
            idle = self.given == begun
            finished = not self.options.watch or self._enough() or bool(self.failures)
            if finished or idle or self._due():
                self.commit()
            if idle and not finished:
                time.sleep(POLL_SECONDS)
        self._prune()
        self._progress(finished=True)
        self._tell()
        if self.failures:
            raise self.failures[0]
        self.admission.report.waiting = self.source.lag(self.read_to)

    def _outcomes(self):
        """Of what the source has now; before an error, what was absorbed is committed."""
        try:
            yield from self.runtime.each(self._work(), label=self.label)
        except SchedulerLost:  # the sums that workers had are lost too
            raise
        except BcmdistError:
            self.commit()
            raise

    def _enough(self):
        return self.options.stop() or (self.options.max_partitions or self.given + 1) <= self.given

    def _stopped(self):
        """Whether a failure forbids to read on: others than poison tend to come again and again."""
        return any(not isinstance(error, PoisonChunk) for error in self.failures)

    def _most(self):
        most = min(GROUP * self.runtime.threads, self.options.commit_every or GROUP * self.runtime.threads)
        return most if self.options.max_partitions is None else min(most, self.options.max_partitions - self.given)

    def _work(self) -> Iterator[tuple[Any, list]]:
        """Tasks with the partitions they are for, as somebody asks for them."""
        while not self._enough() and not self._stopped():
            deliveries = self.source.read(self.read_to, self._most())
            if not deliveries:
                return
            known, fresh = self._admitted(deliveries)
            yield from ((Digests(), group) for group in self._groups(known))
            if fresh:
                yield from self.watch.beside(self.snapshot)
            for group in self._groups(fresh):
                yield PartitionMessage(self.message_task), group

    def _admitted(self, deliveries):
        """Partitions of deliveries: those to compare with what was absorbed of them, and new ones."""
        model, known, fresh = self.snapshot.model, list[Partition](), list[Partition]()
        for delivery in deliveries:
            self.read_to, skipped = delivery.offset, len(self.admission.report.skipped)
            parts = tuple(self.snapshot.with_variance(delivery.parts))
            told = self._do(self.admission.delivered(replace(delivery, parts=parts)))
            known += [*told.compare, *from_keys(told.compare_keys, y=model.y_name, schema=model.schema)]
            fresh += told.to_absorb
            skipped = len(self.admission.report.skipped) - skipped
            self.passed_over += max(0, len(delivery.parts) - len(told.to_absorb) - skipped)
        self.given += len(fresh)
        return known, fresh

    def _groups(self, parts) -> Iterator[list]:
        """Neighbours that are computed together: few, so that no thread is idle for long; alone where rows fade, or may
        be refused once they are known."""
        alone = self.admission.fading.half_life or self.options.same_rows == "refuse"
        size = 1 if alone else max(1, min(GROUP, -(-len(parts) // self.runtime.threads)))
        return (parts[k : k + size] for k in range(0, len(parts), size))

    def _take(self, outcome):
        """What came of a task."""
        if self.watch.is_of(outcome):
            self.watch.take(outcome, self.admission.digests)
        elif outcome.error is not None:
            self._do(self.admission.failed([part.key for part in outcome.parts], outcome.error))
        elif isinstance(outcome.result, Found):
            self._do(self.admission.compared(outcome.result.by_key))
        else:
            entries = self.watch.noted(outcome.result.entries)
            self._do(self.admission.absorbed(Contribution(outcome.kept, entries), outcome.parts))
        if self._due():
            self.commit()
        self._progress()

    def _do(self, told: Instructions) -> Instructions:
        """What every event may ask for; the rest is for whoever made it."""
        self.failures += told.fail
        if told.acknowledge:
            self.source.ack(told.acknowledge.offset, told.acknowledge.keys)
        return told

    def _due(self):
        if self.options.commit_every is not None:
            return self.admission.uncommitted >= self.options.commit_every
        wait = max(COMMIT_SECONDS, COMMIT_SHARE * self.commit_seconds)
        return time.monotonic() - self.committed >= wait

    def commit(self) -> None:
        """Commit what is pending, whoever else does; then acknowledge it."""
        begun, self.lag = time.monotonic(), self._lag()
        batch, overtaken = totalled(self.admission.take(), self.runtime, self._absorb_again, label=self.label), False
        if self.admission.is_overtaken(batch):
            batch = self._left_of(batch)
        absorbed, watching = self.admission.digests, self.options.watch
        if says_more(self.snapshot, batch, self._beside, absorbed=absorbed, watching=watching):
            start, pause, stages = time.monotonic(), PAUSE, StageTimer()
            stages.seconds[self.label] = start - self.committed
            while True:
                try:
                    self.snapshot = successor(self.snapshot, batch, self._beside, self.runtime, stages)
                    break
                except CommitConflict:
                    overtaken = True
                    self.admission.report.retries += 1
                    time.sleep(random.uniform(0.0, 2.0 * pause))
                    pause = min(2.0 * pause, LONGEST_PAUSE)
                    self.snapshot = self.snapshot.newest()
                    batch = self._left_of(batch)
            with contextlib.suppress(ModelNotFound):  # pruned by others; the commit before it predicts as well
                self.message_task = self.watch.message_task(self.expert, self.snapshot)
            self.unpruned += 1
            self.commit_seconds = time.monotonic() - begun
        self.committed = time.monotonic()
        ledger = self.snapshot.ledger if overtaken else None
        self._do(self.admission.committed(batch, self._fading_on(), ledger))
        if self.unpruned >= self.options.keep:
            self._prune()
        if self.options.watch:  # who knows when this ends
            self._tell()

    def _left_of(self, batch: Batch) -> Batch:
        """What is left of a batch now that somebody else has committed."""
        fading = self._fading_on()
        refuse_absorbed_in_cells(self.snapshot, batch.parts.values())
        left = self._do(self.admission.overtaken(batch, self._known(fading))).absorb_again
        return batch if left is None else absorbed_again(batch, left, self._absorb_again)

    def _absorb_again(self, parts) -> Contribution:
        return self.snapshot.compute_messages(parts, self.runtime, label="absorb again")

    @property
    def _beside(self):
        """What a commit is to say beside what was absorbed."""
        facts = self.watch.facts(self.snapshot.facts)
        known = self.snapshot.facts.lag or {}
        if self.lag is not None:
            facts["lag"] = known | {self.source.name: self.lag}
        elif self.source.name in known:  # unknown now: what it was is no answer
            facts["lag"] = {name: lag for name, lag in known.items() if name != self.source.name}
        return CommitDetails(self.source.name, self.admission.fading, self.admission.report.skipped, facts)

    def _lag(self):
        """How far behind the source a commit now is; None of rows in memory, which nobody adds to."""
        if not self.source.name:
            return None
        report = self.admission.report
        self._look()
        some = [entry.rows for entry in self.snapshot.ledger[-100:]]
        rows = sum(some) / len(some) if some else self.snapshot.facts.rows_per_expert
        absorbed = report.partitions + self.admission.uncommitted
        return self.behind.told(absorbed + len(report.skipped) + self.passed_over, rows)

    def _look(self):
        self.behind.look(self.read_to, self.given + self.passed_over)

    def _prune(self):
        if self.unpruned:
            try:
                self.snapshot.store.prune(self.options.keep)
            except ModelDamaged as error:  # an old commit: what was absorbed is safe
                warnings.warn(BcmdistWarning(f"old commits were not pruned: {error}"), stacklevel=2)
            self.unpruned = 0

    def _tell(self):
        """Of twins, and of what arrives as `watch` says."""
        drift = self.watch.warning(self.snapshot, self.before) if self.admission.report.partitions else None
        for text in filter(None, (self.admission.warning(), drift)):
            warnings.warn(BcmdistWarning(text), stacklevel=2)

    def _progress(self, *, finished=False):
        """Partitions absorbed of those read and those that wait, about."""
        done = self.admission.report.partitions + self.admission.uncommitted
        if not finished:
            self._look()
        total = done if finished else max(self.behind.announced - self.passed_over, self.given, done + 1)
        self.runtime.progress(self.label, done, total)
