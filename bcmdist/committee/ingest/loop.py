"""Ingestion: read, absorb, commit and acknowledge partitions, in this order; each partition counts once.

    source -> Delivery -> Admission -> runtime.each(PartitionMessage) -> Pending -> total -> commit -> ack

Committee, ledger and source offset are written in one record, so a crash at any time is safe: a partition that was not
committed is delivered again, a committed one is in the ledger. A partition that arrives twice, late or out of order
changes nothing; one with different bytes under the same key is refused. A commit is written only if its number is free.
When two ingesters race for a number, the loser loads the winner's state, drops the partitions that the winner has
absorbed, adds the rest of its own messages (messages commute) and retries. A writer that was suspended meanwhile finds
its number taken. No lock is needed: on one host `commit_turn` saves work. Clocks only decide when to commit.

`admission` decides what to absorb and does no I/O; this module holds the source, the runtime, the store and the clocks.
"""

import contextlib
import functools
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from bcmdist.committee.absorbed import refuse_compacted
from bcmdist.committee.cells import absorbed_in_cells, arranged_alike, refuse_absorbed_in_cells
from bcmdist.committee.facts import Lag
from bcmdist.committee.fading import Weighting, chosen_fading, going_on
from bcmdist.committee.ingest.admission import Admission, Instructions, LedgerState
from bcmdist.committee.ingest.events import Events
from bcmdist.committee.ingest.group_size import GROUP, GroupSize, most_partitions
from bcmdist.committee.ingest.growing import Growth
from bcmdist.committee.ingest.in_turn import Digests, Found, PartitionMessage
from bcmdist.committee.ingest.lag_meter import LagMeter, lag_fact
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.ingest.race import absorbed_again, version_of, with_weights
from bcmdist.committee.ingest.source import unfit
from bcmdist.committee.ingest.successor import CommitDetails, says_more, successor
from bcmdist.committee.ingest.totals import totalled
from bcmdist.committee.ingest.uncommitted import Batch
from bcmdist.committee.ingest.watch import Finish, TaskWithParts, Watch
from bcmdist.committee.row_copies import copied, messages_with_copies
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition, from_keys
from bcmdist.data.sources.open import Delivery, Source
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
from bcmdist.experts.precision import refuse_inexact
from bcmdist.runtime.interface import Outcome, Runtime
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.heartbeats import beating, sweep
from bcmdist.storage.locks import commit_turn

# Without --commit-every: the least number of seconds between commits; the interval is longer where needed to spend at
# most 1 / `COMMIT_SHARE` of the time on commits. After a crash, partitions absorbed since the last commit are repeated.
COMMIT_SECONDS = 5.0
COMMIT_SHARE = 20
# Seconds between two polls of a source that had nothing new.
POLL_SECONDS = 0.5
# Mean backoff after the first lost race for a commit, in seconds; it doubles up to `LONGEST_PAUSE`.
PAUSE, LONGEST_PAUSE = 0.01, 1.0


class Loop:
    """One ingestion: carries out the instructions of `admission` and reports the outcomes to it."""

    def __init__(
        self, snapshot: Snapshot, source: Source, runtime: Runtime, options: IngestOptions, watch: Watch, finish: Finish
    ) -> None:
        self.snapshot, self.source, self.runtime, self.options = snapshot, source, runtime, options
        self.finish: Finish | None = finish
        """None when it was called"""
        fading = self._fading()
        if fading.window:
            refuse_inexact(snapshot.model.precision, snapshot.url, "keep a --window")
            refuse_compacted(snapshot, snapshot.ledger)
        snapshot.ledger.opened()  # others may prune the commit
        self._use(snapshot)
        self.growth, self.waiting = Growth.asked(snapshot, options), list[Partition]()
        """how the query set grows, and the new partitions to absorb when it has"""
        misfit = functools.partial(unfit, lambda: self.snapshot, runtime)
        self.admission = Admission(self._ledger_state(fading), snapshot.surveyed, options, misfit)
        self.events, self.watch, self.before = Events(options.observe, source.name), watch, snapshot.ledger
        """the observer of partitions; the ledger when this ingestion began"""
        self.lag: Lag | None = None  # behind the source at the commit being made
        self.read_to = snapshot.offsets.get(source.name) if options.watch else None
        self.delivered = self.passed_over = 0
        """new partitions submitted to the runtime, and those delivered but absorbed before or outside the window"""
        self.label, self.lag_meter = "ingest" if source.name else "experts", LagMeter(source)
        self.failures: list[BcmdistError] = []
        most = most_partitions(options, fading)
        self.digest_groups, self.message_groups = GroupSize(most), GroupSize(most)
        self.committed, self.commit_seconds, self.unpruned = time.monotonic(), 0.0, 0
        self.message_task = self.watch.message_task(self.expert, self.snapshot)

    def _use(self, snapshot: Snapshot) -> None:
        """Compute messages under the model of a snapshot from now on."""
        self.expert, self.version = copied(snapshot, snapshot.expert()), version_of(snapshot)

    def _refitted(self) -> bool:
        """Whether another process has replaced the hyper-parameters since messages were computed."""
        return self.version[0] != self.snapshot.facts.learning.refits

    def _fading(self) -> Weighting:
        """The fading of the newest commit, which another process may have written, checked against the options."""
        return chosen_fading(self.snapshot.facts.fading, self.source.name, self.options.half_life, self.options.window)

    def _fading_on(self) -> Weighting:
        return going_on(self.admission.fading, self._fading(), self.snapshot.url)

    def _ledger_state(self, fading: Weighting) -> LedgerState:
        return LedgerState(self.snapshot.ledger, absorbed_in_cells(self.snapshot), fading)

    def run(self) -> None:
        """Ingest until the source is empty or, with `options.watch`, until `options.stop` asks to stop."""
        store, name = self.snapshot.store, self.source.name
        try:
            with beating(store, name) if self.options.watch and name else contextlib.nullcontext():
                self._run()
            sweep(store, name)  # remove heartbeats of crashed ingesters of this source: this one has replaced them
        except SchedulerLost as error:
            raise SchedulerLost(
                f"{error}; {len(self.snapshot.ledger)} partitions are safe in commit {self.snapshot.commit}: repeat "
                "the command, or `bcmdist resume` the job, to go on from there"
            ) from error

    def _run(self) -> None:
        self._progress()
        finished = False
        while not finished:
            begun = self.delivered
            if self._refitted():
                self.commit()
                self._use(self.snapshot)
                self.message_task = self.watch.message_task(self.expert, self.snapshot)
            for outcome in self._outcomes(self._work()):
                self._take(outcome)
            if self.waiting:
                self._absorb_waiting()
            idle = self.delivered == begun
            ended = not (self.options.watch or self._refitted()) and (idle or not self.growth)
            finished = ended or self._enough() or bool(self.failures)
            if finished or idle or self._due():
                self.commit(last=finished and not self.failures)
            if idle and not finished:
                time.sleep(POLL_SECONDS)
        if self.finish:  # nothing was left to commit, another process has committed, or something failed
            self._progress(finished=True)
            if not self.failures:
                self.snapshot = self.finish(self.snapshot).committed_or_newest()
        self._prune()
        self._warn_at_end()
        if self.failures:
            raise self.failures[0]
        self.admission.report.waiting = self.source.lag(self.read_to)

    def _outcomes(self, work: Iterable[TaskWithParts]) -> Iterator[Outcome]:
        """Outcomes of pairs of a task and its partitions. Commits the absorbed partitions before raising an error."""
        try:
            yield from self.runtime.each(work, label=self.label)
        except BcmdistError as error:
            if not isinstance(error, SchedulerLost):  # then the sums held by workers are lost too
                self.commit()
            raise

    def _enough(self) -> bool:
        return self.options.stop() or (self.options.max_partitions or self.delivered + 1) <= self.delivered

    def _stopped(self) -> bool:
        """Whether a failure stops reading. Errors other than `PoisonChunk` tend to hit the next partitions too."""
        return any(not isinstance(error, PoisonChunk) for error in self.failures)

    def _most(self) -> int:
        sizes = [] if self.growth else [self.digest_groups.partitions, self.message_groups.partitions]
        most = max([GROUP, *sizes]) * self.runtime.threads
        most = min(most, self.options.commit_every or most)
        return most if self.options.max_partitions is None else min(most, self.options.max_partitions - self.delivered)

    def _work(self) -> Iterator[TaskWithParts]:
        """Pairs of a task and its partitions, read from the source as the runtime asks for them."""
        while not (self._enough() or self._stopped() or self._refitted()):
            deliveries = self.source.read(self.read_to, self._most())
            if not deliveries:
                return
            admitted, fresh = self._admitted(deliveries)
            yield from ((Digests(), group) for group in self.digest_groups.groups(admitted, self.runtime.threads))
            if fresh:
                yield from self.watch.further_tasks(self.snapshot)
            if fresh and self.growth:
                self.waiting = fresh
                return
            yield from self._messages(fresh)

    def _messages(self, parts: Sequence[Partition]) -> Iterator[TaskWithParts]:
        """Pairs of a task that computes messages and its partitions."""
        groups = self.message_groups.groups(parts, self.runtime.threads)
        return ((PartitionMessage(self.message_task), group) for group in groups)

    def _absorb_waiting(self) -> None:
        """Absorb new partitions after the query set has grown by the points that they need."""
        assert self.growth, "partitions wait for it"
        parts, self.waiting = self.waiting, []
        if self.growth.may_reduce(self.snapshot):
            self.commit()  # messages about other points
            self.snapshot = self.growth.reduced(self.snapshot)
        rows = self.growth.new_rows(self.snapshot, parts, self.runtime)
        if any(map(len, rows.values())) or self.version != version_of(self.snapshot):
            self.commit()  # messages about other points
        if self._refitted():  # then the rows above are in other units
            rows = self.growth.new_rows(self.snapshot, parts, self.runtime)
        committed = self.snapshot
        self.snapshot, parts = self.growth.applied(committed, parts, rows, self.runtime)
        with self.snapshot.drafted() as drafted:
            self._use(drafted)
            self.message_task = self.watch.message_task(self.expert, committed)
            for outcome in self._outcomes(self._messages(parts)):
                self._take(outcome)
        if self.snapshot.pending:
            self.snapshot = replace(drafted, draft="")
            self.commit()  # new points in one commit with the messages of the partitions that need them

    def _admitted(self, deliveries: Iterable[Delivery]) -> tuple[list[Partition], list[Partition]]:
        """Admit deliveries; return the partitions to compare with the ledger and the new partitions to absorb."""
        model, admitted, fresh = self.snapshot.model, list[Partition](), list[Partition]()
        for delivery in deliveries:
            self.read_to, skipped = delivery.offset, len(self.admission.report.skipped)
            parts = tuple(self.snapshot.with_variance(delivery.parts))
            instructions = self._do(self.admission.delivered(replace(delivery, parts=parts)))
            admitted += instructions.compare
            admitted += from_keys(instructions.compare_keys, y=model.y_name, schema=model.schema)
            fresh += instructions.to_absorb
            skipped = len(self.admission.report.skipped) - skipped
            self.passed_over += max(0, len(delivery.parts) - len(instructions.to_absorb) - skipped)
        self.delivered += len(fresh)
        return admitted, fresh

    def _take(self, outcome: Outcome) -> None:
        """Handle the outcome of a task; commit if one is due."""
        if self.watch.is_of(outcome):
            self.watch.take(outcome, self.admission.known)
        elif outcome.error is not None:
            self._do(self.admission.failed([part.key for part in outcome.parts], outcome.error))
        elif isinstance(outcome.result, Found):
            self.digest_groups.observe(outcome)
            self._do(self.admission.compared(outcome.result.by_key))
        else:
            self.message_groups.observe(outcome)
            found = Contribution(outcome.kept, self.watch.recorded(outcome.result.entries))
            self._do(self.admission.absorbed(found, cast(list[Partition], outcome.parts)))
        if self._due():
            self.commit()
        self._progress()

    def _do(self, instructions: Instructions) -> Instructions:
        """Record failures and send acknowledgements, then return the instructions for the caller to do the rest."""
        self.failures += instructions.fail
        if instructions.acknowledge:
            self.source.ack(instructions.acknowledge.offset, instructions.acknowledge.keys)
        return instructions

    def _due(self) -> bool:
        if self.growth and self.snapshot.pending:
            return False
        if self.options.commit_every is not None:
            return self.admission.uncommitted >= self.options.commit_every
        wait = max(COMMIT_SECONDS, COMMIT_SHARE * self.commit_seconds)
        return time.monotonic() - self.committed >= wait

    def commit(self, *, last: bool = False) -> None:
        """Commit the pending batch, retrying after conflicts with other writers, and acknowledge it; `last`: finish."""
        begun, seconds, self.lag = time.monotonic(), None, self._lag()
        batch, overtaken = totalled(self.admission.take(), self.runtime, self._absorb_again, label=self.label), False
        if self.admission.is_overtaken(batch) or self._refitted():
            batch = self._left_of(batch, again=self._refitted())
        absorbed, watching = self.admission.known, self.options.watch
        if says_more(self.snapshot, batch, self._commit_details, absorbed=absorbed, watching=watching):
            start, pause, stages = time.monotonic(), PAUSE, StageTimer()
            stages.seconds[self.label] = start - self.committed
            with commit_turn(self.snapshot.url) as waited:
                while True:
                    try:
                        if waited and self.snapshot.store.head() > self.snapshot.commit:
                            raise self.snapshot.store.taken(self.snapshot.commit + 1)
                        after = successor(self.snapshot, batch, self._commit_details, self.runtime, stages)
                        self.snapshot = self._finished(after) if last else after.committed()
                        break
                    except CommitConflict:
                        # The newest commit may lack what was changed before, unless that is the order of cells.
                        added = self.growth is not None and self.snapshot.pending
                        pending = self.snapshot.pending and not added
                        if pending and not arranged_alike(self.snapshot, self.snapshot.newest()):
                            raise
                        last = False  # to be repeated only if no other process commits
                        overtaken = True
                        self.admission.report.retries += 1
                        time.sleep(random.uniform(0.0, 2.0 * pause))
                        pause = min(2.0 * pause, LONGEST_PAUSE)
                        self.snapshot = self.snapshot.newest()
                        batch = self._left_of(batch, again=added or self._refitted())
            with contextlib.suppress(ModelNotFound):  # pruned by others: go on predicting from the commit before
                self.message_task = self.watch.message_task(self.expert, self.snapshot)
            self.unpruned += 1
            seconds = self.commit_seconds = time.monotonic() - begun
        self.committed = time.monotonic()
        ledger = self.snapshot.ledger
        self._do(self.admission.committed(batch, self._fading_on(), ledger, overtaken=overtaken))
        report, failed, lag = self.admission.report, self.admission.failures, self.lag
        now = {"commit": self.snapshot.commit, "threads": self.runtime.threads}
        self.events.happened(report, failed=failed, seconds=seconds, lag=lag, keys=batch.entries, **now)
        if self.unpruned >= self.options.keep:
            self._prune()
        if self.options.watch:  # this may run for long: do not wait for the end to warn
            self._warn_at_end()

    def _finished(self, after: Snapshot) -> Snapshot:
        """Call `finish` and commit; if it fails or is interrupted, commit `after`, and raise."""
        assert self.finish, "it is called once"
        self._progress(finished=True, absorbed=len(after.ledger) - len(self.before))  # stages that follow report theirs
        try:
            finished = self.finish(after)
        except BaseException:
            with contextlib.suppress(CommitConflict):
                self.snapshot = after.committed()
            raise
        committed, self.finish = finished.committed(), None
        return committed

    def _left_of(self, batch: Batch, *, again: bool = False) -> Batch:
        """The part of a batch that is still to be committed after another process has committed.

        again : whether its messages must be computed again, since they are about query points that were not committed
        """
        fading, again = self._fading_on(), again or self.snapshot.model.earlier.lacks(batch.query)
        refuse_absorbed_in_cells(self.snapshot, batch.parts.values())
        left = self._do(self.admission.overtaken(batch, self._ledger_state(fading))).absorb_again
        if left is None and not again:
            return batch
        anew = [(replace(part, query=None), entry) for part, entry in (with_weights(batch) if left is None else left)]
        return absorbed_again(batch, anew, self._absorb_again)

    def _absorb_again(self, parts: list[Partition]) -> Contribution:
        if not self.growth:
            return messages_with_copies(self.snapshot, parts, self.runtime, label="absorb again")
        rows = self.growth.new_rows(self.snapshot, parts, self.runtime)
        self.snapshot, parts = self.growth.applied(self.snapshot, parts, rows, self.runtime)
        with self.snapshot.drafted() as drafted:
            found = messages_with_copies(drafted, parts, self.runtime, label="absorb again")
        self.snapshot = replace(drafted, draft="")
        return found

    @property
    def _commit_details(self) -> CommitDetails:
        """Facts of the next commit other than the batch itself: fading, skipped partitions, lag, the observer's."""
        name, facts = self.source.name, self.snapshot.facts
        found = self.watch.facts(facts) | lag_fact(facts, name, self.lag)
        return CommitDetails(name, self.admission.fading, self.admission.report.skipped, found, self.options.update)

    def _lag(self) -> Lag | None:
        """Lag of a commit made now; None if unknown, or for rows in memory, which do not grow."""
        if not self.source.name:
            return None
        report = self.admission.report
        self._look()
        some = [entry.rows for entry in self.snapshot.ledger[-100:]]
        rows = sum(some) / len(some) if some else self.snapshot.facts.survey.rows_per_expert
        absorbed = report.partitions + self.admission.uncommitted
        return self.lag_meter.lag(absorbed + len(report.skipped) + self.passed_over, rows)

    def _look(self) -> None:
        self.lag_meter.look(self.read_to, self.delivered + self.passed_over)

    def _prune(self) -> None:
        if self.unpruned:
            try:
                self.snapshot.store.prune(self.options.keep)
            except ModelDamaged as error:  # only an old commit is damaged: absorbed partitions are safe
                warnings.warn(BcmdistWarning(f"old commits were not pruned: {error}"), stacklevel=2)
            self.unpruned = 0

    def _warn_at_end(self) -> None:
        """Warn of duplicate rows and, if partitions were committed, of drift as reported by `watch`."""
        drift = self.watch.warning(self.snapshot, self.before) if self.admission.report.partitions else None
        for text in filter(None, (self.admission.warning(), drift)):
            warnings.warn(BcmdistWarning(text), stacklevel=2)

    def _progress(self, *, finished: bool = False, absorbed: int = 0) -> None:
        """Report progress: partitions absorbed (`absorbed`: those of a commit that is being made), out of those read
        plus, approximately, those waiting."""
        done = max(self.admission.report.partitions + self.admission.uncommitted, absorbed)
        if not finished:
            self._look()
        total = done if finished else max(self.lag_meter.announced - self.passed_over, self.delivered, done + 1)
        self.runtime.progress(self.label, done, total)
