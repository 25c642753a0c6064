"""Which rows were heard: ranges of rows of arrays, by the keys of partitions."""

import bisect
from collections.abc import Iterable
from dataclasses import replace

from bcmdist.partition import Partition, named_range


class Heard:
    """Rows that keys name; grows. Looking and adding take about the logarithm of the number of ranges."""

    def __init__(self, keys: Iterable[str] = ()):
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        """by array, ascending and apart"""
        self.add(keys)

    def add(self, keys: Iterable[str]):
        """The rows of these keys were heard too."""
        for array, start, stop in sorted(map(named_range, keys)):
            ranges = self._ranges.setdefault(array, [])
            first = bisect.bisect_left(ranges, start, key=lambda a_b: a_b[1])
            last = bisect.bisect_right(ranges, stop, key=lambda a_b: a_b[0])
            touched = ranges[first:last]
            low, high = min([start, *(a for a, _ in touched)]), max([stop, *(b for _, b in touched)])
            ranges[first:last] = [(low, high)]

    def knows(self, part: Partition) -> bool:
        """Whether some rows of its array were heard."""
        return named_range(part.key)[0] in self._ranges

    def rest(self, part: Partition) -> list[Partition]:
        """What of a partition was not heard, in order: [900:1000] without [900:950] is [950:1000].

        A partition of which nothing was heard is left as it is; of one that was heard nothing is left.
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


class Ranges:
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


def unheard(parts: Iterable[Partition], keys: Iterable[str]) -> list[Partition]:
    """What is left of partitions without the rows that `keys` name, in order."""
    heard = Heard(keys)
    return [rest for part in parts for rest in heard.rest(part)]
