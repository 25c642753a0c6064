"""Predictions at all cells of a grid, lazily where the data set is lazy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.lazy import NamedTask
from bcmdist.api.maps.cells import WHERE
from bcmdist.api.maps.predicted import CONVENTIONS, BlockPredictor, about, attributes, encoding, variable_of
from bcmdist.api.requests import PredictionMethod
from bcmdist.data.groups import Location
from bcmdist.data.tables.grids import sizes_of
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, MissingExtra
from bcmdist.prediction.exceedance import refuse_thresholds

try:
    import xarray as xarray  # re-exported
except ImportError as error:
    raise MissingExtra(f"maps: expected xarray ({error}); pip install 'bcmdist[grids]'") from error

Model = GBCM | Location
"""a committee, or the path of a model directory"""


def committee_of(model: Model) -> GBCM:
    """Return a committee, that of a directory where a path is given."""
    return model if isinstance(model, GBCM) else GBCM.load(model)


def predictor_of(
    model: Model,
    method: PredictionMethod | None,
    quantiles: Sequence[float] = (),
    latent: bool = False,
    above: Sequence[float] = (),
) -> BlockPredictor:
    """Return the task that predicts blocks of cells. Arguments as of `bcmdist.xarray.predict`.

    Raises
    ------
    InvalidOption, ModelNotFound
    """
    gbcm = committee_of(model)
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


def grid_sizes(data: xarray.Dataset, task: BlockPredictor, target: str) -> dict[str, int]:
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


def _cells_to_predict(
    data: xarray.Dataset,
    sizes: Mapping[str, int],
    task: BlockPredictor,
    target: str,
    gaps: bool,
    chunks: Mapping[str, int],
) -> xarray.Variable:
    """Return a boolean variable on the grid: the cells to predict (`gaps`: only where the target is missing).

    It is chunked like a lazy target, or else by `chunks` and the chunks of the inputs; otherwise in memory.
    """
    if gaps:
        missing: xarray.Variable = data[target].variable.isnull()
        return missing
    if target in data.variables and data[target].chunks:
        return xarray.ones_like(data[target].variable, dtype=bool)
    cells = xarray.Variable(tuple(sizes), np.ones(tuple(sizes.values()), bool))
    lengths_of: dict[Any, Any] = dict(data[list(task.needs)].unify_chunks().chunks) | dict(chunks)
    lengths_of = {dim: lengths for dim, lengths in lengths_of.items() if dim in sizes}
    return cells.chunk(lengths_of) if lengths_of else cells


def predicted_cells(
    data: xarray.Dataset,
    task: BlockPredictor,
    target: str,
    attrs: Mapping[str, Any] | None,
    *,
    gaps: bool = False,
    chunks: Mapping[str, int] | None = None,
) -> xarray.Dataset:
    """Return the data set of predictions at all cells of `data`, or only at gaps of the target."""
    sizes, outputs = grid_sizes(data, task, target), list(task.outputs)
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
