"""The argument `X_std` of estimators: standard deviations of the errors of inputs.

Either an array (n, D), or (D,) for all rows; or by column name: a data frame, a series, or a dictionary of arrays (n,)
or numbers, where columns that are not named are exact. Errors are independent and normal, in the units of the inputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcmdist.data.schema import few
from bcmdist.data.tables.coding import Coding, Number
from bcmdist.errors import InvalidData


def variances(X_std, shape: tuple[int, int], names: Sequence[str] = (), coding: Coding | None = None) -> np.ndarray:
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


def _by_name(X_std) -> Mapping[str, Any] | None:
    """Return the columns of X_std by name; None where it has no names, or these are 0, 1, 2, ..."""
    if not (hasattr(X_std, "columns") or hasattr(X_std, "keys")):
        return None
    labels = tuple(X_std.columns if hasattr(X_std, "columns") else X_std.keys())
    counted = labels and labels == tuple(range(len(labels)))
    return None if counted else {str(label): X_std[label] for label in labels}


def _places(names, coding):
    """Return the indices of the numeric inputs, by name."""
    if coding is None:
        return {str(name): place for place, name in enumerate(names)}
    return {code.name: coding.inputs.index(code.name) for code in coding.codes if isinstance(code, Number)}


def _named_variances(named, shape, places):
    odd = [name for name in named if name not in places]
    if odd:
        known = f"names of inputs that are numbers ({few(map(repr, places))})" if places else "no names"
        raise InvalidData(f"X_std: expected {known}, as in training, got {odd[0]!r}; correct it")
    found = np.zeros(shape)
    for name, std in named.items():
        found[:, places[name]] = _numbers(std, (shape[:1], ()), f"X_std: {name!r}", "an input") ** 2
    return found


def _numbers(std, shapes, where, of):
    """Return `std` as finite, nonnegative floats, of one of the allowed shapes; raise `InvalidData` otherwise."""
    try:
        found = np.asarray(std, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"{where}: expected numbers, got others ({error}); convert them") from error
    wanted = f"standard deviations, finite and 0 or more, of {of}, {' or '.join(map(str, shapes))}"
    if found.shape not in shapes:
        raise InvalidData(f"{where}: expected {wanted}, got shape {found.shape}; give these")
    bad = np.argwhere(~((found >= 0.0) & np.isfinite(found)))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidData(f"{where}: expected {wanted}, got {found[place]:g} at {place}; correct it")
    return found
