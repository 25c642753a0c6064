"""Warnings about the names of columns and classes in the entries of a source."""

import warnings

from bcmdist.data.reader import EntryShape
from bcmdist.data.schema import Schema, warn_of_columns
from bcmdist.errors import BcmdistWarning


class EntryNames:
    """Warns once of columns that are not used, and of columns or classes without names.

    Parameters
    ----------
    source : name of the source
    y : name of the targets
    schema : names of the model that will absorb the rows
    """

    def __init__(self, source: str, y: str | None, schema: Schema):
        self.source, self.y, self.schema = source, y, schema
        self._warned_of: set[tuple[str, ...]] = set()
        """sets of columns already warned about"""

    def warn(self, shape: EntryShape) -> None:
        """Warn of an entry, unless one with the same columns was seen before."""
        if (*shape.columns, *shape.unused) in self._warned_of:
            return
        self._warned_of.add((*shape.columns, *shape.unused))
        if shape.unused:
            names = ", ".join(map(repr, shape.unused))
            text = f"{self.source}: {names} not used, of a type that is no number; publish numbers"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        warn_of_columns(Schema(shape.columns), self.schema, self.source)
        if self.schema.classes:
            names = ", ".join(map(repr, self.schema.classes))
            text = f"{self.source}: numbers in {self.y} are taken for the classes {names}, from 0 on"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
