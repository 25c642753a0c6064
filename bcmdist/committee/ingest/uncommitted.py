"""Bookkeeping of partitions that were delivered or absorbed but are not committed yet.

Deliveries are read in order and finish in any order. Messages are summed as they arrive. The offset that may be
committed is that of the last delivery up to which all deliveries are finished. After a crash the source therefore
delivers some partitions again, which the ledger recognises, but never omits one. Acknowledgement by key does not wait
for earlier deliveries.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bcmdist.committee.fading import Weighting
from bcmdist.data.partition import Partition
from bcmdist.experts.message import Message
from bcmdist.storage.entry import Entry


@dataclass(frozen=True)
class Batch:
    """The partitions that one commit adds, and their message."""

    message: Any
    """sum of the messages, weighted as of the newest position, or the handle to that sum on the workers
    (`Runtime.total` fetches it); None if no partition is new"""
    entries: dict[str, Entry]
    parts: dict[str, Partition]
    """the partitions themselves, by key"""
    keys: tuple[str, ...]
    """keys to acknowledge: every key of the finished deliveries, new or already in the ledger"""
    offset: Any
    """JSON-ready; None if unchanged"""
    fading: Weighting
    query: int = 0
    """number of the query set that `message` is about, once it is fetched"""

    @property
    def partitions(self) -> int:
        """Number of new partitions."""
        return len(self.entries)


@dataclass
class Begun:
    """A delivery that was read from the source."""

    offset: Any
    missing: set[str]
    """keys that are not finished yet: neither absorbed, compared nor skipped"""
    keys: list[str]


@dataclass
class Pending:
    """Collects absorbed partitions until the next commit takes them (`take`)."""

    fading: Weighting
    """how rows fade; its position is the newest one collected"""
    message: Any = None
    """as in `Batch`"""
    entries: dict[str, Entry] = field(default_factory=dict)
    parts: dict[str, Partition] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    offset: Any = None
    open: dict[int, "Begun"] = field(default_factory=dict)
    """deliveries that are not finished, or follow one that is not, by number"""
    missed: dict[str, list[int]] = field(default_factory=dict)
    """numbers of the deliveries that wait for a key, by key"""
    begun: int = 0
    """number of deliveries read"""
    closed: int = 0
    """number of deliveries up to the offset, all finished"""

    def begin(self, offset: Any, missing: Iterable[str], keys: Iterable[str]) -> None:
        """Register a delivery; it is finished once the `missing` ones among its `keys` are."""
        delivery = self.open[self.begun] = Begun(offset, set(missing), list(keys))
        for key in delivery.missing:
            self.missed.setdefault(key, []).append(self.begun)
        self.begun += 1
        self.keys += [] if delivery.missing else delivery.keys
        self._advance()

    def add(self, message: Message, fading: Weighting, entries: dict[str, Entry], parts: Iterable[Partition]) -> None:
        """Add absorbed partitions; `message` is their sum, weighted as of the position of `fading`."""
        later = self.fading.at(fading.position)
        aged = message.weighted(fading.aged(later))
        self.message = aged if self.message is None else self.message.weighted(self.fading.aged(later)) + aged
        self.fading = later
        self.entries |= entries
        self.parts |= {part.key: part for part in parts}
        self.finish(entries)

    def finish(self, keys: Iterable[str]) -> None:
        """Mark keys as finished, and advance the offset where that finishes deliveries."""
        for key in keys:
            for number in self.missed.pop(key, ()):
                delivery = self.open[number]
                delivery.missing.remove(key)
                if not delivery.missing:
                    self.keys += delivery.keys
        self._advance()

    def _advance(self) -> None:
        while self.closed < self.begun and not self.open[self.closed].missing:
            self.offset = self.open.pop(self.closed).offset
            self.closed += 1

    def take(self) -> Batch:
        """Return everything collected as a batch, and start an empty one. Open deliveries stay."""
        batch = Batch(self.message, self.entries, self.parts, tuple(self.keys), self.offset, self.fading)
        self.message, self.entries, self.parts, self.keys = None, {}, {}, []
        return batch

    def __contains__(self, key: object) -> bool:
        """Whether a key is in flight or waits to be committed."""
        return key in self.entries or key in self.missed


def remainder_of(batch: Batch, message: Message | None, entries: dict[str, Entry], parts: Iterable[Partition]) -> Batch:
    """A batch with other partitions, but the same offset, fading and keys to acknowledge."""
    return replace(batch, message=message, entries=entries, parts={part.key: part for part in parts})
