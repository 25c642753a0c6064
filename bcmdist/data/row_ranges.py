"""Absorbed rows: which ranges of which arrays, from the keys of partitions, and which contents, from their hashes."""

import bisect
from collections.abc import Callable, Iterable
from dataclasses import replace

from bcmdist.data.partition import Partition
from bcmdist.errors import SameRows
from bcmdist.storage.entry import Entry, named_range
from bcmdist.storage.ledger import EMPTY, Ledger


class RowRanges:
    """Set of rows: those of a ledger, and others that are named by partition keys."""

    def __init__(self, keys: Iterable[str] = (), ledger: Ledger = EMPTY) -> None:
        self.ledger = ledger
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        """ranges by array, ascending and disjoint, of rows that need not be in the ledger"""
        self.add(keys)

    def add(self, keys: Iterable[str]) -> None:
        """Add the rows of these keys."""
        for array, start, stop in sorted(map(named_range, keys)):
            ranges = self._ranges.setdefault(array, [])
            first = bisect.bisect_left(ranges, start, key=lambda a_b: a_b[1])
            last = bisect.bisect_right(ranges, stop, key=lambda a_b: a_b[0])
            touched = ranges[first:last]
            low, high = min([start, *(a for a, _ in touched)]), max([stop, *(b for _, b in touched)])
            ranges[first:last] = [(low, high)]

    def knows(self, part: Partition) -> bool:
        """Return whether any rows of the partition's array were absorbed."""
        array = named_range(part.key)[0]
        return array in self._ranges or self.ledger.knows(array)

    def remaining(self, part: Partition) -> list[Partition]:
        """Return the parts of a partition that were not absorbed, in order: [900:1000] without [900:950] is [950:1000].

        The partition itself is returned if none of its rows were absorbed, and nothing if all were.
        """
        inside = self._inside(part)
        if not inside:
            return [part]
        starts = [part.start, *(stop for _, stop in inside)]
        stops = [*(start for start, _ in inside), part.stop]
        return [replace(part, start=a, stop=b) for a, b in zip(starts, stops, strict=True) if a < b]

    def _inside(self, part: Partition) -> list[tuple[int, int]]:
        """The ranges that share rows with a partition, ascending and disjoint."""
        array = named_range(part.key)[0]
        ranges = self._ranges.get(array, [])
        first = bisect.bisect_right(ranges, part.start, key=lambda a_b: a_b[1])
        last = bisect.bisect_left(ranges, part.stop, key=lambda a_b: a_b[0])
        stored = [entry.key for entry in self.ledger.overlapping(array, part.start, part.stop)]
        if not stored:
            return ranges[first:last]
        both = RowRanges(stored)
        both.add(f"{array}[{start}:{stop}]" for start, stop in ranges[first:last])
        return both._ranges[array]


class Contents:
    """Partitions by content hash: those of a ledger, and others.

    A twin of a partition is another key, of a copy or a link, with the same rows.
    """

    def __init__(self, entries: Iterable[Entry] = (), ledger: Ledger = EMPTY) -> None:
        self.ledger, self._newest = ledger, dict[str, Entry]()
        """by digest: the entry that comes last in its source, which leaves a sliding window last"""
        self.add(entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add absorbed entries."""
        for entry in entries:
            before = self._newest.get(entry.digest)
            if before is None or (entry.position or 0) > (before.position or 0):
                self._newest[entry.digest] = entry

    def _found(self, digest: str) -> Entry | None:
        """The entry with these contents that comes last in its source; of several the first."""
        found = self.ledger.of_digest(digest)
        found += [self._newest[digest]] if digest in self._newest else []
        return max(found, key=lambda entry: entry.position or 0, default=None)

    def twins(
        self, entries: Iterable[Entry], *, expired: Callable[[int | None], bool] = lambda position: False
    ) -> dict[str, str]:
        """Map keys of entries to the key of their twin, absorbed before or earlier among these entries.

        Rows at positions for which `expired` is true are ignored, and have no twins.
        """
        newest, found = dict[str, Entry](), dict[str, str]()
        for entry in (entry for entry in entries if not expired(entry.position)):
            twin = self._found(entry.digest)
            if twin is None or expired(twin.position):
                twin = newest.setdefault(entry.digest, entry)
            if twin.key != entry.key:
                found[entry.key] = twin.key
        return found


def same_rows(key: str, twin: str) -> SameRows:
    """Return the error for a partition whose twin was absorbed."""
    return SameRows(
        f"{key}: expected rows that were not absorbed, got those of {twin}; leave them out (--on-error skip), or let "
        "them count twice (--same-rows allow)"
    )


def same_rows_warning(twins: dict[str, str]) -> str:
    """Return the warning about partitions that were absorbed although their twins were."""
    key, twin = next(iter(twins.items()))
    some = f"{len(twins)} partitions hold" if len(twins) > 1 else "1 partition holds"
    first = "first " if len(twins) > 1 else ""
    return (
        f"{some} the same rows as others under another name, and count twice: {first}{key}, which equals {twin}; "
        "`bcmdist forget` them, or give --same-rows allow where rows repeat by nature, refuse where they must not"
    )
