"""Where the data and the model of a fit lie: arrays in memory, and models without a path, in scratch directories."""

from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.data.schema import Schema, as_table, class_codes, frame_names, is_text
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidDtype
from bcmdist.storage.scratch import Scratch


def places(source, model) -> tuple[tuple[Scratch, ...], Any, Any]:
    """What must be kept alive, the data's URL and the model's path, scratch ones where not given."""
    keep = []
    if isinstance(source, tuple):
        keep.append(Scratch())
        path = Path(keep[-1].path, "data.zarr")
        X, y = source
        _refuse_other_rows(X, y)
        columns, X, y = frame_names(X), as_table(X), np.asarray(y)
        y, classes = class_codes(y, "y") if is_text(y) else (y, ())
        if X.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
            raise InvalidDtype(f"X, y: expected real numbers, got {X.dtype} and {y.dtype}; convert them to float64")
        write_dataset(path, {"X": X, "y": y}, schema=Schema(columns, classes))
        source = path
    if model is None:
        keep.append(Scratch())
        model = Path(keep[-1].path, "model")
    return tuple(keep), source, model


def _refuse_other_rows(X, y):
    """Raise `InvalidData` where labels of rows say that y stands in another order than X."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "symmetric_difference") and hasattr(theirs, "symmetric_difference")):  # no data frames
        return
    if len(ours) == len(theirs) and not ours.equals(theirs) and not len(ours.symmetric_difference(theirs)):
        raise InvalidData("X, y: expected the same rows in the same order, their labels differ; give y.loc[X.index]")
