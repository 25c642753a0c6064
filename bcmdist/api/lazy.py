"""Dask collections as inputs, computed one block at a time. This module does not import dask.

Blocks are the chunks of rows of an array, or the partitions of a data frame.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike

from bcmdist.errors import InvalidData, InvalidOption


class Lazy(Protocol):
    """A dask collection."""

    def __dask_graph__(self) -> Any:
        """Its tasks."""


def is_lazy(X: object) -> bool:
    """Whether X is a dask collection."""
    return hasattr(X, "__dask_graph__")


def refuse_lazy(X: Any, sphere: Sequence[str] | None) -> None:
    """Raise `InvalidOption` where longitude and latitude of a dask collection are to be points on a sphere."""
    if sphere is not None and is_lazy(X):
        raise InvalidOption(
            "sphere: expected a data frame in memory, got a dask collection; write it to Parquet and `bcmdist import` "
            "that with --sphere"
        )


def whole_rows(X: Any) -> Any:
    """Return X with all columns in one chunk (arrays)."""
    return X.rechunk({1: -1}) if getattr(X, "ndim", 0) == 2 and hasattr(X, "rechunk") else X


def empty(X: Any) -> Any:
    """Return a sample of the type of a block: a data frame without rows, or one row of zeros."""
    return X._meta if hasattr(X, "columns") else np.zeros((1, *X.shape[1:]))


def blocks(X: Any, others: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield computed blocks of rows: "X" and the `others` by name.

    `others` are arrays (N,), or dask collections, which are rechunked like X where possible.

    Raises
    ------
    InvalidData
        A block of one of the others has another number of rows than X.
    """
    X, start = whole_rows(X), 0
    others = {name: _cut_as(X, values) for name, values in others.items()}
    for k in range(X.npartitions):
        block = X.partitions[k].compute()
        rows = slice(start, start + len(block))
        found = {
            name: np.asarray(values.partitions[k].compute() if is_lazy(values) else values[rows])
            for name, values in others.items()
        }
        for name, values in found.items():
            if len(values) != len(block):
                raise InvalidData(
                    f"{name}: expected {len(block)} rows in block {k}, as in X, got {len(values)}; cut both alike"
                )
        yield {"X": block} | found
        start = rows.stop


def _cut_as(X: Any, values: Any) -> Any:
    as_chunked = is_lazy(values) and hasattr(values, "rechunk") and hasattr(X, "chunks")
    if as_chunked and len(values) == len(X):
        return values.rechunk({0: X.chunks[0]})
    return values if is_lazy(values) else np.asarray(values)


def mapped(function: Callable[..., Any], X: Any, width: int | None, dtype: DTypeLike) -> Any:
    """Apply a function to each block, lazily: (N,), or (N, width) where `width` is given."""
    task = NamedTask(function)
    if hasattr(X, "map_partitions"):
        return X.map_partitions(task, meta=np.empty((0,) if width is None else (0, width), dtype))
    X = whole_rows(X)
    if width is None:
        return X.map_blocks(task, drop_axis=1, dtype=dtype)
    return X.map_blocks(task, chunks=(X.chunks[0], (width,)), dtype=dtype)


@dataclass(frozen=True)
class NamedTask:
    """A function with a unique token, so that dask need not pickle the function to compute one."""

    function: Callable[..., Any]
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    __name__: ClassVar[str] = "bcmdist"

    def __call__(self, *blocks: Any) -> Any:
        return self.function(*blocks)

    def __dask_tokenize__(self) -> str:
        return self.name
