"""Averages of a predicted field over blocks of the cells of a grid, as `coarsen` of xarray averages a measured one."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.maps.fields import xarray
from bcmdist.api.maps.predicted import BlockPredictor, ancillary, kept_attributes, variable_of
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.prediction.exceedance import above_name


def checked_windows(windows: Mapping[str, Any], sizes: Mapping[str, int], where: str) -> dict[str, int]:
    """Numbers of cells of a block along each dimension of the grid, 1 where none is given.

    Raises
    ------
    InvalidOption
    """
    if not windows or set(windows) - set(sizes):
        raise InvalidOption(
            f"{where}: expected numbers of cells along some of {', '.join(sizes)}, got {windows!r:.80}; "
            "give lat=10, say"
        )
    wrong = [size for size in windows.values() if isinstance(size, bool) or size != int(size) or size < 1]
    if wrong:
        raise InvalidOption(f"{where}: expected whole numbers of cells, at least 1, got {wrong[0]!r:.80}; correct it")
    return {dim: int(windows.get(dim, 1)) for dim in sizes}


def block_averages(
    data: xarray.Dataset,
    gbcm: GBCM,
    task: BlockPredictor,
    target: str,
    sizes: Mapping[str, int],
    windows: dict[str, int],
    weights: str | None,
    how: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[Hashable, Any]]:
    """Fields and coordinates of averages over blocks of a grid, by name; nan where a block has no cell.

    Parameters
    ----------
    sizes : of the grid, by dimension
    weights : name of a variable of `data` with a weight, at least 0, of each cell; None: all are alike
    how : further arguments of `GBCM.predict_average`
    """
    shape = tuple(sizes.values())
    X, companions, there = task.rows(np.ones(shape, bool), [_on_grid(data, name, sizes) for name in task.needs])
    weight = None if weights is None else _on_grid(data, weights, sizes).ravel().astype(float)
    if weight is not None:
        there &= ~(weight == 0.0)
    blocks = tuple(-(-size // windows[dim]) for dim, size in sizes.items())
    places = np.indices(shape).reshape(len(sizes), -1) // np.array(list(windows.values()))[:, None]
    number = np.ravel_multi_index(tuple(places), blocks)
    if not there.any():
        raise InvalidData(f"{target}: expected cells with all inputs and a weight, found none; give some")
    own = {role: column[there] for role, column in companions.items()}
    found = gbcm.predict_average(
        X[there], number[there], weights=None if weight is None else weight[there], **own, **how
    )
    if len(np.unique(found["group"])) < len(found["group"]):
        raise InvalidData(f"{target}: expected cells of one output, got several in a block; select one output")
    fields = {}
    for name, (own_values, attrs) in _fields(data, target, tuple(sizes), found, how).items():
        whole = np.full(int(np.prod(blocks)), np.nan)
        whole[found["group"]] = own_values
        fields[name] = (tuple(sizes), whole.reshape(blocks), attrs | {"source": task.source_attribute()})
    return fields, _coarse(data, sizes, windows)


def _on_grid(data: xarray.Dataset, name: str, sizes: Mapping[str, int]) -> np.ndarray:
    """Values of a variable along some dimensions of the grid, at each of its cells.

    Raises
    ------
    InvalidData
        The variable has further dimensions.
    """
    variable = data[name].variable
    if odd := [dim for dim in variable.dims if dim not in sizes]:
        raise InvalidData(
            f"{name}: expected dimensions of the grid ({', '.join(sizes)}), got {odd[0]!r}; select from it"
        )
    return np.asarray(variable.set_dims(dict(sizes)).transpose(*sizes).values)


def _fields(
    data: xarray.Dataset, target: str, dims: Sequence[str], found: Mapping[str, np.ndarray], how: Mapping[str, Any]
) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """Values of blocks and attributes of the fields, by name."""
    kept = kept_attributes(data[target].attrs if target in data.variables else {})
    what = "a new " if how["of"] == "observations" else "the noise-free "
    error = variable_of(target, "standard_error")
    fields = {
        target: (found["mean"], kept | {"cell_methods": f"{': '.join(dims)}: mean", "ancillary_variables": error}),
        error: (found["sd"], ancillary(kept, f"standard deviation of the average of {what}{target}")),
    }
    for t in how["above"]:
        attrs = {"long_name": f"probability that the average of {target} is above {t:g}", "units": "1"}
        fields[variable_of(target, above_name(t))] = (found[above_name(t)], attrs)
    return fields


def _coarse(data: xarray.Dataset, sizes: Mapping[str, int], windows: Mapping[str, int]) -> dict[Hashable, Any]:
    """Means of the coordinates of numbers and dates in each block."""
    coords = {name: coord for name, coord in data.coords.items() if coord.dims and set(coord.dims) <= set(sizes)}
    names = [name for name, coord in coords.items() if coord.dtype.kind in "fiumM"]
    along = {dim: n for dim, n in windows.items() if any(dim in coords[name].dims for name in names)}
    coarse = data.coords.to_dataset()[names].coarsen(along, boundary="pad").mean()
    return {name: coarse[name].variable for name in names}
