"""Admission: what of that which a source delivers is to be absorbed. Events in, instructions out.

    delivered, compared, absorbed, failed, overtaken, committed  ->  Instructions

A partition of a delivery is

1. bad: it cannot be read as one, or its rows are not for this model;
2. known: its key is in the ledger; what comes under it must be what was absorbed under it;
3. on its way: it was given out, and is not committed yet;
4. cut otherwise: some of its rows are in the ledger, or on their way, under other keys; the rest is new;
5. expired: new, and the window has left it;
6. a twin: new, with the rows of another one that counts; it is told, or refused;
7. new.

Nothing here waits, reads, writes or knows the time: `loop` does what it is told, in any order and with any delays, and
reports what came of it. An event that comes twice changes nothing more, and whatever is lost was not acknowledged.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.race import parts_left, with_entry
from bcmdist.committee.ingest.uncommitted import Batch, Pending
from bcmdist.committee.surveyed import refuse_changed, refuse_conflict
from bcmdist.data.partition import Partition
from bcmdist.data.row_ranges import Contents, KeysByRange, RowRanges, same_rows, same_rows_warning
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistError, ChunkConflict, DataChanged, InvalidOption
from bcmdist.experts.contributions import Contribution
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class LedgerState:
    """What a commit has absorbed."""

    ledger: Sequence[Entry]
    in_cells: Collection[str]
    """keys, as surveyed, of partitions that it has absorbed in the order of cells"""
    fading: Weighting
    """how rows of the source fade from there"""


@dataclass(frozen=True)
class Acknowledgement:
    """These are committed, or were before, and so is all up to an offset."""

    offset: object
    """JSON-ready; None: as before"""
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Instructions:
    """What is to be done because of an event; nothing by default."""

    compare: tuple[Partition, ...] = ()
    """look at what they hold now, and say so (`compared`)"""
    compare_keys: tuple[str, ...] = ()
    """likewise, of partitions of the ledger that lie in others now"""
    to_absorb: tuple[Partition, ...] = ()
    """absorb them, and say so (`absorbed`, `failed`)"""
    absorb_again: tuple[tuple[Partition, Entry], ...] | None = None
    """only these of a batch may be committed, each with its entry as far as it is known; None: all of it"""
    fail: tuple[BcmdistError, ...] = ()
    """raise the first of them, in the end"""
    acknowledge: Acknowledgement | None = None


NOTHING = Instructions()


class Admission:
    """What is known between a delivery and the commit that follows.

    Parameters
    ----------
    known : where this begins
    surveyed : what was found at a fit, by key: what is absorbed must be the same
    unfit : why a new partition cannot be absorbed by this model; None where it can
    """

    def __init__(
        self,
        known: LedgerState,
        surveyed: Mapping[str, Entry],
        options: IngestOptions,
        unfit: Callable[[Partition], BcmdistError | None],
    ):
        self.options, self.unfit, self.surveyed = options, unfit, surveyed
        self.fading, self.report = known.fading, IngestReport()
        self.pending = Pending(known.fading)
        self.digests: dict[str, str] = {}
        """by key, of all that was ever in the ledger: what was absorbed under it"""
        self.twins: dict[str, str] = {}
        """new partitions whose rows were, under another name, with that one"""
        self._warned = False
        self._cells = [entry for key, entry in surveyed.items() if key in known.in_cells]
        self._contents = Contents([*known.ledger, *self._cells])
        """what counts"""
        self._absorbed = RowRanges(known.in_cells)
        """rows in the ledger, or on their way"""
        self._ranges, self._asked = KeysByRange(entry.key for entry in known.ledger), set[str]()
        """keys that were in the ledger; those of them that were compared since they lie in others now"""
        self._positions: dict[str, int | None] = {}
        """of partitions on their way, by key; None where rows do not fade"""
        self._passed = set[str]()
        """keys that were on their way when others had committed, who may have absorbed these rows too"""
        self._note(known.ledger)

    def _note(self, entries):
        """These are in the ledger."""
        self._contents.add(entries)
        self.digests |= {entry.key: entry.digest for entry in entries}
        self._absorbed.add(entry.key for entry in entries)

    # --- Deliveries ---

    def delivered(self, delivery: Delivery) -> Instructions:
        """The next delivery of the source.

        Raises
        ------
        InvalidOption
            Rows are to fade, and the source does not count them.
        """
        if delivery.bad:
            name, error = delivery.bad
            self.pending.begin(delivery.offset, [name], [name])
            return self.failed([name], error)
        keys = [part.key for part in delivery.parts]
        same = tuple(part for part in delivery.parts if part.key in self.digests)
        others, new = self._cut_otherwise(delivery), self._new(delivery)
        on_their_way = [key for key in keys if key in self.pending.missed]
        missing = [part.key for part in same] + others + [part.key for part in new] + on_their_way
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

    def _new(self, delivery: Delivery):
        """What of a delivery nobody has absorbed."""
        new = []
        for part in delivery.parts:
            if part.key not in self.digests and part.key not in self.pending:
                left = self._absorbed.rest(part) if part.rows or not self._absorbed.knows(part) else []
                self.report.duplicates += not left
                new += left
        return new

    def _cut_otherwise(self, delivery: Delivery):
        """Keys that were absorbed and lie in other partitions now: what they hold is compared, once."""
        if self.options.watch:
            return []
        whole = [part for part in delivery.parts if part.rows and part.key not in self.digests]
        keys = [key for part in whole for key in self._ranges.named(part) if key not in self._asked]
        self._asked.update(keys)
        return keys

    def _position(self, part, delivery: Delivery) -> int | None:
        """Rows of the source up to the end of a partition, as far as it matters."""
        if not self.fading.fades:
            return None
        if delivery.position is None and part.rows:  # who reads one without rows says what is wrong
            raise InvalidOption(
                f"--half-life, --window: expected a source that counts its rows, got {self.fading.source}; leave them "
                "out, or give entries a position (`bcmdist.publish`)"
            )
        return (delivery.position or 0) - (delivery.parts[-1].stop - part.stop)

    def _in_window(self, part):
        """Whether a new partition still counts; it is on its way then."""
        if self.fading.expired(self._positions[part.key]):
            self.report.expired += 1
            self._finish([part.key])
            return False
        self._absorbed.add([part.key])  # a longer partition may come before it is committed
        return True

    # --- Outcomes ---

    def compared(self, digests: Mapping[str, str]) -> Instructions:
        """Content hashes of what lies under known keys now: it must be what was absorbed under them."""
        failed = list[BcmdistError]()
        for key, digest in digests.items():
            try:
                refuse_conflict({key: digest}, self.digests)
            except ChunkConflict as error:
                failed += self.failed([key], error).fail
            else:
                self._finish([key])
        return Instructions(fail=tuple(failed))

    def absorbed(self, found: Contribution, parts: Iterable[Partition]) -> Instructions:
        """The messages of new partitions that were absorbed together."""
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
        """These partitions cannot be absorbed: an error, in the end, unless they are to be skipped."""
        if not self.options.skip:
            return Instructions(fail=(error,))
        self.report.skipped += keys
        self._finish(keys)
        return NOTHING

    def _finish(self, keys):
        """Nothing is to be absorbed of these partitions."""
        for key in keys:
            self._positions.pop(key, None)
        self.pending.finish(keys)

    def _refused(self, contents: Contents, entries, newest) -> tuple[Collection[str], tuple[BcmdistError, ...]]:
        """New partitions that are not to be absorbed, for their twins in the window of a commit up to a newest
        position.

        All twins are counted.
        """
        twins = contents.twins(entries, expired=self.fading.at(newest).expired)
        self.twins |= twins
        self.report.same_rows = len(self.twins)
        if self.options.same_rows != "refuse":
            return (), ()
        failed = [self.failed([key], same_rows(key, twin)) for key, twin in twins.items()]
        return twins.keys(), tuple(error for instructions in failed for error in instructions.fail)

    def warning(self) -> str | None:
        """What to warn of: twins, once, whatever comes later."""
        if self._warned or not self.twins or self.options.same_rows != "warn":
            return None
        self._warned = True
        return same_rows_warning(self.twins)

    # --- Commits ---

    @property
    def uncommitted(self) -> int:
        """New partitions that were absorbed, and not taken yet."""
        return len(self.pending.entries)

    def take(self) -> Batch:
        """What is to be committed: all that was absorbed since it was last taken."""
        return self.pending.take()

    def is_overtaken(self, batch: Batch) -> bool:
        """Whether others may have absorbed some of a batch while it was on its way, as a commit that is known says."""
        return not self._passed.isdisjoint(batch.entries)

    def overtaken(self, batch: Batch, known: LedgerState) -> Instructions:
        """Somebody else was faster than the commit of a batch: what is left of it, beside what is known now."""
        self.fading, failed = known.fading, list[BcmdistError]()
        theirs = {entry.key: entry.digest for entry in known.ledger}
        for key, entry in batch.entries.items():
            try:
                refuse_conflict({key: entry.digest}, theirs)
            except ChunkConflict as error:
                failed += self.failed([key], error).fail
        keys = theirs.keys() | known.in_cells
        new = [entry for key, entry in batch.entries.items() if key not in keys]
        refused, more = self._refused(Contents(known.ledger), new, batch.fading.position)
        left, fail = parts_left(batch, keys, refused), (*failed, *more)
        gone = len(batch.parts) - sum(part.key in batch.parts for part in left)
        if not gone:
            return Instructions(fail=fail)
        self.report.duplicates += gone - len(refused)
        return Instructions(absorb_again=tuple(with_entry(batch, part) for part in left), fail=fail)

    def committed(self, batch: Batch, fading: Weighting, ledger: Sequence[Entry] | None = None) -> Instructions:
        """A batch is in a commit, from which rows fade like this; with a whole `ledger` where others committed too."""
        self._passed -= batch.entries.keys()
        keys = batch.keys
        if ledger is not None:
            delivered = set(keys)
            theirs = (entry.key for entry in ledger if entry.key not in self.digests)
            keys += tuple(key for key in theirs if key not in delivered)
            self._contents = Contents([*ledger, *self._cells])
            self._passed |= self.pending.missed.keys()
        self._note(batch.entries.values() if ledger is None else ledger)
        self.fading = fading
        self.report.partitions += batch.partitions
        self.report.rows += sum(entry.rows for entry in batch.entries.values())
        return Instructions(acknowledge=Acknowledgement(batch.offset, keys))
