"""Pending: what has been delivered and absorbed but is not committed yet.

Deliveries are read in order and finish in any order. What is absorbed adds up; the offset that may be committed is that
of the last delivery before which, and with which, everything is done. So a crash makes a source deliver some partitions
again, which the ledger knows, and never lets it leave one out. What is acknowledged by name does not wait for others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from bcmdist.committee.fading import Weighting
from bcmdist.experts.message import Message
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class Batch:
    """What one commit is to add."""

    message: Any
    """sum of the messages, weighted as of the newest position, or what a runtime has kept of it (`totals`); None where
    there is nothing new"""
    entries: dict[str, Entry]
    parts: dict[str, Any]
    """the partitions themselves, by key"""
    keys: tuple[str, ...]
    """all that was delivered, also what was known: to be acknowledged"""
    offset: Any
    """JSON-ready; None: as before"""
    fading: Weighting

    @property
    def partitions(self) -> int:
        """How many are new."""
        return len(self.entries)


@dataclass
class Begun:
    """A delivery that was read."""

    offset: Any
    missing: set[str]
    """keys that are not absorbed yet"""
    keys: list[str]


@dataclass
class Pending:
    """Collects what was absorbed until somebody takes it."""

    fading: Weighting
    """its position is the newest one collected"""
    message: Any = None
    """as of a `Batch`"""
    entries: dict[str, Entry] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    offset: Any = None
    open: dict[int, "Begun"] = field(default_factory=dict)
    """deliveries of which, or of one before, something is missing, by number"""
    missed: dict[str, list[int]] = field(default_factory=dict)
    """deliveries that wait for a key"""
    begun: int = 0
    closed: int = 0
    """deliveries up to the offset"""

    def begin(self, offset, missing: Iterable[str], keys: Iterable[str]) -> None:
        """A delivery was read: it is done once the `missing` of its `keys` are absorbed."""
        delivery = self.open[self.begun] = Begun(offset, set(missing), list(keys))
        for key in delivery.missing:
            self.missed.setdefault(key, []).append(self.begun)
        self.begun += 1
        self.keys += [] if delivery.missing else delivery.keys
        self._advance()

    def add(self, message: Message, fading: Weighting, entries: dict[str, Entry], parts: Iterable[Any]) -> None:
        """Partitions were absorbed; their messages are weighted as of the position of `fading`."""
        later = self.fading.at(fading.position)
        aged = message.weighted(fading.aged(later))
        self.message = aged if self.message is None else self.message.weighted(self.fading.aged(later)) + aged
        self.fading = later
        self.entries |= entries
        self.parts |= {part.key: part for part in parts}
        self.finish(entries)

    def finish(self, keys: Iterable[str]) -> None:
        """Nothing more is to be done for these keys."""
        for key in keys:
            for number in self.missed.pop(key, ()):
                delivery = self.open[number]
                delivery.missing.remove(key)
                if not delivery.missing:
                    self.keys += delivery.keys
        self._advance()

    def _advance(self):
        while self.closed < self.begun and not self.open[self.closed].missing:
            self.offset = self.open.pop(self.closed).offset
            self.closed += 1

    def take(self) -> Batch:
        """All that was collected; begins again."""
        batch = Batch(self.message, self.entries, self.parts, tuple(self.keys), self.offset, self.fading)
        self.message, self.entries, self.parts, self.keys = None, {}, {}, []
        return batch

    def __contains__(self, key):
        """Whether a key is on its way or waits to be committed."""
        return key in self.entries or key in self.missed


def remainder_of(batch: Batch, message: Message | None, entries: dict[str, Entry], parts: Iterable[Any]) -> Batch:
    """A batch with other contents and the same place in its source."""
    return replace(batch, message=message, entries=entries, parts={part.key: part for part in parts})
