"""Fading: how much old rows count.

Weights follow from where rows stand in their source and from nothing else, so that partitions that come late, twice
or in another order give the same committee. With a half-life of H rows a partition that ends at row t counts

    2 ** ((t - T) / H)

where T is the newest row absorbed; with a window of W rows it counts once while t > T - W, and then not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class Weighting:
    """How the weight of rows follows from their position in a source."""

    source: str = ""
    """whose positions count; rows absorbed before it began stand at position 0"""
    position: int = 0
    """T, the newest row absorbed"""
    half_life: float | None = None
    """rows; None: no decay"""
    window: int | None = None
    """rows; None: no end"""

    def __post_init__(self):
        for name, value in (("--half-life", self.half_life), ("--window", self.window)):
            if value is not None and not (np.isfinite(value) and value > 0):
                raise InvalidOption(f"{name}: expected a positive number of rows, got {value}; correct it")

    def weight(self, position: int | None) -> float:
        """What a partition that ends at a position counts, as long as it is in the window."""
        return 1.0 if self.half_life is None else 2.0 ** (((position or 0) - self.position) / self.half_life)

    def expired(self, position: int | None) -> bool:
        """Whether the window has left a partition that ends at a position."""
        return self.window is not None and (position or 0) <= self.position - self.window

    def at(self, position: int) -> "Weighting":
        """The same once rows up to a position have been absorbed; it never goes back."""
        return replace(self, position=max(self.position, position))

    def aged(self, later: "Weighting") -> float:
        """By what the weights of all rows change until T is later."""
        return 1.0 if self.half_life is None else 2.0 ** ((self.position - later.position) / self.half_life)

    @property
    def fades(self) -> bool:
        """Whether rows lose weight at all."""
        return self.half_life is not None or self.window is not None


def chosen_fading(known: Weighting, source, half_life, window) -> Weighting:
    """How rows of a source fade: as the model does already, or as asked for.

    Raises
    ------
    InvalidOption
        The model fades in another way, or with another source.
    """
    if not known.fades:
        return Weighting(source, 0, half_life, window)
    if not source:
        raise InvalidOption(
            f"expected rows of {known.source}, by whose positions this model lets rows fade, got others; `bcmdist "
            "ingest` that source, or fit another model"
        )
    asked = (half_life or known.half_life, window or known.window)
    if asked != (known.half_life, known.window) or source != known.source:
        raise InvalidOption(
            f"--half-life, --window: expected {known.half_life} and {known.window} with rows of {known.source}, as "
            f"this model was told first, got {half_life} and {window} with {source}; leave them out, or ingest into "
            "another model"
        )
    return known


def going_on(before: Weighting, now: Weighting, url) -> Weighting:
    """How rows fade now, of who has begun to ingest into the model at `url` when they faded as before.

    Raises
    ------
    InvalidOption
        Somebody else has let them begin to.
    """
    if now.fades and not before.fades:
        raise InvalidOption(
            f"{url}: expected rows that do not fade, as when this began, somebody else lets them fade by now; repeat "
            "the command to go on like that"
        )
    return now


def weights(fading: Weighting, entries: Iterable[Entry]) -> dict[str, float]:
    """What the partitions of a ledger count now, by key."""
    return {entry.key: entry.weight * fading.weight(entry.position) for entry in entries}
