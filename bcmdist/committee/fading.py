"""Fading: weights of partitions that decrease with the age of their rows.

A weight depends only on the position of the rows in their source, so partitions that arrive late, twice or out of order
give the same committee. With a half-life of H rows, a partition that ends at row t has the weight

    2 ** ((t - T) / H)

where T is the newest row absorbed. With a window of W rows, it has weight 1 while t > T - W and 0 afterwards. Given
both, it decays while it is in the window.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.storage.entry import Entry
from bcmdist.storage.fields import Count, CountFromOne, Positive


@dataclass(frozen=True)
class Weighting:
    """Weights of rows as a function of their position in a source."""

    source: str = ""
    """name of the source whose positions count; rows absorbed before its first ones have position 0"""
    position: Count = 0
    """T, the newest row absorbed"""
    half_life: Positive | None = None
    """H in rows; None: no decay"""
    window: CountFromOne | None = None
    """W in rows; None: no limit"""

    def __post_init__(self) -> None:
        for name, value in (("--half-life", self.half_life), ("--window", self.window)):
            if value is not None and not (np.isfinite(value) and value > 0):
                raise InvalidOption(f"{name}: expected a positive number of rows, got {value}; correct it")

    def weight(self, position: int | None) -> float:
        """Weight of a partition that ends at `position`, provided it is in the window."""
        return 1.0 if self.half_life is None else 2.0 ** (((position or 0) - self.position) / self.half_life)

    def expired(self, position: int | None) -> bool:
        """Whether a partition that ends at `position` is outside the window."""
        return self.window is not None and (position or 0) <= self.position - self.window

    def at(self, position: int) -> "Weighting":
        """The weighting once rows up to `position` are absorbed; T never decreases."""
        return replace(self, position=max(self.position, position))

    def aged(self, later: "Weighting") -> float:
        """Factor by which all weights change when T advances to that of `later`."""
        return 1.0 if self.half_life is None else 2.0 ** ((self.position - later.position) / self.half_life)

    @property
    def fades(self) -> bool:
        """Whether weights depend on position at all."""
        return self.half_life is not None or self.window is not None


def chosen_fading(current: Weighting, source: str, half_life: float | None, window: int | None) -> Weighting:
    """The weighting for rows of a source: that of the model if its rows fade already, else the one asked for.

    Raises
    ------
    InvalidOption
        Rows of the model fade with other options or another source.
    """
    if not current.fades:
        return Weighting(source, 0, half_life, window)
    if not source:
        raise InvalidOption(
            f"expected rows of {current.source}, since this model down-weights rows by their position in that source, "
            "got other rows; run `bcmdist ingest` with that source, or fit another model"
        )
    asked = (half_life or current.half_life, window or current.window)
    if asked != (current.half_life, current.window) or source != current.source:
        raise InvalidOption(
            f"--half-life, --window: expected {current.half_life} and {current.window} with rows of {current.source}, "
            f"as in the first ingestion into this model, got {half_life} and {window} with {source}; leave them out, "
            "or ingest into another model"
        )
    return current


def going_on(before: Weighting, now: Weighting, url: str) -> Weighting:
    """Return `now`, the current weighting of the model at `url`, checked against `before`, that of a running ingestion.

    Raises
    ------
    InvalidOption
        Rows did not fade when the ingestion began, and another process has made them fade since.
    """
    if now.fades and not before.fades:
        raise InvalidOption(
            f"{url}: expected rows that do not fade, as when this began, somebody else lets them fade by now; repeat "
            "the command to go on like that"
        )
    return now


def weights(fading: Weighting, entries: Iterable[Entry]) -> dict[str, float]:
    """Current weights of ledger entries, by key."""
    return {entry.key: entry.weight * fading.weight(entry.position) for entry in entries}
