"""How much of a cluster somebody takes, where several use it."""

from dataclasses import asdict, dataclass
from typing import Any

from bcmdist.errors import InvalidOption
from bcmdist.storage.bounds import Bounds

WORKERS = Bounds(1, 100_000)


@dataclass(frozen=True)
class Portion:
    """At most so much of a cluster; all of it where neither is given.

    Raises
    ------
    InvalidOption
    """

    share: float | None = None
    """of all worker threads; one worker at least"""
    workers: int | None = None

    def __post_init__(self):
        share, workers = self.share, self.workers
        if share is not None and not (_is_number(share, int | float) and 0 < share <= 1):
            raise InvalidOption(
                f"--share: expected a part of the cluster's worker threads, above 0 and at most 1, got {share!r}; "
                "give 0.5 for half of them"
            )
        if workers is not None:
            WORKERS.refuse("workers", workers)

    def __bool__(self):
        return self != ALL

    def fields(self) -> dict[str, Any]:
        """What is given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _is_number(value, kinds):
    return isinstance(value, kinds) and not isinstance(value, bool)


ALL = Portion()


def untold(words: str) -> None:
    """Tell nobody what is waited for."""
