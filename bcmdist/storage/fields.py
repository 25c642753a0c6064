"""What stored bytes must be before anybody relies on them: arrays, ledger entries, and fields of JSON by type.

Checksums tell damage. They do not tell content that cannot be and whose checksums were made right, by hand or by other
software: that is refused here, by the blob or record and the field.
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
# Blanks that may stand behind an array, so that the same array is another blob.
BLANKS, MOST_BLANKS = b" \t", 128
# Of arrays in a model directory: numbers, hashes as bytes, lines of text.
ARRAY_KINDS = "fiubS"


def damaged(where: str, wanted: str, found: str) -> ModelDamaged:
    """The error of a field that cannot be."""
    return ModelDamaged(f"{where}: expected {wanted}, found {found}{RESTORE}")


@contextlib.contextmanager
def read_back(where: str) -> Iterator[None]:
    """Where something is read that is about to be stored: what a reader would refuse is refused before it is there.

    Raises
    ------
    CommitRefused
    """
    try:
        yield
    except (ModelDamaged, TypeError, ValueError) as error:  # of the last two: what JSON cannot hold
        reason = str(error).removesuffix(RESTORE)
        named = "" if reason.startswith(where) else f"{where}: expected JSON with finite numbers, got another value: "
        raise CommitRefused(
            f"{named}{reason}; nothing was committed: give options other values, or report this with the command"
        ) from error


def check_fields(document, kinds: Mapping[str, Kind], where: str) -> None:
    """Raise `ModelDamaged` naming the first field of a document that is missing or of another kind."""
    if not isinstance(document, dict):
        raise damaged(where, NAMED.words, shown(document))
    for name, kind in wrong_fields(document, kinds):
        raise damaged(where, f"{kind.words} as {name}", shown(document[name]) if name in document else "nothing")


# --- Bytes ---


def read_json(text: bytes, where: str) -> Any:
    """A JSON document of finite numbers.

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
    """The array of a .npy file in which nothing can be hidden.

    Raises
    ------
    ModelDamaged
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](stream)
    except Exception as error:  # whatever numpy makes of what is there
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
    """Raise `ModelDamaged` where an array has another dtype or shape, or numbers that are not finite (or positive)."""
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
# Behind those, before format 4: places, residuals and local_residuals.
RESIDUALS = dict.fromkeys(("places", "residuals", "local_residuals"), every(NUMBER))
SHORTEST = 3  # key, digest and rows: older segments hold no more


def read_entries(text: bytes, names: Iterable[str], where: str, *, residuals=False) -> list[list]:
    """Lines of a ledger segment: the values of an entry by `names`, of the kinds of `ENTRY`.

    residuals : whether the `RESIDUALS` behind them count, which are dropped otherwise

    Raises
    ------
    ModelDamaged
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
