"""Tables that we write: files of named columns, piece by piece."""

from collections.abc import Iterable, Mapping

import numpy as np

from bcmdist.data.tables.tables import ending
from bcmdist.errors import MissingExtra


def write_table(file, pieces: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Write pieces of columns (n,) by name, one after the other, as a .csv or .parquet file.

    Raises
    ------
    MissingExtra
    """
    try:
        WRITERS[ending(file)](file, pieces)
    except ImportError as error:
        raise MissingExtra(f"{file}: tables need pandas and pyarrow; pip install 'bcmdist[tables]'") from error


def _write_csv(file, pieces):
    import pandas

    with open(file, "w", newline="", encoding="utf-8") as out:
        for number, piece in enumerate(pieces):
            pandas.DataFrame(dict(piece)).to_csv(out, index=False, header=number == 0)


def _write_parquet(file, pieces):
    import pandas
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for piece in pieces:
            table = pa.Table.from_pandas(pandas.DataFrame(dict(piece)), preserve_index=False)
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
    finally:
        if writer:
            writer.close()


WRITERS = {".csv": _write_csv, ".parquet": _write_parquet}
