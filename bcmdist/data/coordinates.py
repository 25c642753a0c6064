"""Coordinates of a data set: arrays of numbers or texts that label its columns and rows."""

import warnings

import numpy as np

from bcmdist.data.groups import find_array
from bcmdist.data.schema import CLASSES, CODING, Schema, dimensions, refuse_repeated
from bcmdist.data.tables.coding import from_json
from bcmdist.data.values import since, unpacked
from bcmdist.errors import BcmdistError, DataDamaged, DataNotFound, InvalidDtype
from bcmdist.storage.urls import answering


def schema_of(url, group, X, y) -> Schema:
    """Return the schema of a group: column names of the array X, class names of y (if given), and the table coding.

    Raises
    ------
    DataDamaged, InvalidData, InvalidDtype, UnsafeData
    """
    along = dimensions(X)[1]
    columns: tuple[str, ...] = ()
    if along:
        named = find_array(group, url, along)
        if named is not None and named.shape == X.shape[1:]:
            columns = _column_names(named, read_coordinate(group, url, along), f"{url}: {along}")
    listed = [] if y is None else y.attrs.get(CLASSES, [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise DataDamaged(f"{url}: expected a list of names in the attribute {CLASSES!r} of y, got {listed!r}; correct")
    refuse_repeated(listed, f"{url}: {CLASSES}", of="class")
    coded = X.attrs.get(CODING)
    return Schema(columns, tuple(listed), None if coded is None else from_json(coded, f"{url}: {CODING}"))


def _column_names(array, values, where):
    """Return unpacked coordinate values as names. Dates include their unit, whose reference day differs by file."""
    units = since(array)
    names = tuple(f"{value} {units}" if units else str(value) for value in unpacked(array, values, where).tolist())
    refuse_repeated(names, where)
    return names


def read_coordinate(group, url, name, rows=slice(None)) -> np.ndarray:
    """Return values of a coordinate, numbers or texts, as stored.

    Raises
    ------
    DataDamaged, DataNotFound, InvalidDtype, UnsafeData
    """
    array = find_array(group, url, name)
    if array is None:
        raise DataNotFound(f"{url}: expected a coordinate {name!r}, found none; restore it from a copy")
    group.store.encoding(array.path)  # raises if the encoding is not supported
    if array.dtype.kind not in "fiubmMUTSO":
        raise InvalidDtype(f"{url}: expected numbers or texts in the coordinate {name}, got {array.dtype}; convert it")
    try:
        with answering(url), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr's, about fixed-length texts, which its specification lacks
            return np.asarray(array[rows])
    except BcmdistError:
        raise
    except Exception as error:  # any error of zarr
        raise DataDamaged(f"{url}: the coordinate {name} cannot be read ({error}); restore it from a copy") from error
