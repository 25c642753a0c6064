"""Dask collections, block after block: whoever gives one is spared dask's import here, and computes it no sooner.

An array is cut along its rows, a data frame as its partitions are.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bcmdist.errors import InvalidData


def is_lazy(X) -> bool:
    """Whether it is a dask collection."""
    return hasattr(X, "__dask_graph__")


def whole_rows(X) -> Any:
    """The same with all columns of a row in one block."""
    return X.rechunk({1: -1}) if getattr(X, "ndim", 0) == 2 and hasattr(X, "rechunk") else X


def empty(X) -> Any:
    """What one of its blocks is like: a data frame without rows, or a row of zeros."""
    return X._meta if hasattr(X, "columns") else np.zeros((1, *X.shape[1:]))


def blocks(X, others: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Blocks of rows: X, and by name the others, which are lazy as X is cut, or arrays (N,).

    Raises
    ------
    InvalidData
        They hold other numbers of rows.
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


def _cut_as(X, values):
    known = is_lazy(values) and hasattr(values, "rechunk") and hasattr(X, "chunks")
    if known and len(values) == len(X):
        return values.rechunk({0: X.chunks[0]})
    return values if is_lazy(values) else np.asarray(values)


def mapped(function: Callable, X, width: int | None, dtype) -> Any:
    """What a function makes of each block, (N,) or (N, width), lazily."""
    task = NamedTask(function)
    if hasattr(X, "map_partitions"):
        return X.map_partitions(task, meta=np.empty((0,) if width is None else (0, width), dtype))
    X = whole_rows(X)
    if width is None:
        return X.map_blocks(task, drop_axis=1, dtype=dtype)
    return X.map_blocks(task, chunks=(X.chunks[0], (width,)), dtype=dtype)


@dataclass(frozen=True)
class NamedTask:
    """A function with a name, by which dask knows it: else it would pickle it for one."""

    function: Callable
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    __name__: ClassVar[str] = "bcmdist"

    def __call__(self, *blocks):
        return self.function(*blocks)

    def __dask_tokenize__(self):
        return self.name
