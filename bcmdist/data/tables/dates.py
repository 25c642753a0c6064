"""Dates and times as numbers: days since the first of January 1970, 00:00 UTC.

Texts are dates where all of them are ISO 8601 (2026-03-01, 2026-03-01T12:30:00.5+01:00), or of a format that was said.
Times without a zone are taken for UTC, which whoever reads them is told; with and without in one column is an error.
"""

import re
from datetime import UTC, datetime, timedelta

import numpy as np

from bcmdist.data.tables.column import DATES, Column
from bcmdist.errors import InvalidData

ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?)?\s?(?P<zone>Z|[+-]\d{2}(:?\d{2})?)?", re.ASCII
)
# Of texts that people take for dates, and that mean one thing here and another there.
DAY_FIRST = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})\b.*", re.ASCII)
EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
# Days of a turn; a year is the mean one of the calendar.
PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}


def is_date(text) -> bool:
    """Whether a text has the form of an ISO 8601 date."""
    return ISO.fullmatch(text) is not None


def has_zone(text, form="") -> bool:
    """Whether a date says its time zone; of the format `form` where that is given."""
    if form:
        return "%z" in form
    match = ISO.fullmatch(text)
    return bool(match and match["zone"])


def day_of(text, form="") -> float:
    """UTC days of a text; `ValueError` where it is no date."""
    if form:
        found = datetime.strptime(text, form)
    elif is_date(text):
        found = datetime.fromisoformat(text)
    else:
        raise ValueError(text)
    return (found.replace(tzinfo=found.tzinfo or UTC) - EPOCH) / DAY


def days(column: Column, where, *, form="", zoned=None, start=0) -> np.ndarray:
    """UTC days (n,) of a column of dates or texts, nan where nothing is.

    Parameters
    ----------
    form : format of texts, as `strptime` reads it; ISO 8601 by default
    zoned : whether all say their zone; None where it does not matter
    start : number of the first row, for errors

    Raises
    ------
    InvalidData
        A text is no date, or says a zone where others say none.
    """
    if column.kind == DATES:
        _refuse_other_zone(bool(column.zone), zoned, column, where, start, column.zone)
        return np.where(column.gaps, np.nan, _days_of(column.values))
    known: dict[str, float] = {"": np.nan}
    for row, text in enumerate(column.values.tolist()):
        text = "" if column.gaps[row] else str(text)
        if text in known:
            continue
        try:
            known[text] = day_of(text, form)
        except ValueError as error:
            wanted = f"a date of the format {form!r}" if form else "a date such as 2026-03-01 or 2026-03-01T12:30:00Z"
            raise InvalidData(
                f"{where}: expected {wanted} in {column.name!r}, got {text!r} at row {start + row}; correct it, or say "
                f"--date '{column.name}=FORMAT' with the parts of strptime, such as %d.%m.%Y"
            ) from error
        _refuse_other_zone(has_zone(text, form), zoned, column, where, start + row, text)
    gaps = column.gaps.tolist()
    return np.array([known["" if gone else str(t)] for t, gone in zip(column.values.tolist(), gaps, strict=True)])


def _days_of(values):
    """UTC days (n,) of datetime64 of any unit; its whole days first, so that no unit runs over."""
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
    """Sine and cosine (n, 2) of days on a circle of a period; 0, the middle of it, where there is no day."""
    angle = 2 * np.pi * np.mod(days, PERIODS[period]) / PERIODS[period]
    return np.nan_to_num(np.column_stack([np.sin(angle), np.cos(angle)]), nan=0.0)
