"""Checks of stored arrays when they are read: allowed dtypes, expected shapes, finite numbers."""

import io
import math
from collections.abc import Container, Iterable

import numpy as np

from bcmdist.storage.fields import damaged, first_line

# Blanks that may follow an array, so that the same array makes another blob.
BLANKS, MOST_BLANKS = b" \t", 128
# dtype kinds of arrays in a model directory: numbers, hashes as bytes, lines of text.
ARRAY_KINDS = "fiubS"


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
        raise damaged(where, "an array", f"something else ({first_line(error)})") from error
    expected = dtype.itemsize * math.prod(shape)
    content = data[stream.tell() :]
    if dtype.kind not in ARRAY_KINDS or dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise damaged(where, "an array of numbers", f"{dtype} of shape {shape}")
    if len(content) - expected not in (0, MOST_BLANKS) or content[expected:].strip(BLANKS):
        raise damaged(where, f"{expected} bytes of {dtype} of shape {shape}", f"{len(content)} bytes")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def require_arrays(arrays: Container[str], names: Iterable[str], where: str) -> None:
    """Raise `ModelDamaged` if an array of these names is missing."""
    for name in names:
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")


def check_array(
    array: np.ndarray,
    where: str,
    name: str,
    *,
    shape: tuple[int, ...],
    dtype: type[np.generic] = np.float64,
    positive: bool = False,
) -> None:
    """Raise `ModelDamaged` if an array has another dtype or shape, or numbers that are not finite (or positive)."""
    if array.dtype != dtype or array.shape != shape:
        raise damaged(
            where, f"{np.dtype(dtype).name} of shape {shape} in {name}", f"{array.dtype} of shape {array.shape}"
        )
    wrong = ~np.isfinite(array) | (array <= 0 if positive else False)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        expected = "positive numbers" if positive else "finite numbers"
        raise damaged(where, f"{expected} in {name}", f"{array[place]} at {place}")
