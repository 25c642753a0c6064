"""Rows that were absorbed after the fit, each in the cell into which it falls, from their copies in the model."""

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from zict import LRU

from bcmdist.data.dataset import Dataset
from bcmdist.data.observations import Observations, joined, unweighted
from bcmdist.data.partition import Partition
from bcmdist.data.row_copy import load_copy
from bcmdist.model.model import Model
from bcmdist.model.targets import model_observations
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.entry import Entry

# Memory for rows of partitions in model units, so that a later commit reads only the new ones.
KEPT_BYTES = 2**27
# Rows with at most this (faded) weight are ignored: they no longer change any sum, and noise / weight would overflow.
FADED = 1e-100


@dataclass(frozen=True)
class LateRows:
    """Rows absorbed after the fit, in the order of the ledger."""

    X: np.ndarray
    """(n, D), scaled"""
    obs: Observations
    """in the units of the model; weights include the present weight of the partition"""
    cells: np.ndarray
    """(n,) numbers of their cells"""

    def __len__(self) -> int:
        return len(self.X)

    def in_cells(self, first: int, last: int) -> np.ndarray:
        """Positions, ascending, of the rows in the cells `first` to `last` - 1."""
        return np.flatnonzero((self.cells >= first) & (self.cells < last))


_kept: "LRU[Hashable, LateRows]" = least_recently_used(KEPT_BYTES, lambda rows: rows.X.nbytes + 6 * rows.cells.nbytes)


def load_late_rows(
    url: str, model: Model, data: Dataset, ledger: Sequence[Entry], weights: Mapping[str, float], version: Hashable
) -> LateRows:
    """Load the rows of ledger entries with copies in the model directory `url`.

    Parameters
    ----------
    data : the data set of the fit, of which they have the columns
    weights : the present weight of each partition, by key
    version : differs between models of one directory with different scalings or cells
    """
    pieces = [LateRows(np.zeros((0, model.inputs)), unweighted(np.zeros(0)), np.zeros(0, np.int64))]
    for entry in (entry for entry in ledger if entry.copy and weights[entry.key] > FADED):
        load = functools.partial(_load, url, model, data, entry)
        piece = get_or_make(_kept, (url, entry.copy, version), load)
        pieces.append(replace(piece, obs=piece.obs.repeated(weights[entry.key])))
    obs = joined(*(piece.obs for piece in pieces))
    X, cells = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("X", "cells"))
    return LateRows(X, obs, cells)


def _load(url, model, data, entry):
    assert model.cells is not None, "copies are made for spatial cells"
    inputs, obs = load_copy(BlobReference(url, entry.copy), entry.rows, model.inputs)
    X = model.scaling.inputs(inputs)
    return LateRows(X, model_observations(model, Partition(data, 0, entry.rows), obs, inputs), model.cells.route(X))
