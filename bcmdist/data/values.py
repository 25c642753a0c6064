"""Convert stored values to numbers: unpacked by the CF conventions, and exactly representable in float64.

    number = stored * scale_factor + add_offset,   nan where stored is _FillValue, missing_value or out of valid_range

(CF conventions 1.11, sections 2.5.1 and 8.1.) xarray can write packed arrays. A reader that does not unpack them would
fit raw integers, including fill values.
"""

import base64
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import InvalidData

# Larger numbers overflow when squared.
LARGEST = 1e150

# Tolerance for covariances, relative to the largest entry: rounding of sums of squares in single precision.
ROUNDING = 1e-6

# float64 holds all integers up to this value exactly; beyond, adjacent integers coincide.
LARGEST_INTEGER = 2**53

# Units of numbers that are dates.
SINCE = re.compile(r" since \d+-\d+")

PACKED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "valid_range", "valid_min", "valid_max")


@dataclass(frozen=True)
class Packing:
    """How the numbers of an array are packed."""

    scale: float = 1.0
    offset: float = 0.0
    missing: tuple[float, ...] = ()
    """stored values that mean missing"""
    low: float = -math.inf
    high: float = math.inf
    """bounds of stored values; values outside are missing"""
    kind: str = ""
    """"u" to reinterpret signed integers as unsigned, "i" for the reverse"""

    def numbers(self, stored, where="data", *, start=0) -> np.ndarray:
        """Return stored values as float64, nan if missing. Without scaling they are checked as in `as_float`."""
        if self.kind:
            stored = stored.view(stored.dtype.str.replace(stored.dtype.kind, self.kind))
        gone = (stored < self.low) | (stored > self.high)
        for value in self.missing:
            gone |= stored == value
        if (self.scale, self.offset) == (1.0, 0.0):
            values = as_float(np.where(gone, 0, stored), where, start=start)
        else:
            values = stored.astype(float) * self.scale + self.offset
        return np.where(gone, np.nan, values)


PLAIN = Packing()


def packing_of(array, where) -> Packing:
    """Read the packing from the attributes of a Zarr array.

    For Zarr v2, xarray writes the fill value into the metadata, where Zarr itself puts a 0 without meaning.

    Raises
    ------
    InvalidData
        The attributes are not valid.
    """
    attributes = dict(array.attrs)
    fill = getattr(array.metadata, "fill_value", None) if array.metadata.zarr_format == 2 else None
    packed = {"scale_factor", "add_offset"} & attributes.keys()
    if "_ARRAY_DIMENSIONS" in attributes and fill is not None and (fill != 0 or packed):
        attributes.setdefault("_FillValue", fill)
    if not {*PACKED, "_Unsigned"} & attributes.keys():
        return PLAIN
    try:
        return _packing(attributes, array.dtype)
    except (TypeError, ValueError, struct.error) as error:
        packing = {name: attributes[name] for name in (*PACKED, "_Unsigned") if name in attributes}
        raise InvalidData(
            f"{where}: expected numbers in the attributes that say how it is packed, got {packing} ({error}); correct "
            "them, or store the numbers themselves"
        ) from error


def _packing(attributes: Mapping[str, Any], dtype) -> Packing:
    low, high = attributes.get("valid_range", (-math.inf, math.inf))
    missing = [np.atleast_1d(attributes[name]) for name in ("_FillValue", "missing_value") if name in attributes]
    kind = {"true": "u", "false": "i"}.get(str(attributes.get("_Unsigned")).lower(), "")
    kind = kind if dtype.kind in "iu" and dtype.kind != kind else ""

    def as_read(value):
        return _as_kind(_number(value), kind, 8 * dtype.itemsize)

    packing = Packing(
        scale=_number(attributes.get("scale_factor", 1.0)),
        offset=_number(attributes.get("add_offset", 0.0)),
        missing=tuple(as_read(value) for values in missing for value in values.tolist()),
        low=as_read(attributes.get("valid_min", low)),
        high=as_read(attributes.get("valid_max", high)),
        kind=kind,
    )
    if not (math.isfinite(packing.scale) and math.isfinite(packing.offset)) or packing.scale == 0:
        raise ValueError("scale_factor and add_offset are finite, scale_factor not 0")
    return packing


def _as_kind(value, kind, bits):
    """Reinterpret a stored integer as one of another kind (u, i) with the same bits: -1 as 255."""
    if not kind or not math.isfinite(value):
        return value
    half = 2 ** (bits - 1) if kind == "i" else 0
    return float((int(value) + half) % 2**bits - half)


def _number(value) -> float:
    """Parse a number. In Zarr v3, xarray writes floating-point fill values as base64 of little-endian float64."""
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return struct.unpack("<d", base64.b64decode(value, validate=True))[0]
    return float(value)


def numbers(array, stored, where, *, start=0) -> np.ndarray:
    """Convert values (n, ...) read from a Zarr array to float64, nan if missing.

    Raises
    ------
    InvalidData
        As `packing_of` and `as_float`.
    """
    packing = packing_of(array, where)
    return as_float(stored, where, start=start) if packing == PLAIN else packing.numbers(stored, where, start=start)


def unpacked(array, stored, where) -> np.ndarray:
    """Return values of a coordinate: as `numbers` if they are scaled, otherwise as stored."""
    if stored.dtype.kind not in "iuf" or not {"scale_factor", "add_offset"} & dict(array.attrs).keys():
        return stored
    return numbers(array, stored, where)


def since(array) -> str | None:
    """Return the CF units of an array of dates, such as "days since 2026-01-01"; None for other numbers."""
    units = str(array.attrs.get("units", ""))
    return units if SINCE.search(units) else None


def as_float(values, where, *, start=0) -> np.ndarray:
    """Convert values (n, ...) to float64.

    Raises
    ------
    InvalidData
        An integer is too large for float64, so two different integers would coincide. The message names `where` and the
        row, counted from `start`.
    """
    values = np.asarray(values)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        bad = np.argwhere((values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER))
        if len(bad):
            column = f", column {bad[0, 1]}" if values.ndim == 2 else ""
            raise InvalidData(
                f"{where}: expected whole numbers up to 2**53, which float64 holds, got {values[tuple(bad[0])]} at row "
                f"{start + bad[0, 0]}{column} ({len(bad)} such values); use small numbers, or text for labels"
            )
    return values.astype(float)


def bad_variances(variance) -> np.ndarray:
    """Return the rows (k,) whose variances (n, D) are negative or not finite, or whose covariances (n, D, D) are not
    symmetric and positive semi-definite."""
    flat = variance.reshape(len(variance), -1)
    good = np.all(np.abs(flat) <= LARGEST, axis=1)
    if variance.ndim == 2:
        return np.flatnonzero(~good | (flat < 0.0).any(axis=1))
    C = np.where(good[:, None, None], variance, 0.0)
    allowed = ROUNDING * np.abs(C).max(axis=(1, 2))
    good &= np.abs(C - C.swapaxes(1, 2)).max(axis=(1, 2)) <= allowed
    return np.flatnonzero(~good | (np.linalg.eigvalsh(C)[:, 0] < -allowed))
