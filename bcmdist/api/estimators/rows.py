"""Rows of estimators: sample weights as scikit-learn defines them, the order of rows, and errors of inputs.

    fit(X, y, sample_weight=k) = fit(X.repeat(k), y.repeat(k)),    k = 0, 1, 2, ...

Rows with integer weights are repeated, so that this holds exactly. Other weights are passed to the likelihood: they
divide the variance of normal noise, and multiply other log likelihoods.

The argument `X_std` has standard deviations of the errors of inputs. Either an array (n, D), or (D,) for all rows; or
by column name: a data frame, a series, or a dictionary of arrays (n,) or numbers, where columns that are not named are
exact. Errors are independent and normal, in the units of the inputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.lazy import is_lazy
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import few
from bcmdist.data.tables.coding import Coding, Number
from bcmdist.errors import InvalidData
from bcmdist.linalg.arrays import FloatArray

Deviations = ArrayLike | Mapping[str, ArrayLike]
"""standard deviations of the errors of inputs: an array (n, D) or (D,), or columns by name"""


def variances(
    X_std: Any, shape: tuple[int, int], names: Sequence[str] = (), coding: Coding | None = None
) -> np.ndarray:
    """Return the variances of the errors of inputs, (n, D), from standard deviations.

    Parameters
    ----------
    shape : (n, D)
    names : names of the inputs, in order; empty where they have none
    coding : coding of a data frame's columns as inputs, where some are not numeric

    Raises
    ------
    InvalidData
    """
    named = _by_name(X_std)
    if named is not None:
        return _named_variances(named, shape, _places(names, coding))
    if coding:
        raise InvalidData(
            "X_std: expected standard deviations by the names of columns, some of which were no numbers in training, "
            f"got {type(X_std).__name__}; give a data frame or a dictionary of those that are"
        )
    std = _numbers(X_std, (shape, shape[1:]), "X_std", "inputs")
    return np.broadcast_to(std**2, shape)


def _by_name(X_std: Any) -> Mapping[str, Any] | None:
    """Return the columns of X_std by name; None where it has no names, or these are 0, 1, 2, ..."""
    if not (hasattr(X_std, "columns") or hasattr(X_std, "keys")):
        return None
    labels = tuple(X_std.columns if hasattr(X_std, "columns") else X_std.keys())
    counted = labels and labels == tuple(range(len(labels)))
    return None if counted else {str(label): X_std[label] for label in labels}


def _places(names: Sequence[str], coding: Coding | None) -> dict[str, int]:
    """Return the indices of the numeric inputs, by name."""
    if coding is None:
        return {str(name): place for place, name in enumerate(names)}
    return {code.name: coding.inputs.index(code.name) for code in coding.codes if isinstance(code, Number)}


def _named_variances(named: Mapping[str, Any], shape: tuple[int, int], places: Mapping[str, int]) -> FloatArray:
    odd = [name for name in named if name not in places]
    if odd:
        allowed = f"names of inputs that are numbers ({few(map(repr, places))})" if places else "no names"
        raise InvalidData(f"X_std: expected {allowed}, as in training, got {odd[0]!r}; correct it")
    found = np.zeros(shape)
    for name, std in named.items():
        found[:, places[name]] = _numbers(std, (shape[:1], ()), f"X_std: {name!r}", "an input") ** 2
    return found


def _numbers(std: Any, shapes: Sequence[tuple[int, ...]], where: str, of: str) -> FloatArray:
    """Return `std` as finite, nonnegative floats, of one of the allowed shapes; raise `InvalidData` otherwise."""
    try:
        found = np.asarray(std, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"{where}: expected numbers, got others ({error}); convert them") from error
    expected = f"standard deviations, finite and 0 or more, of {of}, {' or '.join(map(str, shapes))}"
    if found.shape not in shapes:
        raise InvalidData(f"{where}: expected {expected}, got shape {found.shape}; give these")
    bad = np.argwhere(~((found >= 0.0) & np.isfinite(found)))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidData(f"{where}: expected {expected}, got {found[place]:g} at {place}; correct it")
    return found


# Rows are repeated only if the sum of integer weights is at most this multiple of their number.
MOST_REPLICATES = 10


def refuse_texts(X: Any) -> None:
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


def checked_column(values: ArrayLike, rows: int, name: str) -> np.ndarray:
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


def with_variances(arrays: dict[str, np.ndarray], target_variance: Any) -> dict[str, np.ndarray]:
    """Return arrays (n, ...) by name with known variances of the errors of targets, (n,) or one number, if given.

    Raises
    ------
    InvalidData
        They are not finite, or below 0.
    """
    if target_variance is None:
        return arrays
    if is_lazy(arrays["X"]):
        return arrays | {TARGET_VARIANCE: target_variance}
    rows = len(arrays["X"])
    of_all = np.ndim(target_variance) == 0
    column = checked_column(np.full(rows, target_variance) if of_all else target_variance, rows, TARGET_VARIANCE)
    if len(bad := np.flatnonzero(column < 0)):
        raise InvalidData(
            f"{TARGET_VARIANCE}: expected variances of at least 0, got {column[bad[0]]:g} at row {bad[0]}; correct it"
        )
    return arrays | {TARGET_VARIANCE: column}


def weighted(arrays: dict[str, np.ndarray], sample_weight: Any) -> dict[str, np.ndarray]:
    """Return arrays (n, ...) by name with rows repeated by their weights, or with a further array `weight`.

    Rows with known variances are not repeated, since these are of each row as it is, whatever its weight.

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
    whole = TARGET_VARIANCE not in arrays and np.all(weight == np.floor(weight))
    if whole and weight.sum() <= MOST_REPLICATES * len(weight):
        return {name: np.repeat(values, weight.astype(int), axis=0) for name, values in arrays.items()}
    there = weight > 0
    return {name: values[there] for name, values in arrays.items()} | {"weight": weight[there]}


def ordered(arrays: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """Sort the rows where one expert gets all of them (at most `most`), so that the result does not depend on order.

    More rows keep their order, since it determines the partitions.
    """
    if is_lazy(arrays["X"]) or len(arrays["X"]) > most:
        return arrays
    others = [column for name, values in arrays.items() if name != "X" for column in np.atleast_2d(values.T)]
    order = np.lexsort([*others, *arrays["X"].T[::-1]])
    return {name: values[order] for name, values in arrays.items()}
