"""Data sets: opened, and checked as far as possible without reading rows.

A data set is a Zarr group (v2 or v3; a path or any URL that Zarr supports) with `X` (N, D), `y` (N,) and optionally
the companions `weight` (multiplicity of a row in the likelihood; scaling, sampling and scores count each row once),
`exposure`, `trials`, `event` and `target_variance`, each (N,). Rows may be appended concurrently: complete rows are
distinguished from rows that only the shape of the arrays announces.
"""

import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.groups import (
    absolute_url,
    chunk_rows,
    find_array,
    missing_chunks,
    open_array,
    open_group,
    whole_rows,
)
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.reader import EntryShape
from bcmdist.data.schema import (
    CLASSES,
    CODING,
    GRID_COORDINATES,
    UNNAMED,
    Schema,
    dimensions,
    recoded,
    refuse_other_classes,
    refuse_repeated,
    taken,
    warn_of_columns,
)
from bcmdist.data.schemes import reader_of
from bcmdist.data.tables.coding import from_json
from bcmdist.data.values import since, unpacked
from bcmdist.errors import (
    BcmdistError,
    DataDamaged,
    DataNotFound,
    InvalidData,
    InvalidDtype,
    MisalignedChunks,
    MissingChunk,
)
from bcmdist.storage.urls import answering


def schema_of(url, group, X, y) -> Schema:
    """Return the schema of a group: column names of the array X, class names of y (if given), and the table coding.

    Raises
    ------
    DataDamaged, InvalidData, InvalidDtype, UnsafeData
    """
    along = dimensions(X)[1]
    columns: tuple[str, ...] = ()
    if along:
        named = find_array(group, url, along)
        if named is not None and named.shape == X.shape[1:]:
            columns = _column_names(named, read_coordinate(group, url, along), f"{url}: {along}")
    listed = [] if y is None else _listed(y, CLASSES, url)
    refuse_repeated(listed, f"{url}: {CLASSES}", of="class")
    coded = X.attrs.get(CODING)
    coding = None if coded is None else from_json(coded, f"{url}: {CODING}")
    return Schema(columns, tuple(listed), coding, tuple(_listed(X, GRID_COORDINATES, url)))


def _listed(array, attribute, url) -> list[str]:
    """Return the names in an attribute of an array; [] without it."""
    names = array.attrs.get(attribute, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        where = array.basename or "the array"
        raise DataDamaged(
            f"{url}: expected a list of names in the attribute {attribute!r} of {where}, got {names!r}; correct it"
        )
    return names


def _column_names(array, values, where):
    """Return unpacked coordinate values as names. Dates include their unit, whose reference day differs by file."""
    units = since(array)
    names = tuple(f"{value} {units}" if units else str(value) for value in unpacked(array, values, where).tolist())
    refuse_repeated(names, where)
    return names


def read_coordinate(group, url, name, rows=slice(None)) -> np.ndarray:
    """Return values of a coordinate, numbers or texts, as stored.

    Raises
    ------
    DataDamaged, DataNotFound, InvalidDtype, UnsafeData
    """
    array = find_array(group, url, name)
    if array is None:
        raise DataNotFound(f"{url}: expected a coordinate {name!r}, found none; restore it from a copy")
    group.store.encoding(array.path)  # raises if the encoding is not supported
    if array.dtype.kind not in "fiubmMUTSO":
        raise InvalidDtype(f"{url}: expected numbers or texts in the coordinate {name}, got {array.dtype}; convert it")
    try:
        with answering(url), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr's, about fixed-length texts, which its specification lacks
            return np.asarray(array[rows])
    except BcmdistError:
        raise
    except Exception as error:  # any error of zarr
        raise DataDamaged(f"{url}: the coordinate {name} cannot be read ({error}); restore it from a copy") from error


# Optional arrays besides the targets, in the order of the fields of `Observations`.
COMPANIONS = ("weight", "exposure", "trials", "event", TARGET_VARIANCE)

# Name of the array of input errors of X: variances (N, D) or covariances (N, D, D) of normal errors.
VARIANCE = "{}_variance"

# All optional arrays besides X and y.
OPTIONAL_ARRAYS = (*COMPANIONS, VARIANCE.format("X"))

# Attribute of groups that bcmdist wrote: every chunk was stored, so a missing chunk was lost.
ALL_STORED = "bcmdist_all_chunks_stored"

# Attribute of groups to which rows are appended: the number of rows written, whatever the shape of the arrays. A
# writer resizes, writes, and then advances this number; readers ignore rows beyond it.
ROWS_COMPLETE = "rows_complete"


@dataclass(frozen=True)
class Dataset:
    """A data set that was opened and checked."""

    url: str
    x: str
    y: str | None
    """None if only inputs are read"""
    rows: int
    inputs: int
    """number of columns of X that are read"""
    chunk_rows: int
    """rows per chunk of X (per shard, if X has shards)"""
    companions: tuple[str, ...]
    """members of `COMPANIONS` that the data set has"""
    kept: str = ""
    """content name under which workers cache the rows of its partitions; "" for no cache. For small data sets that are
    read many times."""
    chunk_bytes: int = 0
    """size of the largest chunk of its arrays, decoded"""
    take: tuple[int, ...] = ()
    """columns of X to read, in this order; () for all columns as stored"""
    recode: tuple[int, ...] = ()
    """number in the model of each class 0 to C - 1 of y; () if the numbers agree"""
    variance: str = ""
    """name of the array of input variances (`VARIANCE`); "" if absent or not requested"""


def open_data(
    url: Any, *, x: str = "X", y: str | None = "y", schema: Schema = UNNAMED, uncertain: bool = False
) -> Dataset:
    """Open a data set, or an entry (`bcmdist.data.reader`), with all checks that need no rows.

    For a data set that is being appended to, `rows` counts the written rows (`ROWS_COMPLETE`).

    Parameters
    ----------
    url : path or URL of a Zarr group, or URL of an entry of a stream
    x : name of the array of inputs, (N, D)
    y : name of the array of targets, (N,); None opens only the inputs
    schema : names of a model's inputs and classes; columns are read in its order
    uncertain : also read the variances of the inputs, if the data set has any

    Returns
    -------
    The data set. Its rows are read later, partition by partition.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, MisalignedChunks
        There is no such group, or its arrays do not fit together.
    MissingChunk, SourceUnreachable, UnsafeData
        Of an entry.

    Examples
    --------
    >>> bcmdist.write_dataset("opened.zarr", {"X": X, "y": y})
    >>> data = bcmdist.open_data("opened.zarr")
    >>> data.rows, data.inputs
    (80, 2)
    """
    if reader := reader_of(url):
        return entry_data(url, x, y, reader.shape(url, x, y, COMPANIONS), schema)
    group, arrays, rows = _open_whole(url, x, y, uncertain)
    found = UNNAMED if schema == UNNAMED else _names(url, x, y, group, arrays)
    return _data(url, x, y, group, arrays, rows, found, schema)


def open_named(url, *, x="X", y="y", schema, uncertain=False) -> Dataset:
    """Open a data set like `open_data`, and check the names of its columns and classes (`check_names`)."""
    if reader := reader_of(url):
        entry = reader.shape(url, x, y, COMPANIONS)
        data, found = entry_data(url, x, y, entry, schema), Schema(entry.columns)
    else:
        group, arrays, rows = _open_whole(url, x, y, uncertain)
        found = _names(url, x, y, group, arrays)
        data = _data(url, x, y, group, arrays, rows, found, schema)
    _check_names(data, found, schema)
    return data


def _open_whole(url, x, y, uncertain):
    """Return the group, its arrays by name, and the number of rows, after all checks that need no rows."""
    group, arrays = _open_arrays(url, x, y)
    variance = VARIANCE.format(x)
    if uncertain and find_array(group, url, variance) is not None:
        arrays[variance] = open_array(group, url, variance)
        _check_variance(url, x, arrays[x], variance, arrays[variance])
    complete = complete_rows(group, url)
    rows = arrays[x].shape[0] if complete is None else complete
    for name, array in arrays.items():
        if array.shape[0] != rows if complete is None else array.shape[0] < rows:
            raise InvalidData(
                f"{url}: expected {rows} rows in {name} as in {x}, got {array.shape[0]}; they must be the same rows"
            )
        if group.attrs.get(ALL_STORED):
            with answering(url):
                _refuse_missing_chunks(url, name, array, rows, group.store)
    if rows == 0 or arrays[x].shape[1] == 0:
        raise InvalidData(
            f"{url}: expected at least one row and one column in {x}, got shape {(rows, arrays[x].shape[1])}; add data"
        )
    return group, arrays, rows


def entry_data(url, x, y, entry: EntryShape, schema) -> Dataset:
    """Return an entry as a data set."""
    take = taken(Schema(entry.columns), schema, url)
    return Dataset(url, x, y, entry.rows, len(take) or entry.inputs, entry.rows, entry.companions, take=take)


def open_growing(url, *, x="X", y="y", schema=UNNAMED, start=0, most=None) -> Dataset:
    """Open a data set to which rows may be appended concurrently; `rows` counts only rows that are certainly complete.

    This is the group's `ROWS_COMPLETE` if it has one. Otherwise it is the rows of whole chunks that are stored in all
    arrays, because zarr reads a missing chunk as zeros. Rows before `start` are assumed to be complete; rows from
    `start + most` on are not examined. Otherwise as `open_data`.

    Raises
    ------
    DataNotFound, DataDamaged, InvalidData, InvalidDtype, MisalignedChunks, UnsafeData
    """
    group, arrays = _open_arrays(url, x, y)
    rows = min(array.shape[0] for array in arrays.values())
    complete = complete_rows(group, url)
    if complete is not None:
        rows = min(rows, complete)
    elif start < rows:
        stop = rows if most is None else min(rows, start + most)
        rows = min(whole_rows(array, start, stop) for array in arrays.values())
    found = UNNAMED if schema == UNNAMED else _names(url, x, y, group, arrays)
    return _data(url, x, y, group, arrays, rows, found, schema)


def complete_rows(group, url) -> int | None:
    """Return the number of written rows from the group's `ROWS_COMPLETE`; None if the group does not have it."""
    rows = group.attrs.get(ROWS_COMPLETE)
    if rows is not None and (type(rows) is not int or rows < 0):
        raise DataDamaged(
            f"{url}: expected a number of rows in the attribute {ROWS_COMPLETE!r}, got {rows!r}; write there how many "
            "rows are complete"
        )
    return rows


def announced_rows(url, *, x="X") -> int:
    """Return the number of rows that the shape of X announces, written or not."""
    return open_array(open_group(url), url, x).shape[0]


def missing_chunk(url, *, x="X", y="y") -> str | None:
    """Return the key of the first chunk of a data set that is not stored; None if all are stored."""
    group, arrays = _open_arrays(url, x, y)
    missing = (key for array in arrays.values() for key in missing_chunks(array, array.shape[0], group.store))
    return next(missing, None)


def _open_arrays(url, x, y):
    """Return the group and its arrays X, y and companions by name, each checked individually."""
    group = open_group(url)
    X = open_array(group, url, x)
    if X.ndim != 2:
        raise InvalidData(f"{url}: expected {x} with shape (N, D), got {X.shape}; store one row per observation")
    arrays = {x: X}
    for name in [y] * (y is not None) + [name for name in COMPANIONS if find_array(group, url, name) is not None]:
        arrays[name] = open_array(group, url, name)
        _check_companion(url, x, X, name, arrays[name])
    return group, arrays


def _names(url, x, y, group, arrays) -> Schema:
    """Return the names of the columns and classes of an opened group."""
    return schema_of(url, group, arrays[x], None if y is None else arrays[y])


def _data(url, x, y, group, arrays, rows, found, schema):
    companions = tuple(name for name in COMPANIONS if name in arrays)
    chunk_bytes = max(group.store.encoding(array.path).decoded_bytes for array in arrays.values())
    X, variance = arrays[x], VARIANCE.format(x)
    take, recode = taken(found, schema, f"{url}: {x}"), recoded(found, schema)
    inputs = len(take) or X.shape[1]
    named = {"chunk_bytes": chunk_bytes, "take": take, "recode": recode}
    named["variance"] = variance if variance in arrays else ""
    return Dataset(absolute_url(url), x, y, rows, inputs, chunk_rows(X), companions, **named)


def read_schema(url, *, x="X", y: str | None = None) -> Schema:
    """Return the names of the inputs of a data set, and of its classes if `y` names its targets.

    Raises
    ------
    As `open_data`.
    """
    if reader := reader_of(url):
        return Schema(reader.shape(url, x, y, COMPANIONS).columns)
    group = open_group(url)
    return schema_of(url, group, open_array(group, url, x), None if y is None else open_array(group, url, y))


def check_names(data: Dataset, schema: Schema) -> None:
    """Warn of columns that a model does not use, and of names that cannot be checked.

    Raises
    ------
    InvalidData
        Classes have names in only one of the two.
    """
    _check_names(data, read_schema(data.url, x=data.x, y=data.y), schema)


def _check_names(data, found, schema):
    warn_of_columns(found, schema, data.url)
    if data.y is not None:
        refuse_other_classes(found, schema, f"{data.url}: {data.y}")


def describe(url, x, y) -> str:
    """Return the shape of a data set in words, for comparison between workers: all must see the same."""
    data = open_data(url, x=x, y=y)
    return f"{data.x} with {data.rows} rows, {data.inputs} columns, {data.chunk_rows} rows per chunk"


def _refuse_missing_chunks(url, name, array, rows, store):
    """Raise `MissingChunk` before any work begins if chunks of the first rows are missing, in groups where every chunk
    was stored. A reader would notice it later in any case."""
    missing = list(itertools.islice(missing_chunks(array, rows, store), 3))
    if missing:
        raise MissingChunk(
            f"{url}: expected all chunks of {name}, some are missing (key {', '.join(missing)}); restore them from a "
            "copy"
        )


def _check_companion(url, x, X, name, array):
    if array.ndim != 1:
        raise InvalidData(
            f"{url}: expected {name} with shape (N,), got {array.shape}; store one target per array and choose "
            "it with --y"
        )
    _refuse_chunks(url, x, X, name, array)


def _check_variance(url, x, X, name, array):
    N, D = X.shape
    if array.shape[1:] not in ((D,), (D, D)):
        raise InvalidData(
            f"{url}: expected {name} with shape ({N}, {D}), a variance for each input, or ({N}, {D}, {D}), covariances,"
            f" got {array.shape}; correct or remove it"
        )
    _refuse_chunks(url, x, X, name, array)


def _refuse_chunks(url, x, X, name, array):
    ours, theirs = chunk_rows(X), chunk_rows(array)
    if max(ours, theirs) % min(ours, theirs) and min(ours, theirs) < X.shape[0]:
        raise MisalignedChunks(
            f"{url}: expected chunks of {name} that nest with the {ours} rows per chunk of {x}, got {theirs} "
            f"rows; rechunk {name} to {ours} rows"
        )
