"""Roles: what the columns of a file are to a data set. Nothing is guessed.

Of a table, one column is the target, others have a role that was said, and all that is left is an input and must be
numbers. Of an .npz, arrays `X`, the target, `weight`, `exposure`, `trials` and `event` are taken by these names, and
`feature_names` as the names of the inputs. What is not used is named with the reason.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.schema import NO_INPUT, Schema, few, is_text, refuse_repeated, warn
from bcmdist.data.tables.columns import (
    FILL,
    NO_TARGET,
    described,
    labels_of,
    names_of_rows,
    numbers_of,
    refuse_gaps,
    target_of,
)
from bcmdist.data.tables.tables import NUMBERS, Arrays, Table, of_numpy, read_file
from bcmdist.data.values import as_float
from bcmdist.errors import DataNotFound, InvalidData, InvalidDtype, InvalidOption

FEATURE_NAMES = "feature_names"
# Names that data sets and predictions have for themselves.
RESERVED = {"X", "y", "row", "column", "class", *COMPANIONS, "mean", "variance", "probability", "label"}
RESERVED |= {"observation_mean", "observation_variance", "lower95", "upper95"}
# Of what names rows: it becomes an array of a Zarr group, which CF lists between blanks.
ROW_NAME = re.compile(r"(?!\.|zarr\.json$)[^\s/\\:%\0]{1,60}")


@dataclass(frozen=True)
class Roles:
    """What columns of a file are; those that have no role are inputs."""

    y: str = "y"
    """the target"""
    target: bool = True
    """False: rows to predict for; the column `y`, if there is one, is left out"""
    companions: Mapping[str, str] = field(default_factory=dict)
    """columns by what they are: weight, exposure, trials, event"""
    id: str | None = None
    """names the rows, in predictions too"""
    drop: Sequence[str] = ()
    """left out"""
    inputs: tuple[str, ...] = ()
    """the inputs that are wanted, those of a model; () for all columns that have no role"""

    def __post_init__(self):
        given = [*self.companions.values(), *([self.id] if self.id else []), *self.drop, *self.inputs]
        if self.target or self.y not in self.inputs:
            given.append(self.y)
        twice = next((name for name, count in Counter(given).items() if count > 1), None)
        if twice:
            raise InvalidOption(
                f"roles: expected one role for a column, got {twice!r} for several; leave out the others"
            )
        if self.id is not None and (self.id in RESERVED or not ROW_NAME.fullmatch(self.id)):
            raise InvalidOption(
                "--id: expected a name that data sets do not have, without blanks, '/', '\\', ':', '%' and '.' in "
                f"front, of at most 60 characters, got {self.id!r}; rename the column"
            )


@dataclass(frozen=True)
class Selected:
    """What is taken of a file."""

    columns: dict[str, np.ndarray]
    """X, and where they are there y, companions, and what names the rows, (n, ...)"""
    schema: Schema
    unused: dict[str, str]
    """why other columns are not used, by name"""
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    own_split: bool = False


def select(file, roles: Roles, *, mask=None, part="all") -> Selected:
    """What is taken of a file, checked; warns of columns that are not used, or that may have been meant otherwise.

    Parameters
    ----------
    mask : name of an array or column that is to select rows
    part : of a file that brings its own split
    """
    found = read_file(file)
    if isinstance(found, Arrays):
        return _of_arrays(found, file, roles, mask, part)
    return _of_table(found, file, roles, mask)


def _of_table(table: Table, file, roles, mask) -> Selected:
    """Columns of a table by their roles."""
    masks = {mask: table.pop(mask).values} if mask in table else {}
    named = {"--y": roles.y} if roles.target else {}
    named |= {f"--{role}": name for role, name in roles.companions.items()} | ({"--id": roles.id} if roles.id else {})
    for option, name in named.items():
        if name not in table:
            raise DataNotFound(
                f"{file}: expected a column {name!r}, found {few(table)}; name another with {option}"
                + (", or give --no-target" if option == "--y" else "")
            )
    for name in roles.drop:
        if name not in table:
            raise DataNotFound(f"{file}: expected a column {name!r} to drop, found {few(table)}; correct --drop")
    unused = dict.fromkeys(roles.drop, "--drop")
    if not roles.target and roles.y in table and roles.y not in roles.inputs:
        unused[roles.y] = "the target of training" if roles.inputs else "the target, --no-target"
    inputs = [name for name in table if name not in {*named.values(), *unused}]
    if roles.inputs:
        inputs, unused = _wanted(table, inputs, unused, file, roles)
    _refuse_other_inputs(table, inputs, file, roles)
    if not inputs:
        raise InvalidData(f"{file}: expected columns besides {', '.join(named.values())}, found none; add inputs")
    columns = {"X": np.column_stack([numbers_of(table[name], file) for name in inputs])}
    y, classes = target_of(table[roles.y], file) if roles.target else (None, ())
    columns |= {} if y is None else {"y": y}
    columns |= {role: numbers_of(table[name], file) for role, name in roles.companions.items()}
    columns |= {roles.id: names_of_rows(table[roles.id], file)} if roles.id else {}
    if not roles.inputs:
        _warn_of_roles(inputs, file)
    _warn_of_unused(unused, file)
    return Selected(columns, Schema(tuple(inputs), classes), unused, masks)


def _wanted(table, inputs, unused, file, roles):
    """The inputs of a model among the columns that could be inputs; and why others are not used."""
    missing = [name for name in roles.inputs if name not in inputs]
    if missing:
        raise InvalidData(
            f"{file}: expected the inputs of training ({few(roles.inputs)}), {few(map(repr, missing))} "
            f"not found among {few(table)}; add what is missing under its name in training"
        )
    others = (name for name in inputs if name not in roles.inputs)
    return list(roles.inputs), unused | dict.fromkeys(others, NO_INPUT)


def _refuse_other_inputs(table, inputs, file, roles):
    """Raise where inputs hold texts, dates or whatever is no number, naming them all and the first odd cell."""
    other = [table[name] for name in inputs if table[name].kind != NUMBERS]
    if other:
        more = f" and {len(other) - 8} more" * (len(other) > 8)
        drop = " ".join(f"--drop {_quoted(column.name)}" for column in other[:8]) + more
        hint = "" if roles.inputs else f", or leave them out with {drop}"  # a model wants them
        raise InvalidDtype(
            f"{file}: expected numbers in the inputs, got {'; '.join(map(described, other[:8]))}{more}; correct "
            f"them{hint}"
        )


def _quoted(name):
    return name if name.isidentifier() else f"'{name}'"


def _warn_of_roles(inputs, file):
    """Say which inputs are called as a role that nobody gave them."""
    for name in inputs:
        role = name.strip().casefold()
        if role in (*COMPANIONS, "id"):
            warn(f"{file}: {name!r} is taken for an input; say --{role} {name} if it is the {role} of rows")


def _warn_of_unused(unused, file):
    for reason in dict.fromkeys(unused.values()):
        names = few(repr(name) for name, why in unused.items() if why == reason)
        warn(f"{file}: {names} not used: {reason}")


def _of_arrays(arrays, file, roles, mask, part) -> Selected:
    """Arrays of an .npz by their names."""
    own = "X_train" in arrays
    named = arrays.pop(FEATURE_NAMES, None)
    if own:
        arrays = _joined_parts(arrays, file, part)
    for name in roles.drop:
        if name not in arrays or name == "X":
            known = few(other for other in arrays if other != "X")
            raise DataNotFound(f"{file}: expected an array {name!r} to drop, found {known}; correct --drop")
    wanted = {"X": "X"} | ({"y": roles.y} if roles.target else {})
    wanted |= {name: name for name in COMPANIONS if name in arrays}
    wanted |= dict(roles.companions) | ({roles.id: roles.id} if roles.id else {})
    missing = [name for name in wanted.values() if name not in arrays]
    if missing:
        raise DataNotFound(
            f"{file}: expected arrays X and {roles.y}, found {few(arrays)}; name the target with --y"
            if {*missing} <= {"X", roles.y}
            else f"{file}: expected an array {missing[0]!r}, found {few(arrays)}; correct the name"
        )
    columns = {ours: arrays[name] for ours, name in wanted.items() if name not in roles.drop}
    classes: tuple[str, ...] = ()
    X = columns["X"]
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidData(f"{file}: expected X with shape (N, D), got {X.shape}; reshape it")
    for name, values in columns.items():
        if name != "X" and values.ndim != 1:
            what = "target" if name == "y" else "value"
            raise InvalidData(
                f"{file}: expected one {what} per row in {wanted[name]}, got shape {values.shape}; save the wanted "
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
    others = [name for name in arrays if name not in {*wanted.values(), *roles.drop, *masks}]
    unused = dict.fromkeys(roles.drop, "--drop") | dict.fromkeys(others, "no role has that name")
    if not roles.target and roles.y in arrays:
        unused[roles.y] = "the target, --no-target"
    for name, column in columns.items():
        if len(column) != len(columns["X"]):
            raise InvalidData(
                f"{file}: expected {len(columns['X'])} rows in {name} as in X, got {len(column)}; correct the file"
            )
    rows = len(columns["X"])  # arrays of other lengths hold no column: masks, names of classes
    _warn_of_unused({name: why for name, why in unused.items() if arrays[name].shape[:1] == (rows,)}, file)
    return Selected(columns, Schema(columns_of_X, classes), unused, masks, own)


def _input_names(named, X, file):
    """A name for each column of X."""
    if named.dtype.kind not in "USiuf" or named.shape != X.shape[1:]:
        raise InvalidData(
            f"{file}: expected {X.shape[1]} texts in {FEATURE_NAMES}, one for each column of X, got shape "
            f"{named.shape} of type {named.dtype}; correct them, or leave that array out"
        )
    names = tuple(str(name).strip() for name in of_numpy(FEATURE_NAMES, named).values)
    refuse_repeated(names, f"{file}: {FEATURE_NAMES}")
    return names


def _joined_parts(arrays, file, part):
    """The wanted parts of arrays NAME_train and NAME_test, by NAME."""
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
        return labels_of(target, file, y)
    _check_array(y, target, file)
    return target, ()


def _check_array(name, values, file):
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise InvalidDtype(f"{file}: expected numbers in {name}, got dtype {values.dtype}; convert it")
    numbers = values if values.dtype == float else as_float(values, f"{file}: {name}")
    refuse_gaps(numbers, file, name, NO_TARGET if name == "y" else FILL)
