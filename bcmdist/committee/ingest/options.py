"""How somebody wants rows to be ingested, and the report of what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bcmdist.errors import InvalidOption

# Older commits than these are pruned in the end, and on the way once there are twice as many, unless somebody holds
# them.
KEEP_COMMITS = 20
# What to do with a partition that holds the rows of another one that was heard: say so, refuse it, or say nothing. It
# may be a copy, or rows that repeat by nature.
SAME_ROWS = ("warn", "refuse", "allow")


def never() -> bool:
    """Do not stop."""
    return False


@dataclass(frozen=True)
class IngestOptions:
    """How to ingest.

    Raises
    ------
    InvalidOption
    """

    watch: bool = False
    """wait for more, until told to stop"""
    max_partitions: int | None = None
    """stop after so many new ones"""
    commit_every: int | None = None
    """new partitions per commit; None: by time"""
    half_life: float | None = None
    """rows after which a row counts half"""
    window: int | None = None
    """newest rows that count at all"""
    keep: int = KEEP_COMMITS
    """commits that are not pruned"""
    skip: bool = False
    """go on without partitions that fail; by default they are an error in the end"""
    same_rows: str = "warn"
    """one of `SAME_ROWS`"""
    stop: Callable[[], bool] = never
    """asked between partitions"""

    def __post_init__(self):
        for name in ("max_partitions", "commit_every", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                option = name.replace("_", "-")
                raise InvalidOption(f"--{option}: expected at least 1, got {value}; give a positive number")
        if self.same_rows not in SAME_ROWS:
            raise InvalidOption(
                f"--same-rows: expected one of {', '.join(SAME_ROWS)}, got {self.same_rows!r}; give one of these"
            )


@dataclass
class IngestReport:
    """What an ingestion did, JSON-ready."""

    partitions: int = 0
    """new ones that were committed"""
    rows: int = 0
    duplicates: int = 0
    """partitions that were known"""
    same_rows: int = 0
    """new partitions with the rows of others that were heard, under other names; they count twice unless refused"""
    expired: int = 0
    """partitions that came when the window had left them"""
    retries: int = 0
    """commits that somebody else was faster with"""
    skipped: list[str] = field(default_factory=list)
    """keys of partitions that failed"""
    waiting: int | None = None
    """partitions, about, that the source still had: not complete yet, or given to somebody else"""
