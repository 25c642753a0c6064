"""Absorbed rows: which ranges of which arrays, from the keys of partitions, and which contents, from their hashes."""

import bisect
from collections.abc import Iterable
from dataclasses import replace

from bcmdist.data.partition import Partition
from bcmdist.errors import SameRows
from bcmdist.storage.ledger import Entry, named_range


class RowRanges:
    """Set of rows named by partition keys. Lookup and insertion are about logarithmic in the number of ranges."""

    def __init__(self, keys: Iterable[str] = ()):
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        """ranges by array, ascending and disjoint"""
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
        return named_range(part.key)[0] in self._ranges

    def remaining(self, part: Partition) -> list[Partition]:
        """Return the parts of a partition that were not absorbed, in order: [900:1000] without [900:950] is [950:1000].

        The partition itself is returned if none of its rows were absorbed, and nothing if all were.
        """
        ranges = self._ranges.get(named_range(part.key)[0], [])
        first = bisect.bisect_right(ranges, part.start, key=lambda a_b: a_b[1])
        last = bisect.bisect_left(ranges, part.stop, key=lambda a_b: a_b[0])
        inside = ranges[first:last]
        if not inside:
            return [part]
        starts = [part.start, *(stop for _, stop in inside)]
        stops = [*(start for start, _ in inside), part.stop]
        return [replace(part, start=a, stop=b) for a, b in zip(starts, stops, strict=True) if a < b]


class KeysByRange:
    """Partition keys, indexed by the rows that they name."""

    def __init__(self, keys: Iterable[str]):
        self._ranges: dict[str, list[tuple[int, int, str]]] = {}
        for key in keys:
            array, start, stop = named_range(key)
            self._ranges.setdefault(array, []).append((start, stop, key))
        for ranges in self._ranges.values():
            ranges.sort()

    def named(self, part: Partition) -> list[str]:
        """Return the keys that share rows with a partition. The ranges of all keys are assumed to be disjoint."""
        ranges = self._ranges.get(named_range(part.key)[0], [])
        first = bisect.bisect_right(ranges, part.start, key=lambda line: line[1])
        last = bisect.bisect_left(ranges, part.stop, key=lambda line: line[0])
        return [key for _, _, key in ranges[first:last]]


class Contents:
    """Partition keys by content hash. A twin of a partition is another key, of a copy or a link, with the same rows."""

    def __init__(self, entries: Iterable[Entry] = ()):
        self._newest: dict[str, Entry] = {}
        """by digest: the entry that comes last in its source, which leaves a sliding window last"""
        self.add(entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add absorbed entries."""
        for entry in entries:
            before = self._newest.get(entry.digest)
            if before is None or (entry.position or 0) > (before.position or 0):
                self._newest[entry.digest] = entry

    def twins(self, entries: Iterable[Entry], *, expired=lambda position: False) -> dict[str, str]:
        """Map keys of entries to the key of their twin, absorbed before or earlier among these entries.

        Rows at positions for which `expired` is true are ignored, and have no twins.
        """
        newest, found = dict[str, Entry](), dict[str, str]()
        for entry in (entry for entry in entries if not expired(entry.position)):
            twin = self._newest.get(entry.digest)
            if twin is None or expired(twin.position):
                twin = newest.setdefault(entry.digest, entry)
            if twin.key != entry.key:
                found[entry.key] = twin.key
        return found


def same_rows(key, twin) -> SameRows:
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


def remaining_parts(parts: Iterable[Partition], keys: Iterable[str]) -> list[Partition]:
    """Return the partitions without the rows that `keys` name, in order."""
    absorbed = RowRanges(keys)
    return [rows for part in parts for rows in absorbed.remaining(part)]
