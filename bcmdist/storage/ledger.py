"""The ledger of a commit: the entries of its segments, which are opened where they are needed.

A commit does not rewrite the ledger, and a reader does not read it: the record has the hash and a summary of each
segment. Lookups search each segment, in about log n steps. `put_segment`, `get_segment`, `segment`, `summary`,
`stored` and `extended` are methods of `ModelStore`.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload
from weakref import WeakValueDictionary

import numpy as np
from zict import LRU

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_label
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.entry import KEY, STORED, Entry, named_range
from bcmdist.storage.fields import damaged, read_back
from bcmdist.storage.mapped import forget_pages, mapped
from bcmdist.storage.segment import AT_ONCE, Segment, SegmentSummary, encode, joined_segments

MOST_ENTRIES = 1 << 18  # of a merged segment: a commit rewrites no more, in about .1 s
SUMMARIES = 100_000  # that a process remembers


@dataclass(eq=False)
class LedgerPart:
    """A segment of a ledger, opened when it is needed."""

    digest: str
    """hash of its blob; empty where it is not stored yet"""
    summary: SegmentSummary
    open: Callable[[], Segment] = field(repr=False)

    @cached_property
    def segment(self) -> Segment:
        """The segment.

        Raises
        ------
        ModelDamaged
            It differs from what the record says.
        """
        found = self.open()
        if found.summary != self.summary:
            raise damaged(found.where, f"a segment with {self.summary.entries} entries as recorded", "another one")
        return found


class Ledger(Sequence[Entry]):
    """Ledger entries in the order in which they were absorbed.

    Parameters
    ----------
    parts : the segments
    recorded : the entries with residual records, by key
    """

    def __init__(self, parts: Sequence[LedgerPart] = (), recorded: Mapping[str, Entry] | None = None) -> None:
        self.parts, self.recorded = tuple(part for part in parts if part.summary.entries), recorded or {}
        self._ends = list(itertools.accumulate(part.summary.entries for part in self.parts))

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Ledger":
        """Return the ledger of entries that are not stored yet."""
        return cls().extended(entries)

    # --- As a sequence ---

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Entry]:
        for part in self.parts:
            yield from self._with_records(part.segment)

    @overload
    def __getitem__(self, where: int) -> Entry: ...
    @overload
    def __getitem__(self, where: slice) -> list[Entry]: ...
    def __getitem__(self, where: int | slice) -> Entry | list[Entry]:
        if isinstance(where, slice):
            numbers = range(*where.indices(len(self)))
            if numbers.step == 1:
                return self._between(numbers.start, numbers.stop)
            return [self[number] for number in numbers]
        number = where + len(self) if where < 0 else where
        if not 0 <= number < len(self):
            raise IndexError(f"ledger: expected a number below {len(self)}, got {where}; give another")
        return self._between(number, number + 1)[0]

    def _between(self, first: int, last: int) -> list[Entry]:
        found = list[Entry]()
        for part, end in zip(self.parts, self._ends, strict=True):
            begin = end - part.summary.entries
            if begin < last and first < end:
                found += self._with_records(part.segment.some(slice(max(0, first - begin), last - begin)))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, Ledger) and self.digests == other.digests and "" not in self.digests:
            return True
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Ledger of {len(self)} entries>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger.of, (list(self),)

    def opened(self, where: str = "ledger") -> "Ledger":
        """Open all segments, which are checked then, and can be read although others prune the commit; return self.

        where : description of the commit, for the error

        Raises
        ------
        ModelDamaged
        """
        for part in self.parts:
            part.segment  # noqa: B018
        for entry in self.recorded.values():
            found = self.find(entry.key)
            if found is None or not _is_stored_as(entry, found):
                raise damaged(where, "residuals of partitions in the ledger, once each", "others")
        return self

    # --- Figures, without opening a segment ---

    @property
    def digests(self) -> tuple[str, ...]:
        """Hashes of the blobs of its segments."""
        return tuple(part.digest for part in self.parts)

    @property
    def rows(self) -> int:
        """Number of rows absorbed."""
        return sum(part.summary.rows for part in self.parts)

    @property
    def compacted_rows(self) -> int:
        """Number of rows in compacted entries."""
        return sum(part.summary.compacted for part in self.parts)

    @property
    def queries(self) -> set[int]:
        """Numbers of the query sets of entries."""
        return {number for part in self.parts for number in part.summary.queries}

    @property
    def arrivals(self) -> set[int]:
        """Lengths of `Entry.arrival`, where there are any."""
        return {length for part in self.parts for length in part.summary.arrivals if length}

    @property
    def arrived(self) -> int:
        """Number of entries with `Entry.arrival`."""
        return sum(part.summary.arrived for part in self.parts)

    # --- Lookup ---

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key; None if there is none."""
        for part in reversed(self.parts):
            found = part.segment.find(key)
            if found is not None:
                return self._with_record(found)
        return None

    def holds(self, key: str) -> bool:
        """Return whether the rows of a partition were absorbed, under this key or in a compacted entry."""
        return self.find(key) is not None or self.range_of(key) is not None

    def range_of(self, key: str) -> Entry | None:
        """Return the compacted entry that contains the rows of a partition; None if there is none."""
        if not self.compacted_rows or not KEY.fullmatch(key):
            return None
        array, start, stop = named_range(key)
        for entry in self.overlapping(array, start, stop):
            _, low, high = named_range(entry.key)
            if entry.compacted and low <= start and stop <= high:
                return entry
        return None

    def knows(self, array: str) -> bool:
        """Return whether any rows of an array were absorbed."""
        return any(part.segment.knows(array) for part in reversed(self.parts))

    def overlapping(self, array: str, start: int, stop: int) -> list[Entry]:
        """Return the entries of an array with some of its rows `start` to `stop`, ascending."""
        found = [entry for part in self.parts for entry in part.segment.overlapping(array, start, stop)]
        return sorted(found, key=lambda entry: int(entry.key.rpartition("[")[2].partition(":")[0]))

    def of_digest(self, digest: str) -> list[Entry]:
        """Return the entries whose rows have this digest, in order."""
        return [entry for part in self.parts for entry in part.segment.of_digest(digest)]

    def arrays(self, prefix: str) -> Iterator[tuple[str, int, int]]:
        """Yield array, start and stop of the entries of arrays whose names begin so, in any order."""
        return itertools.chain.from_iterable(part.segment.arrays(prefix) for part in self.parts)

    def latest_arrivals(self, most: int) -> list[Entry]:
        """Return the last entries with `Entry.arrival`, `most` at most, in order; older segments are not opened."""
        found, most = list[Entry](), min(most, self.arrived)
        for part, end in reversed(list(zip(self.parts, self._ends, strict=True))):
            begin, last = end - part.summary.entries, end
            while len(found) < most and part.summary.arrived and last > begin:
                first = max(begin, last - max(most, AT_ONCE))
                found = [entry for entry in self._between(first, last) if entry.arrival] + found
                last = first
        return found[len(found) - most :]

    def rows_twice(self) -> tuple[str, str] | None:
        """Return keys of two entries that share rows; None if no rows are in it twice. All segments are read."""
        names = sorted({text for part in self.parts for text in part.segment.array_names()})
        number = {name: k for k, name in enumerate(names)}
        places = [part.segment.places(number) for part in self.parts] or [np.zeros((0, 3), np.int64)]
        table = np.concatenate(places)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        shared = (np.diff(table[:, 0]) == 0) & (table[1:, 1] < table[:-1, 2])
        if not shared.any():
            return None
        pair = table[np.flatnonzero(shared)[0] :][:2].tolist()
        first, second = (f"{names[array]}[{start}:{stop}]" for array, start, stop in pair)
        return first, second

    # --- Changes ---

    def extended(self, entries: Iterable[Entry]) -> "Ledger":
        """Return a ledger with further entries, which are not stored yet."""
        entries = list(entries)
        if not entries:
            return self
        recorded = {entry.key: entry for entry in entries if entry.residuals}
        return Ledger([*self.parts, _in_memory(entries)], {**self.recorded, **recorded})

    def replaced(self, entries: Iterable[Entry]) -> "Ledger":
        """Return a ledger of other entries, which shares the segments if they differ in residuals only."""
        entries = list(entries)
        recorded = {entry.key: entry for entry in entries if entry.residuals}
        if len(entries) == len(self) and all(map(_is_stored_as, entries, self)):
            return Ledger(self.parts, recorded)
        return Ledger([_in_memory(entries)] if entries else [], recorded)

    def left_by(self, later: "Ledger") -> list[Entry]:
        """Return the entries whose rows a later ledger lacks."""
        shared = set(self.digests) & set(later.digests) - {""}
        new = [entry for part in later.parts if part.digest not in shared for entry in part.segment]
        keys, ranges = {entry.key for entry in new}, sorted(named_range(e.key) for e in new if e.compacted)
        old = (entry for part in self.parts if part.digest not in shared for entry in part.segment)
        return [entry for entry in old if entry.key not in keys and not _lies_in(entry.key, ranges)]

    def _with_record(self, entry: Entry) -> Entry:
        return self.recorded.get(entry.key, entry) if self.recorded else entry

    def _with_records(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        return map(self._with_record, entries) if self.recorded else entries


EMPTY = Ledger()


def _lies_in(key: str, ranges: Sequence[tuple[str, int, int]]) -> bool:
    """Whether the rows of a key are in one of these disjoint ranges, which are sorted."""
    array, start, stop = named_range(key) if ranges else ("", 0, 0)
    place = bisect.bisect_right(ranges, (array, start, math.inf)) - 1
    return place >= 0 and ranges[place][0] == array and stop <= ranges[place][2]


def _in_memory(entries: Sequence[Entry]) -> LedgerPart:
    with read_back("ledger"):
        segment = Segment(mapped(encode(entries)), "ledger")
    return LedgerPart("", segment.summary, lambda: segment)


def _is_stored_as(entry: Entry, other: Entry) -> bool:
    """Whether two ledger entries are the same in a segment, which holds no residuals."""
    return all(getattr(entry, name) == getattr(other, name) for name in STORED)


# --- Methods of `ModelStore` ---

_opened: WeakValueDictionary[tuple[str, str], Segment] = WeakValueDictionary()
_summaries: LRU[Hashable, SegmentSummary] = least_recently_used(SUMMARIES, lambda summary: 1)


def put_segment(store, entries: Sequence[Entry]) -> str:
    """Store ledger entries as one immutable blob, after a trial reading; return its hash.

    Raises
    ------
    CommitRefused
        Readers would not accept the entries.
    """
    return _put(store, _in_memory(entries).segment).digest


def get_segment(store, digest: str) -> list[Entry]:
    """Load the ledger entries of a blob, checked against its hash."""
    return list(store.segment(digest))


def segment(store, digest: str) -> Segment:
    """Open a segment, checked against its hash; one that is open in this process already is shared.

    Raises
    ------
    ModelDamaged
    """
    name = (store.storage.url, digest)
    found = _opened.get(name)
    if found is None:
        found = _opened[name] = Segment(mapped(store._get_blob(digest)), blob_label(store.storage, digest))
        _summaries[digest] = found.summary
        forget_pages(found.data)
    return found


def summary(store, digest: str) -> SegmentSummary:
    """Return what a record says of a segment; it is opened where this process does not know that."""
    return get_or_make(_summaries, digest, lambda: store.segment(digest).summary)


def stored_ledger(
    store, digests: Sequence[str], summaries: Sequence[SegmentSummary] = (), recorded: Mapping[str, Entry] | None = None
) -> Ledger:
    """Return the ledger of stored segments.

    summaries : as recorded; without them, segments are opened
    """
    summaries = summaries or [store.summary(digest) for digest in digests]
    parts = [
        LedgerPart(digest, found, functools.partial(store.segment, digest))
        for digest, found in zip(digests, summaries, strict=True)
    ]
    return Ledger(parts, recorded)


def extended(store, segments: Sequence[str], entries: Sequence[Entry], *, after: int = 0) -> tuple[str, ...]:
    """As `stored`, for entries after segments that are given by their hashes; return hashes."""
    return store.stored(store.stored_ledger(segments).extended(entries), after=after).digests


def stored(store, ledger: Ledger, *, after: int = 0) -> Ledger:
    """Store the entries of a ledger that are not stored yet, and return the ledger of the stored segments.

    As in a binary counter, the last segment is merged with the new entries while it has less than twice as many, up to
    `MOST_ENTRIES`. Then each smaller segment is at least twice as long as the next: a ledger of n entries has at most
    n / MOST_ENTRIES + log2 MOST_ENTRIES + 1 segments. An entry is rewritten only into a segment at least 1.5 times as
    long, so at most log MOST_ENTRIES / log 1.5 times.

    Parameters
    ----------
    after : number of the commit whose ledger it continues

    Raises
    ------
    CommitConflict
        Other processes have made later commits, and pruned commit `after`.
    CommitRefused
        Readers would not accept the entries.
    """
    kept = list(itertools.takewhile(lambda part: part.digest, ledger.parts))
    new = list(ledger.parts[len(kept) :])
    if not new:
        return ledger
    count = sum(part.summary.entries for part in new)
    while kept and kept[-1].summary.entries < min(2 * count, MOST_ENTRIES + 1 - count):
        count += kept[-1].summary.entries
        new.insert(0, kept.pop())
    try:
        segments = [part.segment for part in new]
    except ModelDamaged as error:
        if 0 < after <= store.pruned():
            raise store.taken(after + 1) from error
        raise
    where = f"{store.storage.url}: ledger"
    if len(segments) == 1 and len(segments[0]) <= MOST_ENTRIES:
        made = segments
    else:
        with read_back(where):
            made = [Segment(mapped(data), where) for data in joined_segments(segments, MOST_ENTRIES)]
    return Ledger([*kept, *(_put(store, one) for one in made)], ledger.recorded)


def _put(store, made: Segment) -> LedgerPart:
    part = LedgerPart(store._put_blob(bytes(made.data)), made.summary, lambda: made)
    _summaries[part.digest] = made.summary
    return part
