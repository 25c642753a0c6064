"""Copies of rows in a model directory: partitions are read from them, as their source may be gone or changed.

A copy is an array (n, D + k) in original units: inputs in the model's column order, then the k fields of
`Observations`, `OBSERVED`. It is stored as a blob, whose name is the hash of its content.
"""

from dataclasses import dataclass, fields

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import FloatArray
from bcmdist.storage.arrays import check_array
from bcmdist.storage.commits import BlobReference, open_store

# Without the number of the output, which follows from the inputs.
OBSERVED = tuple(field.name for field in fields(Observations) if field.name != "output")


@dataclass(frozen=True)
class RowCopy:
    """Reference to the copy of a partition's rows."""

    blob: BlobReference
    digest: str
    """SHA-256 of the rows as they were read from their source (`Rows.digest`)"""


def copy_of(X: FloatArray, obs: Observations) -> FloatArray:
    """The copy (n, D + k) of rows with inputs X (n, D), to be stored."""
    return np.column_stack([X, *(getattr(obs, name) for name in OBSERVED)])


def load_copy(blob: BlobReference, rows: int, inputs: int) -> tuple[FloatArray, Observations]:
    """Inputs (n, D) and observations of a copy of `rows` rows, in original units.

    Raises
    ------
    ModelDamaged
    """
    table = open_store(blob.url).get_array(blob.digest)
    shape = (rows, inputs + len(OBSERVED))
    check_array(table, f"{blob.url}: blob {blob.digest[:12]}", "a copy of rows", shape=shape)
    return table[:, :inputs], Observations(*table[:, inputs:].T)
