"""Lines of a file that may be compressed, which may not be longer than memory allows."""

import gzip
import io
from pathlib import Path

from bcmdist.errors import InvalidData

# Longer lines are no rows of a table: 20,000 columns have 50 characters each. Pandas takes 300 bytes of memory for each
# cell beyond those that it expects.
MOST_LINE_BYTES = 2**20
# Of the rows that are in memory at a time; a quote that is not closed takes the rest of the file for one cell.
MOST_PIECE_BYTES = 2**30


class BoundedLines(io.RawIOBase):
    """Bytes of a file, decompressed where its name ends in .gz, read once from the beginning.

    Raises
    ------
    InvalidData
        As soon as a line grows too long, or more than `MOST_PIECE_BYTES` are read without `next_piece`.
    """

    def __init__(self, file: Path, rows: int):
        self.file, self.rows = file, rows
        self.source = gzip.open(file, "rb") if file.suffix.lower() == ".gz" else file.open("rb", buffering=0)  # noqa: SIM115 (`close` does)
        self.line_bytes = self.piece_bytes = 0

    def next_piece(self) -> None:
        """Count the bytes of the next rows from here."""
        self.piece_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self.source.readinto(buffer)
        self._check(bytes(memoryview(buffer)[:count]))
        return count

    def close(self) -> None:
        self.source.close()
        super().close()

    def _check(self, data):
        ends = [end for end in (data.rfind(b"\n"), data.rfind(b"\r")) if end >= 0]
        self.line_bytes = len(data) - max(ends) - 1 if ends else self.line_bytes + len(data)
        self.piece_bytes += len(data)
        if self.line_bytes > MOST_LINE_BYTES:
            raise InvalidData(
                f"{self.file}: expected lines of at most {MOST_LINE_BYTES:,} bytes, got a longer one; write one line "
                "for each row"
            )
        if self.piece_bytes > MOST_PIECE_BYTES:
            raise InvalidData(
                f"{self.file}: expected at most {MOST_PIECE_BYTES:,} bytes in {self.rows:,} rows, got more; close the "
                "quote that was opened before, or leave out columns of long texts"
            )


def as_text(lines: BoundedLines) -> io.TextIOWrapper:
    """The text that the bytes are, read in pieces of a quarter of a megabyte; closing it closes the file."""
    return io.TextIOWrapper(io.BufferedReader(lines, 2**18), "utf-8", newline="")


def first_line(file: Path) -> bytes:
    """The first line of a file.

    Raises
    ------
    InvalidData
        It is longer than `MOST_LINE_BYTES`.
    """
    with io.BufferedReader(BoundedLines(file, 1)) as lines:
        return lines.readline().split(b"\r")[0]
