"""Fit and predict fields of xarray data sets, by variable names. Users import this module as `bcmdist.xarray`.

    gbcm = ds.bcm.fit("t2m", inputs=["lon", "lat", "time"])    uses the cells without missing values
    said = ds.bcm.predict(gbcm)                                t2m and t2m_standard_error at every cell
    whole = ds.bcm.fill(gbcm)                                  t2m as measured, predictions in its gaps
    ds.bcm.predict_to_zarr(gbcm, "t2m.zarr")                   as `predict`, written region by region
    ds.bcm.average(gbcm, lat=10, lon=10)                       averages over blocks of cells, with their errors

Inputs are coordinates, or variables along some of the target's dimensions: numbers, strings (categories), or times,
which are converted to UTC days. Longitudes are plain numbers: 359 and 1 are 358 apart, and a model fitted to 0 to 360
extrapolates at -90. Where this matters, fit with sphere=("lon", "lat"), or `on_sphere(ds)` and the inputs x, y, z.

Each function is also a method of the accessor, ds.bcm, without its first argument (`bcmdist.api.maps.accessor`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bcmdist.api.gbcm import GBCM
from bcmdist.api.in_memory_rows import refuse_companions
from bcmdist.api.maps.averages import block_averages, checked_windows
from bcmdist.api.maps.cells import WHERE, Cells
from bcmdist.api.maps.fields import Model, committee_of, grid_sizes, predicted_cells, predictor_of, xarray
from bcmdist.api.maps.predicted import CONVENTIONS
from bcmdist.api.requests import PredictionMethod
from bcmdist.api.running import Where
from bcmdist.data.groups import Location
from bcmdist.data.outputs import refuse_existing
from bcmdist.data.regions import write_regions
from bcmdist.data.tables.dates import PERIODS
from bcmdist.data.tables.roles import Roles, pair_of
from bcmdist.data.tables.sphere import on_unit_sphere
from bcmdist.errors import DataNotFound, InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.prediction.joint.averages import Of

# Largest number of cells written at a time, where the data have no chunks: some megabytes. Arbitrary.
REGION_CELLS = 2**17


def fit(
    data: xarray.Dataset,
    target: str,
    inputs: Sequence[str],
    settings: Settings | None = None,
    *,
    companions: Mapping[str, str] | None = None,
    cyclic: Mapping[str, Sequence[str]] | None = None,
    sphere: tuple[str, str] | None = None,
    model: Location | None = None,
    runtime: Where = None,
) -> GBCM:
    """Fit a committee to the cells of a grid that have a target and all inputs.

    Parameters
    ----------
    data : xarray `Dataset`; lazy variables are computed chunk by chunk, twice
    target : name of the target variable, whose dimensions define the grid
    inputs : names of coordinates or variables along some of these dimensions
    settings : `Settings`
    companions : names of variables by role: weight, exposure, trials, event, target_variance
    cyclic : periods of time inputs, which add cyclic inputs: {"time": ["year"]}
    sphere, model, runtime : as of `GBCM.fit`

    Returns
    -------
    The committee, whose inputs have the names of `inputs`; three inputs stand for a point on the sphere.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption

    Examples
    --------
    >>> import bcmdist.xarray
    >>> bcmdist.xarray.fit(grid, "t", ["lon", "lat"], settings).info()["rows"]
    71
    """
    if isinstance(inputs, str) or not len(inputs):
        raise InvalidOption(f"inputs: expected a list of names, got {inputs!r}; give ['lon', 'lat', 'time'], say")
    refuse_companions(companions or {})
    periods_of = {name: tuple(periods) for name, periods in (cyclic or {}).items()}
    odd = [period for periods in periods_of.values() for period in periods if period not in PERIODS]
    if odd or not periods_of.keys() <= set(inputs):
        raise InvalidOption(f"cyclic: expected {', '.join(PERIODS)} of inputs, got {cyclic!r}; correct it")
    roles = Roles(target, inputs=tuple(inputs), companions=companions or {}, cyclic=periods_of, missing="drop")
    if sphere is not None:
        if not set(pair_of(sphere)) <= set(inputs):
            raise InvalidOption(f"sphere: expected two of the inputs, got {sphere!r:.80}; add both names to inputs")
        roles = replace(roles, sphere=[pair_of(sphere)])
    return GBCM.fit(Cells.of(data, roles), settings, model=model, runtime=runtime)


def predict(
    data: xarray.Dataset,
    model: Model,
    *,
    target: str | None = None,
    method: PredictionMethod | None = None,
    quantiles: Sequence[float] = (),
    above: Sequence[float] = (),
    latent: bool = False,
    chunks: Mapping[str, int] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> xarray.Dataset:
    """Predict new observations at all cells of a grid; nan where an input is missing.

    Parameters
    ----------
    data : xarray `Dataset` with the inputs of the model; the grid has the dimensions of the target if `data` contains
        it, else those of the inputs
    model : `GBCM`, or the path of a model directory
    target : name of the predicted variable; default: as in training
    method, quantiles, above : as of `GBCM.predict`
    latent : also the field itself, without the noise of an observation: T_latent, and T_latent_standard_error
    chunks : cells per block, by dimension; predictions are lazy with `chunks`, or where a variable of `data` is lazy
    attrs : attributes of the predicted variable; default: those of the target in `data`

    Returns
    -------
    xarray `Dataset` with the dimensions (lat, lon, ...), coordinates and attributes of `data`, and, for a target T, in
    its units: T, the mean; T_standard_error, the standard deviation of a new observation; and, for example,
    T_quantile0.9 where `quantiles` contains 0.9, and T_above2.5 where `above` contains 2.5. For classes: T, the number
    of the most probable class (names in the attribute `flag_meanings`), and T_probability along the dimension `class`.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, ModelNotFound

    Examples
    --------
    >>> import bcmdist.xarray
    >>> found = bcmdist.xarray.predict(grid, field, quantiles=[0.9])
    >>> found["t_quantile0.9"].shape
    (8, 10)
    """
    task = predictor_of(model, method, quantiles, latent, above)
    return predicted_cells(data, task, target or task.target, attrs, chunks=chunks)


def fill(
    data: xarray.Dataset,
    model: Model,
    *,
    method: PredictionMethod | None = None,
    chunks: Mapping[str, int] | None = None,
) -> xarray.Dataset:
    """Return the measured target with its gaps filled by predictions.

    Parameters
    ----------
    data : xarray `Dataset` with the target, nan where it was not measured, and the inputs
    model, method, chunks : as of `predict`

    Returns
    -------
    xarray `Dataset` as of `predict`, with the dimensions (lat, lon, ...) of the target, but with measured values where
    there are some; T_standard_error is nan there.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, ModelNotFound

    Examples
    --------
    >>> import bcmdist.xarray
    >>> int(grid["t"].isnull().sum()), int(bcmdist.xarray.fill(grid, field)["t"].isnull().sum())
    (9, 0)
    """
    task = predictor_of(model, method)
    target = task.target
    if task.classes:
        raise InvalidOption("fill: expected a model of numbers, got one of classes; take what `predict` says")
    if target not in data.variables:
        raise DataNotFound(f"{WHERE}: expected a variable {target!r} with gaps, found none; use `predict`")
    measured = data[target].variable
    predictions = predicted_cells(data, task, target, None, gaps=True, chunks=chunks)
    measured = measured.chunk(predictions[target].chunksizes) if predictions[target].chunks else measured
    filled = measured.where(measured.notnull(), predictions[target].variable)
    return predictions.assign({target: (filled.dims, filled.data, predictions[target].attrs)})


def predict_to_zarr(
    data: xarray.Dataset,
    model: Model,
    out: Location,
    *,
    target: str | None = None,
    method: PredictionMethod | None = None,
    quantiles: Sequence[float] = (),
    above: Sequence[float] = (),
    latent: bool = False,
    chunks: Mapping[str, int] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> int:
    """Write the result of `predict` to a new Zarr group, region by region. Return the number of cells.

    Regions are `chunks`, else the chunks of a lazy target, else blocks of at most `REGION_CELLS` cells. One region is
    in memory at a time, apart from what `data` holds in memory already. The Zarr chunks are the regions.

    Parameters
    ----------
    out : path or URL of the new Zarr group
    data, model, target, method, quantiles, above, latent, chunks, attrs : as of `predict`

    Returns
    -------
    Number of cells.

    Raises
    ------
    DataExists, DiskFull
        `out` exists, or does not fit on the disk.
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, ModelNotFound
        As `predict`.

    Examples
    --------
    >>> import bcmdist.xarray
    >>> bcmdist.xarray.predict_to_zarr(grid, field, "t.zarr")
    80
    """
    refuse_existing(out)
    task = predictor_of(model, method, quantiles, latent, above)
    target = target or task.target
    sizes = grid_sizes(data, task, target)
    lazy = predicted_cells(data, task, target, attrs, chunks=chunks or _regions(data, sizes, target))
    write_regions(out, lazy)
    return math.prod(sizes.values())


def average(
    data: xarray.Dataset,
    model: Model,
    *,
    target: str | None = None,
    weights: str | None = None,
    of: Of = "function",
    above: Sequence[float] = (),
    method: PredictionMethod | None = None,
    seed: int = 0,
    **windows: int,
) -> xarray.Dataset:
    """Averages of the predicted field over blocks of cells, such as lat=10, lon=10; the last ones may be smaller.

    The grid is that of `predict`, in memory. Cells with missing inputs do not count.

    Parameters
    ----------
    data, model, target : as of `predict`
    weights : variable with a weight of each cell, such as its area; default: all equal
    of, above, method, seed : as of `GBCM.predict_average`
    windows : cells of a block along each dimension, by the names of the dimensions

    Returns
    -------
    xarray `Dataset` along the coarser dimensions (lat, lon, ...), for a target T, in its units: T, the mean of the
    average; T_standard_error, its standard deviation; and, for example, T_above2.5.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, ModelNotFound

    Examples
    --------
    >>> import bcmdist.xarray
    >>> bcmdist.xarray.average(grid, field, lat=4, lon=5)["t"].shape
    (2, 2)
    """
    gbcm, task = committee_of(model), predictor_of(model, method)
    target = target or task.target
    if weights is not None and weights not in data.variables:
        raise DataNotFound(f"{WHERE}: expected a variable {weights!r} of weights, found none; name one")
    sizes, how = grid_sizes(data, task, target), {"of": of, "above": tuple(above), "method": method, "seed": seed}
    windows = checked_windows(windows, sizes, WHERE)
    fields, coords = block_averages(data, gbcm, task, target, sizes, windows, weights, how)
    return xarray.Dataset(fields, coords=coords, attrs={"Conventions": CONVENTIONS} | data.attrs)


def on_sphere(data: xarray.Dataset, *, lon: str = "lon", lat: str = "lat") -> xarray.Dataset:
    """Return `data` with coordinates x, y, z on the unit sphere, from longitudes and latitudes in degrees.

    Parameters
    ----------
    data : xarray `Dataset`
    lon, lat : names of the variables of longitudes and latitudes

    Returns
    -------
    xarray `Dataset` with further coordinates along the dimensions (lat, lon), without unit.

    Raises
    ------
    DataNotFound
        There is no such variable.

    Examples
    --------
    >>> import bcmdist.xarray
    >>> bcmdist.xarray.on_sphere(grid)["x"].shape
    (8, 10)
    """
    missing = [name for name in (lon, lat) if name not in data.variables]
    if missing:
        raise DataNotFound(f"{WHERE}: expected {lon!r} and {lat!r}, found no {missing[0]!r}; name them by lon, lat")
    places: dict[str, Any] = dict(zip("xyz", on_unit_sphere(data[lon], data[lat]), strict=True))
    plain = {name: place.drop_attrs().assign_attrs(units="1") for name, place in places.items()}
    return data.assign_coords(plain)


def _regions(data: xarray.Dataset, sizes: dict[str, int], target: str) -> dict[str, int]:
    """Return the cells of a region along each dimension: at most `REGION_CELLS` in all, filled along the fastest
    dimensions first, and at most the target's first chunk along each dimension."""
    chunks = dict(data[target].chunksizes) if target in data.variables else {}
    found, cells = {}, REGION_CELLS
    for dim in reversed(sizes):
        found[dim] = min(chunks.get(dim, (sizes[dim],))[0], max(1, cells))
        cells //= max(1, found[dim])
    return found
