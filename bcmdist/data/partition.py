"""Partitions: ranges of rows of a data set. One partition is one expert.

A partition is a run of whole small chunks, or a range of rows within a large chunk. It is a reference of a few hundred
bytes; tasks read its rows where they run (`rows`), check them, and identify them by a hash of their content.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.row_copy import RowCopy
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.errors import InvalidData, InvalidOption, MemoryLimit
from bcmdist.storage.entry import KEY, Entry, named_range

# More indicate a mistake: this many references of a few hundred bytes take a few gigabytes.
MOST_PARTITIONS = 10**7


@dataclass(frozen=True)
class Partition:
    """Rows start to stop of a data set. The key is stable across restarts."""

    data: Dataset
    start: int
    stop: int
    weight: float = 1.0
    """factor by which its message is multiplied"""
    state: str = ""
    """hash of the blob with the stored state of the expert, if it was absorbed; see `Entry`"""
    query: int | None = None
    """number of the query set through which it was absorbed; None: the present one; see `Entry`"""
    copy: RowCopy | None = None
    """copy from which its rows are read; None: from the data set"""

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def key(self) -> str:
        return f"{self.data.url}/{self.data.x}[{self.start}:{self.stop}]"

    def head(self, rows: int) -> "Partition":
        """Return the range of the first `rows` rows (or all, if fewer), with weight 1 and without a stored expert
        state."""
        return Partition(self.data, self.start, min(self.stop, self.start + rows))


@dataclass(frozen=True)
class Span:
    """Rows start to stop of an output to be written; no data set is read for it."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def key(self) -> str:
        return f"output[{self.start}:{self.stop}]"


Work = Partition | Span


def partitions(data: Dataset, rows_per_expert: int) -> list[Partition]:
    """Cut a data set into partitions of about `rows_per_expert` rows along its chunks.

    Parameters
    ----------
    data : as `open_data` returns it
    rows_per_expert : approximate number of rows of a partition

    Returns
    -------
    The partitions, in the order of the rows; `key` names one, and `rows` counts its rows.

    Raises
    ------
    InvalidOption
        `rows_per_expert` is below 1.
    MemoryLimit
        There would be more partitions than a process can list.

    Examples
    --------
    >>> bcmdist.write_dataset("cut.zarr", {"X": X, "y": y})
    >>> [part.rows for part in bcmdist.partitions(bcmdist.open_data("cut.zarr"), rows_per_expert=40)]
    [40, 40]
    """
    if rows_per_expert < 1:
        raise InvalidOption(f"rows per expert: expected at least 1, got {rows_per_expert}; give a positive number")
    _refuse_many(data, rows_per_expert)
    if data.chunk_rows > rows_per_expert:
        chunks = itertools.pairwise([*range(0, data.rows, data.chunk_rows), data.rows])
        edges = [e for a, b in chunks for e in _even_edges(a, b, rows_per_expert)]
    else:
        edges = list(range(0, data.rows, _run_rows(data, rows_per_expert)))
    return [Partition(data, a, b) for a, b in itertools.pairwise([*edges, data.rows])]


def _refuse_many(data: Dataset, rows: int) -> None:
    """Raise `MemoryLimit` if the references to all partitions would not fit in memory."""
    if data.rows > rows * MOST_PARTITIONS:
        raise MemoryLimit(
            f"{data.url}: expected at most {MOST_PARTITIONS:,} partitions, {data.rows:,} rows make more of {rows} rows "
            "each; take larger ones"
        )


def steady_partitions(data: Dataset, rows_per_expert: int) -> list[Partition]:
    """Return the partitions that stay the same when rows are appended. The last rows may be left out."""
    if data.chunk_rows > rows_per_expert:  # cut the last chunk as if it were full
        whole = replace(data, rows=-(-data.rows // data.chunk_rows) * data.chunk_rows)
    else:
        whole = replace(data, rows=data.rows - data.rows % _run_rows(data, rows_per_expert))
    cut = partitions(whole, rows_per_expert) if whole.rows else []
    return [replace(part, data=data) for part in cut if part.stop <= data.rows]


def _run_rows(data: Dataset, rows_per_expert: int) -> int:
    return data.chunk_rows * max(1, round(rows_per_expert / data.chunk_rows))


def _even_edges(start: int, stop: int, rows: int) -> list[int]:
    """Return the starts of nearly equal parts of start..stop, of about `rows` rows each."""
    parts = max(1, round((stop - start) / rows))
    return [start + (stop - start) * k // parts for k in range(parts)]


def aligned_partitions(data: Dataset, rows: int) -> list[Partition]:
    """Return ranges of exactly `rows` rows (the last may be shorter), so that each output task writes whole chunks."""
    _refuse_many(data, rows)
    return [Partition(data, a, min(a + rows, data.rows)) for a in range(0, data.rows, rows)]


def from_key(key: str, *, y: str | None, schema: Schema = UNNAMED, weight: float = 1.0) -> Partition:
    """Return the partition with a key, from a data set with targets `y`, for a model with the names of `schema`.

    Raises
    ------
    DataNotFound, InvalidData
    """
    (part,) = from_keys([key], y=y, schema=schema)
    return replace(part, weight=weight)


def as_absorbed(part: Partition, entry: Entry, weight: float) -> Partition:
    """Return a partition with the state and query set with which it was absorbed, and a weight."""
    return replace(part, weight=weight, state=entry.state, query=entry.query)


def from_keys(keys: Iterable[str], *, y: str | None, schema: Schema = UNNAMED) -> list[Partition]:
    """As `from_key`, for several keys; each data set is opened once."""
    opened = functools.cache(functools.partial(open_data, y=y, schema=schema))
    return [_keyed(key, opened) for key in keys]


def _keyed(key: str, opened: Callable[..., Dataset]) -> Partition:
    match = KEY.fullmatch(key)
    if not match:
        raise InvalidOption(
            f"key: expected URL/ARRAY[START:STOP] as the ledger shows it, got {key!r}; give one of these"
        )
    url, _, x = match["array"].rpartition("/")
    data = opened(url, x=x)
    start, stop = int(match["start"]), int(match["stop"])
    if not 0 <= start < stop <= data.rows:
        raise InvalidData(f"{key}: expected these rows to exist, {url} holds {data.rows}; give the original data")
    return Partition(data, start, stop)


def refuse_overlap(parts: Iterable[Partition], keys: Iterable[str]) -> None:
    """Raise `InvalidData` if partitions share rows with each other or with the partitions of `keys`."""
    ranges = [(*named_range(key), key) for key in [*keys, *(part.key for part in parts)]]
    for (array, _, stop, key), (other, start, _, second) in itertools.pairwise(sorted(ranges)):
        if array == other and start < stop:
            raise InvalidData(
                f"{second}: expected rows that were not absorbed yet, {key} holds some of them; cut partitions with "
                "the same --rows-per-expert"
            )


def evenly(parts: Sequence[Partition], rows: int) -> list[Partition]:
    """Evenly spread partitions with about `rows` rows in total; at least one partition."""
    most = max(1, min(len(parts), round(rows * len(parts) / sum(part.rows for part in parts))))
    return [parts[round(k * (len(parts) - 1) / max(1, most - 1))] for k in range(most)]
