"""Several outputs in long form: each row has a target of one of them, which one-hot inputs name.

Targets of each output have a unit of their own, and so a mean and a scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from bcmdist.errors import InvalidData
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.storage.fields import Number, Positive

_Column = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class Outputs:
    """Which inputs name the output of a row, and the scaling of each output's targets."""

    columns: tuple[_Column, ...]
    """numbers of the one-hot inputs, (P,), one for each output; they are neither centred nor divided"""
    mean: tuple[Number, ...]
    """(P,) means of targets, as `Scaling.y_mean`"""
    scale: tuple[Positive, ...]
    """(P,) scales of targets, as `Scaling.y_scale`"""
    training_mean: tuple[Number, ...]
    """(P,) means of the training targets in original units, before they are transformed"""

    def __len__(self) -> int:
        return len(self.columns)

    def number(self, X: FloatArray) -> IntArray:
        """Number of the output of each row of X (n, D), scaled or not: (n,).

        Raises
        ------
        InvalidData
            A row has none of the outputs.
        """
        return output_numbers(X, self.columns)


def output_numbers(X: FloatArray, columns: Sequence[int]) -> IntArray:
    """Position in `columns`, of one-hot inputs, of the output of each row of X (n, D): (n,).

    Raises
    ------
    InvalidData
        A row has none of the outputs.
    """
    coded = X[:, list(columns)]
    bad = np.flatnonzero(((coded != 0.0) & (coded != 1.0)).any(axis=1) | (coded.sum(axis=1) != 1.0))
    if len(bad):
        raise InvalidData(
            f"rows: expected one of the {len(columns)} outputs that the model was fitted to in each row, got another "
            f"at row {bad[0]} of {len(X)} ({len(bad)} such rows); leave these rows out, or fit a new model with them"
        )
    numbers: IntArray = coded.argmax(axis=1)
    return numbers
