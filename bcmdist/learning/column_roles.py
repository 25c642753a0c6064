"""Roles of inputs: coordinates, which are places or times of rows, beside covariates; and indicators of gaps."""

from collections.abc import Sequence

from bcmdist.data.schema import Schema, few
from bcmdist.errors import InvalidOption
from bcmdist.learning.structure import ColumnRoles

NO_INPUTS = "none"
# Names that coordinates have, in any case: all of a line must be there.
USUAL = (
    ("lon", "lat"),
    ("long", "lat"),
    ("lng", "lat"),
    ("longitude", "latitude"),
    ("easting", "northing"),
    ("x", "y", "z"),
    ("x", "y"),
)


def column_roles(requested: str | None, schema: Schema, inputs: int) -> ColumnRoles:
    """Return the coordinates (`coordinate_inputs`) and the indicators of missing values among the inputs."""
    return ColumnRoles(coordinate_inputs(requested, schema, inputs), schema.gaps)


def coordinate_inputs(requested: str | None, schema: Schema, inputs: int) -> tuple[int, ...]:
    """Return the numbers of the inputs that are coordinates, ascending: those requested, or those that the data name.

    Parameters
    ----------
    requested : names or numbers, separated by commas, or "none"; None for points on a sphere, or the coordinates of the
        grid that the data come from, or else inputs with usual names (`USUAL`)

    Raises
    ------
    InvalidOption
        There is no such input, or one is named twice.
    """
    if requested is not None:
        names = [] if requested == NO_INPUTS else [name.strip() for name in requested.split(",")]
        return tuple(sorted(numbers_of(names, schema, inputs)))
    if schema.coding and schema.coding.points:
        return tuple(first + k for first, _ in schema.coding.points for k in range(3))
    if schema.coordinates:
        return tuple(k for k, name in enumerate(schema.columns) if name in schema.coordinates)
    place = {name.lower(): k for k, name in enumerate(schema.columns)}
    found = next((names for names in USUAL if place.keys() >= set(names)), ())
    return tuple(sorted(place[name] for name in found))


def map_axes(schema: Schema, inputs: int) -> tuple[int, ...]:
    """Return the numbers of two coordinates, first the one that maps draw across (longitude, easting or x); empty if
    there are not two.
    """
    found = coordinate_inputs(None, schema, inputs)
    order = [name for names in USUAL for name in names]
    named = {k: schema.columns[k].lower() for k in found if k < len(schema.columns)}
    if set(named.values()) <= set(order):
        found = tuple(sorted(found, key=lambda k: order.index(named[k]) if k in named else k))
    return found if len(found) == 2 else ()


def numbers_of(names: Sequence[str], schema: Schema, inputs: int) -> list[int]:
    """Return the numbers of inputs from their names, or from these numbers as texts; each may occur once.

    Columns of longitude and latitude, one of them or both, name the three inputs of their point.

    Raises
    ------
    InvalidOption
    """
    found = [number for name in _with_points(names, schema) for number in _numbers(name, schema, inputs)]
    if len(set(found)) < len(found):
        listed = ", ".join(names)
        raise InvalidOption(f"coordinates: expected each input once, got {listed:.200}; leave out the second")
    return found


def _with_points(names, schema) -> list[str]:
    """Return the names without those of latitudes that come with their longitudes: a point is named by either."""
    points = schema.coding.points if schema.coding else ()
    named = {code.lat for _, code in points if code.lon in names}
    return [name for name in names if name not in named]


def _numbers(name, schema, inputs) -> list[int]:
    if name in schema.columns:
        return [schema.columns.index(name)]
    for first, code in schema.coding.points if schema.coding else ():
        if name in code.columns:
            return [first, first + 1, first + 2]
    if name.isdecimal() and int(name) < inputs:
        return [int(name)]
    listed = few((schema.coding.columns if schema.coding else schema.columns) or map(str, range(inputs)))
    raise InvalidOption(f"coordinates: expected inputs ({listed}), got {name!r:.80}; correct the name")
