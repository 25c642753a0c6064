"""Rows in memory (arrays, data frames, dask collections), and their conversion to a temporary Zarr data set."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bcmdist.api.lazy import blocks, is_lazy, refuse_lazy
from bcmdist.data.dataset import COMPANIONS, OPTIONAL_ARRAYS
from bcmdist.data.schema import CLASSES, Schema, as_table, class_codes, frame_names, is_text
from bcmdist.data.tables.coding import Coding
from bcmdist.data.tables.frames import coded, coding_of, framed, is_uncoded
from bcmdist.data.writing import append_rows, update_attributes, write_dataset
from bcmdist.errors import InvalidData, InvalidDtype, InvalidOption
from bcmdist.storage.temporary import Scratch


@dataclass(frozen=True)
class Named:
    """An array (n, D) with column names: the part of the data frame interface that is used here."""

    values: np.ndarray
    columns: tuple[str, ...]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[:, self.columns.index(name)]

    def __len__(self) -> int:
        return len(self.values)


class Rows(ABC):
    """Interface of rows that are not in a Zarr data set yet."""

    @abstractmethod
    def written(self) -> tuple[Scratch, str]:
        """Write the rows. Return the scratch directory, which lives as long as this object, and the data set's URL."""


@dataclass(frozen=True)
class InMemoryRows(Rows):
    """Rows as passed by the caller."""

    X: Any
    """(N, D): an array or data frame, or a dask collection of either"""
    y: Any
    """(N,): numbers or strings; a dask collection where X is one"""
    companions: Mapping[str, Any] = field(default_factory=dict)
    """further columns by name: weight, exposure, trials, event or target_variance, (N,); X_variance, (N, D) or
    (N, D, D)"""
    classes: tuple[str, ...] = ()
    """names of the classes, where y holds class numbers"""
    coding: Coding | None = None
    """how columns of a table are coded as numeric inputs; X holds either the coded inputs or the columns themselves"""

    output: str | None = None
    """column of a data frame that names outputs"""

    sphere: tuple[str, str] | None = None
    """columns of a data frame with longitude and latitude, in degrees"""

    def written(self) -> tuple[Scratch, str]:
        """Write the rows. Return the scratch directory, which lives as long as this object, and the data set's URL.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        refuse_companions(self.companions, OPTIONAL_ARRAYS)
        scratch = Scratch()
        url = str(Path(scratch.path, "rows-in-memory.zarr"))
        if is_lazy(self.X):
            refuse_lazy(self.X, self.sphere)
            self._append(url)
        else:
            arrays, schema = self._arrays()
            write_dataset(url, arrays, schema=schema)
        return scratch, url

    def _append(self, url: str) -> None:
        """Write the blocks of a dask collection, one at a time."""
        for block in blocks(self.X, {"y": self.y, **self.companions}):
            if len(block["X"]):
                append_rows(url, **block)
        if self.classes:
            update_attributes(url, "y", {CLASSES: list(self.classes)})

    def _arrays(self) -> tuple[dict[str, np.ndarray], Schema]:
        """Return arrays by name (X, y and companions), and their schema."""
        _refuse_other_rows(self.X, self.y)
        columns, X, coding = self._inputs()
        y, classes = np.asarray(self.y), self.classes
        if is_text(y):
            y, classes = class_codes(y, "y")
        arrays = {"X": X, "y": y} | {name: np.asarray(values) for name, values in self.companions.items()}
        odd = [f"{name} of {values.dtype}" for name, values in arrays.items() if values.dtype.kind not in "fiub"]
        if odd:
            raise InvalidDtype(f"rows: expected real numbers, got {', '.join(odd)}; convert them to float64")
        lengths = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidData(f"rows: expected as many of each, got {lengths}; give the same rows")
        return arrays, Schema(columns, classes, coding)

    def _inputs(self) -> tuple[tuple[str, ...], np.ndarray, Coding | None]:
        """Return the names of the inputs, their values (N, D), and their coding (None for numeric columns only)."""
        X = framed(self.X)
        made = None if self.coding else coding_of(X, output=self.output, sphere=self.sphere)
        coding = self.coding or made
        if coding and (made or is_uncoded(X, coding)):
            return coding.inputs, coded(X, coding), coding
        names = frame_names(X)
        return names, as_table(X), coding if coding and coding.inputs == names else None


def refuse_companions(companions: Iterable[str], allowed: Sequence[str] = COMPANIONS) -> None:
    """Raise `InvalidOption` where a companion is not among the `known` names."""
    odd = [name for name in companions if name not in allowed]
    if odd:
        raise InvalidOption(f"rows: expected companions among {', '.join(allowed)}, got {odd[0]!r}; leave it out")


def _refuse_other_rows(X: object, y: object) -> None:
    """Raise `InvalidData` where the indices of X and y hold the same labels in different order."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "symmetric_difference") and hasattr(theirs, "symmetric_difference")):  # no data frames
        return
    if len(ours) == len(theirs) and not ours.equals(theirs) and not len(ours.symmetric_difference(theirs)):
        raise InvalidData("X, y: expected the same rows in the same order, their labels differ; give y.loc[X.index]")
