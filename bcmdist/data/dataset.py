"""Data sets: opened, and checked as far as can be without reading rows.

A data set is a Zarr group (v2 or v3; a path or any URL Zarr understands) with `X` (N, D), `y`
(N,) and optionally the companions `weight` (how many rows a row counts for in the likelihood; scaling,
sampling and scores count each row once), `exposure`, `trials` and `event`, each (N,). Rows may be being added: those
that are complete are told from those that are announced.
"""

import itertools
from dataclasses import dataclass, replace

from bcmdist.data.coordinates import schema_of
from bcmdist.data.groups import (
    absolute_url,
    chunk_rows,
    find_array,
    missing_chunks,
    open_array,
    open_group,
    whole_rows,
)
from bcmdist.data.reader import EntryShape
from bcmdist.data.schema import UNNAMED, Schema, recoded, refuse_other_classes, taken, warn_of_columns
from bcmdist.data.schemes import reader_of
from bcmdist.errors import (
    DataDamaged,
    InvalidData,
    MisalignedChunks,
    MissingChunk,
)
from bcmdist.storage.urls import answering

# Arrays that may stand beside the targets, in the order of the fields of `Observations`.
COMPANIONS = ("weight", "exposure", "trials", "event")

# Beside inputs X, how much they may be off: variances (N, D) or covariances (N, D, D) of errors that are normal.
VARIANCE = "{}_variance"

# All that may stand beside rows in arrays X and y.
BESIDE = (*COMPANIONS, VARIANCE.format("X"))

# Attribute of groups that we wrote: every chunk was stored, so one that is not there was lost.
ALL_STORED = "bcmdist_all_chunks_stored"

# Attribute of groups to which rows are appended: so many are written, whatever the shape of the arrays says. A writer
# that resizes first and writes then advances it last; rows beyond it do not exist yet for whoever reads.
ROWS_COMPLETE = "rows_complete"


@dataclass(frozen=True)
class Dataset:
    """A data set that was opened and found to be one."""

    url: str
    x: str
    y: str | None
    """None where only inputs are wanted"""
    rows: int
    inputs: int
    """columns of X that are read"""
    chunk_rows: int
    """rows per chunk (per shard, where there are shards) of X"""
    companions: tuple[str, ...]
    """those of `COMPANIONS` that are there"""
    kept: str = ""
    """where given, whoever reads its partitions keeps their rows under this name of their content: few, and read again
    and again"""
    chunk_bytes: int = 0
    """of the largest chunk of its arrays, decoded"""
    take: tuple[int, ...] = ()
    """columns of X to read, in this order; () for all as they are stored"""
    recode: tuple[int, ...] = ()
    """what the classes 0 to C - 1 of y are called by the model that it is read for; () where they are the same"""
    variance: str = ""
    """name of the array of the variances of inputs (`VARIANCE`), where there is one and it is wanted"""


def open_data(url, *, x="X", y="y", schema=UNNAMED, uncertain=False) -> Dataset:
    """Open a data set, or an entry (`bcmdist.data.reader`), and check all that can be checked without reading rows.

    `y=None` opens it for its inputs only. Where rows are being appended, `rows` are those written (`ROWS_COMPLETE`).
    `schema`: names of a model's inputs and classes, in whose order its columns are read. `uncertain`: whether variances
    of its inputs are wanted, where there are any.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, MisalignedChunks; of an entry also MissingChunk, SourceUnreachable,
    UnsafeData
    """
    if reader := reader_of(url):
        return entry_data(url, x, y, reader.shape(url, x, y, COMPANIONS), schema)
    group, arrays = _open_arrays(url, x, y)
    variance = VARIANCE.format(x)
    uncertain = uncertain and find_array(group, url, variance) is not None
    if uncertain:
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
    data = _data(url, x, y, group, arrays, rows, schema)
    return replace(data, variance=variance) if uncertain else data


def entry_data(url, x, y, entry: EntryShape, schema) -> Dataset:
    """An entry as a data set."""
    take = taken(Schema(entry.columns), schema, url)
    return Dataset(url, x, y, entry.rows, len(take) or entry.inputs, entry.rows, entry.companions, take=take)


def open_growing(url, *, x="X", y="y", schema=UNNAMED, start=0, most=None) -> Dataset:
    """As `open_data`, of a data set to which somebody may be adding rows; `rows` are those certainly complete.

    These are the rows that the group's `ROWS_COMPLETE` counts. Where it has none, rows of whole chunks that are stored
    in all arrays: zarr reads a chunk that is not there yet as zeros. Rows before `start` are taken to be complete, and
    those from `start + most` on are not looked at.

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
        wanted = rows if most is None else min(rows, start + most)
        rows = min(whole_rows(array, start, wanted) for array in arrays.values())
    return _data(url, x, y, group, arrays, rows, schema)


def complete_rows(group, url) -> int | None:
    """Rows that are written, as whoever appends them says; None where nobody does."""
    rows = group.attrs.get(ROWS_COMPLETE)
    if rows is not None and (type(rows) is not int or rows < 0):
        raise DataDamaged(
            f"{url}: expected a number of rows in the attribute {ROWS_COMPLETE!r}, got {rows!r}; write there how many "
            "rows are complete"
        )
    return rows


def announced_rows(url, *, x="X") -> int:
    """Rows that a data set has or is getting: those of its shape."""
    return open_array(open_group(url), url, x).shape[0]


def missing_chunk(url, *, x="X", y="y") -> str | None:
    """Name of the first chunk of a data set that is not stored; None where all are."""
    group, arrays = _open_arrays(url, x, y)
    missing = (key for array in arrays.values() for key in missing_chunks(array, array.shape[0], group.store))
    return next(missing, None)


def _open_arrays(url, x, y):
    """Group, and X, y and the companions by name, each right in itself."""
    group = open_group(url)
    X = open_array(group, url, x)
    if X.ndim != 2:
        raise InvalidData(f"{url}: expected {x} with shape (N, D), got {X.shape}; store one row per observation")
    arrays = {x: X}
    for name in [y] * (y is not None) + [name for name in COMPANIONS if find_array(group, url, name) is not None]:
        arrays[name] = open_array(group, url, name)
        _check_companion(url, x, X, name, arrays[name])
    return group, arrays


def _data(url, x, y, group, arrays, rows, schema):
    companions = tuple(name for name in COMPANIONS if name in arrays)
    chunk_bytes = max(group.store.encoding(array.path).decoded_bytes for array in arrays.values())
    X = arrays[x]
    found = UNNAMED if schema == UNNAMED else schema_of(url, group, X, None if y is None else arrays[y])
    take, recode = taken(found, schema, f"{url}: {x}"), recoded(found, schema)
    inputs = len(take) or X.shape[1]
    named = {"chunk_bytes": chunk_bytes, "take": take, "recode": recode}
    return Dataset(absolute_url(url), x, y, rows, inputs, chunk_rows(X), companions, **named)


def read_schema(url, *, x="X", y: str | None = None) -> Schema:
    """Names of the inputs of a data set, and of its classes where `y` names its targets.

    Raises
    ------
    As `open_data`.
    """
    if reader := reader_of(url):
        return Schema(reader.shape(url, x, y, COMPANIONS).columns)
    group = open_group(url)
    return schema_of(url, group, open_array(group, url, x), None if y is None else open_array(group, url, y))


def check_names(data: Dataset, schema: Schema) -> None:
    """Say which columns of a data set a model does not use, and where names cannot be checked.

    Raises
    ------
    InvalidData
        Classes have names on one side only.
    """
    found = read_schema(data.url, x=data.x, y=data.y)
    warn_of_columns(found, schema, data.url)
    if data.y is not None:
        refuse_other_classes(found, schema, f"{data.url}: {data.y}")


def describe(url, x, y) -> str:
    """What a data set looks like, in words: everyone who works on it must see the same."""
    data = open_data(url, x=x, y=y)
    return f"{data.x} with {data.rows} rows, {data.inputs} columns, {data.chunk_rows} rows per chunk"


def _refuse_missing_chunks(url, name, array, rows, store):
    """Where every chunk was stored: see that those of the first rows are there, before work begins; whoever reads sees
    it in any case."""
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
