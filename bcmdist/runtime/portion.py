"""The largest part of a shared cluster that one client may use."""

from dataclasses import asdict, dataclass
from typing import Any

from bcmdist.errors import InvalidOption
from bcmdist.storage.bounds import Bounds

WORKERS = Bounds(1, 100_000)


@dataclass(frozen=True)
class Portion:
    """Upper limits on the use of a cluster; the whole cluster if neither is set.

    Raises
    ------
    InvalidOption
    """

    share: float | None = None
    """largest share of all worker threads, in (0, 1]; at least one worker"""
    workers: int | None = None
    """largest number of workers"""

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
        """The limits that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _is_number(value, kinds):
    return isinstance(value, kinds) and not isinstance(value, bool)


ALL = Portion()


def untold(words: str) -> None:
    """Ignore a message about waiting for workers."""
