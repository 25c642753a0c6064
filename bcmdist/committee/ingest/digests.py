"""Tasks of ingestion: messages of partitions, and digests to check that absorbed partitions are unchanged."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bcmdist.runtime.task import Parted, Task
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class PartitionMessage:
    """Compute the message of a partition; it stays on the worker, only its ledger entry is returned at once."""

    expert: Task
    """computes the partition's `Contribution`"""
    parted: ClassVar[bool] = True

    def __call__(self, part, rows) -> Parted:
        absorbed = self.expert(part, rows)
        names = {key: identity(entry) for key, entry in absorbed.entries.items()}
        return Parted(LedgerEntries(absorbed.entries), replace(absorbed, entries=names))


def identity(entry: Entry) -> Entry:
    """The part of an entry that identifies its rows and the message computed from them."""
    return Entry(entry.key, entry.digest, entry.rows, at=entry.at, state=entry.state)


@dataclass(frozen=True)
class LedgerEntries:
    """Ledger entries by key."""

    entries: dict[str, Entry]

    def __add__(self, other: "LedgerEntries") -> "LedgerEntries":
        return LedgerEntries(self.entries | other.entries)


@dataclass(frozen=True)
class Digests:
    """Compute the content hash of a partition, to check that an absorbed partition is unchanged."""

    def __call__(self, part, rows) -> "Found":
        return Found({part.key: rows.digest})


@dataclass(frozen=True)
class Found:
    """Content hashes by key."""

    by_key: dict[str, str]

    def __add__(self, other: "Found") -> "Found":
        return Found(self.by_key | other.by_key)
