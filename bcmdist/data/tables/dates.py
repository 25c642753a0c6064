"""Dates and times as numbers: days since 1 January 1970, 00:00 UTC.

A text column holds dates if most of its texts are ISO 8601 (2026-03-01, 2026-03-01T12:30:00.5+01:00), or if the user
gives a format; then all its texts must be dates. Times without a zone are taken as UTC, with a warning. Mixing times
with and without a zone in one column is an error.
"""

import re
from datetime import UTC, datetime, timedelta

import numpy as np

from bcmdist.data.tables.column import DATES, Column
from bcmdist.errors import InvalidData

ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?)?\s?(?P<zone>Z|[+-]\d{2}(:?\d{2})?)?", re.ASCII
)
# Texts that are usually dates, but whose order of day and month varies by country.
DAY_FIRST = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})\b.*", re.ASCII)
EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
# Length of a cycle in days; a year is the calendar's mean year.
PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}


def is_date(text) -> bool:
    """Return whether a text has the form of an ISO 8601 date."""
    return ISO.fullmatch(text) is not None


def has_zone(text, form="") -> bool:
    """Return whether a date has a time zone; with `form`, whether that format includes one."""
    if form:
        return "%z" in form
    match = ISO.fullmatch(text)
    return bool(match and match["zone"])


def day_of(text, form="") -> float:
    """Parse a text to UTC days; `ValueError` if it is not a date."""
    if form:
        found = datetime.strptime(text, form)
    elif is_date(text):
        found = datetime.fromisoformat(text)
    else:
        raise ValueError(text)
    return (found.replace(tzinfo=found.tzinfo or UTC) - EPOCH) / DAY


def days(column: Column, where, *, form="", zoned=None, start=0) -> np.ndarray:
    """Return the UTC days (n,) of a column of dates or texts, nan for missing values.

    Parameters
    ----------
    form : strptime format of texts; ISO 8601 by default
    zoned : whether all must have a time zone; None for no check
    start : number of the first row, for errors

    Raises
    ------
    InvalidData
        A text is not a date, or has a time zone contrary to `zoned`.
    """
    if column.kind == DATES:
        _refuse_other_zone(bool(column.zone), zoned, column, where, start, column.zone)
        return np.where(column.gaps, np.nan, _days_of(column.values))
    parsed: dict[str, float] = {"": np.nan}
    for row, text in enumerate(column.values.tolist()):
        text = "" if column.gaps[row] else str(text)
        if text in parsed:
            continue
        try:
            parsed[text] = day_of(text, form)
        except ValueError as error:
            example = "2026-03-01 or 2026-03-01T12:30:00Z"
            expected = f"a date of the format {form!r}" if form else f"a date such as {example}"
            raise InvalidData(
                f"{where}: expected {expected} in {column.name!r}, got {text!r} at row {start + row}; write it as in "
                "training"
            ) from error
        _refuse_other_zone(has_zone(text, form), zoned, column, where, start + row, text)
    gaps = column.gaps.tolist()
    return np.array([parsed["" if gone else str(t)] for t, gone in zip(column.values.tolist(), gaps, strict=True)])


def _days_of(values):
    """Return the UTC days (n,) of datetime64 of any unit; whole days are split off first, to avoid overflow."""
    whole = values.astype("M8[D]")
    return whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "D")


def _refuse_other_zone(zone, zoned, column, where, row, value):
    if zoned is not None and zone != zoned:
        words = ("with", "without") if zoned else ("without", "with")
        raise InvalidData(
            f"{where}: expected times {words[0]} a zone in all rows of {column.name!r}, got one {words[1]}, {value!r} "
            f"at row {row}; write the zone in every row (Z for UTC), or in none"
        )


def turns(days, period) -> np.ndarray:
    """Return the sine and cosine (n, 2) of the phase of days within a cycle; (0, 0) for missing days."""
    angle = 2 * np.pi * np.mod(days, PERIODS[period]) / PERIODS[period]
    return np.nan_to_num(np.column_stack([np.sin(angle), np.cos(angle)]), nan=0.0)
