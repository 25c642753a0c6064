"""Averages over groups of the rows of a data set or table, or over the polygons of a file, as a table.

`predict --over NAME` takes the groups from a column of the new rows; `predict --over regions.geojson` from the polygons
in which they lie. Where the new rows are themselves a file of polygons, they are a grid of points inside each.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.requests import PredictRequest
from bcmdist.data.dataset import open_named, read_coordinate
from bcmdist.data.groups import find_array, open_group
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.data.tables.column import Column, as_texts
from bcmdist.data.tables.options import is_geojson
from bcmdist.data.tables.polygons import Region, read_regions
from bcmdist.data.tables.sphere import degrees, points
from bcmdist.data.tables.tables import Named, ending, open_table
from bcmdist.data.tables.writing import WRITERS
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.joint.averages import DRAWS, groups_of, refuse_averages


def refuse_average(gbcm: GBCM, request: PredictRequest) -> None:
    """Raise `InvalidOption` for averages that cannot be computed or written, before any row is read."""
    if ending(request.out) not in WRITERS:
        raise InvalidOption(
            f"--over: expected --out that ends in {' or '.join(WRITERS)}, a row for each group, got {request.out}; "
            "choose another --out"
        )
    taken = {"--inputs": request.inputs, "--id": request.id, "--terms": request.terms}
    taken["--target-variance"] = request.target_variance
    if wrong := [name for name, value in taken.items() if value]:
        raise InvalidOption(
            f"--over: expected averages over rows, got {wrong[0]}, which is of single rows; leave out one of them"
        )
    refuse_averages(gbcm.model, request.of, request.above, request.draws or DRAWS)


@dataclass(frozen=True)
class Points:
    """Points to average over, in groups."""

    name: str
    """name of the groups: that of their column, or `region`"""
    X: np.ndarray
    """(n, D)"""
    groups: np.ndarray
    """name of the group of each point, (n,)"""
    figures: dict[str, Any]
    """numbers of rows"""
    weights: np.ndarray | None = None
    """(n,)"""
    companions: dict[str, np.ndarray] = field(default_factory=dict)
    """exposure and trials by role, (n,)"""

    def averages(self, gbcm: GBCM, request: PredictRequest) -> dict[str, np.ndarray]:
        """Columns of averages (G,) by name; the first names the group."""
        how: dict[str, Any] = {"of": request.of, "above": request.above, "method": request.method, "seed": request.seed}
        how |= {"draws": request.draws or DRAWS, "weights": self.weights, **self.companions}
        found = gbcm.predict_average(self.X, self.groups, **how)
        return {self.name: found.pop("group").astype(object)} | found


def points_in_regions(gbcm: GBCM, request: PredictRequest) -> Points:
    """Grids of points inside the polygons of the file `request.data`."""
    columns = _coordinates(gbcm, request.coordinates, all_of_them=True)
    grids = [(region.name, region.grid(request.spacing)) for region in read_regions(request.data)]
    grid = np.concatenate([grid for _, grid in grids])
    X = np.empty((len(grid), len(columns)))
    X[:, columns] = grid if len(columns) == 2 else points(*grid.T)
    names = np.repeat([name for name, _ in grids], [len(grid) for _, grid in grids])
    return Points("region", X, names, {"rows": len(X)})


def points_of(gbcm: GBCM, request: PredictRequest, data: str, x: str | None, *, times: int = 1) -> Points:
    """The rows of `data` in the groups of `request.over`.

    Parameters
    ----------
    data : the rows as a Zarr group; `request.data` may be the table that it was imported from
    x : name of its input array
    times : number of times that `data` has the rows of the table: once for each output, where the table names none

    Raises
    ------
    InvalidData, InvalidOption
        There is no such column, or values of it are missing.
    """
    dataset = open_named(data, x=x or gbcm.model.x_name, y=None, schema=gbcm.model.schema)
    gbcm.snapshot.refuse_unlike([Partition(dataset, 0, dataset.rows)])
    ((_, rows),) = read_all([Partition(dataset, 0, dataset.rows)])
    companions = {name: getattr(rows.obs, name) for name in ("exposure", "trials") if getattr(request, name)}
    over, taken, name = str(request.over), np.arange(dataset.rows), str(request.over)
    if is_geojson(over):
        name = "region"
        regions, at = read_regions(over), rows.X[:, _coordinates(gbcm, request.coordinates)]
        if at.shape[1] == 3:
            west = min(region.edges[:, 0].min() for region in regions)
            lon, lat = degrees(at)
            at = np.column_stack([west + np.mod(lon - west, 360.0), lat])
        taken, values = _inside(regions, at, over)
    else:
        values = _column(request, data, over, dataset.rows, times)
    weights = None
    if request.weight is not None:
        weights = _numbers(request.weight, _column(request, data, request.weight, dataset.rows, times))[taken]
    weighted = {} if weights is None else {"weights_name": f"--weight {request.weight}"}
    groups_of(values, len(taken), weights, name=f"--over {over}", **weighted)
    figures = {"rows": dataset.rows, "outside": dataset.rows - len(np.unique(taken))}
    companions = {role: column[taken] for role, column in companions.items()}
    return Points(name, rows.X[taken], values, figures, weights, companions)


def _coordinates(gbcm: GBCM, names: str | None, *, all_of_them: bool = False) -> list[int]:
    """Numbers of the inputs that are x and y of polygons, or of the three of a point on a sphere, whose longitude and
    latitude they are; `all_of_them`: the model must have no others."""
    columns, coding = list(gbcm.model.schema.columns), gbcm.model.schema.coding
    if names is None and gbcm.model.inputs == 2:
        return [0, 1]
    given = [name.strip() for name in (names or "").split(",") if name.strip()]
    for first, sphere in coding.points if coding else ():
        alone = gbcm.model.inputs == 3
        if (not given and alone) or (tuple(given) == sphere.columns and (alone or not all_of_them)):
            return [first, first + 1, first + 2]
    if len(given) != 2 or set(given) - set(columns):
        raise InvalidOption(
            f"--coordinates: expected two inputs, x and y of the polygons, among {', '.join(columns) or 'named ones'}, "
            f"got {names!r:.80}; name them, such as lon,lat"
        )
    if all_of_them and gbcm.model.inputs != 2:
        raise InvalidOption(
            f"{gbcm.url}: expected a model of two inputs for a grid of points in polygons, got {gbcm.model.inputs}; "
            "give a table of points as DATA, and the polygons as --over"
        )
    return [columns.index(name) for name in given]


def _inside(regions: list[Region], points: FloatArray, over: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions of points in regions, and the names of these; a point in several regions belongs to each."""
    found = [np.flatnonzero(region.contains(points)) for region in regions]
    empty = [region.name for region, own in zip(regions, found, strict=True) if not len(own)]
    if len(empty) == len(regions):
        raise InvalidData(f"{over}: expected polygons around some rows, found none; check the --coordinates, x first")
    if empty:
        text = f"{over}: no row lies in {len(empty)} of {len(regions)} regions, such as {empty[0]!r:.80}: left out"
        warnings.warn(BcmdistWarning(text), stacklevel=2)
    names = np.array([region.name for region in regions], dtype=object)
    return np.concatenate(found), np.repeat(names, [len(own) for own in found])


def _column(request: PredictRequest, data: str, name: str, rows: int, times: int) -> np.ndarray:
    """A column of the new rows, (n,): of their table, or an array of the data set."""
    if data == request.data:
        group: Any = open_group(data)
        array = find_array(group, data, name)
        if array is None or array.shape != (rows,):
            found = [one for one in sorted(group.array_keys()) if group[one].shape == (rows,)]
            raise InvalidOption(
                f"{data}: expected an array {name!r} with a value for each row, found {', '.join(found) or 'none'}; "
                "name one of these"
            )
        return read_coordinate(group, data, name)
    table = open_table(request.data)
    if not isinstance(table, Named) or name not in table.names:
        columns = ", ".join(table.names) if isinstance(table, Named) else "arrays"
        raise InvalidOption(f"{request.data}: expected a column {name!r}, found {columns:.200}; name one of these")
    values = np.concatenate([_values(piece[name]) for piece in table.pieces()])
    column: np.ndarray = np.tile(values, times)[_row_numbers(data, rows)]
    return column


def _values(column: Column) -> np.ndarray:
    """Values of a column: numbers or dates, with nan for missing ones; otherwise texts, "" for missing ones."""
    kind, gaps = column.values.dtype.kind, column.gaps.any()
    if kind == "f" or (kind in "iub" and not gaps):
        return np.where(column.gaps, np.nan, column.values) if gaps else column.values
    if kind == "M":
        return np.where(column.gaps, np.datetime64("NaT"), column.values)
    return as_texts(column)


def _numbers(name: str, values: np.ndarray) -> FloatArray:
    try:
        return np.asarray(values, dtype=float)
    except ValueError as error:
        raise InvalidData(f"--weight: expected numbers in {name!r}, got texts ({error}); correct it") from error


def _row_numbers(data: str, rows: int) -> np.ndarray:
    """Numbers in their table of the rows of a data set: some may have been left out."""
    group: Any = open_group(data)
    array = find_array(group, data, "row")
    return np.arange(rows) if array is None else read_coordinate(group, data, "row").astype(np.int64)
