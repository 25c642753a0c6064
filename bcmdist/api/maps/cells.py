"""The cells of a grid as rows of a data set."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcmdist.api.in_memory_rows import Rows
from bcmdist.data.schema import Schema
from bcmdist.data.tables.encoded import encoded, plan
from bcmdist.data.tables.grids import Grid
from bcmdist.data.tables.roles import Roles
from bcmdist.data.tables.tables import Named
from bcmdist.data.writing import write_pieces
from bcmdist.storage.temporary import Scratch

WHERE = "data"  # name of the data set in error messages


@dataclass(frozen=True)
class Cells(Rows):
    """The cells of a grid without missing target or inputs, as rows."""

    table: Named
    """all cells of the grid"""
    roles: Roles
    """variables by role: target, inputs, companions"""

    @classmethod
    def of(cls, data: Any, roles: Roles) -> "Cells":
        """Make the cells of an xarray `Dataset`, without reading values.

        Raises
        ------
        DataNotFound, InvalidData
            Variables are missing, or have dimensions that the target has not.
        """
        others = [roles.y, *roles.companions.values()]
        return cls(Named(Path(WHERE), Grid(WHERE, lambda: contextlib.nullcontext(data), roles.inputs, others)), roles)

    def written(self) -> tuple[Scratch, str]:
        """Write the rows. Return the scratch directory, which lives as long as this object, and the data set's URL.

        The grid is read twice, in pieces.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype
        """
        scratch = Scratch()
        url = str(Path(scratch.path, "cells.zarr"))
        made = plan(self.table, self.roles)
        classes = made.target.classes if made.target else ()
        schema = Schema(made.coding.inputs, classes, made.coding, self.table.coordinates)
        empty = f"{WHERE}: expected cells where {self.roles.y!r} and all inputs are there, found none; give some"
        write_pieces(url, encoded(self.table, made), empty=empty, schema=schema)
        return scratch, url
