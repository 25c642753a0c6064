"""Arrays of an .npz file, selected by name: `X`, the target, `weight`, `exposure`, `trials` and `event`, and
`feature_names` as the names of the inputs. Unused arrays are reported with the reason."""

from dataclasses import dataclass, field

import numpy as np

from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.schema import Schema, few, is_text, refuse_many_columns, refuse_repeated
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.tables.columns import FILL, NO_TARGET, names_of_rows, numbers_of_text, refuse_gaps
from bcmdist.data.tables.roles import warn_of_unused
from bcmdist.data.values import as_float
from bcmdist.errors import DataNotFound, InvalidData, InvalidDtype

FEATURE_NAMES = "feature_names"


@dataclass(frozen=True)
class Selected:
    """Arrays selected from a file."""

    columns: dict[str, np.ndarray]
    """X, and if present y, companions and row identifiers, (n, ...)"""
    schema: Schema
    unused: dict[str, str]
    """reason for which other arrays are not used, by name"""
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    own_split: bool = False


def select(arrays, file, roles, *, mask=None, part="all") -> Selected:
    """Select and check the arrays of a file; warn of unused ones.

    Parameters
    ----------
    mask : name of an array that selects rows
    part : part to read from a file that has its own split

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype
    """
    own = "X_train" in arrays
    named = arrays.pop(FEATURE_NAMES, None)
    if own:
        arrays = _joined_parts(arrays, file, part)
    names = _array_names(arrays, file, roles)
    columns = {ours: arrays[name] for ours, name in names.items() if name not in roles.drop}
    classes: tuple[str, ...] = ()
    X = columns["X"]
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidData(f"{file}: expected X with shape (N, D), got {X.shape}; reshape it")
    refuse_many_columns(X.shape[1], file)
    for name, values in columns.items():
        if name != "X" and values.ndim != 1:
            what = "target" if name == "y" else "value"
            raise InvalidData(
                f"{file}: expected one {what} per row in {names[name]}, got shape {values.shape}; save the wanted "
                "column as an array of its own and name that"
            )
        if name == "y":
            columns[name], classes = _array_target(values, file, roles.y)
        elif name == roles.id:
            columns[name] = names_of_rows(of_numpy(name, values), file)
        else:
            _check_array(name, values, file)
    columns_of_X = () if named is None else _input_names(named, X, file)
    masks = {mask: arrays[mask]} if mask in arrays else {}
    others = [name for name in arrays if name not in {*names.values(), *roles.drop, *masks}]
    unused = dict.fromkeys(roles.drop, "--drop") | dict.fromkeys(others, "no role has that name")
    if not roles.target and roles.y in arrays:
        unused[roles.y] = "the target, --no-target"
    for name, column in columns.items():
        if len(column) != len(columns["X"]):
            raise InvalidData(
                f"{file}: expected {len(columns['X'])} rows in {name} as in X, got {len(column)}; correct the file"
            )
    rows = len(columns["X"])  # arrays of other lengths are not columns, but masks or class names
    warn_of_unused({name: why for name, why in unused.items() if arrays[name].shape[:1] == (rows,)}, file)
    return Selected(columns, Schema(columns_of_X, classes), unused, masks, own)


def _array_names(arrays, file, roles):
    """Return the names of the arrays in the file, by role."""
    for name in roles.drop:
        if name not in arrays or name == "X":
            others = few(other for other in arrays if other != "X")
            raise DataNotFound(f"{file}: expected an array {name!r} to drop, found {others}; correct --drop")
    names = {"X": "X"} | ({"y": roles.y} if roles.target else {})
    names |= {name: name for name in COMPANIONS if name in arrays}
    names |= dict(roles.companions) | ({roles.id: roles.id} if roles.id else {})
    missing = [name for name in names.values() if name not in arrays]
    if missing:
        raise DataNotFound(
            f"{file}: expected arrays X and {roles.y}, found {few(arrays)}; name the target with --y"
            if {*missing} <= {"X", roles.y}
            else f"{file}: expected an array {missing[0]!r}, found {few(arrays)}; correct the name"
        )
    return names


def _input_names(named, X, file):
    """Return a name for each column of X."""
    if named.dtype.kind not in "USiuf" or named.shape != X.shape[1:]:
        raise InvalidData(
            f"{file}: expected {X.shape[1]} texts in {FEATURE_NAMES}, one for each column of X, got shape "
            f"{named.shape} of type {named.dtype}; correct them, or leave that array out"
        )
    names = tuple(str(name).strip() for name in of_numpy(FEATURE_NAMES, named).values)
    refuse_repeated(names, f"{file}: {FEATURE_NAMES}")
    return names


def _joined_parts(arrays, file, part):
    """Concatenate the requested parts of arrays NAME_train and NAME_test, by NAME."""
    parts = ["train", "test"] if part == "all" else [part]
    names = {n.rsplit("_", 1)[0] for n in arrays if n.endswith("_train")}
    missing = {f"{n}_{p}" for n in names for p in parts} - arrays.keys()
    if missing:
        raise DataNotFound(
            f"{file}: expected arrays {', '.join(sorted(missing))} beside those it holds; add them, or choose "
            "another --part"
        )
    try:
        return {n: np.concatenate([arrays[f"{n}_{p}"] for p in parts]) for n in sorted(names)}
    except ValueError as error:
        raise InvalidData(
            f"{file}: expected arrays of train and test with the same columns, got others ({error}); correct them"
        ) from error


def _array_target(target, file, y):
    if is_text(target):
        return numbers_of_text(target, file, y)
    _check_array(y, target, file)
    return target, ()


def _check_array(name, values, file):
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise InvalidDtype(f"{file}: expected numbers in {name}, got dtype {values.dtype}; convert it")
    numbers = values if values.dtype == float else as_float(values, f"{file}: {name}")
    refuse_gaps(numbers, file, name, NO_TARGET if name == "y" else FILL)
