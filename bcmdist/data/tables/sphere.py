"""Points on the unit sphere: longitude and latitude, in degrees, as three inputs.

    lon   lat         lon:lat:x   lon:lat:y   lon:lat:z
    180    45    ->   -0.7071     0.0         0.7071          x = cos(lat) cos(lon), y = cos(lat) sin(lon), z = sin(lat)

Distances of inputs are chords, 2 sin(angle / 2), which have no seam at a longitude and no poles, so that each kernel of
three inputs is one on the sphere. The inputs share one lengthscale, and one divisor in the scaling of inputs: distances
do not depend on directions. A chord of 1 is 6371 km on the Earth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcmdist.data.tables.column import NUMBERS, Column, refuse_kind
from bcmdist.data.values import as_float
from bcmdist.errors import InvalidData

# Longitudes from -180 to 180, from 0 to 360, and around any other meridian.
LONGITUDES, LATITUDES = 360.0, 90.0


@dataclass(frozen=True)
class Sphere:
    """Longitude and latitude in degrees as a point on the unit sphere. Gaps stay nan."""

    kind: ClassVar[str] = "sphere"
    lon: str
    """name of the column of longitudes"""
    lat: str
    """name of the column of latitudes"""

    @property
    def name(self) -> str:
        """Names of both columns."""
        return f"{self.lon}, {self.lat}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, longitude first."""
        return self.lon, self.lat

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the three inputs."""
        return tuple(f"{self.lon}:{self.lat}:{axis}" for axis in "xyz")

    def numbers(self, lon: Column, lat: Column, where, *, start=0, unseen="error") -> np.ndarray:
        """Return the points (n, 3) of a piece of a table, as of `Code.numbers`.

        Raises
        ------
        InvalidData
            A latitude is beyond 90 degrees, or a longitude beyond 360.
        InvalidDtype
        """
        return points(
            _degrees(lon, LONGITUDES, "longitude", where, start), _degrees(lat, LATITUDES, "latitude", where, start)
        )

    def describe(self) -> str:
        """Describe the code in words."""
        return "longitude and latitude in degrees, as a point on the unit sphere"


def with_spheres(codes: Mapping[str, Any], columns: Sequence[str], spheres: Sequence[Sphere]) -> tuple[Any, ...]:
    """Return the codes of columns, in order, with each point on a sphere in the place of the first of its columns."""
    owner = dict(codes) | {name: one for one in spheres for name in one.columns}
    return tuple(dict.fromkeys(owner[name] for name in columns if name in owner))


def points(lon, lat) -> np.ndarray:
    """Return points (n, 3) on the unit sphere from degrees (n,) each."""
    return np.column_stack(on_unit_sphere(lon, lat))


def on_unit_sphere(lon: Any, lat: Any) -> tuple[Any, Any, Any]:
    """Return x, y and z of points on the unit sphere from degrees, arrays of NumPy or xarray."""
    east, north = np.deg2rad(lon), np.deg2rad(lat)
    return np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)


def degrees(X) -> tuple[np.ndarray, np.ndarray]:
    """Return longitudes from -180 to 180 and latitudes (n,) of points (n, 3); inverse of `points`."""
    x, y, z = np.asarray(X, dtype=float).T
    return np.rad2deg(np.arctan2(y, x)), np.rad2deg(np.arctan2(z, np.hypot(x, y)))


def _degrees(column, most, what, where, start):
    if column.kind != NUMBERS:
        refuse_kind(column, where, "numbers", start)
    values = as_float(column.values, f"{where}: {column.name!r}", start=start)
    bad = np.flatnonzero(np.abs(values) > most)
    if len(bad):
        raise InvalidData(
            f"{where}: expected degrees of {what} from {-most:g} to {most:g} in {column.name!r}, got "
            f"{values[bad[0]]:g} at row {start + bad[0]} ({len(bad)} such values); correct these rows, or name the "
            "columns in the order --sphere LONGITUDE,LATITUDE"
        )
    return values
