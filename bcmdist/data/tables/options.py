"""What somebody may say of the columns of a table, as options or in a request. Nothing heavy is imported."""

from dataclasses import dataclass, field
from typing import Annotated, Literal


@dataclass(frozen=True)
class TableOptions:
    """Of a file: what its columns are; all others are inputs."""

    weight: Annotated[str | None, "NAME"] = None
    """of a file: column that says how many rows each row counts for"""
    exposure: Annotated[str | None, "NAME"] = None
    """of a file: column with the time or area in which the events of a row were counted"""
    event: Annotated[str | None, "NAME"] = None
    """of a file: column that is 1 where a lifetime ended, 0 where it was censored"""
    trials: Annotated[str | None, "NAME"] = None
    """of a file: column with the trials of which the target counts the successes"""
    id: Annotated[str | None, "NAME"] = None
    """of a file: column that names the rows, kept to the predictions"""
    drop: Annotated[list[str], "NAME"] = field(default_factory=list)
    """of a file: column to leave out; may be repeated"""
    category: Annotated[list[str], "NAME"] = field(default_factory=list)
    """of a file: column whose values are levels, such as post codes; columns of few texts are categories anyway; may be
    repeated"""
    date: Annotated[list[str], "NAME=FORMAT"] = field(default_factory=list)
    """of a file: column of dates in a format of strptime, such as day=%d.%m.%Y; those as in 2026-03-01T12:30:00Z are
    known anyway; may be repeated"""
    cyclic: Annotated[list[str], "NAME=day|week|year"] = field(default_factory=list)
    """of a file: column of dates that also go round; may be repeated"""
    missing: Literal["error", "drop", "indicate"] = "error"
    """of a file: rows with gaps are refused, left out, or filled with the mean beside an input that says so; for new
    rows as for those of training"""
    unseen: Literal["error", "other"] = "error"
    """of a file: levels of new rows that were not there in training are refused, or are a level of their own"""
    separator: Annotated[str | None, "CHARACTER"] = None
    """of a .csv file: what stands between cells [default: a comma, semicolon, tab or bar, as in its first line]"""
