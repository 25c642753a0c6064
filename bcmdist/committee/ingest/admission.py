"""Admission: decide which delivered partitions are absorbed. A state machine: events in, instructions out.

    delivered, compared, absorbed, failed, overtaken, committed  ->  Instructions

A delivered partition is one of

1. bad: unreadable, or its rows do not fit this model;
2. known: its key is in the ledger; its rows must equal those that were absorbed;
3. in flight: it was submitted and is not committed yet;
4. overlapping: some of its rows are in the ledger or in flight under other keys; its other rows are new;
5. expired: new, but older than the window;
6. a twin: new, but with the same rows as another partition that counts; reported or refused;
7. new.

Nothing here waits, does I/O or reads a clock. `loop` carries out the instructions, in any order and with any delay, and
reports the outcomes as events. A repeated event has no further effect; a lost partition was not acknowledged, so the
source delivers it again.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.race import parts_left, with_entry
from bcmdist.committee.ingest.uncommitted import Batch, Pending
from bcmdist.committee.surveyed import refuse_changed, refuse_conflict
from bcmdist.data.partition import Partition
from bcmdist.data.row_ranges import Contents, RowRanges, same_rows, same_rows_warning
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistError, ChunkConflict, DataChanged, InvalidOption
from bcmdist.experts.contributions import Contribution
from bcmdist.storage.entry import Entry, named_range
from bcmdist.storage.ledger import Ledger


@dataclass(frozen=True)
class LedgerState:
    """The state of a commit that admission depends on."""

    ledger: Ledger
    in_cells: Collection[str]
    """surveyed keys of the partitions whose rows the commit has absorbed in cell order"""
    fading: Weighting
    """how rows of the source lose weight"""


class AbsorbedPartitions(Mapping[str, str]):
    """Content hashes, by key, of the partitions of a ledger, and of those that it has lost since.

    ledger : the ledger of the newest commit that is known
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._forgotten = ledger, dict[str, str]()

    def use(self, ledger: Ledger, forgotten: Iterable[Entry]) -> None:
        """Use a newer ledger; `forgotten` are the entries that it lacks."""
        self.ledger = ledger
        self._forgotten |= {entry.key: entry.digest for entry in forgotten if not entry.compacted}
        for key in [key for key in self._forgotten if ledger.find(key)]:
            del self._forgotten[key]  # absorbed again

    def __getitem__(self, key: str) -> str:
        found = self.ledger.find(key)
        return self._forgotten[key] if found is None or found.compacted else found.digest

    def __iter__(self) -> Iterator[str]:
        return itertools.chain((entry.key for entry in self.ledger), self._forgotten)

    def __len__(self) -> int:
        return len(self.ledger) + len(self._forgotten)

    def overlapping(self, part: Partition) -> list[str]:
        """Return the keys of the ledger that share rows with a partition, without compacted entries."""
        found = self.ledger.overlapping(named_range(part.key)[0], part.start, part.stop)
        return [entry.key for entry in found if not entry.compacted]


@dataclass(frozen=True)
class Acknowledgement:
    """Partitions that are committed, and the offset up to which everything is committed."""

    offset: object
    """JSON-ready; None if unchanged"""
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Instructions:
    """What the loop must do after an event; nothing by default."""

    compare: tuple[Partition, ...] = ()
    """hash the current rows of these partitions and report the hashes (`compared`)"""
    compare_keys: tuple[str, ...] = ()
    """the same for these ledger keys, whose rows now lie in partitions with other bounds"""
    to_absorb: tuple[Partition, ...] = ()
    """compute the messages of these partitions and report the outcome (`absorbed`, `failed`)"""
    absorb_again: tuple[tuple[Partition, Entry], ...] | None = None
    """commit only these partitions of the batch, after computing their messages again; each comes with its provisional
    ledger entry; None: commit the whole batch"""
    fail: tuple[BcmdistError, ...] = ()
    """raise the first of these at the end of the ingestion"""
    acknowledge: Acknowledgement | None = None


NOTHING = Instructions()


class Admission:
    """State machine that tracks partitions from their delivery to their commit.

    Parameters
    ----------
    known : state of the commit from which ingestion starts
    surveyed : ledger entries of the survey, by key; rows absorbed under these keys must have the same digest
    unfit : returns the error that keeps the model from absorbing a partition, None if there is none
    """

    def __init__(
        self,
        state: LedgerState,
        surveyed: Mapping[str, Entry],
        options: IngestOptions,
        unfit: Callable[[Partition], BcmdistError | None],
    ) -> None:
        self.options, self.unfit, self.surveyed = options, unfit, surveyed
        self.fading, self.report = state.fading, IngestReport()
        self.pending = Pending(state.fading)
        self.known = AbsorbedPartitions(state.ledger)
        self.twins: dict[str, str] = {}
        """keys of new partitions whose rows were absorbed under another key, with that key"""
        self.failures = Counter[str]()
        """partitions that failed, by class of their error"""
        self._warned = False
        self._cells = [entry for key, entry in surveyed.items() if key in state.in_cells]
        self._contents = Contents(self._cells, state.ledger)
        """digests of the partitions that count, to find twins"""
        self._absorbed = RowRanges(state.in_cells, state.ledger)
        """rows in the ledger or in flight"""
        self._asked = set[str]()
        """ledger keys already compared because their rows now lie in partitions with other bounds"""
        self._positions: dict[str, int | None] = {}
        """positions of partitions in flight, by key; None where rows do not fade"""
        self._passed = set[str]()
        """keys in flight when another process committed, which may have absorbed the same rows"""

    def _use(self, ledger: Ledger, forgotten: Sequence[Entry]) -> None:
        """Look partitions up in a newer ledger from now on; `forgotten` are the entries that it lacks."""
        self.known.use(ledger, forgotten)
        self._absorbed.ledger = ledger
        self._absorbed.add(entry.key for entry in forgotten)
        self._contents = Contents([*self._cells, *self.pending.entries.values()], ledger)

    # --- Deliveries ---

    def delivered(self, delivery: Delivery) -> Instructions:
        """Handle the next delivery of the source.

        Raises
        ------
        InvalidOption
            Rows shall fade, but the source does not number them.
        """
        if delivery.bad:
            name, error = delivery.bad
            self.pending.begin(delivery.offset, [name], [name])
            return self.failed([name], error)
        keys = [part.key for part in delivery.parts]
        known = {key for key in keys if key in self.known}
        same = tuple(part for part in delivery.parts if part.key in known)
        others, new = self._cut_otherwise(delivery, known), self._new(delivery, known)
        in_flight = [key for key in keys if key in self.pending.missed]
        missing = [part.key for part in same] + others + [part.key for part in new] + in_flight
        self.pending.begin(delivery.offset, missing, keys)
        self.report.duplicates += len(same)
        fit, errors = list[Partition](), list[BcmdistError]()
        for part in new:
            self._positions[part.key] = self._position(part, delivery)
            unfit = self.unfit(part)
            if unfit is not None:
                errors += self.failed([part.key], unfit).fail
            elif self._in_window(part):
                fit.append(part)
        return Instructions(compare=same, compare_keys=tuple(others), to_absorb=tuple(fit), fail=tuple(errors))

    def _new(self, delivery: Delivery, known: Collection[str]) -> list[Partition]:
        """The new partitions of a delivery, cut to the rows that are neither absorbed nor in flight."""
        new = []
        for part in delivery.parts:
            if part.key not in known and part.key not in self.pending:
                left = self._absorbed.remaining(part) if part.rows or not self._absorbed.knows(part) else []
                self.report.duplicates += not left
                new += left
        return new

    def _cut_otherwise(self, delivery: Delivery, known: Collection[str]) -> list[str]:
        """Ledger keys, each returned once, whose rows now lie in partitions with other bounds; to be compared."""
        if self.options.watch:
            return []
        whole = [part for part in delivery.parts if part.rows and part.key not in known]
        keys = [key for part in whole for key in self.known.overlapping(part) if key not in self._asked]
        self._asked.update(keys)
        return keys

    def _position(self, part: Partition, delivery: Delivery) -> int | None:
        """Number of rows of the source up to the end of a partition; None where rows do not fade."""
        if not self.fading.fades:
            return None
        if delivery.position is None and part.rows:  # reading an empty partition raises a clearer error
            raise InvalidOption(
                f"--half-life, --window: expected a source that counts its rows, got {self.fading.source}; leave them "
                "out, or give entries a position (`bcmdist.publish`)"
            )
        return (delivery.position or 0) - (delivery.parts[-1].stop - part.stop)

    def _in_window(self, part: Partition) -> bool:
        """Whether a new partition is still in the window. If so, mark its rows as in flight; else count it expired."""
        if self.fading.expired(self._positions[part.key]):
            self.report.expired += 1
            self._finish([part.key])
            return False
        self._absorbed.add([part.key])  # a longer, overlapping partition may arrive before this one is committed
        return True

    # --- Outcomes ---

    def compared(self, digests: Mapping[str, str]) -> Instructions:
        """Handle the current content hashes of known keys; one that differs from the ledger's is a failure."""
        failed = list[BcmdistError]()
        for key, digest in digests.items():
            try:
                refuse_conflict({key: digest}, self.known)
            except ChunkConflict as error:
                failed += self.failed([key], error).fail
            else:
                self._finish([key])
        return Instructions(fail=tuple(failed))

    def absorbed(self, found: Contribution, parts: Iterable[Partition]) -> Instructions:
        """Handle the message of new partitions that were computed in one task."""
        try:
            refuse_changed(found.entries.values(), [self.surveyed[k] for k in found.entries if k in self.surveyed])
        except DataChanged as error:
            return self.failed(found.entries, error)
        entries = {key: replace(entry, position=self._positions.pop(key)) for key, entry in found.entries.items()}
        newest = max(entry.position or 0 for entry in entries.values())
        later = max(newest, self.pending.fading.position)
        refused, failed = self._refused(self._contents, entries.values(), later)
        if not refused:
            self._contents.add(entries.values())
            self.pending.add(found.message, replace(self.fading, position=newest), entries, parts)
        return Instructions(fail=failed)

    def failed(self, keys: Collection[str], error: BcmdistError) -> Instructions:
        """Handle partitions that cannot be absorbed: skip them if the options say so, else return the error."""
        self.failures[type(error).__name__] += len(keys)
        if not self.options.skip:
            return Instructions(fail=(error,))
        self.report.skipped += keys
        self._finish(keys)
        return NOTHING

    def _finish(self, keys: Iterable[str]) -> None:
        """Mark partitions as done without absorbing them."""
        for key in keys:
            self._positions.pop(key, None)
        self.pending.finish(keys)

    def _refused(
        self, contents: Contents, entries: Iterable[Entry], newest: int
    ) -> tuple[Collection[str], tuple[BcmdistError, ...]]:
        """Keys of new partitions refused because they are twins, and the errors; all twins are counted.

        `newest` is the newest position of the commit: a partition outside the window that ends there is no twin.
        """
        twins = contents.twins(entries, expired=self.fading.at(newest).expired)
        self.twins |= twins
        self.report.same_rows = len(self.twins)
        if self.options.same_rows != "refuse":
            return (), ()
        failed = [self.failed([key], same_rows(key, twin)) for key, twin in twins.items()]
        return twins.keys(), tuple(error for instructions in failed for error in instructions.fail)

    def warning(self) -> str | None:
        """The warning about twins; returned once, None afterwards."""
        if self._warned or not self.twins or self.options.same_rows != "warn":
            return None
        self._warned = True
        return same_rows_warning(self.twins)

    # --- Commits ---

    @property
    def uncommitted(self) -> int:
        """Number of new partitions absorbed but not yet taken for a commit."""
        return len(self.pending.entries)

    def take(self) -> Batch:
        """Take the batch to commit: everything absorbed since the last call."""
        return self.pending.take()

    def is_overtaken(self, batch: Batch) -> bool:
        """Whether a partition of the batch was in flight when another process committed, so `overtaken` must run."""
        return not self._passed.isdisjoint(batch.entries)

    def overtaken(self, batch: Batch, state: LedgerState) -> Instructions:
        """Handle a lost race for a commit: `absorb_again` holds what is left of the batch, given the state `state`."""
        self.fading, failed = state.fading, list[BcmdistError]()
        theirs = AbsorbedPartitions(state.ledger)
        for key, entry in batch.entries.items():
            try:
                refuse_conflict({key: entry.digest}, theirs)
            except ChunkConflict as error:
                failed += self.failed([key], error).fail
        known = {key for key in batch.entries if key in state.in_cells or key in theirs}
        new = [entry for key, entry in batch.entries.items() if key not in known]
        refused, more = self._refused(Contents((), state.ledger), new, batch.fading.position)
        absorbed = RowRanges(state.in_cells, state.ledger)
        left, fail = parts_left(batch, absorbed, known.union(refused)), (*failed, *more)
        gone = len(batch.parts) - sum(part.key in batch.parts for part in left)
        if not gone:
            return Instructions(fail=fail)
        self.report.duplicates += gone - len(refused)
        return Instructions(absorb_again=tuple(with_entry(batch, part) for part in left), fail=fail)

    def committed(self, batch: Batch, fading: Weighting, ledger: Ledger, *, overtaken: bool = False) -> Instructions:
        """Handle the commit of a batch.

        Parameters
        ----------
        fading : how rows fade from this commit on
        ledger : the ledger of this commit
        overtaken : whether other processes have committed, too
        """
        self._passed -= batch.entries.keys()
        keys, before = batch.keys, self.known.ledger
        if overtaken:
            delivered = {*keys}
            keys += tuple(entry.key for entry in ledger.left_by(before) if entry.key not in delivered)
            self._passed |= self.pending.missed.keys()
        only_grown = not overtaken and len(ledger) == len(before) + batch.partitions
        self._use(ledger, [] if only_grown else before.left_by(ledger))
        self.fading = fading
        self.report.partitions += batch.partitions
        self.report.rows += sum(entry.rows for entry in batch.entries.values())
        return Instructions(acknowledge=Acknowledgement(batch.offset, keys))
