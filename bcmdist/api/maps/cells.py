"""Cells of a grid as the rows of a data set, on their way to a fit."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from bcmdist.api.in_memory_rows import Rows
from bcmdist.data.schema import Schema
from bcmdist.data.tables.encoded import encoded, plan
from bcmdist.data.tables.grids import Grid
from bcmdist.data.tables.roles import Roles
from bcmdist.data.tables.tables import Named
from bcmdist.data.writing import write_pieces
from bcmdist.storage.scratch import Scratch

WHERE = "data"  # what errors call a data set that has no name


@dataclass(frozen=True)
class Cells(Rows):
    """Those cells of a grid where the target and all inputs are there."""

    table: Named
    """all cells"""
    roles: Roles

    @classmethod
    def of(cls, data, roles: Roles) -> "Cells":
        """Those of an xarray `Dataset`, of which nothing is read yet.

        Raises
        ------
        DataNotFound, InvalidData
            Variables are not there, or not along the dimensions of the target.
        """
        others = [roles.y, *roles.companions.values()]
        return cls(Named(Path(WHERE), Grid(WHERE, lambda: contextlib.nullcontext(data), roles.inputs, others)), roles)

    def written(self) -> tuple[Scratch, str]:
        """What keeps them alive, and the URL of a data set with these rows; the grid is read twice, in pieces.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype
        """
        scratch = Scratch()
        url = str(Path(scratch.path, "cells.zarr"))
        made = plan(self.table, self.roles)
        schema = Schema(made.coding.inputs, made.target.classes if made.target else (), made.coding)
        empty = f"{WHERE}: expected cells where {self.roles.y!r} and all inputs are there, found none; give some"
        write_pieces(url, encoded(self.table, made), empty=empty, schema=schema)
        return scratch, url
