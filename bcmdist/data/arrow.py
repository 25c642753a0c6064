"""Tables as Arrow IPC streams, in memory: what is asked of a service, and what it answers.

A stream that comes is uncompressed record batches, as an entry of a Redis stream: all are read, and what they declare
together is compared with a limit before one is decoded (`bcmdist.data.entries`).
"""

from collections.abc import Collection, Mapping

import numpy as np

from bcmdist.data.entries import decoded, shape_of
from bcmdist.errors import MissingExtra

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


def rows_of(data: bytes) -> int:
    """Rows that a stream declares, of which none is decoded; errors as of `read_table`."""
    _arrow()
    return shape_of({b"data": data}, "body", "X", None, ()).rows


def read_table(
    data: bytes, *, others: Collection[str], tables: Collection[str] = ()
) -> tuple[np.ndarray, tuple[str, ...], dict[str, np.ndarray]]:
    """Inputs (n, D), their names, and those of the others (n,) and of the tables (n, ...) that are there.

    Inputs are a column X of fixed-size lists, which has no names, or else all numeric columns but the others. Tables
    are fixed-size lists, also of fixed-size lists.

    Raises
    ------
    InvalidData, UnsafeData, MissingExtra
    """
    _arrow()
    columns, names = decoded({b"data": data}, "body", "X", None, tuple(others), tuple(tables))
    return columns.pop("X"), () if names == ["X"] else tuple(names), columns


def write_table(columns: Mapping[str, np.ndarray], about: Mapping[str, str]) -> bytes:
    """Columns (n,), or (n, k, ...) as fixed-size lists, by name; `about` them as metadata of the schema.

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
