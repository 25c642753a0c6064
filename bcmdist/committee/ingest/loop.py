"""Ingestion: partitions are read, heard, committed and acknowledged, in this order; each counts once.

    source -> Delivery -> runtime.each(Arrival) -> Pending -> commit (put if absent) -> ack

State, ledger and offset of the source are one record. Whatever dies, whenever: what was not committed is delivered
again, what was is in the ledger. A partition that comes twice, late or in another order changes nothing; one that
comes with other bytes under the same key is refused. Of two ingesters one loses the race for a commit number: it reads
the winner's state, leaves out what that has heard, adds its own message to it (messages commute) and tries again. A
writer that slept through all this finds its number taken. There are no locks, and no clock decides anything but when
it is time to commit.
"""

import contextlib
import functools
import math
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bcmdist.committee import passes
from bcmdist.committee.cells import heard_in_cells, refuse_heard_in_cells
from bcmdist.committee.fading import chosen_fading
from bcmdist.committee.ingest.options import KEEP_COMMITS, IngestOptions, IngestReport, never
from bcmdist.committee.ingest.tasks import Digests, Found
from bcmdist.committee.ingest.uncommitted import Batch, Pending, rest_of
from bcmdist.committee.ingest.watch import Unwatched, Watch
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.written import refuse_changed
from bcmdist.data.partition import from_keys, refuse_overlap
from bcmdist.data.row_ranges import Contents, KeysByRange, RowRanges, same_rows, same_rows_warning, unheard
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.open import Source
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    ChunkConflict,
    CommitConflict,
    DataChanged,
    InvalidOption,
    ModelDamaged,
    ModelNotFound,
    PoisonChunk,
    SchedulerLost,
)
from bcmdist.experts.limits import refuse_large_expert
from bcmdist.experts.tasks import EPExpert, Expert
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import record_digest
from bcmdist.storage.ledger import RUNNING, Entry, named_range

# Without --commit-every: this long after the last commit at the earliest, and only so often that commits take at most
# one part in `COMMIT_SHARE` of the time. What is heard between two commits is what a crash makes us hear again.
COMMIT_SECONDS = 5.0
COMMIT_SHARE = 20
# Partitions of one task at most: neighbours are read together and their messages travel as one.
GROUP = 4
# Seconds between two looks at a source that had nothing new, and between two questions how much waits there.
POLL_SECONDS = 0.5
LAG_SECONDS = 2.0
# The first pause of the loser of a commit, on average; it doubles up to `LONGEST_PAUSE`.
PAUSE, LONGEST_PAUSE = 0.01, 1.0


def ingest(
    snapshot: Snapshot, source: Source, runtime, wishes: IngestOptions | None = None, *, watch: Watch | None = None
) -> tuple[Snapshot, IngestReport]:
    """Let a committee hear what a source delivers, once each; `watch` looks on at what was not there at the fit.

    Raises
    ------
    ChunkConflict
        A key that was heard comes with other rows.
    DataChanged, InvalidData, InvalidOption, MemoryLimit, PoisonChunk, SchedulerLost, SourceUnreachable, ...
        What was good has been committed; the offset stays before what failed.
    """
    wishes = wishes or IngestOptions()
    if snapshot.facts.linearise == RUNNING:
        return _ingest_in_turn(snapshot, source, runtime, wishes)
    runtime.check_same(functools.partial(record_digest, snapshot.url, snapshot.commit), url=snapshot.url)
    loop = _Loop(snapshot, source, runtime, wishes, (source.name and watch) or Unwatched())
    loop.run()
    return loop.snapshot, loop.tally


def _ingest_in_turn(
    snapshot: Snapshot, source: Source, runtime, wishes: IngestOptions
) -> tuple[Snapshot, IngestReport]:
    """As `ingest`, where each partition is linearised under the belief of the moment: one writer, one by one.

    Raises
    ------
    CommitConflict
        Somebody else writes too: his messages and ours depend on their order.
    """
    if replace(wishes, keep=KEEP_COMMITS, same_rows="warn", stop=never) != IngestOptions():
        raise InvalidOption(
            "ingest: expected no options with a model that linearises at the running belief, since its messages depend "
            f"on their order (--same-rows may stay), got {wishes}; leave them out, or fit a model with --linearise own"
        )
    tally, read_to, twins = IngestReport(), None, dict[str, str]()
    digests = {entry.key: entry.digest for entry in snapshot.ledger}
    known = digests.keys() | heard_in_cells(snapshot)
    while deliveries := source.read(read_to, GROUP):
        read_to = deliveries[-1].offset
        for error in (delivery.bad[1] for delivery in deliveries if delivery.bad):
            raise error
        parts = [part for delivery in deliveries for part in delivery.parts]
        fresh = [part for part in parts if part.key not in known]
        tally.duplicates += len(parts) - len(fresh)
        again = [part for part in parts if part.key in digests]
        if again:
            _refuse_conflict(runtime.sum(Digests(), again, label="compare").by_key, digests)
        if fresh:
            snapshot.refuse_unlike(fresh)
            refuse_overlap(fresh, known)
            refuse_large_expert(fresh, snapshot.model.shared, runtime, snapshot.model.likelihood)
            found = runtime.sum(Digests(), fresh, label="compare").by_key
            same = Contents(snapshot.ledger).twins(Entry(part.key, found[part.key], part.rows) for part in fresh)
            if same and wishes.same_rows == "refuse":
                raise same_rows(*next(iter(same.items())))
            twins |= same
            snapshot = passes.absorb_in_turn(snapshot, fresh, runtime)
            digests = {entry.key: entry.digest for entry in snapshot.ledger}
            known |= digests.keys()
        tally.partitions += len(fresh)
        tally.rows += sum(part.rows for part in fresh)
        source.ack(read_to, [part.key for part in parts])
    tally.same_rows = len(twins)
    if twins and wishes.same_rows == "warn":
        warnings.warn(BcmdistWarning(same_rows_warning(twins)), stacklevel=2)
    return snapshot, tally


class _Loop:
    """One ingestion: what it knows between a reading and the commit that follows."""

    def __init__(self, snapshot: Snapshot, source: Source, runtime, wishes: IngestOptions, watch: Watch):
        self.snapshot, self.source, self.runtime, self.wishes = snapshot, source, runtime, wishes
        self.fading = chosen_fading(snapshot.facts.fading, source.name, wishes.half_life, wishes.window)
        self.pending = Pending(self.fading)
        self.expert = (
            EPExpert(snapshot.reference) if snapshot.facts.approximation == "ep" else Expert(snapshot.reference)
        )
        self.surveyed = {entry.key: entry for entry in snapshot.store.get_segment(snapshot.facts.surveyed)}
        self.known: dict[str, str] = {}
        self.in_cells = heard_in_cells(snapshot)
        self.contents, self.twins, self.twins_told = self._contents(), dict[str, str](), False
        """what counts; new partitions whose rows were, under another name, with that; whether it was said"""
        self.before = snapshot.ledger
        """as it was when this began"""
        self.watch = watch
        self.positions: dict[str, int | None] = {}
        """of partitions on their way, by key; None where rows do not fade"""
        self.heard = RowRanges(self.in_cells)
        self.ranges, self.compared = KeysByRange(entry.key for entry in snapshot.ledger), set[str]()
        self._note(snapshot.ledger)
        self.read_to = snapshot.offsets.get(source.name) if wishes.watch else None
        self.given = 0
        """new partitions that were handed out"""
        self.label = "ingest" if source.name else "experts"
        self.announced, self.lag_asked = 0, -math.inf
        """partitions given and waiting in the source, about, and when that was asked"""
        self.tally = IngestReport()
        self.failures: list[BcmdistError] = []
        self.committed, self.commit_seconds, self.unpruned = time.monotonic(), 0.0, 0
        self.hearing = self._hearing()

    def _note(self, entries):
        """These are in the ledger."""
        self.contents.add(entries)
        self.known |= {entry.key: entry.digest for entry in entries}
        self.heard.add(entry.key for entry in entries)

    def _contents(self):
        """Of what the newest commit has heard: what somebody has forgotten may come again."""
        cells = [entry for key, entry in self.surveyed.items() if key in self.in_cells]
        return Contents([*self.snapshot.ledger, *cells])

    def run(self):
        """Until the source is empty, or somebody says stop."""
        self._progress()
        finished = False
        while not finished:
            begun = self.given
            for outcome in self._outcomes():
                self._take(outcome)
            idle = self.given == begun
            finished = not self.wishes.watch or self._enough() or bool(self.failures)
            if finished or idle or self._due():
                self.commit()
            if idle and not finished:
                time.sleep(POLL_SECONDS)
        self._prune()
        self._progress(finished=True)
        self._tell_twins()
        self._tell_watched()
        if self.failures:
            raise self.failures[0]
        self.tally.waiting = self.source.lag(self.read_to)

    def _outcomes(self):
        """Of what the source has now; before an error, what was heard is committed."""
        try:
            yield from self.runtime.each(self._work(), label=self.label)
        except SchedulerLost as error:
            self.commit()
            raise SchedulerLost(
                f"{error}; {len(self.snapshot.ledger)} partitions are safe in commit {self.snapshot.commit}: repeat "
                "the command, or `bcmdist resume` the job, to go on from there"
            ) from error
        except BcmdistError:
            self.commit()
            raise

    def _enough(self):
        return self.wishes.stop() or (self.wishes.max_partitions or self.given + 1) <= self.given

    def _work(self) -> Iterator[tuple[Any, list]]:
        """Tasks with the partitions they are for, as somebody asks for them."""
        while not self._enough() and not self._stopped():
            deliveries = self.source.read(self.read_to, self._most())
            if not deliveries:
                return
            known, fresh = self._begun(deliveries)
            yield from ((Digests(), group) for group in self._groups(known))
            if fresh:
                yield from self.watch.beside(self.snapshot)
            for group in self._groups(fresh):
                yield self.hearing, group

    def _begun(self, deliveries: list[Delivery]):
        """Partitions of deliveries: those to compare with what was heard under their key, and new ones."""
        known, fresh = [], []
        for delivery in deliveries:
            self.read_to = delivery.offset
            if delivery.bad:
                name, error = delivery.bad
                self.pending.begin(delivery.offset, [name], [name])
                self._fail([name], error)
                continue
            keys = [part.key for part in delivery.parts]
            same = [part for part in delivery.parts if part.key in self.known]
            old, new = same + self._cut_otherwise(delivery), self._new(delivery)
            on_their_way = [key for key in keys if key in self.pending.missed]
            self.pending.begin(delivery.offset, [*(part.key for part in (*old, *new)), *on_their_way], keys)
            known += old
            self.tally.duplicates += len(same)
            fresh += [part for part in new if self._can_be_heard(part, delivery)]
        self.given += len(fresh)
        return known, fresh

    def _new(self, delivery: Delivery):
        """What of a delivery nobody has heard."""
        new = []
        for part in delivery.parts:
            if part.key not in self.known and part.key not in self.pending:
                left = self.heard.rest(part) if part.rows or not self.heard.knows(part) else []
                self.tally.duplicates += not left
                new += left
        return new

    def _cut_otherwise(self, delivery: Delivery):
        """Partitions that were heard and lie in others now: what they hold is compared, once."""
        if self.wishes.watch:
            return []
        whole = [part for part in delivery.parts if part.rows and part.key not in self.known]
        keys = [key for part in whole for key in self.ranges.named(part) if key not in self.compared]
        self.compared.update(keys)
        return from_keys(keys, y=self.snapshot.model.y_name, schema=self.snapshot.model.schema)

    def _can_be_heard(self, part, delivery: Delivery):
        """Whether a new partition is one for this model, and in the window."""
        self.positions[part.key] = self._position(part, delivery)
        try:
            self.snapshot.refuse_unlike([part])
            refuse_large_expert([part], self.snapshot.model.shared, self.runtime, self.snapshot.model.likelihood)
        except BcmdistError as error:
            self._fail([part.key], error)
            return False
        if not self.fading.expired(self.positions[part.key]):
            self.heard.add([part.key])  # on its way: a longer partition may come before it is committed
            return True
        self.tally.expired += 1
        self._finish([part.key])
        return False

    def _position(self, part, delivery: Delivery) -> int | None:
        """Rows of the source up to the end of a partition, as far as it matters."""
        if not self.fading.fades:
            return None
        if delivery.position is None and part.rows:  # who reads one without rows says what is wrong
            raise InvalidOption(
                f"--half-life, --window: expected a source that counts its rows, got {self.source.name}; leave them "
                "out, or give entries a position (`bcmdist.data.entries.publish`)"
            )
        return (delivery.position or 0) - (delivery.parts[-1].stop - part.stop)

    def _groups(self, parts) -> Iterator[list]:
        """Neighbours that are computed together: few, so that no thread is idle for long; alone where rows fade, or may
        be refused once they are known."""
        size = (
            1
            if self.fading.half_life or self.wishes.same_rows == "refuse"
            else max(1, min(GROUP, -(-len(parts) // self.runtime.threads)))
        )
        return (parts[k : k + size] for k in range(0, len(parts), size))

    def _hearing(self):
        return self.watch.hearing(self.expert, self.snapshot)

    def _stopped(self):
        """Whether a failure forbids to read on: others than poison tend to come again and again."""
        return any(not isinstance(error, PoisonChunk) for error in self.failures)

    def _most(self):
        most = min(GROUP * self.runtime.threads, self.wishes.commit_every or GROUP * self.runtime.threads)
        return most if self.wishes.max_partitions is None else min(most, self.wishes.max_partitions - self.given)

    def _take(self, outcome):
        """What came of a task."""
        if self.watch.is_of(outcome):
            self.watch.take(outcome, self.known)
        elif outcome.error is not None:
            self._fail([part.key for part in outcome.parts], outcome.error)
        elif isinstance(outcome.result, Found):
            self._compare(outcome.result.by_key)
        else:
            self._add(outcome)
        if self._due():
            self.commit()
        self._progress()

    def _fail(self, keys, error):
        """These partitions cannot be heard; the first error is raised in the end, unless they are to be skipped."""
        if self.wishes.skip:
            self.tally.skipped += keys
            self._finish(keys)
        else:
            self.failures.append(error)

    def _finish(self, keys):
        """Nothing is to be heard of these partitions."""
        for key in keys:
            self.positions.pop(key, None)
        self.pending.finish(keys)

    def _compare(self, digests):
        """What came under known keys must be what was heard under them."""
        for key, digest in digests.items():
            try:
                _refuse_conflict({key: digest}, self.known)
            except ChunkConflict as error:
                self._fail([key], error)
            else:
                self._finish([key])

    def _add(self, outcome):
        heard = outcome.result
        surveyed = [self.surveyed[key] for key in heard.entries if key in self.surveyed]
        try:
            refuse_changed(heard.entries.values(), surveyed)
        except DataChanged as error:
            self._fail(list(heard.entries), error)
            return
        entries = {key: replace(e, position=self.positions.pop(key)) for key, e in heard.entries.items()}
        newest = max(entry.position or 0 for entry in entries.values())
        if self._refused(self._twins(self.contents, entries.values(), max(newest, self.pending.fading.position))):
            return
        self.contents.add(entries.values())
        self.pending.add(heard.message, replace(self.fading, position=newest), self.watch.noted(entries), outcome.parts)

    def _twins(self, contents: Contents, entries, newest):
        """Twins of new partitions among those that a commit up to a newest position leaves in the window."""
        return contents.twins(entries, expired=self.fading.at(newest).expired)

    def _refused(self, twins):
        """Whether new partitions, by their keys with those of their twins, are not to be heard; all are counted."""
        self.twins |= twins
        self.tally.same_rows = len(self.twins)
        if self.wishes.same_rows == "refuse":
            for key, twin in twins.items():
                self._fail([key], same_rows(key, twin))
        return bool(twins) and self.wishes.same_rows == "refuse"

    def _tell_twins(self):
        """Once, whatever comes later."""
        if self.twins and self.wishes.same_rows == "warn" and not self.twins_told:
            self.twins_told = True
            warnings.warn(BcmdistWarning(same_rows_warning(self.twins)), stacklevel=2)

    def _tell_watched(self):
        text = self.watch.warning(self.snapshot, self.before) if self.tally.partitions else None
        if text:
            warnings.warn(BcmdistWarning(text), stacklevel=2)

    def _due(self):
        if self.wishes.commit_every is not None:
            return len(self.pending.entries) >= self.wishes.commit_every
        wait = max(COMMIT_SECONDS, COMMIT_SHARE * self.commit_seconds)
        return time.monotonic() - self.committed >= wait

    def _progress(self, *, finished=False):
        """Partitions heard of those read and those that wait, about."""
        now, done = time.monotonic(), self.tally.partitions + len(self.pending.entries)
        if not finished and now - self.lag_asked >= LAG_SECONDS:
            with contextlib.suppress(BcmdistError):  # who reads says what is wrong
                self.announced, self.lag_asked = self.given + (self.source.lag(self.read_to) or 0), now
        total = done if finished else max(self.announced, self.given, done + 1)
        self.runtime.progress(self.label, done, total)

    def commit(self):
        """Commit what is pending, whoever else does; then acknowledge it."""
        batch, retries = self.pending.take(), self.tally.retries
        if self._tells_something(batch):
            start, pause, stages = time.monotonic(), PAUSE, StageTimer()
            stages.seconds[self.label] = start - self.committed
            while True:
                try:
                    self.snapshot = self._successor(batch, stages)
                    break
                except CommitConflict:
                    self.tally.retries += 1
                    time.sleep(random.uniform(0.0, 2.0 * pause))
                    pause = min(2.0 * pause, LONGEST_PAUSE)
                    self.snapshot = self.snapshot.newest()
                    self._choose_fading()
                    batch = self._without_known(batch)
            with contextlib.suppress(ModelNotFound):  # pruned by others; the commit before it predicts as well
                self.hearing = self._hearing()
            self.unpruned += 1
            self.commit_seconds = time.monotonic() - start
        self.committed = time.monotonic()
        if self.tally.retries > retries:
            self.contents = self._contents()
        self._note(batch.entries.values() if self.tally.retries == retries else self.snapshot.ledger)
        self._choose_fading()
        self.tally.partitions += batch.partitions
        self.tally.rows += sum(entry.rows for entry in batch.entries.values())
        self.source.ack(batch.offset, batch.keys)
        if self.unpruned >= self.wishes.keep:
            self._prune()
        if self.wishes.watch:  # who knows when this ends
            self._tell_twins()
            self._tell_watched()

    def _tells_something(self, batch: Batch):
        """Whether a batch changes what a commit says."""
        skipped = {*self.tally.skipped} - {*self.snapshot.facts.skipped} - self.known.keys()
        advanced = batch.offset is not None and batch.offset != self.snapshot.offsets.get(self.source.name)
        begins_to_fade = self.fading.fades and not self.snapshot.facts.fading.fades
        return batch.message is not None or (self.wishes.watch and advanced) or bool(skipped) or begins_to_fade

    def _prune(self):
        if self.unpruned:
            try:
                self.snapshot.store.prune(self.wishes.keep)
            except ModelDamaged as error:  # an old commit: what was heard is safe
                warnings.warn(BcmdistWarning(f"old commits were not pruned: {error}"), stacklevel=2)
            self.unpruned = 0

    def _choose_fading(self):
        """As the newest commit says, which may be somebody else's."""
        wishes = self.wishes
        fading = chosen_fading(self.snapshot.facts.fading, self.source.name, wishes.half_life, wishes.window)
        if fading.fades and not self.fading.fades:
            raise InvalidOption(
                f"{self.snapshot.url}: expected rows that do not fade, as when this began, somebody else lets them "
                "fade by now; repeat the command to go on like that"
            )
        self.fading = fading

    def _without_known(self, batch: Batch) -> Batch:
        """What is left of a batch now that somebody else has committed."""
        theirs = {entry.key: entry.digest for entry in self.snapshot.ledger}
        for key, entry in batch.entries.items():
            try:
                _refuse_conflict({key: entry.digest}, theirs)
            except ChunkConflict as error:
                self._fail([key], error)
        refuse_heard_in_cells(self.snapshot, batch.parts.values())
        known = theirs.keys() | heard_in_cells(self.snapshot)
        new = [entry for key, entry in batch.entries.items() if key not in known]
        twins = self._twins(Contents(self.snapshot.ledger), new, batch.fading.position)
        refused = twins.keys() if self._refused(twins) else set()
        left = unheard([part for key, part in batch.parts.items() if key not in known | refused], known)
        gone = len(batch.parts) - sum(part.key in batch.parts for part in left)
        if not gone:
            return batch
        self.tally.duplicates += gone - len(refused)
        if not left:
            return rest_of(batch, None, {}, [])
        mended = [self._left_of(batch, part) for part in left]
        heard = self.snapshot.hear([part for part, _ in mended], self.runtime, label="hear again")
        made = heard.entries
        pairs = {p.key: (e, made[p.key]) for p, e in mended}
        entries = {
            key: replace(e, digest=n.digest, sites=n.sites, densities=n.densities) for key, (e, n) in pairs.items()
        }
        return rest_of(batch, heard.message, entries, left)

    def _left_of(self, batch: Batch, part) -> tuple[Any, Entry]:
        """A partition that is left of a batch, or is a part of one of its, with its weight; and its entry."""
        whole = next(p for p in batch.parts.values() if p.data == part.data and p.start <= part.start < p.stop)
        known = batch.entries[whole.key]
        position = known.position and known.position - (whole.stop - part.stop)
        entry = replace(known, key=part.key, rows=part.rows, position=position)
        return replace(part, weight=batch.fading.weight(position)), entry

    def _successor(self, batch: Batch, stages: StageTimer) -> Snapshot:
        """The commit after the newest one we know, with a batch absorbed and old rows faded."""
        snapshot, entries = self.snapshot, sorted(batch.entries.values(), key=lambda entry: named_range(entry.key))
        before = snapshot.facts.fading if snapshot.facts.fading.fades else self.fading
        after = before.at(batch.fading.position)
        with stages("committee"):
            committee = snapshot.committee.aged(before.aged(after))
            if batch.message is not None:
                committee = committee.absorb(batch.message.weighted(batch.fading.aged(after)))
            ledger: list[Entry] = [*snapshot.ledger, *entries]
            gone = [entry for entry in ledger if after.expired(entry.position)] if after.window else []
            if gone:
                old = {entry.key: entry.weight * after.weight(entry.position) for entry in gone}
                committee = committee.withdraw(messages(snapshot, old, self.runtime, ledger=ledger))
        offsets = snapshot.offsets if batch.offset is None else snapshot.offsets | {self.source.name: batch.offset}
        facts: dict[str, Any] = {"fading": after}
        if entries:
            facts |= passes.first_pass(snapshot.facts)
        facts |= self.watch.facts(snapshot.facts)
        skipped = {*snapshot.facts.skipped, *self.tally.skipped}
        facts["skipped"] = tuple(sorted(skipped and skipped - _names(ledger)))
        if gone:
            left = [entry for entry in ledger if not after.expired(entry.position)]
            return snapshot.successor(committee, left, rewrite=True, stages=stages, offsets=offsets, **facts)
        return snapshot.successor(committee, entries, stages=stages, offsets=offsets, **facts)


def _names(ledger):
    """Keys of what was heard, and of the data sets that it is of."""
    return {name for entry in ledger for name in (entry.key, entry.key.rpartition("/")[0])}


def _refuse_conflict(found, known):
    """Raise where a key was heard with other rows."""
    for key, digest in found.items():
        if known.get(key, digest) != digest:
            raise ChunkConflict(
                f"{key}: expected the rows that were heard under this key ({known[key][:12]}), got others "
                f"({digest[:12]}); give changed data another name, or forget the key first"
            )
