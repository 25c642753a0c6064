"""Schema: names of the inputs and of the classes of a data set, and where a model's names stand in it.

Inputs have names where the second dimension of X has a coordinate, as xarray writes it: an array of texts or numbers,
one for each column. Classes have names where y holds numbers 0 to C - 1 and its attribute `classes` lists them.

    a model's names      a b c          classes no yes
    a data set's         c a d b        classes yes maybe no
    take                 1 3 0          recode 1 2 0       (classes that the model does not know follow its own)
"""

import warnings
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.tables.coding import Coding
from bcmdist.data.values import LARGEST_INTEGER, as_float
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidDtype

# Attribute of the targets: names of the classes 0 to C - 1.
CLASSES = "classes"
# Attribute of the inputs: how the columns of a table became them.
CODING = "coding"
# More inputs are a mistake or a lie: default fits of 60 rows and so many need 12 GB.
MOST_COLUMNS = 20_000


@dataclass(frozen=True)
class Schema:
    """Names; empty where there are none."""

    columns: tuple[str, ...] = ()
    """of the inputs, (D,)"""
    classes: tuple[str, ...] = ()
    """of the classes 0 to C - 1"""
    coding: Coding | None = None
    """how the columns of a table became the inputs, where they came from one"""

    def __post_init__(self):
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))

    @property
    def groups(self) -> tuple[int, ...]:
        """The first of the inputs that each shares its lengthscale with, (D,); () where each has its own."""
        return self.coding.groups if self.coding else ()

    def column(self, number) -> str:
        """What to call a column in a message."""
        return f"column {number}" + (f" ({self.columns[number]!r})" if self.columns else "")


UNNAMED = Schema()

# Why a column is not used.
NO_INPUT = "no input of the model has that name"


def dimensions(array) -> tuple[str | None, ...]:
    """Names of the dimensions of a Zarr array, of either format; None where one has no name."""
    if array.metadata.zarr_format == 3:
        return array.metadata.dimension_names or (None,) * array.ndim
    named = array.attrs.get("_ARRAY_DIMENSIONS")
    valid = isinstance(named, list) and len(named) == array.ndim and all(isinstance(name, str) for name in named)
    return tuple(named) if valid else (None,) * array.ndim


def refuse_repeated(names, where, *, of="column") -> None:
    """Raise `InvalidData` where two columns, or classes, have one name, or one that is no Unicode text."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidData(f"{where}: expected a name of its own for each {of}, {repeated[0]!r} is there twice; rename")
    odd = [name for name in map(str, names) if name != name.encode(errors="replace").decode()]
    if odd:
        raise InvalidData(f"{where}: expected names of Unicode text, got {odd[0]!r:.80}; rename")


def refuse_many_columns(count, where) -> None:
    """Raise `InvalidData` where a table has more columns than any model takes."""
    if count > MOST_COLUMNS:
        raise InvalidData(
            f"{where}: expected at most {MOST_COLUMNS:,} columns, got {count:,}; leave out those that say least"
        )


def taken(found: Schema, wanted: Schema, where) -> tuple[int, ...]:
    """Where a model's inputs stand among those of a data set; () where as they are, or where one has no names.

    Raises
    ------
    InvalidData
        Some are not there.
    """
    if not found.columns or not wanted.columns or found.columns == wanted.columns:
        return ()
    place = {name: number for number, name in enumerate(found.columns)}
    missing = [name for name in wanted.columns if name not in place]
    if missing:
        other = [name for name in found.columns if name not in wanted.columns]
        raise InvalidData(
            f"{where}: expected the inputs of training, {_listed(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f"there{f' (but {_listed(other)})' if other else ''}; add what is missing under its name in training"
        )
    return tuple(place[name] for name in wanted.columns)


def refuse_other_classes(found: Schema, wanted: Schema, where) -> None:
    """Raise `InvalidData` where classes have names on one side only."""
    if bool(found.classes) != bool(wanted.classes):
        words = ("class names as in training", "numbers") if wanted.classes else ("numbers as in training", "names")
        raise InvalidData(f"{where}: expected {words[0]}, got {words[1]}; give targets of the same kind")


def recoded(found: Schema, wanted: Schema) -> tuple[int, ...]:
    """Numbers in a model of the classes of a data set; () where as they are, or where one has no names."""
    if not found.classes or not wanted.classes or found.classes == wanted.classes:
        return ()
    known = {name: number for number, name in enumerate(merged_classes(found, wanted))}
    return tuple(known[name] for name in found.classes)


def with_two_classes(schema: Schema) -> Schema:
    """Names of two classes where only one was seen: it, and what is not it."""
    return (
        replace(schema, classes=(*schema.classes, f"not {schema.classes[0]}")) if len(schema.classes) == 1 else schema
    )


def merged_classes(found: Schema, wanted: Schema) -> tuple[str, ...]:
    """A model's classes, and after them those that only a data set has."""
    return (*wanted.classes, *(name for name in found.classes if name not in wanted.classes))


def warn_of_columns(found: Schema, wanted: Schema, where) -> None:
    """Say which columns a model does not use, and where names cannot be checked."""
    if not found.columns and not wanted.columns:
        return
    unused = unused_columns(found, wanted)
    if unused:
        warn(f"{where}: {_listed(unused)} not used: {NO_INPUT}")
    if not found.columns:
        warn(f"{where}: its columns have no names, they are taken for {_listed(wanted.columns)} in this order")
    if not wanted.columns:
        warn(f"{where}: the model knows no names, its inputs are taken to be {_listed(found.columns)} in this order")


def unused_columns(found: Schema, wanted: Schema) -> list[str]:
    """Names of columns that are no inputs of a model with names."""
    known = set(wanted.columns)
    return [name for name in found.columns if name not in known] if known else []


def is_text(values) -> bool:
    """Whether all of an array are texts."""
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and all(isinstance(v, str) for v in values.flat))


def class_codes(labels, where) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers (n,) of text labels (n,), and the names of the classes, sorted; blanks around labels do not count.

    Raises
    ------
    InvalidData
        A label is empty.
    """
    names, codes = np.unique(np.strings.strip(np.asarray(labels, dtype=str)), return_inverse=True)
    if len(names) and names[0] == "":
        row = np.flatnonzero(codes.reshape(-1) == 0)[0]
        raise InvalidData(f"{where}: expected a label in each row, none at row {row}; fill or drop these rows")
    refuse_repeated(names.tolist(), where, of="class")
    return codes.reshape(-1), tuple(names.tolist())


def in_order(X, schema: Schema) -> np.ndarray:
    """Numbers of a table X (n, D) in the order of a model's columns: by name where X is a data frame.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    found = Schema(frame_names(X))
    columns = taken(found, schema, "X")
    if found.columns:
        warn_of_columns(found, schema, "X")
    if columns:
        labels = tuple(X.columns)
        X = X[[labels[k] for k in columns]]
    return as_table(X)


def frame_names(X) -> tuple[str, ...]:
    """Names of the columns of a data frame; () of what is none, or only counts them.

    Raises
    ------
    InvalidData
        Two columns have one name.
    InvalidDtype
        It is a table of another kind.
    """
    labels = tuple(getattr(X, "columns", ()))
    if not all(isinstance(label, Hashable) for label in labels):
        raise InvalidDtype(f"X: expected an array or a data frame, got {type(X).__name__}; convert it")
    names = () if labels == tuple(range(len(labels))) else tuple(map(str, labels))
    refuse_repeated(names, "X")
    return names


def as_table(X) -> np.ndarray:
    """An array or a data frame as an array (n, D), of one type where its columns are numbers of several.

    Raises
    ------
    InvalidDtype
        Columns are no numbers, or it is no table.
    """
    try:
        values = np.asarray(X)
    except (TypeError, ValueError) as error:
        raise InvalidDtype(
            f"X: expected an array or a data frame, got {type(X).__name__} ({' '.join(str(error).split())}); convert it"
        ) from error
    whole = values.dtype.kind in "iub" or (values.dtype.kind == "f" and np.all(np.abs(values) < LARGEST_INTEGER))
    if whole or not hasattr(X, "columns"):  # else integers of one column may have been rounded beside another
        return values
    columns = {str(label): np.asarray(X[label]) for label in X.columns}
    odd = tuple(name for name, column in columns.items() if column.dtype.kind not in "fiub")
    if odd:
        raise InvalidDtype(f"X: expected numbers without gaps, got others in {_listed(odd)}; fill, code or drop them")
    return np.column_stack([as_float(column, f"X: {name!r}") for name, column in columns.items()])


def few(words, most=8) -> str:
    """The first of many words, each cut to 80 characters."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(f"{word:.80}" for word in words[:most]) + more


def _listed(names):
    return few(map(repr, names))


def warn(text) -> None:
    """A `BcmdistWarning`, from where the user called."""
    warnings.warn(BcmdistWarning(text), stacklevel=4)
