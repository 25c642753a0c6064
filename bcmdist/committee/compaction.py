"""Compaction of the ledger: of old partitions only the ranges of their rows are kept, adjacent ones as one entry.

Rows in a compacted range are recognised, and never absorbed again; rows and target densities are still counted. What
needs a single partition is lost: to forget it, to see that its rows have changed, or that a copy has the same rows.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter

from bcmdist.committee.fading import Weighting
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import CommitConflict, InvalidOption
from bcmdist.storage.entry import COMPACTED, Entry, named_range
from bcmdist.storage.ledger import Ledger, LedgerPart

Rows = tuple[str, int, int]  # array, start and stop


def compact(snapshot: Snapshot, keep: int) -> Snapshot:
    """Commit the same committee with a ledger whose older entries are compacted, and return its snapshot.

    Others may commit meanwhile: their partitions stay in the ledger.

    Parameters
    ----------
    keep : number of newest entries that stay as they are, at least 1

    Raises
    ------
    InvalidOption
        `keep` is less than 1, or rows leave the model by a window, for which they are read again.
    """
    if keep < 1:
        raise InvalidOption(f"keep_ledger: expected at least 1 partition, got {keep}; give 1 or more")
    compaction = LedgerCompaction(keep, snapshot.facts.fading)
    while True:
        with snapshot.going_on() as current:
            _refuse_window(current)
            ledger = compaction(current.ledger)
            if len(ledger) == len(current.ledger):
                return current
            with contextlib.suppress(CommitConflict):
                return replace(current.changed(), ledger=ledger).committed()
        snapshot = current.newest()


def _refuse_window(snapshot: Snapshot) -> None:
    """Raise `InvalidOption` where rows leave by a window; others may have begun that meanwhile."""
    if snapshot.facts.fading.window is not None:
        raise InvalidOption(
            f"{snapshot.url}: expected a model without --window for keep_ledger, since rows that leave a window are "
            "read again, each partition by its ledger entry; leave keep_ledger out: entries leave with their rows"
        )


class LedgerCompaction:
    """Compacts ledgers of one model; a stored segment is read once, also for the ledgers of later commits.

    Parameters
    ----------
    keep : number of newest entries that stay as they are
    fading : how rows of the model lose weight
    """

    def __init__(self, keep: int, fading: Weighting) -> None:
        self.keep, self._fading = keep, fading
        self._of_segments: dict[str, list[Entry]] = {}
        self._recorded: frozenset[str] = frozenset()
        """keys of entries with residual records when these segments were read"""

    def __call__(self, ledger: Ledger) -> Ledger:
        """Return a ledger in which all entries but the newest `keep` are compacted.

        Entries with residual records or copies of rows, which predictions use, stay as they are, and so do those whose
        rows adjoin no others.
        """
        if self._recorded != ledger.recorded.keys():
            self._of_segments, self._recorded = {}, frozenset(ledger.recorded)
        old, newest, kept, left = list[Entry](), list[Entry](), list[LedgerPart](), len(ledger)
        for part in ledger.parts:
            count, left = max(0, left - self.keep), left - part.summary.entries
            if count >= part.summary.entries:
                old += self._of_segment(part, ledger)
            elif count:
                old += self._merge(part.segment.some(slice(count)), ledger)
                newest = part.segment.some(slice(count, None))
            else:
                kept.append(part)
        return Ledger([*Ledger.of([*self._merge(old, ledger), *newest]).parts, *kept], ledger.recorded)

    def _of_segment(self, part: LedgerPart, ledger: Ledger) -> list[Entry]:
        if not part.digest or part.digest not in self._of_segments:
            self._of_segments[part.digest] = self._merge(part.segment, ledger)
        return self._of_segments[part.digest]

    def _merge(self, entries: Iterable[Entry], ledger: Ledger) -> list[Entry]:
        """The entries that stay, in order, and then the ranges of the others, by array and rows."""
        single, mergeable = list[Entry](), list[Entry]()
        for entry in entries:
            (single if entry.copy or entry.key in ledger.recorded else mergeable).append(entry)
        runs = list[list[tuple[Rows, Entry]]]()
        for line in sorted(((named_range(entry.key), entry) for entry in mergeable), key=itemgetter(0)):
            if runs and _are_adjacent(runs[-1][-1], line):
                runs[-1].append(line)
            else:
                runs.append([line])
        return [*single, *map(self._join, runs)]

    def _join(self, run: list[tuple[Rows, Entry]]) -> Entry:
        """One entry for adjacent rows; densities count by their weights at the last position."""
        if len(run) == 1:
            return run[0][1]
        entries, ((array, start, _), first), ((_, _, stop), _) = [entry for _, entry in run], run[0], run[-1]
        position = max(entry.position or 0 for entry in entries)
        fading = replace(self._fading, position=position)
        return replace(
            first,
            key=f"{array}[{start}:{stop}]",
            digest=COMPACTED,
            rows=sum(entry.rows for entry in entries),
            position=None if first.position is None else position,
            densities=None
            if first.densities is None
            else sum((entry.densities or 0.0) * fading.weight(entry.position) for entry in entries),
            state="",
            arrival=(),
            excess_loss=(),
        )


def _are_adjacent(one: tuple[Rows, Entry], other: tuple[Rows, Entry]) -> bool:
    """Whether the rows of one entry follow those of the other, and count in the same way."""
    ((array, _, stop), _), ((second, start, _), _) = one, other
    return array == second and stop == start and _weighting_of(one[1]) == _weighting_of(other[1])


def _weighting_of(entry: Entry) -> tuple[int, str, float, bool, bool]:
    return entry.query, entry.at, entry.weight, entry.position is None, entry.densities is None
