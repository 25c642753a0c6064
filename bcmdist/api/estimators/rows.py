"""Sample weights as scikit-learn defines them, and the order of rows.

    fit(X, y, sample_weight=k) = fit(X.repeat(k), y.repeat(k)),    k = 0, 1, 2, ...

Rows with integer weights are repeated, so that this holds exactly. Other weights are passed to the likelihood: they
divide the variance of normal noise, and multiply other log likelihoods.
"""

from typing import Any

import numpy as np

from bcmdist.api.lazy import is_lazy
from bcmdist.data.schema import few
from bcmdist.errors import InvalidData

# Rows are repeated only if the sum of integer weights is at most this multiple of their number.
MOST_REPEATS = 10


def refuse_texts(X) -> None:
    """Raise `InvalidData` where a dask data frame has columns that are not numeric."""
    kinds: Any = getattr(X, "dtypes", None)
    if not (is_lazy(X) and hasattr(kinds, "items")):
        return
    odd = [name for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "fiub"]
    if odd:
        raise InvalidData(
            f"X: expected numbers in a data frame of dask, got others in {few(map(repr, odd))}; compute it, "
            "or write it to Parquet and `bcmdist import` that"
        )


def checked_column(values, rows, name) -> np.ndarray:
    """Return `values` as finite floats, one per row: (rows,).

    Raises
    ------
    InvalidData
    """
    try:
        column = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"{name}: expected a number for each row, got others ({error}); convert them") from error
    if column.shape != (rows,):
        raise InvalidData(f"{name}: expected shape ({rows},), a number for each row, got {column.shape}; give these")
    if not np.all(np.isfinite(column)):
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise InvalidData(f"{name}: expected finite numbers, got {column[row]} at row {row}; fill or drop it")
    return column


def weighted(arrays: dict[str, np.ndarray], sample_weight) -> dict[str, np.ndarray]:
    """Return arrays (n, ...) by name with rows repeated by their weights, or with a further array `weight`.

    Raises
    ------
    InvalidData
        A weight is negative, or no weight is positive.
    """
    if sample_weight is None:
        return arrays
    if is_lazy(arrays["X"]):  # the number of rows may be unknown
        return arrays | {"weight": sample_weight}
    weight = checked_column(sample_weight, len(arrays["X"]), "sample_weight")
    if np.any(weight < 0):
        raise InvalidData(f"sample_weight: expected no negative weights, got {weight.min():g}; correct them")
    if not np.any(weight > 0):
        raise InvalidData("sample_weight: expected a positive weight, got zero of every row; give rows that count")
    if np.all(weight == np.floor(weight)) and weight.sum() <= MOST_REPEATS * len(weight):
        return {name: np.repeat(values, weight.astype(int), axis=0) for name, values in arrays.items()}
    there = weight > 0
    return {name: values[there] for name, values in arrays.items()} | {"weight": weight[there]}


def ordered(arrays: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """Sort the rows where one expert gets all of them (at most `most`), so that the result does not depend on order.

    More rows keep their order, since it determines the partitions.
    """
    if is_lazy(arrays["X"]) or len(arrays["X"]) > most:
        return arrays
    order = np.lexsort([*(values for name, values in arrays.items() if name != "X"), *arrays["X"].T[::-1]])
    return {name: values[order] for name, values in arrays.items()}
