"""Columns of a data set by name: inputs, categories, or arrays of one value for each row."""

from collections.abc import Sequence

import numpy as np

from bcmdist.data.dataset import Dataset, read_coordinate
from bcmdist.data.groups import find_array, open_group
from bcmdist.data.schema import few
from bcmdist.data.schemes import reader_of
from bcmdist.data.tables.coding import Category, Date
from bcmdist.data.tables.dates import day_of
from bcmdist.data.tables.sphere import Sphere, degrees
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.learning.column_roles import numbers_of
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.model import Model

DAY = np.timedelta64(1, "D")


def column_values(data: Dataset, model: Model, X: FloatArray, name: str) -> np.ndarray:
    """Return the values (N,) of a column of the table that was imported, of an input, or of an array of the data set.

    Parameters
    ----------
    X : all rows (N, D) in the order of the model's inputs

    Raises
    ------
    InvalidOption
        There is no such column.
    """
    columns, first = model.schema.columns, 0
    for code in model.schema.coding.codes if model.schema.coding else ():
        if code.name == name and code.kind == Category.kind:
            return _levels(X[:, first : first + len(code.inputs)], code.inputs)
        if isinstance(code, Sphere) and name in code.columns:
            return degrees(X[:, first : first + len(code.inputs)])[code.columns.index(name)]
        first += len(code.inputs)
    if name in columns or name.isdecimal():
        return X[:, numbers_of([name], model.schema, model.inputs)[0]]
    group = None if reader_of(data.url) else open_group(data.url)
    array = None if group is None else find_array(group, data.url, name)
    if array is not None and array.shape == (data.rows,):
        return read_coordinate(group, data.url, name)
    listed = few(columns or map(str, range(model.inputs)))
    raise InvalidOption(
        f"{data.url}: expected an input ({listed}) or an array of {data.rows} values, found no {name!r}; "
        "correct the name, or store it under this name (`bcmdist import --id`)"
    )


def _levels(one_hot: FloatArray, names: Sequence[str]) -> np.ndarray:
    """Return level names (N,) of a category from its inputs (N, k); "" for levels that training lacks."""
    found = np.array([*names, ""])
    return found[np.where((one_hot == 1.0).any(axis=1), one_hot.argmax(axis=1), len(names))]


def time_column(model: Model) -> str:
    """Return the name of the column of times: the only date of the table, else "time"."""
    dates = [code.name for code in model.schema.coding.codes if code.kind == Date.kind] if model.schema.coding else []
    if len(dates) > 1:
        raise InvalidOption(f"by: expected one column of dates, got {few(dates)}; name one: time:{dates[0]}")
    return dates[0] if dates else "time"


def is_date(model: Model, name: str, values: np.ndarray) -> bool:
    """Whether a column of times holds dates, which `times` gives in days since 1970."""
    codes = model.schema.coding.codes if model.schema.coding else ()
    return values.dtype.kind in "MUTSO" or any(code.name == name and code.kind == Date.kind for code in codes)


def date_words(day: float) -> str:
    """Return the date of a day since 1970, with the time if there is one."""
    found = np.datetime_as_string(np.datetime64(round(day * 86400), "s"))
    return found.removesuffix("T00:00:00")


def times(values: np.ndarray, name: str) -> np.ndarray:
    """Return times (N,) as numbers: days of dates, other numbers as they are.

    Raises
    ------
    InvalidData
        A value is neither a number nor a date.
    """
    if values.dtype.kind == "M":
        found = (values - np.datetime64(0, "D")) / DAY
    elif values.dtype.kind in "UTSO":
        texts, place = np.unique([str(value) for value in values.tolist()], return_inverse=True)
        try:
            found = np.array([day_of(text) for text in texts.tolist()])[place]
        except ValueError as error:
            raise InvalidData(
                f"{name}: expected dates such as 2026-03-01 or numbers, got {str(error)!r:.60}; correct them"
            ) from error
    else:
        found = values.astype(float)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise InvalidData(f"{name}: expected a time in each row, none at row {row}; fill or drop these rows")
    return found
