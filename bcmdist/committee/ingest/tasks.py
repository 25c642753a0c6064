"""What ingestion asks workers beside messages: whether partitions still hold what was heard of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Digests:
    """Content hashes of partitions by key: to see whether those that were heard before are still the same."""

    def __call__(self, part, rows) -> "Found":
        return Found({part.key: rows.digest})


@dataclass(frozen=True)
class Found:
    """Content hashes by key."""

    by_key: dict[str, str]

    def __add__(self, other: "Found") -> "Found":
        return Found(self.by_key | other.by_key)
