"""Write tables: files of named columns, piece by piece."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from bcmdist.data.tables.column import is_plain
from bcmdist.data.tables.tables import ending
from bcmdist.errors import InvalidOption, MissingExtra

# Starts of texts that spreadsheets take for formulas.
FORMULA = re.compile(r"[=+\-@\t\r]")


def write_table(file, pieces: Iterable[Mapping[str, np.ndarray]], *, csv_safe=False) -> None:
    """Write pieces of columns (n,) by name as a .csv or .parquet file.

    With `csv_safe`, texts in a .csv file that spreadsheets would take for formulas, including column names, are
    prefixed with an apostrophe; numbers are unchanged.

    Raises
    ------
    MissingExtra
    """
    try:
        WRITERS[ending(file)](file, map(_escaped, pieces) if csv_safe and ending(file) == ".csv" else pieces)
    except ImportError as error:
        raise MissingExtra(f"{file}: tables need pandas and pyarrow; pip install 'bcmdist[tables]'") from error


def refuse_csv_safe(csv_safe, out) -> None:
    """Raise `InvalidOption` if formulas are to be escaped in an output that is not a .csv file."""
    if csv_safe and (out is None or ending(out) != ".csv"):
        raise InvalidOption(f"--csv-safe: expected --out FILE.csv, got {out}; leave it out")


def _escaped(piece):
    return {_escaped_text(name): _escaped_texts(values) for name, values in piece.items()}


def _escaped_texts(values):
    if values.dtype.kind not in "OU":
        return values
    return np.array([_escaped_text(value) for value in values.tolist()], dtype=object)


def _escaped_text(value):
    formula = isinstance(value, str) and FORMULA.match(value) and not is_plain(value)
    return f"'{value}" if formula else value


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
