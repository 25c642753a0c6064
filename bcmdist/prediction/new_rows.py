"""Validation of new rows in memory: inputs in the order of the model's columns, exposure, trials, known variances."""

import numpy as np

from bcmdist.data.observations import TARGET_VARIANCE, Observations
from bcmdist.data.schema import in_order
from bcmdist.data.tables.frames import coded, framed, is_uncoded
from bcmdist.data.values import LARGEST, as_float, bad_variances
from bcmdist.errors import InvalidData, InvalidDtype, InvalidOption
from bcmdist.model.model import Model
from bcmdist.model.targets import refuse_target_variance


def new_inputs(model: Model, X) -> np.ndarray:
    """Inputs (n, D) in original units, in the order of the model's columns.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    X, coding = framed(X), model.schema.coding
    X = coded(X, coding) if coding and is_uncoded(X, coding) else in_order(X, model.schema)
    if X.dtype.kind not in "fiub":
        raise InvalidDtype(f"X: expected real numbers, got dtype {X.dtype}; convert it to float64 first")
    X = as_float(X, "X")
    if X.ndim != 2 or X.shape[1] != model.inputs:
        raise InvalidData(f"X: expected shape (n, {model.inputs}), as in training, got {X.shape}; give these columns")
    bad = np.argwhere(~(np.abs(X) <= LARGEST))
    if len(bad):
        row, column = bad[0]
        raise InvalidData(
            f"X: expected finite numbers (up to {LARGEST:g}), got {X[row, column]} at row {row}, "
            f"{model.schema.column(column)}; fill or drop it"
        )
    return X


def new_variance(model: Model, variance, rows) -> np.ndarray:
    """Validated error variances (n, D) or covariances (n, D, D) of new inputs, in the order of the model's columns.

    Raises
    ------
    InvalidData
    """
    return checked_variance(variance, rows, model.inputs)


def checked_variance(variance, rows, D) -> np.ndarray:
    """As `new_variance`, for any D columns.

    Raises
    ------
    InvalidData
    """
    try:
        variance = np.asarray(variance, dtype=float)
    except ValueError as error:
        raise InvalidData(
            f"X_variance: expected {D} variances, or {D} times {D} covariances, for each row, got something else "
            f"({error}); correct it"
        ) from error
    if variance.shape not in ((rows, D), (rows, D, D)):
        raise InvalidData(
            f"X_variance: expected shape {(rows, D)}, a variance for each input, or {(rows, D, D)}, covariances, got "
            f"{variance.shape}; correct it"
        )
    if len(bad := bad_variances(variance)):
        raise InvalidData(
            "X_variance: expected finite variances, at least 0, or covariances that are symmetric and positive "
            f"semi-definite, got {variance[bad[0]].tolist()!s:.80} at row {bad[0]}; correct it"
        )
    return variance


def new_observations(model: Model, rows, **companions) -> Observations:
    """Observations to predict, (rows,), with the given exposure, trials or known error variances, and unknown targets.

    Raises
    ------
    InvalidData, InvalidOption
    """
    present = {name: _companion(model, name, column, rows) for name, column in companions.items() if column is not None}
    return Observations(np.full(rows, np.nan), np.ones(rows), **present)


def _companion(model, name, column, rows):
    """Exposure, trials or known variances of new rows, (n,)."""
    if name == TARGET_VARIANCE:
        refuse_target_variance(model, name)
        return _numbers(name, column, rows)
    values = _numbers(name, column, rows)
    if np.any(values != 1.0):
        refuse_unread(model, name)
    return values


def refuse_unread(model: Model, name: str) -> None:
    """Raise `InvalidOption` if the model's likelihood does not use the companion column `name`."""
    if name not in model.likelihood.companions:
        raise InvalidOption(f"{name}: expected a likelihood that uses it, got {model.likelihood.name}; leave it out")


def _numbers(name, column, rows):
    """Numbers for new rows, (n,): positive ones, integers for trials, variances of at least 0."""
    try:
        values = np.broadcast_to(np.asarray(column, dtype=float), rows)
    except ValueError as error:
        raise InvalidData(f"{name}: expected one number or {rows} of them, got {column!r:.80}; correct them") from error
    of_zero = name == TARGET_VARIANCE
    good = np.isfinite(values) & ((values >= 0) if of_zero else (values > 0))
    if name == "trials":
        good &= values == np.floor(values)
    if not good.all():
        kinds = {TARGET_VARIANCE: "variances, finite and at least 0", "trials": "positive whole numbers"}
        first = int(np.flatnonzero(~good)[0])
        raise InvalidData(
            f"{name}: expected {kinds.get(name, 'positive numbers')}, got {values[first]:g} at row {first}; correct "
            "them"
        )
    return values
