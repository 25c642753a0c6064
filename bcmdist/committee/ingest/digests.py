"""What ingestion asks workers: messages, and whether partitions still hold what was absorbed of them."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bcmdist.runtime.task import Parted, Task
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class PartitionMessage:
    """The message of a partition, which is kept where it was computed; its ledger entry is told."""

    expert: Task
    """what makes its `Contribution`"""
    parted: ClassVar[bool] = True

    def __call__(self, part, rows) -> Parted:
        absorbed = self.expert(part, rows)
        names = {key: identity(entry) for key, entry in absorbed.entries.items()}
        return Parted(LedgerEntries(absorbed.entries), replace(absorbed, entries=names))


def identity(entry: Entry) -> Entry:
    """What of an entry says whose rows, and which message of them, it is."""
    return Entry(entry.key, entry.digest, entry.rows, at=entry.at, state=entry.state)


@dataclass(frozen=True)
class LedgerEntries:
    """Ledger entries by key."""

    entries: dict[str, Entry]

    def __add__(self, other: "LedgerEntries") -> "LedgerEntries":
        return LedgerEntries(self.entries | other.entries)


@dataclass(frozen=True)
class Digests:
    """Content hashes of partitions by key: to see whether those that were absorbed before are still the same."""

    def __call__(self, part, rows) -> "Found":
        return Found({part.key: rows.digest})


@dataclass(frozen=True)
class Found:
    """Content hashes by key."""

    by_key: dict[str, str]

    def __add__(self, other: "Found") -> "Found":
        return Found(self.by_key | other.by_key)
