"""Arrays of a data set: opened, and checked as far as can be without reading rows. The door to Zarr data.

A data set is a Zarr group (v2 or v3; a path or any URL Zarr understands) with `X` (N, D), `y`
(N,) and optionally the companions `weight` (how many rows a row counts for in the likelihood; scaling,
sampling and scores count each row once), `exposure`, `trials` and `event`, each (N,). Rows may be being added: those
that are complete are told from those that are announced.
"""

import itertools
import os
from dataclasses import dataclass
from urllib.parse import unquote

import zarr
from zarr.core.sync import sync
from zarr.storage import LocalStore

from bcmdist.data.checks.checked_store import CheckedStore, safe_name
from bcmdist.data.coordinates import schema_of
from bcmdist.data.reader import EntryShape
from bcmdist.data.schema import UNNAMED, Schema, recoded, refuse_other_classes, taken, warn_of_columns
from bcmdist.data.schemes import reader_of
from bcmdist.data.values import since
from bcmdist.errors import (
    BcmdistError,
    DataDamaged,
    DataNotFound,
    InvalidData,
    InvalidDtype,
    InvalidOption,
    MisalignedChunks,
    MissingChunk,
    MissingExtra,
    UnsafeData,
)
from bcmdist.storage.locate import open_objects
from bcmdist.storage.paths import leads_nowhere
from bcmdist.storage.urls import answering, normal_url, on_objects, refuse_secrets

# Arrays that may stand beside the targets, in the order of the fields of `Observations`.
COMPANIONS = ("weight", "exposure", "trials", "event")

# Attribute of groups that we wrote: every chunk was stored, so one that is not there was lost.
ALL_STORED = "bcmdist_all_chunks_stored"

# Attribute of groups to which rows are appended: so many are written, whatever the shape of the arrays says. A writer
# that resizes first and writes then advances it last; rows beyond it do not exist yet for whoever reads.
ROWS_COMPLETE = "rows_complete"

# More rows are a mistake or a lie.
MOST_ROWS = 10**11


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


def absolute_url(url):
    """The same place under a name that does not depend on the working directory."""
    url = str(url).removeprefix("file://")
    if not url:  # not the working directory, and all that lies there
        raise InvalidOption("data: expected a path or URL, got ''; give one, '.' for the working directory")
    if url != url.encode(errors="replace").decode():  # keys of partitions are text
        raise InvalidOption(f"data: expected a path of Unicode text, got {url!r}; rename it")
    if on_objects(url):
        return normal_url(url)
    refuse_secrets(url)
    return url if "://" in url else os.path.abspath(url)


def group_store(url):
    """What Zarr is given to open a URL: an object store's client, or the URL itself."""
    where = absolute_url(url)
    return zarr.storage.ObjectStore(open_objects(where).store) if on_objects(where) else where


def open_group(url):
    """Zarr group for reading, of which every chunk is checked (`CheckedStore`).

    Raises
    ------
    DataNotFound, InvalidOption, MissingExtra, StorageUnreachable, UnsafeData
    """
    if reader := reader_of(url):
        raise InvalidOption(
            f"data: expected a Zarr data set, {reader.named(url)} is a stream; `bcmdist ingest` hears it"
        )
    where = absolute_url(url)
    if "\0" in where or ("://" in where and ".." in unquote(where).split("/")):
        raise UnsafeData(f"data: expected a path or URL without NUL and '..', got {where!r}; give the place itself")
    try:
        with answering(url):
            if os.path.isdir(where):
                checked = CheckedStore(LocalStore(where, read_only=True))
                return zarr.open_group(checked, mode="r", use_consolidated=False)
            group = zarr.open_group(group_store(where), mode="r", use_consolidated=False)
            return zarr.open_group(CheckedStore(group.store), path=group.path, mode="r", use_consolidated=False)
    except BcmdistError:
        raise
    except ImportError as error:
        raise MissingExtra(f"data: {url} needs a package that is not installed ({error}); pip install it") from error
    except Exception as error:  # whatever zarr makes of what is there
        found = leads_nowhere(where) or f"found none ({type(error).__name__})"
        raise DataNotFound(
            f"data: expected a Zarr group at {url}, {found}; check the path, or make one with "
            "`bcmdist import FILE DATA.zarr`"
        ) from error


def open_data(url, *, x="X", y="y", schema=UNNAMED) -> Dataset:
    """Open a data set, or an entry (`bcmdist.data.reader`), and check all that can be checked without reading rows.

    `y=None` opens it for its inputs only. Where rows are being appended, `rows` are those written (`ROWS_COMPLETE`).
    `schema`: names of a model's inputs and classes, in whose order its columns are read.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, MisalignedChunks; of an entry also MissingChunk, SourceUnreachable,
    UnsafeData
    """
    if reader := reader_of(url):
        return entry_data(url, x, y, reader.shape(url, x, y, COMPANIONS), schema)
    group, arrays = _open_arrays(url, x, y)
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
    return _data(url, x, y, group, arrays, rows, schema)


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
        rows = min(_whole_rows(array, start, wanted) for array in arrays.values())
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
    return _array(open_group(url), url, x).shape[0]


def missing_chunk(url, *, x="X", y="y") -> str | None:
    """Name of the first chunk of a data set that is not stored; None where all are."""
    group, arrays = _open_arrays(url, x, y)
    missing = (key for array in arrays.values() for key in _missing(array, array.shape[0], group.store))
    return next(missing, None)


def _missing(array, rows, store):
    """Keys of chunks of the first rows that are not stored."""
    return store.missing(array.path, (f"{array.path}/{key}" for key in chunk_keys(array, 0, rows)))


def _open_arrays(url, x, y):
    """Group, and X, y and the companions by name, each right in itself."""
    group = open_group(url)
    X = _array(group, url, x)
    if X.ndim != 2:
        raise InvalidData(f"{url}: expected {x} with shape (N, D), got {X.shape}; store one row per observation")
    arrays = {x: X}
    for name in [y] * (y is not None) + [name for name in COMPANIONS if name in group]:
        arrays[name] = _array(group, url, name)
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
    return schema_of(url, group, _array(group, url, x), None if y is None else _array(group, url, y))


def check_names(data: Dataset, schema: Schema):
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


def _array(group, url, name):
    """An array of numbers, whose metadata are believable and whose chunks can be decoded safely."""
    safe_name(name, str(url))
    try:
        with answering(url):
            array = group.get(name)
            names = [] if array is not None else sorted(group.array_keys())  # lists what is being renamed
    except BcmdistError:
        raise
    except Exception as error:  # whatever zarr makes of the metadata
        group.store.refuse_unsafe(f"{group.path}/{name}".lstrip("/"))
        raise DataDamaged(
            f"{url}: the metadata of {name} cannot be read ({error}); restore them from a copy"
        ) from error
    if not isinstance(array, zarr.Array):
        raise DataNotFound(f"{url}: expected an array {name!r}, found {names}; name the array with --x or --y")
    if array.dtype.kind not in "fiub":
        raise InvalidDtype(
            f"{url}: expected real numbers in {name}, got dtype {array.dtype}; convert it to float64 first"
        )
    if units := since(array):
        raise InvalidDtype(
            f"{url}: expected numbers in {name}, got dates ({units}), which count from another day in another file; "
            "store what they mean as numbers, such as the age in days"
        )
    group.store.encoding(array.path)  # raises
    if max(array.shape, default=0) > MOST_ROWS:
        raise UnsafeData(
            f"{url}: expected at most {MOST_ROWS:,} rows and columns in {name}, its metadata declare shape "
            f"{array.shape}; restore them from a copy"
        )
    return array


def _refuse_missing_chunks(url, name, array, rows, store):
    """Where every chunk was stored: see that those of the first rows are there, before work begins; whoever reads sees
    it in any case."""
    missing = list(itertools.islice(_missing(array, rows, store), 3))
    if missing:
        raise MissingChunk(
            f"{url}: expected all chunks of {name}, some are missing (key {', '.join(missing)}); restore them from a "
            "copy"
        )


def chunk_keys(array, start, stop):
    """Keys of the chunks (of the shards, where there are shards) in which rows start to stop lie."""
    shape = array.shards or array.chunks
    along = range(start // shape[0], -(-stop // shape[0]))
    across = itertools.product(*(range(-(-n // size)) for n, size in zip(array.shape[1:], shape[1:], strict=True)))
    return (array.metadata.encode_chunk_key(where) for where in ((k, *c) for c in list(across) for k in along))


def _is_stored(array, key):
    return sync(array.store.exists(f"{array.path}/{key}".lstrip("/")))


def _whole_rows(array, start, stop):
    """Rows in whole chunks that are stored, from the chunk of `start` on, until about `stop`."""
    size = chunk_rows(array)
    first, last = start // size, min(-(-stop // size), array.shape[0] // size)
    for chunk in range(first, last):
        if not all(_is_stored(array, key) for key in chunk_keys(array, chunk * size, (chunk + 1) * size)):
            return chunk * size
    return max(first, last) * size


def chunk_rows(array):
    """Rows per chunk, or per shard where there are shards."""
    return (array.shards or array.chunks)[0]


def _check_companion(url, x, X, name, array):
    if array.ndim != 1:
        raise InvalidData(
            f"{url}: expected {name} with shape (N,), got {array.shape}; store one target per array and choose "
            "it with --y"
        )
    ours, theirs = chunk_rows(X), chunk_rows(array)
    if max(ours, theirs) % min(ours, theirs) and min(ours, theirs) < X.shape[0]:
        raise MisalignedChunks(
            f"{url}: expected chunks of {name} that nest with the {ours} rows per chunk of {x}, got {theirs} "
            f"rows; rechunk {name} to {ours} rows"
        )
