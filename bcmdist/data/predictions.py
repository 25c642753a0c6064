"""Predictions as Zarr groups: one row for each row of a data set, with the coordinates of these rows."""

import warnings
from collections.abc import Mapping

import numpy as np
import zarr

from bcmdist.data.dataset import Dataset, read_coordinate
from bcmdist.data.groups import find_array, group_store, open_group
from bcmdist.data.schema import CLASSES, dimensions
from bcmdist.data.writing import create_array
from bcmdist.errors import DataExists, InvalidData

# Predictions are written in the chunks of X, unless these are so large that a task would not fit in memory.
LARGEST_OUTPUT_CHUNK = 8192
COPIED_ROWS = 2**20  # of a coordinate, at a time


def create_predictions(
    place, data: Dataset, columns: Mapping[str, np.ndarray], attributes, *, classes=(), names=(), terms=()
) -> int:
    """Create an empty output for predictions at the rows of `data`, with their coordinates; return the rows per chunk.

    The metadata are consolidated: they are final, and xarray looks for consolidated metadata.

    Parameters
    ----------
    columns : example prediction of one row, by name
    classes : labels of the classes, in the order of their probabilities
    names : names of the classes 0 to C - 1, if labels are texts
    terms : names of the terms of f, in the order of their moments (n, T)
    """
    rows_per_chunk = min(data.chunk_rows, LARGEST_OUTPUT_CHUNK)
    try:
        group = zarr.open_group(group_store(place), mode="w-", attributes=attributes)
    except zarr.errors.ContainsGroupError as error:
        raise DataExists(f"output: expected a new URL, {place} holds a group; choose another one") from error
    source = open_group(data.url)
    row = dimensions(source[data.x])[0] or "row"
    taken = _coordinates(source, row, data)
    _refuse_names_of_predictions({row, *taken}, {*columns, "class", *(["term"] if terms else [])}, data)
    for name, example in columns.items():
        shape = (data.rows, *example.shape[1:])
        across = "term" if name.startswith("term_") else "draw" if name == "sample" else "class"
        create_array(group, name, shape, example.dtype, rows_per_chunk, row, across=across)
    for name in taken:
        _copy_coordinate(data, source, name, group, rows_per_chunk, row)
    group.update_attributes({"coordinates": " ".join(name for name in taken if name != row)})
    if "label" in columns:
        labels = np.array(classes)
        if names:
            group["label"].update_attributes({CLASSES: list(names)})
        create_array(group, "class", labels.shape, labels.dtype, len(labels), "class")[...] = labels
    if terms:
        create_array(group, "term", (len(terms),), str, len(terms), "term")[...] = np.array(terms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # Zarr's v3 specification lacks them
        zarr.consolidate_metadata(group_store(place))
    return rows_per_chunk


def _refuse_names_of_predictions(names, predicted, data):
    """Raise `InvalidData` if the row dimension or a coordinate has the name of a prediction."""
    if names & predicted:
        raise InvalidData(
            f"{data.url}: expected other names of coordinates than those of predictions, got "
            f"{', '.join(map(repr, sorted(names & predicted)))}; rename them"
        )


def _copy_coordinate(data, source, name, group, rows_per_chunk, row):
    """Copy a coordinate along the rows as stored, with its attributes."""
    array = source[name]
    kind = str if array.dtype.kind in "UTSO" else array.dtype
    copy = create_array(group, name, array.shape, kind, rows_per_chunk, row)
    attributes = {key: value for key, value in array.attrs.items() if key != "_ARRAY_DIMENSIONS"}
    copy.update_attributes(attributes)
    for start in range(0, data.rows, COPIED_ROWS):
        some = slice(start, start + COPIED_ROWS)
        copy[some] = read_coordinate(source, data.url, name, some)


def _coordinates(source, row, data):
    """Return the names of 1-D arrays that label the rows: the dimension coordinate, and CF auxiliary coordinates."""
    arrays = (find_array(source, data.url, name) for name in (data.x, "y", *data.companions))
    speakers = [source, *(array for array in arrays if array is not None)]
    listed = [name for one in speakers for name in str(one.attrs.get("coordinates", "")).split()]
    named = ((name, find_array(source, data.url, name)) for name in dict.fromkeys([row, *listed]))
    found = ((name, array) for name, array in named if array is not None and array.shape == (data.rows,))
    return [name for name, array in found if array.dtype.kind in "fiubmMUTSO"]


def output_names(url) -> str:
    """Return the names of the arrays of an output group, as text."""
    return ", ".join(sorted(open_group(url).array_keys()))
