"""Partitions: ranges of rows of chunked Zarr arrays, read and validated. The door to Zarr data.

A data set is a Zarr group (v2 or v3; a path or any URL Zarr understands) with `X` (N, D), `y`
(N,) and optionally the companions `weight` (how many rows a row counts for in the likelihood; scaling,
sampling and scores count each row once), `exposure`, `trials` and `event`, each (N,). One partition is
one expert: a run of whole small chunks, or a range of rows inside a large one. A partition is a
reference, a few hundred bytes; the rows are read by whoever needs them, checked, and named by a hash
of their content.
"""

import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

import zarr
from zarr.storage import LocalStore

from bcmdist.checked import CheckedStore, safe_name
from bcmdist.errors import (
    BcmdistError,
    DataDamaged,
    DataNotFound,
    InvalidData,
    InvalidDtype,
    InvalidOption,
    MemoryLimit,
    MisalignedChunks,
    MissingChunk,
    MissingExtra,
    UnsafeData,
)

# Arrays that may stand beside the targets, in the order of the fields of `Observations`.
COMPANIONS = ("weight", "exposure", "trials", "event")

# Attribute of groups that we wrote: every chunk was stored, so one that is not there was lost.
ALL_STORED = "bcmdist_all_chunks_stored"

# More rows, or partitions, are a mistake or a lie: so many references of a few hundred bytes fill a few gigabytes.
MOST_ROWS = 10**11
MOST_PARTITIONS = 10**7


@dataclass(frozen=True)
class Data:
    """A data set that was opened and found to be one."""

    url: str
    x: str
    y: str | None
    """None where only inputs are wanted"""
    rows: int
    inputs: int
    chunk_rows: int
    """rows per chunk (per shard, where there are shards) of X"""
    companions: tuple[str, ...]
    """those of `COMPANIONS` that are there"""
    kept: str = ""
    """where given, whoever reads its partitions keeps their rows under this name of their content: few, and read again
    and again"""
    chunk_bytes: int = 0
    """of the largest chunk of its arrays, decoded"""


@dataclass(frozen=True)
class Partition:
    """Rows start to stop of a data set; the key outlives restarts."""

    data: Data
    start: int
    stop: int
    weight: float = 1.0
    """how many times its message counts"""
    sites: str = ""
    """hash of the blob with the Gaussian sites of its rows, where expectation propagation has been there"""

    @property
    def rows(self):
        return self.stop - self.start

    @property
    def key(self):
        return f"{self.data.url}/{self.data.x}[{self.start}:{self.stop}]"

    def head(self, rows):
        """The first rows of the partition only."""
        return Partition(self.data, self.start, min(self.stop, self.start + rows))


@dataclass(frozen=True)
class Span:
    """Rows start to stop of an output that is to be written; nothing is read for it."""

    start: int
    stop: int

    @property
    def rows(self):
        return self.stop - self.start

    @property
    def key(self):
        return f"output[{self.start}:{self.stop}]"


Work = Partition | Span


def absolute_url(url):
    """The same place under a name that does not depend on the working directory."""
    url = str(url).removeprefix("file://")
    return url if "://" in url else os.path.abspath(url)


def open_group(url):
    """Zarr group for reading, of which every chunk is checked (`CheckedStore`).

    Raises
    ------
    DataNotFound, MissingExtra, UnsafeData
    """
    where = absolute_url(url)
    if "\0" in where or ("://" in where and ".." in unquote(where).split("/")):
        raise UnsafeData(f"data: expected a path or URL without NUL and '..', got {where!r}; give the place itself")
    try:
        if os.path.isdir(where):
            return zarr.open_group(CheckedStore(LocalStore(where, read_only=True)), mode="r", use_consolidated=False)
        group = zarr.open_group(where, mode="r", use_consolidated=False)
        return zarr.open_group(CheckedStore(group.store), path=group.path, mode="r", use_consolidated=False)
    except BcmdistError:
        raise
    except ImportError as error:
        raise MissingExtra(f"data: {url} needs a package that is not installed ({error}); pip install it") from error
    except Exception as error:  # whatever zarr makes of what is there
        raise DataNotFound(
            f"data: expected a Zarr group at {url}, found none ({type(error).__name__}); check the path, or make "
            "one with `bcmdist import FILE DATA.zarr`"
        ) from error


def open_data(url, *, x="X", y="y") -> Data:
    """Open a data set and check all that can be checked without reading rows.

    `y=None` opens it for its inputs only.

    Raises
    ------
    DataNotFound, DataDamaged, InvalidData, InvalidDtype, MisalignedChunks, UnsafeData
    """
    group = open_group(url)
    X = _array(group, url, x)
    if X.ndim != 2:
        raise InvalidData(f"{url}: expected {x} with shape (N, D), got {X.shape}; store one row per observation")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise InvalidData(f"{url}: expected at least one row and one column in {x}, got shape {X.shape}; add data")
    companions = tuple(name for name in COMPANIONS if name in group)
    arrays = {name: _array(group, url, name) for name in [y] * (y is not None) + list(companions)}
    for name, array in arrays.items():
        _check_companion(url, x, X, name, array)
    chunk_bytes = max(group.store.encoding(array.path).decoded_bytes for array in [X, *arrays.values()])
    rows, inputs = X.shape
    return Data(absolute_url(url), x, y, rows, inputs, chunk_rows(X), companions, chunk_bytes=chunk_bytes)


def describe(url, x, y) -> str:
    """What a data set looks like, in words: everyone who works on it must see the same."""
    data = open_data(url, x=x, y=y)
    return f"{data.x} with {data.rows} rows, {data.inputs} columns, {data.chunk_rows} rows per chunk"


def _array(group, url, name):
    """An array of numbers, whose metadata are believable and whose chunks can be decoded safely."""
    safe_name(name, str(url))
    try:
        array = group.get(name)
        names = [] if isinstance(array, zarr.Array) else sorted(group.array_keys())
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
    group.store.encoding(array.path)  # raises
    if max(array.shape, default=0) > MOST_ROWS:
        raise UnsafeData(
            f"{url}: expected at most {MOST_ROWS:,} rows and columns in {name}, its metadata declare shape "
            f"{array.shape}; restore them from a copy"
        )
    if group.attrs.get(ALL_STORED):
        _refuse_missing_chunks(url, name, array, group.store)
    return array


def _refuse_missing_chunks(url, name, array, store):
    """Where every chunk was stored: see that it is there, before work begins; whoever reads sees it in any case."""
    grid = (range(-(-length // size)) for length, size in zip(array.shape, array.shards or array.chunks, strict=True))
    keys = (f"{array.path}/{array.metadata.encode_chunk_key(place)}" for place in itertools.product(*grid))
    missing = list(itertools.islice(store.missing(array.path, keys), 3))
    if missing:
        raise MissingChunk(
            f"{url}: expected all chunks of {name}, some are missing (key {', '.join(missing)}); restore them from a "
            "copy"
        )


def chunk_rows(array):
    """Rows per chunk, or per shard where there are shards."""
    return (array.shards or array.chunks)[0]


def _check_companion(url, x, X, name, array):
    if array.ndim != 1:
        raise InvalidData(
            f"{url}: expected {name} with shape (N,), got {array.shape}; store one target per array and choose "
            "it with --y"
        )
    if array.shape[0] != X.shape[0]:
        raise InvalidData(
            f"{url}: expected {X.shape[0]} rows in {name} as in {x}, got {array.shape[0]}; they must be the same rows"
        )
    ours, theirs = chunk_rows(X), chunk_rows(array)
    if max(ours, theirs) % min(ours, theirs) and min(ours, theirs) < X.shape[0]:
        raise MisalignedChunks(
            f"{url}: expected chunks of {name} that nest with the {ours} rows per chunk of {x}, got {theirs} "
            f"rows; rechunk {name} to {ours} rows"
        )


def partitions(data: Data, rows_per_expert: int) -> list[Partition]:
    """Cut a data set into partitions of about `rows_per_expert` rows along its chunks."""
    if rows_per_expert < 1:
        raise InvalidOption(f"rows per expert: expected at least 1, got {rows_per_expert}; give a positive number")
    _refuse_many(data, rows_per_expert)
    if data.chunk_rows > rows_per_expert:
        chunks = itertools.pairwise([*range(0, data.rows, data.chunk_rows), data.rows])
        edges = [e for a, b in chunks for e in _even_edges(a, b, rows_per_expert)]
    else:
        run = data.chunk_rows * max(1, round(rows_per_expert / data.chunk_rows))
        edges = list(range(0, data.rows, run))
    return [Partition(data, a, b) for a, b in itertools.pairwise([*edges, data.rows])]


def _refuse_many(data, rows):
    """Raise `MemoryLimit` where the references of all partitions would not fit."""
    if data.rows > rows * MOST_PARTITIONS:
        raise MemoryLimit(
            f"{data.url}: expected at most {MOST_PARTITIONS:,} partitions, {data.rows:,} rows make more of {rows} rows "
            "each; take larger ones"
        )


def _even_edges(start, stop, rows):
    """Where nearly equal parts of about `rows` rows of start..stop begin."""
    parts = max(1, round((stop - start) / rows))
    return [start + (stop - start) * k // parts for k in range(parts)]


def aligned_partitions(data: Data, rows: int) -> list[Partition]:
    """Ranges of exactly `rows` rows (the last may be shorter), so that outputs own whole chunks."""
    _refuse_many(data, rows)
    return [Partition(data, a, min(a + rows, data.rows)) for a in range(0, data.rows, rows)]


KEY = re.compile(r"(?P<array>.*)\[(?P<start>\d+):(?P<stop>\d+)\]")


def from_key(key, *, y, weight=1.0, sites="") -> Partition:
    """The partition that a key names, of a data set with targets `y`.

    Raises
    ------
    DataNotFound, InvalidData
    """
    match = KEY.fullmatch(key)
    if not match:
        raise InvalidOption(
            f"key: expected URL/ARRAY[START:STOP] as the ledger shows it, got {key!r}; give one of these"
        )
    url, _, x = match["array"].rpartition("/")
    data = open_data(url, x=x, y=y)
    start, stop = int(match["start"]), int(match["stop"])
    if not 0 <= start < stop <= data.rows:
        raise InvalidData(f"{key}: expected these rows to exist, {url} holds {data.rows}; give the original data")
    return Partition(data, start, stop, weight, sites)


def refuse_overlap(parts: Iterable[Partition], keys: Iterable[str]):
    """Raise `InvalidData` where partitions share rows with each other or with those of `keys`."""
    ranges = []
    for key in [*keys, *(part.key for part in parts)]:
        match = KEY.fullmatch(key)
        assert match, "keys are made by Partition.key"
        ranges.append((match["array"], int(match["start"]), int(match["stop"]), key))
    for (array, _, stop, key), (other, start, _, second) in itertools.pairwise(sorted(ranges)):
        if array == other and start < stop:
            raise InvalidData(
                f"{second}: expected rows that were not heard yet, {key} holds some of them; cut partitions with the "
                "same --rows-per-expert"
            )
