"""Checks of stored content when it is read: arrays, ledger entries, and JSON fields by type.

Checksums detect damage, but not invalid content that was stored with a correct checksum, by hand or by other software.
Such content is refused here, with an error that names the blob or record and the field.
"""

import contextlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bcmdist.errors import CommitRefused, ModelDamaged
from bcmdist.storage.kinds import (
    COUNT,
    NAMED,
    NOT_NEGATIVE,
    NUMBER,
    TEXT,
    Kind,
    every,
    maybe,
    shown,
    wrong_fields,
)

RESTORE = "; restore the directory from a copy"
# Blanks that may follow an array, so that the same array makes another blob.
BLANKS, MOST_BLANKS = b" \t", 128
# dtype kinds of arrays in a model directory: numbers, hashes as bytes, lines of text.
ARRAY_KINDS = "fiubS"


def damaged(where: str, wanted: str, found: str) -> ModelDamaged:
    """Return the error for invalid content."""
    return ModelDamaged(f"{where}: expected {wanted}, found {found}{RESTORE}")


@contextlib.contextmanager
def read_back(where: str) -> Iterator[None]:
    """Context for a trial reading of content that is about to be stored.

    Raises
    ------
    CommitRefused
        A reader would refuse the content.
    """
    try:
        yield
    except (ModelDamaged, TypeError, ValueError) as error:  # the last two: JSON cannot represent a value
        reason = str(error).removesuffix(RESTORE)
        named = "" if reason.startswith(where) else f"{where}: expected JSON with finite numbers, got another value: "
        raise CommitRefused(
            f"{named}{reason}; nothing was committed: give options other values, or report this with the command"
        ) from error


def check_fields(document, kinds: Mapping[str, Kind], where: str) -> None:
    """Raise `ModelDamaged`, naming the field, if a field of a document is missing or of another kind."""
    if not isinstance(document, dict):
        raise damaged(where, NAMED.words, shown(document))
    for name, kind in wrong_fields(document, kinds):
        raise damaged(where, f"{kind.words} as {name}", shown(document[name]) if name in document else "nothing")


# --- Bytes ---


def read_json(text: bytes, where: str) -> Any:
    """Parse a JSON document with finite numbers.

    Raises
    ------
    ModelDamaged
    """
    try:
        document = json.loads(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise damaged(where, "JSON with finite numbers", f"something else ({_line(error)})") from error
    return document


def read_array(data: bytes, where: str) -> np.ndarray:
    """Read a .npy file that holds an array of an allowed dtype and nothing else, except blanks at its end.

    Raises
    ------
    ModelDamaged
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](stream)
    except Exception as error:  # numpy raises various errors for invalid headers
        raise damaged(where, "an array", f"something else ({_line(error)})") from error
    wanted = dtype.itemsize * math.prod(shape)
    rest = data[stream.tell() :]
    if dtype.kind not in ARRAY_KINDS or dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise damaged(where, "an array of numbers", f"{dtype} of shape {shape}")
    if len(rest) - wanted not in (0, MOST_BLANKS) or rest[wanted:].strip(BLANKS):
        raise damaged(where, f"{wanted} bytes of {dtype} of shape {shape}", f"{len(rest)} bytes")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


# --- Arrays by name ---


def check_array(array, where: str, name: str, *, shape: tuple[int, ...], dtype=np.float64, positive=False) -> None:
    """Raise `ModelDamaged` if an array has another dtype or shape, or numbers that are not finite (or positive)."""
    if array.dtype != dtype or array.shape != shape:
        raise damaged(
            where, f"{np.dtype(dtype).name} of shape {shape} in {name}", f"{array.dtype} of shape {array.shape}"
        )
    wrong = ~np.isfinite(array) | (array <= 0 if positive else False)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        wanted = "positive numbers" if positive else "finite numbers"
        raise damaged(where, f"{wanted} in {name}", f"{array[place]} at {place}")


# --- Ledger entries ---

ENTRY = (
    *(TEXT, TEXT, COUNT, NOT_NEGATIVE, TEXT, TEXT, maybe(COUNT)),
    *(every(NUMBER), every(NUMBER), maybe(NOT_NEGATIVE)),
)
# Further values of a line in formats before 4.
RESIDUALS = dict.fromkeys(("places", "residuals", "local_residuals"), every(NUMBER))
SHORTEST = 3  # values of a line in the oldest segments: key, digest and rows


def read_entries(text: bytes, names: Iterable[str], where: str, *, residuals=False) -> list[list]:
    """Parse a ledger segment into lines, each a list of the values of an entry, in the order of `names`.

    names : fields of an entry, for error messages
    residuals : whether to keep the `RESIDUALS` at the end of lines; they are dropped otherwise

    Raises
    ------
    ModelDamaged
        A line is too short or too long, or a value is not of the kind in `ENTRY`.
    """
    lines = read_json(text, where)
    names, kinds = (*names, *RESIDUALS), (*ENTRY, *RESIDUALS.values())
    most = len(kinds)
    if not isinstance(lines, list):
        raise damaged(where, "a list of ledger entries", shown(lines))
    for number, line in enumerate(lines):
        if not isinstance(line, list) or not SHORTEST <= len(line) <= most:
            wanted = f"{SHORTEST} to {most} values in ledger entry {number}"
            raise damaged(where, wanted, shown(line))
        if not residuals:
            del line[len(ENTRY) :]
        for name, kind, value in zip(names, kinds, line, strict=False):
            if not kind.holds(value):
                raise damaged(where, f"{kind.words} as {name} of ledger entry {number}", shown(value))
    return lines
