"""Predictions for the rows of a table file, written to a table file.

    NEW.csv -> NEW.csv.zarr -> predictions.zarr -> PRED.csv

The intermediate Zarr groups are in a temporary directory next to the output, where workers can read and write them
(in the system's temporary directory if the output is remote). The directory is removed at the end.
"""

import contextlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.data.dataset import read_coordinate, read_schema
from bcmdist.data.groups import Location, open_group
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.outputs import taken_meanwhile
from bcmdist.data.schema import NO_INPUT, Schema, dimensions, unused_columns, warn_of_columns
from bcmdist.data.tables.coding import plain
from bcmdist.data.tables.column import Column
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.data.tables.tables import Named, ending, open_table
from bcmdist.data.tables.tables import is_table as is_file
from bcmdist.data.tables.writing import WRITERS, write_table
from bcmdist.data.values import unpacked
from bcmdist.errors import BcmdistError, BcmdistWarning, InvalidData, InvalidOption
from bcmdist.linalg.arrays import IntArray
from bcmdist.model.model import Model
from bcmdist.storage.bounds import option_name
from bcmdist.storage.paths import make_folders
from bcmdist.storage.temporary import partial

# Rows of predictions written at a time.
PIECE_ROWS = 65_536
# Order of the output columns, after those that identify the rows.
ORDER = (
    "label",
    "probability",
    "observation_mean",
    "observation_variance",
    "lower95",
    "upper95",
    "mean",
    "variance",
    "term_mean",
    "term_variance",
    "sample",
)
TIME_UNITS = re.compile(r"(days|hours|minutes|seconds|milliseconds|microseconds) since (.+)")


def is_table(out: Location) -> bool:
    """Whether an output path is a table file (.csv, .parquet)."""
    return "://" not in str(out) and ending(out) in WRITERS


@dataclass(frozen=True)
class Files:
    """The Zarr groups that a prediction reads and writes, and the final output."""

    data: str
    """data set with the rows to predict at"""
    predictions: str
    """Zarr group to write predictions to"""
    unused: dict[str, str]
    """columns that are not used as inputs: the reason by column name"""
    out: str
    """path or URL of the final output"""
    source: str | None = None
    """table whose columns precede the predictions of its rows in `out`"""
    outputs: tuple[str, ...] = ()
    """where the table does not name outputs, those that are predicted at each of its rows"""

    def finish(self, *, csv_safe: bool = False) -> None:
        """Convert the predictions to a table where `out` is one; `csv_safe` as in `write_table`.

        Raises
        ------
        DataExists
            `out` has been created meanwhile.
        """
        if self.predictions == self.out:
            return
        table = f"{os.path.dirname(self.predictions)}/table{ending(self.out)}"
        predictions = Predictions(self.predictions, self.outputs)
        pieces = _pieces(predictions) if self.source is None else _joined(self.source, predictions)
        write_table(table, pieces, csv_safe=csv_safe)
        with taken_meanwhile(self.out):
            os.link(table, self.out)


@contextlib.contextmanager
def predicted(
    model: Model,
    data: str,
    out: str,
    x: str | None = None,
    id: str | None = None,
    unseen: str | None = None,
    *,
    roles: Mapping[str, str],
    kept: Sequence[str] = (),
) -> Iterator[Files]:
    """Context manager: import `data` where it is a table file, and provide a Zarr group for predictions.

    Parameters
    ----------
    x : name of the input array of a data set; default: as in training
    roles : column names of a table by role: weight, exposure, trials, target_variance
    id : column of a table that identifies the rows
    unseen : "error" or "other", for categories of a table that are not in the training data; default: as in training
    kept : columns of a table that have another use, about which nothing is said

    Raises
    ------
    InvalidOption; for table files also the errors of `import_file`
    """
    if (roles or id or unseen) and not is_file(data):
        raise InvalidOption(
            f"{data}: expected a file with --id, --exposure, --trials, --target-variance or --unseen, got no file; "
            "leave them out"
        )
    for name in roles.keys() - set(model.likelihood.companions):
        option = option_name(name)
        raise InvalidOption(f"{option}: expected a likelihood that uses it, got {model.likelihood.name}; leave it out")
    if is_file(data) and ending(out) not in ("", ".zarr", *WRITERS):
        raise InvalidOption(f"output: expected {', '.join(WRITERS)} or .zarr, got {out}; choose another --out")
    unused = {} if is_file(data) else _unused(data, x, model)
    if not is_file(data) and not is_table(out):
        yield Files(data, out, unused, out)
        return
    remote = "://" in str(out)
    place = tempfile.mkdtemp() if remote else partial(os.path.abspath(out))
    try:
        make_folders(place, out)
        file, outputs = data if is_file(data) else None, tuple[str, ...]()
        if file is not None:
            data = f"{place}/{os.path.basename(os.path.abspath(data))}.zarr"  # errors show this name
            outputs = _outputs_of(model, file, out)
            read = _at_each_output(model, file, f"{place}/outputs") if outputs else file
            with _texts_naming(file, read):
                unused = _imported(model, read, data, roles, id, unseen, kept)
        source = file if is_table(out) and file is not None and id is None and not _holds_arrays(file) else None
        yield Files(data, f"{place}/predictions.zarr" if is_table(out) else out, unused, out, source, outputs)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _unused(data: str, x: str | None, model: Model) -> dict[str, str]:
    """Return the columns of a data set that are not used as inputs: the reason by name."""
    found = read_schema(data, x=x or model.x_name)
    return dict.fromkeys(unused_columns(found, model.schema), NO_INPUT)


def _imported(
    model: Model, file: str, url: str, roles: Mapping[str, str], id: str | None, unseen: str | None, kept: Sequence[str]
) -> dict[str, str]:
    for name in {"exposure", "trials"} & set(model.likelihood.companions) - roles.keys():
        text = f"{file}: predictions are of an observation with {name} 1; give --{name} NAME if a column has it"
        warnings.warn(BcmdistWarning(text), stacklevel=5)
    coding = model.schema.coding or (plain(model.schema.columns) if model.schema.columns else None)
    if coding and TARGET_VARIANCE in dict(coding.roles) and TARGET_VARIANCE not in roles and not kept:
        text = f"{file}: predictions are of observations with the learned noise only; give --target-variance NAME"
        warnings.warn(BcmdistWarning(f"{text} if a column has the known variances of their errors"), stacklevel=5)
    target = dict(coding.roles).get("y", model.y_name) if coding else model.y_name
    used = {*(coding.columns if coding else ()), *roles.values(), target, id}
    there = getattr(open_table(file), "names", ()) if kept and coding else ()
    drop = [name for name in dict.fromkeys(kept) if name in there and name not in used]
    taken = Roles(target, target=False, companions=roles, id=id, coding=coding, unseen=unseen, drop=drop)
    figures = import_file(file, url, roles=taken)
    if figures["inputs"] != model.inputs:
        raise InvalidData(
            f"{file}: expected {model.inputs} inputs, as in training, got {figures['inputs']}; give the same columns "
            "in the same order"
        )
    if not model.schema.columns:
        warn_of_columns(Schema(figures["columns"]), model.schema, file)
    unused: dict[str, str] = figures["unused"]
    return unused


def _holds_arrays(file: str) -> bool:
    """Whether a file has arrays or grids, whose rows have no columns to write down."""
    return ending(file) not in (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


def _outputs_of(model: Model, file: str, out: str) -> tuple[str, ...]:
    """Return the outputs to predict at each row of a table that does not name them; () where it does.

    Raises
    ------
    InvalidOption
        `out` is no table.
    """
    table = open_table(file) if model.outputs and not _holds_arrays(file) else None
    if table is None or model.schema.output in (names := getattr(table, "names", ())):
        return ()
    if set(model.schema.output_inputs) <= set(names):
        return ()
    if not is_table(out):
        raise InvalidOption(
            f"{file}: expected a column {model.schema.output!r} that names the output of each row, or a table as "
            f"--out, which has columns for all outputs, got {out}; give one of them"
        )
    return model.outputs


def _at_each_output(model: Model, file: str, folder: str) -> str:
    """Write the rows of a table once for each output, with the column that names it, and return the path."""
    table, delimited = open_table(file), ending(file) != ".parquet"
    assert isinstance(table, Named), "arrays have no columns"
    os.makedirs(folder)
    made = f"{folder}/{os.path.basename(os.path.abspath(file)).split('.')[0]}{'.csv' if delimited else '.parquet'}"

    def pieces() -> Iterator[dict[str, np.ndarray]]:
        for output in model.outputs:
            for piece in table.pieces(PIECE_ROWS, texts=table.names if delimited else ()):
                rows = slice(0, len(next(iter(piece.values())).values))
                whole = {name: _cells(column, rows) for name, column in piece.items()}
                yield whole | {str(model.schema.output): np.full(rows.stop, output, dtype=object)}

    write_table(made, pieces())
    return made


@contextlib.contextmanager
def _texts_naming(file: str, copy: str) -> Iterator[None]:
    """Context manager: errors and warnings about the copy of a file name the file."""
    if copy == file:
        yield
        return
    try:
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            yield
    except BcmdistError as error:
        raise type(error)(str(error).replace(copy, str(file))) from error
    for one in noticed:
        warnings.warn(one.category(str(one.message).replace(copy, str(file))), stacklevel=4)


@dataclass(frozen=True)
class Predictions:
    """A Zarr group of predictions, for each output in turn where a table does not name them."""

    url: str
    outputs: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of the table that were predicted."""
        return open_group(self.url)["mean"].shape[0] // max(1, len(self.outputs))  # type: ignore[union-attr]

    def block(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Columns (n,) by name of some of these rows; the columns that identify the rows come first."""
        if not self.outputs:
            return _block(self.url, slice(start, stop))
        rows, stop = self.rows, min(stop, self.rows)
        each = [_block(self.url, slice(k * rows + start, k * rows + stop)) for k in range(len(self.outputs))]
        group: Any = open_group(self.url)
        identity = {dimensions(group["mean"])[0], *group.attrs.get("coordinates", "").split()}
        found = {name: values for name, values in each[0].items() if name in identity}
        predicted = (name for name in each[0] if name not in identity)
        named = list(zip(self.outputs, each, strict=True))
        return found | {f"{name}_{output}": one[name] for name in predicted for output, one in named}


def _joined(file: str, predictions: Predictions) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of a table that were predicted, as they are there, followed by their predictions.

    A column with the name of one of the predictions is left out, with a warning.
    """
    table = open_table(file)
    assert isinstance(table, Named), "arrays have no columns"
    delimited, start, row = ending(file) != ".parquet", 0, 0
    numbers = np.asarray(open_group(predictions.url)["row"][: predictions.rows])  # type: ignore[index]
    hidden: list[str] | None = None
    for piece in table.pieces(PIECE_ROWS, texts=table.names if delimited else ()):
        stop = start + len(next(iter(piece.values())).values)
        last = int(np.searchsorted(numbers, stop))
        found = predictions.block(row, last) if last > row else {}
        kept = numbers[row:last] - start
        if hidden is None and found:
            hidden = [name for name in piece if name in found]
            if hidden:
                named = ", ".join(map(repr, hidden))
                warnings.warn(BcmdistWarning(f"{file}: {named} not written: predictions have this name"), stacklevel=2)
        if found:
            first = {"row": found.pop("row")}
            yield first | {n: _cells(column, kept) for n, column in piece.items() if n not in (hidden or ())} | found
        start, row = stop, last


def _cells(column: Column, rows: slice | IntArray) -> np.ndarray:
    """Return cells of a column as they are written: gaps as None in columns of texts."""
    values = column.values[rows]
    if values.dtype.kind != "O" or not column.gaps.any():
        return values
    nothing: Any = None
    return np.where(column.gaps[rows], nothing, values)


def _pieces(predictions: Predictions) -> Iterator[dict[str, np.ndarray]]:
    """Yield blocks of predictions as columns (n,) by name; the columns that identify the rows come first."""
    for start in range(0, predictions.rows, PIECE_ROWS):
        yield predictions.block(start, start + PIECE_ROWS)


def _block(url: str, some: slice) -> dict[str, np.ndarray]:
    """Return a block of predictions as columns (n,) by name."""
    group: Any = open_group(url)
    along = dimensions(group["mean"])[0]
    names = [name for name in group.array_keys() if dimensions(group[name])[0] == along]
    arrays = [along, *group.attrs.get("coordinates", "").split(), *ORDER]
    first = sorted(names, key=lambda name: arrays.index(name) if name in arrays else len(arrays))
    piece: dict[str, np.ndarray] = {}
    for name in first:
        columns = _columns(name, _meant(group, url, name, read_coordinate(group, url, name, some)), group, url)
        if twice := columns.keys() & piece.keys():
            raise InvalidData(
                f"output: expected a name of its own for each column, {min(twice)!r} names rows too; rename that"
            )
        piece |= columns
    return piece


def _columns(name: str, values: np.ndarray, group: Any, url: str) -> dict[str, np.ndarray]:
    """Return an array as columns by name: one column, or one per class or term."""
    if values.ndim == 1:
        return {name: values.astype(object) if values.dtype.kind == "T" else values}
    across = dimensions(group[name])[1]
    labels = range(values.shape[1]) if name == "sample" else read_coordinate(group, url, across).tolist()
    return {f"{name}_{label}": values[:, k] for k, label in enumerate(labels)}


def _meant(group: Any, url: str, name: str, values: np.ndarray) -> np.ndarray:
    """Decode stored values by the CF conventions: times with a standard calendar as dates, else numbers unpacked by
    scale and offset."""
    array = group[name]
    match = TIME_UNITS.fullmatch(str(array.attrs.get("units", "")))
    if match and array.attrs.get("calendar", "standard") in ("standard", "gregorian", "proleptic_gregorian"):
        import pandas

        with contextlib.suppress(ValueError, TypeError, OverflowError):  # an invalid date, or outside pandas' range
            dates: np.ndarray = (pandas.Timestamp(match[2]) + pandas.to_timedelta(values, unit=match[1])).to_numpy()
            return dates
    return unpacked(array, values, f"{url}: {name}")


def write_columns(columns: Mapping[str, np.ndarray], out: str, *, csv_safe: bool = False) -> None:
    """Write columns (n,) by name as a new .csv or .parquet file; `csv_safe` as in `write_table`.

    Raises
    ------
    DataExists, MissingExtra
    """
    place = partial(os.path.abspath(out))
    make_folders(place, out)
    try:
        table = f"{place}/table{ending(out)}"
        write_table(table, [columns], csv_safe=csv_safe)
        with taken_meanwhile(out):
            os.link(table, out)
    finally:
        shutil.rmtree(place, ignore_errors=True)
