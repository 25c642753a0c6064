"""Fit and predict fields of xarray data sets, by variable names. Users import this module as `bcmdist.xarray`.

    gbcm = ds.bcm.fit("t2m", inputs=["lon", "lat", "time"])    uses the cells without missing values
    said = ds.bcm.predict(gbcm)                                t2m and t2m_standard_error at every cell
    whole = ds.bcm.fill(gbcm)                                  t2m as measured, predictions in its gaps
    ds.bcm.predict_to_zarr(gbcm, "t2m.zarr")                   as `predict`, written region by region
    ds.bcm.average(gbcm, lat=10, lon=10)                       averages over blocks of cells, with their errors

Inputs are coordinates, or variables along some of the target's dimensions: numbers, strings (categories), or times,
which are converted to UTC days. Longitudes are plain numbers: 359 and 1 are 358 apart, and a model fitted to 0 to 360
extrapolates at -90. Where this matters, fit with sphere=("lon", "lat"), or `on_sphere(ds)` and the inputs x, y, z.

Each function is also a method of the accessor, ds.bcm, without its first argument.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.in_memory_rows import Rows, refuse_companions
from bcmdist.api.lazy import NamedTask
from bcmdist.api.maps.averages import block_averages, checked_windows
from bcmdist.api.maps.predicted import CONVENTIONS, BlockPredictor, about, attributes, encoding, variable_of
from bcmdist.api.running import Where
from bcmdist.data.outputs import refuse_existing
from bcmdist.data.regions import write_regions
from bcmdist.data.schema import Schema
from bcmdist.data.tables.dates import PERIODS
from bcmdist.data.tables.encoded import encoded, plan
from bcmdist.data.tables.grids import Grid, sizes_of
from bcmdist.data.tables.roles import Roles, pair_of
from bcmdist.data.tables.tables import Named
from bcmdist.data.writing import write_pieces
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, MissingExtra
from bcmdist.learning.settings import Settings
from bcmdist.prediction.exceedance import refuse_thresholds
from bcmdist.prediction.joint.averages import Of
from bcmdist.storage.temporary import Scratch

WHERE = "data"  # name of the data set in error messages


@dataclass(frozen=True)
class Cells(Rows):
    """The cells of a grid without missing target or inputs, as rows."""

    table: Named
    """all cells of the grid"""
    roles: Roles
    """variables by role: target, inputs, companions"""

    @classmethod
    def of(cls, data, roles: Roles) -> "Cells":
        """Make the cells of an xarray `Dataset`, without reading values.

        Raises
        ------
        DataNotFound, InvalidData
            Variables are missing, or have dimensions that the target has not.
        """
        others = [roles.y, *roles.companions.values()]
        return cls(Named(Path(WHERE), Grid(WHERE, lambda: contextlib.nullcontext(data), roles.inputs, others)), roles)

    def written(self) -> tuple[Scratch, str]:
        """Write the rows. Return the scratch directory, which lives as long as this object, and the data set's URL.

        The grid is read twice, in pieces.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype
        """
        scratch = Scratch()
        url = str(Path(scratch.path, "cells.zarr"))
        made = plan(self.table, self.roles)
        classes = made.target.classes if made.target else ()
        schema = Schema(made.coding.inputs, classes, made.coding, self.table.coordinates)
        empty = f"{WHERE}: expected cells where {self.roles.y!r} and all inputs are there, found none; give some"
        write_pieces(url, encoded(self.table, made), empty=empty, schema=schema)
        return scratch, url


try:
    import xarray
except ImportError as error:
    raise MissingExtra(f"maps: expected xarray ({error}); pip install 'bcmdist[grids]'") from error


# Largest number of cells written at a time, where the data have no chunks: some megabytes. Arbitrary.
REGION_CELLS = 2**17


def fit(
    data,
    target: str,
    inputs: Sequence[str],
    settings: Settings | None = None,
    *,
    companions: Mapping[str, str] | None = None,
    cyclic: Mapping[str, Sequence[str]] | None = None,
    sphere: tuple[str, str] | None = None,
    model=None,
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

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
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
        roles = replace(roles, sphere=[pair_of(sphere)])
    return GBCM.fit(Cells.of(data, roles), settings, model=model, runtime=runtime)


def predict(
    data: Any,
    model: Any,
    *,
    target: str | None = None,
    method: str | None = None,
    quantiles: Sequence[float] = (),
    above: Sequence[float] = (),
    latent: bool = False,
    chunks: Any = None,
    attrs: Any = None,
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
    xarray `Dataset` with the coordinates and attributes of `data`, and, for a target T, in its units: T, the mean;
    T_standard_error, the standard deviation of a new observation; and, for example, T_quantile0.9 where `quantiles`
    contains 0.9, and T_above2.5 where `above` contains 2.5. For classes: T, the number of the most probable class
    (names in the attribute `flag_meanings`), and T_probability along the dimension `class`.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, ModelNotFound
    """
    task = _predictor(model, method, quantiles, latent, above)
    return _predicted(data, task, target or task.target, attrs, chunks=chunks)


def fill(data: Any, model: Any, *, method: str | None = None, chunks: Any = None) -> xarray.Dataset:
    """Return the measured target with its gaps filled by predictions. Otherwise as `predict`.

    T_standard_error is nan where the target was measured.
    """
    task = _predictor(model, method)
    target = task.target
    if task.classes:
        raise InvalidOption("fill: expected a model of numbers, got one of classes; take what `predict` says")
    if target not in data.variables:
        raise DataNotFound(f"{WHERE}: expected a variable {target!r} with gaps, found none; use `predict`")
    measured = data[target].variable
    predictions = _predicted(data, task, target, None, gaps=True, chunks=chunks)
    measured = measured.chunk(predictions[target].chunksizes) if predictions[target].chunks else measured
    filled = measured.where(measured.notnull(), predictions[target].variable)
    return predictions.assign({target: (filled.dims, filled.data, predictions[target].attrs)})


def predict_to_zarr(
    data: Any,
    model: Any,
    out: Any,
    *,
    target: str | None = None,
    method: str | None = None,
    quantiles: Sequence[float] = (),
    above: Sequence[float] = (),
    latent: bool = False,
    chunks: Any = None,
    attrs: Any = None,
) -> int:
    """Write the result of `predict` to a new Zarr group, region by region. Return the number of cells.

    Regions are `chunks`, else the chunks of a lazy target, else blocks of at most `REGION_CELLS` cells. One region is
    in memory at a time, apart from what `data` holds in memory already. The Zarr chunks are the regions.

    Raises
    ------
    DataExists, DiskFull, and those of `predict`
    """
    refuse_existing(out)
    task = _predictor(model, method, quantiles, latent, above)
    target = target or task.target
    sizes = _sizes(data, task, target)
    lazy = _predicted(data, task, target, attrs, chunks=chunks or _regions(data, sizes, target))
    write_regions(out, lazy)
    return math.prod(sizes.values())


def average(
    data: Any,
    model: Any,
    *,
    target: str | None = None,
    weights: str | None = None,
    of: Of = "function",
    above: Sequence[float] = (),
    method: str | None = None,
    seed: int = 0,
    **windows: int,
) -> xarray.Dataset:
    """Averages of the predicted field over blocks of cells, such as lat=10, lon=10; the last ones may be smaller.

    The grid is that of `predict`, in memory. Cells with missing inputs do not count. `weights`: variable with a weight
    of each cell, such as its area. `of`, `above`, `method`, `seed` as of `GBCM.predict_average`. Returns, along the
    coarser dimensions and for a target T: T, the mean of the average; T_standard_error, its standard deviation; and,
    for example, T_above2.5. Raises as `predict`.
    """
    gbcm, task = _loaded(model), _predictor(model, method)
    target = target or task.target
    if weights is not None and weights not in data.variables:
        raise DataNotFound(f"{WHERE}: expected a variable {weights!r} of weights, found none; name one")
    sizes, how = _sizes(data, task, target), {"of": of, "above": tuple(above), "method": method, "seed": seed}
    windows = checked_windows(windows, sizes, WHERE)
    fields, coords = block_averages(data, gbcm, task, target, sizes, windows, weights, how)
    return xarray.Dataset(fields, coords=coords, attrs={"Conventions": CONVENTIONS} | data.attrs)


def on_sphere(data, *, lon="lon", lat="lat") -> xarray.Dataset:
    """Return `data` with coordinates x, y, z on the unit sphere, from longitudes and latitudes in degrees."""
    missing = [name for name in (lon, lat) if name not in data.variables]
    if missing:
        raise DataNotFound(f"{WHERE}: expected {lon!r} and {lat!r}, found no {missing[0]!r}; name them by lon, lat")
    east, north = np.deg2rad(data[lon]), np.deg2rad(data[lat])
    places = {"x": np.cos(north) * np.cos(east), "y": np.cos(north) * np.sin(east)}
    places["z"] = np.sin(north)
    plain = {name: place.drop_attrs().assign_attrs(units="1") for name, place in places.items()}
    return data.assign_coords(plain)


# --- Predicting ---


def _loaded(model) -> GBCM:
    return model if isinstance(model, GBCM) else GBCM.load(model)


def _predictor(model, method, quantiles=(), latent=False, above=()) -> BlockPredictor:
    gbcm = _loaded(model)
    refuse_thresholds(gbcm.model, above)
    task = BlockPredictor(gbcm.snapshot, gbcm.chosen_method(method), tuple(quantiles), latent, tuple(above))
    if latent and not gbcm.model.normal:
        raise InvalidOption(
            f"latent: expected a field in units of its measurements, got one of {gbcm.model.error_name}; leave it out, "
            "or fit with target_transform='none'"
        )
    if any(not 0 < q < 1 for q in quantiles) or (quantiles and task.classes):
        raise InvalidOption(f"quantiles: expected levels between 0 and 1, of numbers, got {quantiles!r}; correct them")
    return task


def _sizes(data, task, target) -> dict[str, int]:
    """Return the sizes of the grid by dimension, slowest first.

    The dimensions are those of the target, or else of the inputs, with time first (CF 2.4).
    """
    missing = [name for name in task.needs if name not in data.variables]
    if missing:
        names = ", ".join(map(str, data.variables))
        raise DataNotFound(f"{WHERE}: expected the inputs of training, found no {missing[0]!r} among {names}; add it")
    used = sizes_of(data, task.needs)
    if target not in data.variables:
        dims = [str(dim) for dim in data.sizes if dim in used]
        dims.sort(key=lambda dim: dim not in data.variables or data[dim].dtype.kind != "M")
        return {dim: used[dim] for dim in dims}
    sizes = sizes_of(data, [target])
    odd = [dim for dim in used if dim not in sizes]
    if odd:
        raise InvalidData(
            f"{WHERE}: expected inputs along dimensions of {target!r} ({', '.join(sizes)}), got {odd[0]!r} too; select "
            f"from them first, or drop {target!r}"
        )
    return sizes


def _regions(data, sizes, target) -> dict[str, int]:
    """Return the cells of a region along each dimension: at most `REGION_CELLS` in all, filled along the fastest
    dimensions first, and at most the target's first chunk along each dimension."""
    chunks = dict(data[target].chunksizes) if target in data.variables else {}
    found, cells = {}, REGION_CELLS
    for dim in reversed(sizes):
        found[dim] = min(chunks.get(dim, (sizes[dim],))[0], max(1, cells))
        cells //= max(1, found[dim])
    return found


def _cells_to_predict(data, sizes, task, target, gaps, chunks):
    """Return a boolean variable on the grid: the cells to predict (`gaps`: only where the target is missing).

    It is chunked like a lazy target, or else by `chunks` and the chunks of the inputs; otherwise in memory.
    """
    if gaps:
        return data[target].variable.isnull()
    if target in data.variables and data[target].chunks:
        return xarray.ones_like(data[target].variable, dtype=bool)
    cells = xarray.Variable(tuple(sizes), np.ones(tuple(sizes.values()), bool))
    lengths_of = dict(data[list(task.needs)].unify_chunks().chunks) | chunks
    lengths_of = {dim: lengths for dim, lengths in lengths_of.items() if dim in sizes}
    return cells.chunk(lengths_of) if lengths_of else cells


def _predicted(data, task: BlockPredictor, target, attrs, *, gaps=False, chunks=None):
    """Return the data set of predictions at all cells of `data`, or only at gaps of the target."""
    sizes, outputs = _sizes(data, task, target), list(task.outputs)
    task(np.zeros(0, bool), *(np.empty(0, data[name].dtype) for name in task.needs))  # refuse wrong dtypes early
    found = data[target].attrs if attrs is None and target in data.variables else attrs or {}
    if chunks:
        data = data.chunk({dim: length for dim, length in chunks.items() if dim in sizes})
    predictions = xarray.apply_ufunc(
        NamedTask(task),
        _cells_to_predict(data, sizes, task, target, gaps, chunks or {}),
        *(data[name].variable for name in task.needs),
        output_core_dims=[["class"] * len(shape) for shape in task.outputs.values()],
        dask="parallelized",
        output_dtypes=[np.int32 if name == "label" else float for name in outputs],
        dask_gufunc_kwargs={"output_sizes": {"class": len(task.classes)} if task.classes else {}},
    )
    named = attributes(target, outputs, found, task.source_attribute(), task.classes)
    fields = {
        variable_of(target, name): (variable.dims, variable.data, named[name], encoding(name))
        for name, variable in zip(outputs, predictions, strict=True)
    }
    coords = {name: coord for name, coord in data.coords.items() if set(coord.dims) <= set(sizes)}
    classes = {"class": list(task.classes)} if task.classes else {}
    described = {name: data[name] for name in about(data, [target])}
    global_attrs = {"Conventions": CONVENTIONS} | data.attrs
    return xarray.Dataset(fields | described, coords=coords | classes, attrs=global_attrs)


@xarray.register_dataset_accessor("bcm")
class Accessor:
    """The functions of this module as methods of a data set: ds.bcm.fit, ds.bcm.predict, ..."""

    def __init__(self, data):
        self._data = data

    def fit(self, target, inputs, settings=None, **how) -> GBCM:
        """As `bcmdist.xarray.fit`."""
        return fit(self._data, target, inputs, settings, **how)

    def predict(self, model, **how) -> xarray.Dataset:
        """As `bcmdist.xarray.predict`."""
        return predict(self._data, model, **how)

    def average(self, model, **how) -> xarray.Dataset:
        """As `bcmdist.xarray.average`."""
        return average(self._data, model, **how)

    def fill(self, model, **how) -> xarray.Dataset:
        """As `bcmdist.xarray.fill`."""
        return fill(self._data, model, **how)

    def predict_to_zarr(self, model, out, **how) -> int:
        """As `bcmdist.xarray.predict_to_zarr`."""
        return predict_to_zarr(self._data, model, out, **how)

    def on_sphere(self, **names) -> xarray.Dataset:
        """As `bcmdist.xarray.on_sphere`."""
        return on_sphere(self._data, **names)
