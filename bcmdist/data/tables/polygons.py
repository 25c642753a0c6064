"""Polygons of a GeoJSON file (RFC 7946) as regions: which points lie in them, and grids of points inside.

Coordinates are plain numbers in the units of the file; no projection and no wrapping of longitudes.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.errors import DataNotFound, InvalidData

# Points along the longer side of a region's box, in a grid of points. Arbitrary.
GRID_POINTS = 32
# Points tested against an edge at a time.
TESTED_POINTS = 2**20


@dataclass(frozen=True)
class Region:
    """One or more polygons with a name."""

    name: str
    edges: np.ndarray
    """(E, 4): x and y of the ends of each edge, of outer rings and holes"""

    def contains(self, points) -> np.ndarray:
        """Whether points (n, 2) lie inside, by the even-odd rule: a ray to the right crosses an odd number of edges."""
        return np.concatenate([self._odd(points[a : a + TESTED_POINTS]) for a in range(0, len(points), TESTED_POINTS)])

    def _odd(self, points):
        x, y = points.T
        inside = np.zeros(len(points), bool)
        for x0, y0, x1, y1 in self.edges.tolist():
            crosses = (y0 > y) != (y1 > y)
            if y0 != y1:
                inside ^= crosses & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
        return inside

    def grid(self, spacing: float | None = None) -> np.ndarray:
        """Points (n, 2) of a regular grid inside, `spacing` apart; by default `GRID_POINTS` along the longer side.

        Raises
        ------
        InvalidData
            No point of the grid lies inside.
        """
        corners = self.edges.reshape(-1, 2)
        low, high = corners.min(axis=0), corners.max(axis=0)
        step = spacing or (high - low).max() / GRID_POINTS
        along = [low[d] + step * (0.5 + np.arange(max(1, int(np.ceil((high[d] - low[d]) / step))))) for d in (0, 1)]
        points = np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, 2)
        found = points[self.contains(points)]
        if not len(found):
            raise InvalidData(
                f"{self.name!r:.80}: expected points of a grid inside, found none; give a finer --spacing"
            )
        return found


def read_regions(file) -> list[Region]:
    """The polygons of a GeoJSON file, by the property `name` of their features, else their `id`, else their number.

    Features of the same name are one region.

    Raises
    ------
    DataNotFound, InvalidData
    """
    path = Path(file)
    if not path.is_file():
        raise DataNotFound(f"{file}: expected a GeoJSON file, found none; check the path")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidData(f"{file}: expected GeoJSON, it cannot be read ({error!s:.200}); save it again") from error
    rings: dict[str, list[np.ndarray]] = {}
    for number, (name, geometry) in enumerate(_features(found, file), start=1):
        rings.setdefault(name or str(number), []).extend(_rings(geometry, file, number))
    if not rings:
        raise InvalidData(f"{file}: expected polygons, found no feature; give some")
    return [Region(name, np.concatenate([_edges(ring) for ring in each])) for name, each in rings.items()]


def _features(found, file):
    """Yield name, or None, and geometry of each feature."""
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "FeatureCollection" and isinstance(found.get("features"), list):
        for feature in found["features"]:
            yield from _features(feature, file)
    elif kind == "Feature":
        properties = found.get("properties")
        name = properties.get("name") if isinstance(properties, dict) else None
        name = found.get("id") if name is None else name
        yield None if name is None else str(name), found.get("geometry")
    elif kind in ("Polygon", "MultiPolygon"):
        yield None, found
    else:
        raise InvalidData(f"{file}: expected features with polygons, got the type {kind!r:.80}; give polygons")


def _rings(geometry, file, number):
    """Rings (k, 2) of a polygon or several, closed."""
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise InvalidData(
            f"{file}: expected a Polygon or MultiPolygon in feature {number}, got {kind!r:.80}; leave it out"
        )
    polygons = [geometry.get("coordinates")] if kind == "Polygon" else geometry.get("coordinates")
    try:
        rings = [np.array([corner[:2] for corner in ring], dtype=float) for one in polygons for ring in one]
    except (TypeError, ValueError) as error:
        raise _odd_ring(file, number) from error
    if not rings or any(r.ndim != 2 or r.shape[1] != 2 or len(r) < 3 or not np.all(np.isfinite(r)) for r in rings):
        raise _odd_ring(file, number)
    return rings


def _odd_ring(file, number):
    return InvalidData(
        f"{file}: expected rings of at least three corners [x, y] in feature {number}, got something else; correct it"
    )


def _edges(ring):
    return np.hstack([ring, np.roll(ring, -1, axis=0)])
