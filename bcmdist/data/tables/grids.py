"""Variables of a NetCDF file or a Zarr group as columns of a table: along one dimension, or on a grid. Uses xarray.

    temperature (time, lat, lon) with coordinates time, lat, lon   ->   one row per cell, in memory order

Each input varies along some dimensions of the target and is repeated along the others. Cells are read one slab at a
time. Packed numbers, fill values and times are decoded by the CF conventions.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.data.tables.column import Column, Table, of_numpy
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption

ENDINGS = (".nc", ".nc4", ".cdf", ".zarr")


class Grid:
    """Variables of an xarray data set on a common grid."""

    kinds = None  # fill values make gaps, and times are decoded

    def __init__(self, where, opened: Callable[[], AbstractContextManager], inputs, others):
        """`where` names the data in errors; `opened` returns a context manager that opens the data set for reading."""
        self.where, self.opened = where, opened
        self.names = tuple(dict.fromkeys([*inputs, *others]))
        with self.opened() as data:
            names = [str(name) for name in data.variables]
            if not inputs:
                raise InvalidOption(
                    f"{where}: expected --x with the variables that are inputs, such as --x lon,lat,time, got none; "
                    f"found {', '.join(names)}"
                )
            missing = [name for name in self.names if name not in names]
            if missing:
                raise DataNotFound(f"{where}: expected a variable {missing[0]!r}, found {', '.join(names)}; correct it")
            self.sizes = sizes_of(data, others or inputs)
            self.coordinates = tuple(name for name in inputs if name in data.coords)
            self._refuse_other_dimensions(data, others or inputs)

    def _refuse_other_dimensions(self, data, others):
        for name in self.names:
            odd = [str(dim) for dim in data[name].dims if dim not in self.sizes]
            if odd:
                raise InvalidData(
                    f"{self.where}: expected {name!r} along dimensions of {', '.join(others)} "
                    f"({', '.join(self.sizes)}), got {odd[0]!r} too; select from it first, or leave it out"
                )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid."""
        return tuple(self.sizes.values())

    def pieces(self, rows, *, texts=()) -> Iterator[Table]:
        """Yield at most `rows` cells at a time; chunk by chunk if variables are lazy, so that each is computed once."""
        with self.opened() as data:
            named = data.reset_coords()[list(self.names)]
            chunks = named.unify_chunks().chunks
            regions = chunked(self.sizes, chunks) if chunks else blocks(self.shape, rows)
            for region in regions:
                found = named.isel(dict(zip(self.sizes, region, strict=True))).compute()
                for block in blocks([found.sizes[dim] for dim in self.sizes], rows):
                    where = dict(zip(self.sizes, block, strict=True))
                    yield {name: self._column(found[name].variable, name, where) for name in self.names}

    def _column(self, variable, name, where) -> Column:
        """Return the values of a variable in a block, (n,), repeated along the dimensions that it lacks."""
        values = np.asarray(variable.isel({dim: where[dim] for dim in variable.dims}).values)
        values = values.transpose([variable.dims.index(dim) for dim in self.sizes if dim in variable.dims])
        lengths = [where[dim].stop - where[dim].start for dim in self.sizes]
        own = [n if dim in variable.dims else 1 for dim, n in zip(self.sizes, lengths, strict=True)]
        return column_of(name, np.broadcast_to(values.reshape(own), lengths).ravel())


def grid_file(file: Path, inputs, others) -> Grid:
    """Open variables of a NetCDF file or a Zarr group, to be read on demand."""
    import xarray

    how: Any = {"chunks": None} if file.is_dir() else {"chunks": None, "cache": False}
    opened = xarray.open_zarr if file.is_dir() else xarray.open_dataset
    return Grid(file, lambda: opened(file, **how), inputs, others)


def sizes_of(data, names) -> dict[str, int]:
    """Return the lengths of the dimensions of some variables, slowest first."""
    sizes: dict[str, int] = {}
    for name in names:
        sizes |= {str(dim): size for dim, size in data[name].sizes.items() if dim not in sizes}
    return sizes


def column_of(name, values) -> Column:
    """Return the values (n,) of cells as a column."""
    return of_numpy(name, values.astype(str) if _are_texts(values) else values)


def chunked(sizes: Mapping[str, int], chunks: Mapping[Any, tuple[int, ...]]) -> Iterator[tuple[slice, ...]]:
    """Yield slices of a grid, one for each of its chunks (`chunks`: lengths by dimension)."""
    lengths = [chunks.get(dim, (size,)) for dim, size in sizes.items()]
    ends = [list(accumulate(along)) for along in lengths]
    cuts = [
        [slice(end - length, end) for end, length in zip(*pair, strict=True)]
        for pair in zip(ends, lengths, strict=True)
    ]
    return product(*cuts)


def blocks(shape, rows) -> Iterator[tuple[slice, ...]]:
    """Yield slices of a grid in memory order, of at most `rows` cells."""
    inner = next((k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= rows), len(shape) - 1)
    if not shape:
        return
    step = max(1, rows // math.prod(shape[inner + 1 :]))
    inner_slices = tuple(slice(0, n) for n in shape[inner + 1 :])
    for outer in product(*(range(n) for n in shape[:inner])):
        for start in range(0, shape[inner], step):
            some = slice(start, min(start + step, shape[inner]))
            yield (*(slice(k, k + 1) for k in outer), some, *inner_slices)


def _are_texts(values):
    return values.dtype.kind in "OT" and all(isinstance(value, str) for value in values.flat)
