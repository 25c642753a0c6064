"""Reader: interface for reading rows at URLs whose scheme is not backed by Zarr groups.

Such a URL names an *entry*, a small data set of its own. It is opened and read as a whole, and its rows never change.
"""

from typing import NamedTuple, Protocol

import numpy as np


class EntryShape(NamedTuple):
    """Shape and columns of an entry."""

    rows: int
    inputs: int
    companions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """names of the inputs, if each is a separate column"""
    unused: tuple[str, ...] = ()
    """names of columns that are not numeric"""


class Reader(Protocol):
    """Reads entries of one scheme from their URL alone, wherever tasks run."""

    def named(self, url: str) -> str:
        """Return the URL without a password, for error messages."""

    def shape(self, url: str, x: str, y: str | None, companions: tuple[str, ...]) -> EntryShape:
        """Return the shape of an entry: inputs `x`, targets `y` (None: no targets), and the `companions` it contains.

        Raises
        ------
        InvalidData, InvalidOption, MissingChunk, MissingExtra, SourceUnreachable, UnsafeData
        """

    def columns(self, url: str, x: str, y: str | None, companions: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the columns of all rows of an entry by name, float64: x (n, D), y (n,) and the companions (n,) it has.

        Raises
        ------
        As `shape`.
        """
