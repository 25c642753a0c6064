"""Two coordinates over which predictions are mapped: two inputs, or longitude and latitude of a point on a sphere.

Other inputs are those of a typical row. Longitudes begin behind the widest gap between rows, so that a region on both
sides of 180 degrees is drawn as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.api.relevance import features
from bcmdist.data.tables.sphere import degrees, points
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.model import Model

GLOBE = 60.0  # degrees of half a map without rows from which on it shows the globe


@dataclass(frozen=True)
class Plane:
    """Two coordinates with their ranges."""

    names: Sequence[str]
    low: FloatArray
    """(2,)"""
    high: FloatArray
    """(2,)"""
    columns: Sequence[int]
    """numbers of the inputs: two, or three of a point on a sphere"""
    rows: FloatArray | None = None
    """rows to draw, (n, 2)"""

    @property
    def spherical(self) -> bool:
        """Whether they are longitude and latitude of a point on a sphere, in degrees."""
        return len(self.columns) == 3

    def grid(self, typical: FloatArray, cells: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return both axes (cells,) and the inputs (cells^2, D) of all cells, of which the first coordinate varies
        fastest; other inputs are those of a typical row (D,)."""
        a, b = (np.linspace(low, high, cells) for low, high in zip(self.low, self.high, strict=True))
        places = np.column_stack([v.ravel() for v in np.meshgrid(a, b)])
        X = np.tile(typical, (len(places), 1))
        X[:, list(self.columns)] = points(*places.T) if self.spherical else places
        return a, b, X

    def others(self, model: Model) -> int:
        """Return how many numeric inputs, categories and further points on a sphere are not on the map."""
        return len(features(model)) - (1 if self.spherical else 2) - bool(model.outputs)


def sphere_plane(model: Model, rows: FloatArray | None = None) -> Plane | None:
    """Return longitude and latitude of the first point on a sphere among the inputs; None if there is none.

    Parameters
    ----------
    rows : inputs (n, D) in original units whose range is mapped; None: the region that the scaling of inputs implies
    """
    on_spheres = model.schema.coding.points if model.schema.coding else ()
    if not on_spheres:
        return None
    first, sphere = on_spheres[0]
    columns = [first, first + 1, first + 2]
    if rows is not None:
        lon, lat = degrees(rows[:, columns])
        ordered = np.sort(lon)
        gaps = np.diff(ordered, append=ordered[0] + 360.0)
        west = ordered[(int(np.argmax(gaps)) + 1) % len(ordered)]
        places = np.column_stack([west + np.mod(lon - west, 360.0), lat])
        return Plane(sphere.columns, places.min(axis=0), places.max(axis=0), columns, places)
    (lon,), (lat,) = degrees(model.scaling.x_mean[None, columns])
    # The mean square of the chords of a square of half a side a, in radians, is 2 a^2 / 3; that of inputs 3 scale^2.
    half = float(np.rad2deg(np.sqrt(4.5) * model.scaling.x_scale[first]))
    if half >= GLOBE:
        return Plane(sphere.columns, np.array([-180.0, -90.0]), np.array([180.0, 90.0]), columns)
    wide = half / max(np.cos(np.deg2rad(lat)), np.sin(np.deg2rad(half)))
    low, high = np.array([lon - wide, max(lat - half, -90.0)]), np.array([lon + wide, min(lat + half, 90.0)])
    return Plane(sphere.columns, low, high, columns)


def typical_row(model: Model) -> FloatArray:
    """Return a typical row (D,): means of warped numeric inputs, most frequent levels of categories, first output."""
    X: FloatArray = model.scaling.original_inputs(np.zeros((1, model.inputs)))[0]
    for feature in features(model):
        if feature.levels is not None:
            X[feature.inputs] = np.arange(len(feature.inputs)) == np.argmax(X[feature.inputs])
    return X
