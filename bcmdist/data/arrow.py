"""Arrow IPC streams in memory: the tables in requests to the service and in its responses.

A stream in a request consists of uncompressed record batches, as in an entry of a Redis stream. All batches are read;
the total size that they declare is compared with a limit before any batch is decoded (`bcmdist.data.entries`).
"""

from collections.abc import Collection, Mapping

import numpy as np

from bcmdist.data.entries import decoded, names_of, shape_of, table_of
from bcmdist.data.tables.column import Table
from bcmdist.errors import MissingExtra

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


def rows_of(data: bytes) -> int:
    """Return the number of rows that a stream declares, without decoding any. Errors as in `read_table`."""
    _arrow()
    return shape_of({b"data": data}, "body", "X", None, ()).rows


def read_table(
    data: bytes, *, others: Collection[str], tables: Collection[str] = ()
) -> tuple[np.ndarray, tuple[str, ...], dict[str, np.ndarray]]:
    """Return the inputs (n, D), their names, and the other columns (n,) and tables (n, ...) that the stream contains.

    Inputs are either a column X of fixed-size lists, which has no names, or all numeric columns not in `others`. Tables
    are columns of fixed-size lists, which may be nested.

    Raises
    ------
    InvalidData, UnsafeData, MissingExtra
    """
    _arrow()
    columns, names = decoded({b"data": data}, "body", "X", None, tuple(others), tuple(tables))
    return columns.pop("X"), () if names == ["X"] else tuple(names), columns


def names_in(data: bytes) -> set[str]:
    """Return the names of the columns of a stream. Errors as in `read_table`."""
    _arrow()
    return set(names_of(data, "body"))


def read_columns(data: bytes, names: Collection[str]) -> Table:
    """Return columns of a stream by name, of any type. Errors as in `read_table`."""
    _arrow()
    return table_of(data, "body", names)


def write_table(columns: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    """Encode columns (n,), or (n, k, ...) as fixed-size lists, by name; `about` becomes the metadata of the schema.

    Raises
    ------
    MissingExtra
    """
    pa = _arrow()
    batch = pa.record_batch({name: _column(pa, values) for name, values in columns.items()})
    batch = batch.replace_schema_metadata(dict(about))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _column(pa, values):
    array = pa.array(np.ascontiguousarray(values).ravel())
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _arrow():
    try:
        import pyarrow.ipc  # optional
    except ImportError as error:
        raise MissingExtra("arrow: expected the package pyarrow; pip install 'bcmdist[tables]'") from error
    return pyarrow
