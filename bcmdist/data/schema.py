"""Schema: names of the inputs and classes of a data set, and their mapping to the names of a model.

Inputs have names if the second dimension of X has a coordinate, as xarray writes it: an array of texts or numbers,
one for each column. Classes have names if y holds numbers 0 to C - 1 and its attribute `classes` lists the names.

    a model's names      a b c          classes no yes
    a data set's         c a d b        classes yes maybe no
    take                 1 3 0          recode 1 2 0       (classes unknown to the model follow its own)
"""

import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np

from bcmdist.data.tables.coding import OUTPUT, Coding
from bcmdist.data.values import LARGEST_INTEGER, as_float
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidDtype

# Attribute of the targets: names of the classes 0 to C - 1.
CLASSES = "classes"
# Attribute of the inputs: how they were made from the columns of a table.
CODING = "coding"
# Attribute of the inputs: names of those that were coordinates of a grid.
GRID_COORDINATES = "grid_coordinates"
# More inputs indicate a mistake: a default fit of 60 rows with this many needs 12 GB.
MOST_COLUMNS = 20_000


@dataclass(frozen=True)
class Schema:
    """Names of inputs and classes; empty if there are none."""

    columns: tuple[str, ...] = ()
    """names of the inputs, (D,)"""
    classes: tuple[str, ...] = ()
    """names of the classes 0 to C - 1"""
    coding: Coding | None = None
    """how the inputs were made from the columns of a table; None if they were not"""
    coordinates: tuple[str, ...] = field(default=(), compare=False)
    """names of the inputs that were coordinates of a grid; not of a model, which does not read them again"""

    def __post_init__(self):
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))

    @property
    def groups(self) -> tuple[int, ...]:
        """Inputs that share a lengthscale, as `Coding.groups`, (D,); () if each has its own."""
        return self.coding.groups if self.coding else ()

    @property
    def gaps(self) -> tuple[int, ...]:
        """Numbers of the inputs that mark missing values of a column."""
        marks = self.coding.indicators if self.coding else ()
        return tuple(number for number, name in enumerate(self.columns) if name in marks)

    @property
    def output(self) -> str | None:
        """Name of the column that names the output of a row, where rows observe several."""
        return dict(self.coding.roles).get(OUTPUT) if self.coding else None

    @property
    def output_inputs(self) -> tuple[str, ...]:
        """Names of the inputs of that column, one for each output; () if there is none."""
        codes = self.coding.codes if self.coding else ()
        return next((code.inputs for code in codes if code.name == self.output), ())

    def column(self, number) -> str:
        """Return the description of a column for messages."""
        return f"column {number}" + (f" ({self.columns[number]!r})" if self.columns else "")


UNNAMED = Schema()

# Reason for which a column is not used.
NO_INPUT = "no input of the model has that name"


def dimensions(array) -> tuple[str | None, ...]:
    """Return the names of the dimensions of a Zarr array (v2 or v3); None for a dimension without a name."""
    if array.metadata.zarr_format == 3:
        return array.metadata.dimension_names or (None,) * array.ndim
    named = array.attrs.get("_ARRAY_DIMENSIONS")
    valid = isinstance(named, list) and len(named) == array.ndim and all(isinstance(name, str) for name in named)
    return tuple(named) if valid else (None,) * array.ndim


def refuse_repeated(names, where, *, of="column") -> None:
    """Raise `InvalidData` if two columns, or classes, have the same name, or a name is not valid Unicode."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidData(f"{where}: expected a name of its own for each {of}, {repeated[0]!r} is there twice; rename")
    odd = [name for name in map(str, names) if name != name.encode(errors="replace").decode()]
    if odd:
        raise InvalidData(f"{where}: expected names of Unicode text, got {odd[0]!r:.80}; rename")


def refuse_many_columns(count, where) -> None:
    """Raise `InvalidData` if a table has more columns than a model supports."""
    if count > MOST_COLUMNS:
        raise InvalidData(
            f"{where}: expected at most {MOST_COLUMNS:,} columns, got {count:,}; leave out those that say least"
        )


def taken(found: Schema, expected: Schema, where) -> tuple[int, ...]:
    """Return the positions of a model's inputs in a data set; () if the names are equal, or if either has no names.

    Raises
    ------
    InvalidData
        The data set lacks some inputs.
    """
    if not found.columns or not expected.columns or found.columns == expected.columns:
        return ()
    place = {name: number for number, name in enumerate(found.columns)}
    missing = [name for name in expected.columns if name not in place]
    if missing:
        other = [name for name in found.columns if name not in expected.columns]
        raise InvalidData(
            f"{where}: expected the inputs of training, {_listed(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f"there{f' (but {_listed(other)})' if other else ''}; add what is missing under its name in training"
        )
    return tuple(place[name] for name in expected.columns)


def refuse_other_classes(found: Schema, expected: Schema, where) -> None:
    """Raise `InvalidData` if classes have names in only one of the two."""
    if bool(found.classes) != bool(expected.classes):
        words = ("class names as in training", "numbers") if expected.classes else ("numbers as in training", "names")
        raise InvalidData(f"{where}: expected {words[0]}, got {words[1]}; give targets of the same kind")


def recoded(found: Schema, expected: Schema) -> tuple[int, ...]:
    """Return the model's number of each class of a data set; () if the names are equal, or if either has no names."""
    if not found.classes or not expected.classes or found.classes == expected.classes:
        return ()
    numbers = {name: number for number, name in enumerate(merged_classes(found, expected))}
    return tuple(numbers[name] for name in found.classes)


def with_two_classes(schema: Schema) -> Schema:
    """If only one class was seen, add a second one named "not ..."."""
    return (
        replace(schema, classes=(*schema.classes, f"not {schema.classes[0]}")) if len(schema.classes) == 1 else schema
    )


def merged_classes(found: Schema, expected: Schema) -> tuple[str, ...]:
    """Return a model's classes, followed by those that only the data set has."""
    return (*expected.classes, *(name for name in found.classes if name not in expected.classes))


def warn_of_columns(found: Schema, expected: Schema, where) -> None:
    """Warn of columns that a model does not use, and of names that cannot be checked."""
    if not found.columns and not expected.columns:
        return
    unused = unused_columns(found, expected)
    if unused:
        warn(f"{where}: {_listed(unused)} not used: {NO_INPUT}")
    if not found.columns:
        warn(f"{where}: its columns have no names, they are taken for {_listed(expected.columns)} in this order")
    if not expected.columns:
        warn(f"{where}: the model knows no names, its inputs are taken to be {_listed(found.columns)} in this order")


def unused_columns(found: Schema, expected: Schema) -> list[str]:
    """Return the names of columns that are not inputs of a model; empty if the model has no names."""
    used = set(expected.columns)
    return [name for name in found.columns if name not in used] if used else []


def is_text(values) -> bool:
    """Return whether all elements of an array are texts."""
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and all(isinstance(v, str) for v in values.flat))


def class_codes(labels, where) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class numbers (n,) of text labels (n,), and the sorted class names; surrounding blanks are ignored.

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
    """Return a table X (n, D) in the order of a model's columns, matched by name if X is a data frame.

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
    """Return the column names of a data frame; () for an array, or if the labels are just 0 to D - 1.

    Raises
    ------
    InvalidData
        Two columns have the same name.
    InvalidDtype
        X is a table of another kind.
    """
    labels = tuple(getattr(X, "columns", ()))
    if not all(isinstance(label, Hashable) for label in labels):
        raise InvalidDtype(f"X: expected an array or a data frame, got {type(X).__name__}; convert it")
    names = () if labels == tuple(range(len(labels))) else tuple(map(str, labels))
    refuse_repeated(names, "X")
    return names


def as_table(X) -> np.ndarray:
    """Convert an array or a data frame to an array (n, D), of one dtype if its columns are numbers of several.

    Raises
    ------
    InvalidDtype
        Columns are not numeric, or X is not a table.
    """
    try:
        values = np.asarray(X)
    except (TypeError, ValueError) as error:
        raise InvalidDtype(
            f"X: expected an array or a data frame, got {type(X).__name__} ({' '.join(str(error).split())}); convert it"
        ) from error
    whole = values.dtype.kind in "iub" or (values.dtype.kind == "f" and np.all(np.abs(values) < LARGEST_INTEGER))
    if whole or not hasattr(X, "columns"):  # otherwise a common dtype may have rounded large integers
        return values
    columns = {str(label): np.asarray(X[label]) for label in X.columns}
    odd = tuple(name for name, column in columns.items() if column.dtype.kind not in "fiub")
    if odd:
        raise InvalidDtype(f"X: expected numbers without gaps, got others in {_listed(odd)}; fill, code or drop them")
    return np.column_stack([as_float(column, f"X: {name!r}") for name, column in columns.items()])


def few(words: Iterable[str], most: int = 8) -> str:
    """Join the first `most` words, each cut to 80 characters."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(f"{word:.80}" for word in words[:most]) + more


def found_instead(name: str, names: Collection[str]) -> str:
    """List the names that were found, those most like `name` and the last one (often a target) among the first."""
    names = list(names)
    like = get_close_matches(name.casefold(), [one.casefold() for one in names], n=3, cutoff=0.7)
    first = [one for one in names if one.casefold() in like]
    ordered = list(dict.fromkeys([*first, *names[:6], *names[-1:], *names]))
    hint = f" (did you mean {first[0]!r}?)" if first else ""
    return few(ordered) + hint


def _listed(names):
    return few(map(repr, names))


def warn(text: str) -> None:
    """Issue a `BcmdistWarning` at the line of the user's call."""
    warnings.warn(BcmdistWarning(text), stacklevel=4)
