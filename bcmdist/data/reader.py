"""Reader: how rows are read at the URLs of a scheme behind which there is no Zarr group.

What such a URL names, an *entry*, is a small data set of its own: it is opened and read as a whole, and its rows stay
the same for as long as somebody may read them.
"""

from typing import NamedTuple, Protocol

import numpy as np


class EntryShape(NamedTuple):
    """What an entry holds."""

    rows: int
    inputs: int
    companions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """names of the inputs, where each is a column of its own"""
    unused: tuple[str, ...] = ()
    """names of columns that hold no numbers"""


class Reader(Protocol):
    """Reads entries of one scheme, wherever tasks run: by their URL alone."""

    def named(self, url: str) -> str:
        """The URL as errors may show it: without a password."""

    def shape(self, url: str, x: str, y: str | None, companions: tuple[str, ...]) -> EntryShape:
        """What an entry holds: inputs `x`, targets `y` (None: not wanted), and those of `companions` that are there.

        Raises
        ------
        InvalidData, InvalidOption, MissingChunk, MissingExtra, SourceUnreachable, UnsafeData
        """

    def columns(self, url: str, x: str, y: str | None, companions: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Columns of all rows of an entry by name: x (n, D), y (n,) and those companions (n,) that are there, float64.

        Raises
        ------
        As `shape`.
        """
