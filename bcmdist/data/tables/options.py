"""Roles of the columns of a table, as options or in a request. Nothing heavy is imported."""

from dataclasses import dataclass, field
from typing import Annotated, Literal


@dataclass(frozen=True)
class TableOptions:
    """Roles of the columns of a file; all other columns are inputs."""

    weight: Annotated[str | None, "NAME"] = None
    """for files: column of row weights"""
    exposure: Annotated[str | None, "NAME"] = None
    """for files: column with the time or area in which the events of a row were counted"""
    event: Annotated[str | None, "NAME"] = None
    """for files: column that is 1 where the event of a lifetime was observed, 0 where it is censored"""
    trials: Annotated[str | None, "NAME"] = None
    """for files: column with the number of trials of which the target counts the successes"""
    target_variance: Annotated[str | None, "NAME"] = None
    """for files: column with the known variance of the error of a row's target, in its squared unit; added to the
    noise that is learned"""
    id: Annotated[str | None, "NAME"] = None
    """for files: column of row identifiers, copied to the predictions"""
    drop: Annotated[list[str], "NAME"] = field(default_factory=list)
    """for files: column to ignore; may be repeated"""
    category: Annotated[list[str], "NAME"] = field(default_factory=list)
    """for files: column whose numbers are categories, such as post codes; text columns with few values are by
    default; may be repeated"""
    date: Annotated[list[str], "NAME=FORMAT"] = field(default_factory=list)
    """for files: column of dates in a strptime format, such as day=%d.%m.%Y; ISO 8601 dates are recognised by
    default; may be repeated"""
    cyclic: Annotated[list[str], "NAME=day|week|year"] = field(default_factory=list)
    """for files: column of dates whose cycle is also an input; may be repeated"""
    sphere: Annotated[list[str], "LON,LAT"] = field(default_factory=list)
    """for files: columns of longitude and latitude, in degrees, as a point on the unit sphere: three inputs without a
    seam at 180 degrees and poles, at chord distances, for models that take longitude and latitude; may be repeated"""
    missing: Literal["auto", "error", "drop", "indicate"] = "auto"
    """for files: refuse rows with gaps (error), leave them out (drop), or fill gaps of inputs with the mean and add an
    indicator input (indicate); the same for new rows; auto: indicate, and leave out rows without a target"""
    strict: bool = False
    """for files: refuse gaps, columns that cannot be inputs and, in new rows, categories that training lacks, in place
    of using what can be used with a warning"""
    unseen: Literal["error", "other"] | None = None
    """for files: in new rows, refuse categories that are not in the training data, or treat them as random ones of
    those [default: other, with --strict error]"""
    separator: Annotated[str | None, "CHARACTER"] = None
    """for .csv files: field separator [default: comma, semicolon, tab or bar, as in the first line]"""


def is_geojson(name) -> bool:
    """Whether a name is that of a file of polygons."""
    return str(name).lower().endswith((".geojson", ".json"))
