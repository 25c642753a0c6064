"""Values in the pages of Parquet files, counted from the headers of these pages.

Arrow reads as many rows as the footer of a file declares and takes no notice of values beyond them, so that a wrong
footer would lose rows. Headers are structures of Thrift's compact protocol (parquet-format: Thrift.md, PageHeader).
"""

import os
from pathlib import Path
from typing import BinaryIO

from bcmdist.errors import InvalidData

# Fields of a page's header: its size, and the structures of either version whose field 1 is the count of values.
SIZE, DATA_PAGE, DATA_PAGE_V2 = 3, 5, 8
# Types of fields.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)


def check_counts(path: Path, metadata) -> None:
    """Compare the row counts in a file's footer with the values of its columns.

    Columns of lists are left out: they hold other numbers of values.

    Parameters
    ----------
    metadata : `pyarrow.parquet.FileMetaData` of the file

    Raises
    ------
    InvalidData
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        counts = sum(group.num_rows for group in groups)
        raise InvalidData(
            f"{path}: expected its row groups to hold the {metadata.num_rows} rows that its footer declares, they "
            f"declare {counts} rows; write the file again"
        )
    flat = [k for k in range(metadata.num_columns) if metadata.schema.column(k).max_repetition_level == 0]
    with path.open("rb") as file:
        for number, group in enumerate(groups):
            for column in (group.column(k) for k in flat):
                values = _values(file, column)
                if values != group.num_rows:
                    raise InvalidData(
                        f"{path}: expected {group.num_rows} rows in row group {number} as its footer declares, column "
                        f"{column.path_in_schema[:80]!r} holds {values} rows there; write the file again"
                    )


def _values(file, column) -> int:
    """Values in the data pages of a column of a row group, missing ones included."""
    starts = (column.dictionary_page_offset, column.data_page_offset)
    place = min(start for start in starts if start)  # some writers say 0 where there is no dictionary
    end, count = place + column.total_compressed_size, 0
    while place < end:
        file.seek(place)
        header = _struct(file)
        page = header.get(DATA_PAGE) or header.get(DATA_PAGE_V2) or {}
        count += page.get(1, 0)
        if header[SIZE] < 0:  # which would lead back
            raise ValueError(f"a page declares {header[SIZE]} bytes")
        place = file.tell() + header[SIZE]
    return count


def _struct(file: BinaryIO) -> dict:
    """Fields of a structure by number."""
    fields, number = {}, 0
    while head := _byte(file):
        step, kind = head >> 4, head & 15
        number = number + step if step else _integer(file)
        fields[number] = kind == TRUE if kind in (TRUE, FALSE) else _value(file, kind)
    return fields


def _value(file, kind):
    """A value that does not stand in the head of its field; None of those that nobody asks for."""
    if kind in INTEGERS:
        return _integer(file)
    if kind == STRUCT:
        return _struct(file)
    if kind in (LIST, SET):
        head = _byte(file)
        _skip_all(file, head >> 4 if head >> 4 < 15 else _varint(file), head & 15)
    elif kind == MAP:
        if size := _varint(file):
            kinds = _byte(file)
            _skip_all(file, size, kinds >> 4, kinds & 15)
    elif kind in (TRUE, FALSE, BYTE):  # elements of lists
        _byte(file)
    elif kind in (DOUBLE, BINARY):
        file.seek(8 if kind == DOUBLE else _varint(file), os.SEEK_CUR)
    else:
        raise ValueError(f"the header of a page has a field of type {kind}")
    return None


def _skip_all(file, size, *kinds):
    for _ in range(size):
        for kind in kinds:
            _value(file, kind)


def _integer(file) -> int:
    """A signed integer (zigzag)."""
    number = _varint(file)
    return number >> 1 ^ -(number & 1)


def _varint(file) -> int:
    """An integer of at most 64 bits, seven to a byte."""
    number = 0
    for shift in range(0, 64, 7):
        byte = _byte(file)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("the header of a page has an integer of more than 64 bits")


def _byte(file) -> int:
    byte = file.read(1)
    if not byte:
        raise ValueError("the header of a page is cut off")
    return byte[0]
