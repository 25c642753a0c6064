"""Which rows were absorbed: ranges of rows of arrays, by the keys of partitions; and what was in them."""

import bisect
from collections.abc import Iterable
from dataclasses import replace

from bcmdist.data.partition import Partition
from bcmdist.errors import SameRows
from bcmdist.storage.ledger import Entry, named_range


class RowRanges:
    """Rows that keys name; grows. Looking and adding take about the logarithm of the number of ranges."""

    def __init__(self, keys: Iterable[str] = ()):
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        """by array, ascending and apart"""
        self.add(keys)

    def add(self, keys: Iterable[str]) -> None:
        """The rows of these keys were absorbed too."""
        for array, start, stop in sorted(map(named_range, keys)):
            ranges = self._ranges.setdefault(array, [])
            first = bisect.bisect_left(ranges, start, key=lambda a_b: a_b[1])
            last = bisect.bisect_right(ranges, stop, key=lambda a_b: a_b[0])
            touched = ranges[first:last]
            low, high = min([start, *(a for a, _ in touched)]), max([stop, *(b for _, b in touched)])
            ranges[first:last] = [(low, high)]

    def knows(self, part: Partition) -> bool:
        """Whether some rows of its array were absorbed."""
        return named_range(part.key)[0] in self._ranges

    def rest(self, part: Partition) -> list[Partition]:
        """What of a partition was not absorbed, in order: [900:1000] without [900:950] is [950:1000].

        A partition of which nothing was absorbed is left as it is; of one that was absorbed nothing is left.
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
    """Keys by the rows that they name."""

    def __init__(self, keys: Iterable[str]):
        self._ranges: dict[str, list[tuple[int, int, str]]] = {}
        for key in keys:
            array, start, stop = named_range(key)
            self._ranges.setdefault(array, []).append((start, stop, key))
        for ranges in self._ranges.values():
            ranges.sort()

    def named(self, part: Partition) -> list[str]:
        """Keys of ranges, apart from each other, that share rows with a partition."""
        ranges = self._ranges.get(named_range(part.key)[0], [])
        first = bisect.bisect_right(ranges, part.start, key=lambda line: line[1])
        last = bisect.bisect_left(ranges, part.stop, key=lambda line: line[0])
        return [key for _, _, key in ranges[first:last]]


class Contents:
    """Keys of partitions by what is in their rows: one under another name, of a copy or a link, has a twin here."""

    def __init__(self, entries: Iterable[Entry] = ()):
        self._newest: dict[str, Entry] = {}
        """by digest: the one that stands last in its source, which a window lets go last"""
        self.add(entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """These were absorbed too."""
        for entry in entries:
            known = self._newest.get(entry.digest)
            if known is None or (entry.position or 0) > (known.position or 0):
                self._newest[entry.digest] = entry

    def twins(self, entries: Iterable[Entry], *, expired=lambda position: False) -> dict[str, str]:
        """Keys of entries whose rows were absorbed under another key, or come twice among them; with that other key.

        Rows at positions that have `expired` do not count, and have no twins.
        """
        known, found = dict[str, Entry](), dict[str, str]()
        for entry in (entry for entry in entries if not expired(entry.position)):
            twin = self._newest.get(entry.digest)
            if twin is None or expired(twin.position):
                twin = known.setdefault(entry.digest, entry)
            if twin.key != entry.key:
                found[entry.key] = twin.key
        return found


def same_rows(key, twin) -> SameRows:
    """The error for a partition whose twin was absorbed."""
    return SameRows(
        f"{key}: expected rows that were not absorbed, got those of {twin}; leave them out (--on-error skip), or let "
        "them count twice (--same-rows allow)"
    )


def same_rows_warning(twins: dict[str, str]) -> str:
    """What to say of partitions that were absorbed though their twins were."""
    key, twin = next(iter(twins.items()))
    some = f"{len(twins)} partitions hold" if len(twins) > 1 else "1 partition holds"
    first = "first " if len(twins) > 1 else ""
    return (
        f"{some} the same rows as others under another name, and count twice: {first}{key}, which equals {twin}; "
        "`bcmdist forget` them, or give --same-rows allow where rows repeat by nature, refuse where they must not"
    )


def unheard(parts: Iterable[Partition], keys: Iterable[str]) -> list[Partition]:
    """What is left of partitions without the rows that `keys` name, in order."""
    absorbed = RowRanges(keys)
    return [rest for part in parts for rest in absorbed.rest(part)]
