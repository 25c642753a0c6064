"""Columns: arrays and texts of equal length in one blob, which can be mapped into memory and searched there.

    line 1    JSON: number of lines, and dtype, shape and place of each array
    then      the arrays, each at a multiple of 64 bytes

An array whose lines are all the same is stored once. Texts are stored as numbers of their distinct values, ascending.
"""

import bisect
import itertools
import json
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from bcmdist.storage.fields import Count, damaged, decode, parse

ALIGNED = 64
LONGEST_HEADER = 1 << 20
DTYPES = ("<f8", "<i8", "<u4", "|u1")


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts."""

    codes: np.ndarray
    """(n,) uint32, the number of each text among the distinct ones"""
    ends: np.ndarray
    """(m,) int64, where each distinct text ends in `data`; they are ascending in UTF-8"""
    data: np.ndarray
    """uint8, the distinct texts in UTF-8"""

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        distinct = sorted(set(encoded))
        number = {text: k for k, text in enumerate(distinct)}
        codes = np.fromiter((number[text] for text in encoded), np.uint32, len(encoded))
        return _texts_of(codes, distinct)

    def __len__(self) -> int:
        return len(self.codes)

    def distinct(self, number: int) -> bytes:
        """Return a distinct text, in UTF-8."""
        return self.data[self.ends[number - 1] if number else 0 : self.ends[number]].tobytes()

    def text(self, line: int) -> str:
        """Return the text of a line."""
        return self.distinct(int(self.codes[line])).decode("utf-8", "surrogatepass")

    def texts(self, lines: slice) -> list[str]:
        """Return the texts of some lines."""
        codes = self.codes[lines].tolist()
        known = {code: self.distinct(code).decode("utf-8", "surrogatepass") for code in set(codes)}
        return [known[code] for code in codes]

    @property
    def ascending(self) -> bool:
        """Whether the distinct texts are in order, each once, as `code` expects."""
        count, lengths = len(self.ends), np.diff(self.ends, prepend=0)
        if count > 1 and (lengths == lengths[0]).all():  # as texts of one kind are
            table = self.data.reshape(count, -1)
            differs = table[1:] != table[:-1]
            pairs, first = np.arange(count - 1), differs.argmax(axis=1) if differs.shape[1] else 0
            return bool(differs.any(axis=1).all() and (table[1:][pairs, first] > table[:-1][pairs, first]).all())
        return all(one < other for one, other in itertools.pairwise(map(self.distinct, range(count))))

    def code(self, text: str) -> int | None:
        """Return the number of a text; None if no line has it."""
        encoded = text.encode("utf-8", "surrogatepass")
        number = bisect.bisect_left(range(len(self.ends)), encoded, key=self.distinct)
        return number if number < len(self.ends) and self.distinct(number) == encoded else None

    def starting_with(self, prefix: str) -> range:
        """Return the numbers of the distinct texts that begin with a prefix."""
        encoded = prefix.encode("utf-8", "surrogatepass")
        first = bisect.bisect_left(range(len(self.ends)), encoded, key=self.distinct)
        last = bisect.bisect_right(range(len(self.ends)), encoded, key=lambda k: self.distinct(k)[: len(encoded)])
        return range(first, max(first, last))


ARRAYS_OF_TEXTS = ("codes", "ends", "data")


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of equal length, by name."""

    lines: int
    numbers: dict[str, np.ndarray]
    """(lines,) or (lines, k)"""
    texts: dict[str, Texts]

    def part(self, first: int, last: int) -> "Columns":
        """Return some lines, with the texts that they have."""
        if first <= 0 and last >= self.lines:
            return self
        lines = min(last, self.lines) - first
        numbers = {name: column[first:last] for name, column in self.numbers.items()}
        return Columns(lines, numbers, {name: _part(column, first, last) for name, column in self.texts.items()})


class StoredArray(msgspec.Struct):
    """Where an array is in a blob."""

    dtype: str
    shape: list[Count]
    at: Count


class Header(msgspec.Struct):
    """The first line of a blob."""

    lines: Count
    arrays: dict[str, StoredArray]


def encoded(columns: Columns) -> bytes:
    """Return the blob of columns."""
    arrays = dict(columns.numbers)
    for name, texts in columns.texts.items():
        arrays |= {f"{name}.{part}": getattr(texts, part) for part in ARRAYS_OF_TEXTS}
    stored, header, at = list[np.ndarray](), dict[str, dict](), 0
    for name, array in arrays.items():
        short = np.ascontiguousarray(array[:1] if _is_constant(array, columns.lines, name) else array)
        stored.append(short)
        header[name] = {"dtype": short.dtype.str, "shape": list(short.shape), "at": at}
        at += short.nbytes + -short.nbytes % ALIGNED
    first = json.dumps({"lines": columns.lines, "arrays": header}, separators=(",", ":")).encode()
    parts = [first + b" " * (-(len(first) + 1) % ALIGNED) + b"\n"]
    for array in stored:
        parts += [array.tobytes(), bytes(-array.nbytes % ALIGNED)]
    return b"".join(parts)


def decoded(data: bytes | mmap.mmap, where: str) -> Columns:
    """Return the columns of a blob, which share its memory.

    Raises
    ------
    ModelDamaged
        It is no such blob, or an array does not fit into it.
    """
    view = memoryview(data)
    first, newline, _ = bytes(view[:LONGEST_HEADER]).partition(b"\n")
    header = decode(Header, parse(first, where), where)
    body, arrays = len(first) + len(newline), dict[str, np.ndarray]()
    for name, stored in header.arrays.items():
        if stored.dtype not in DTYPES or len(stored.shape) not in (1, 2):
            raise damaged(where, f"a dtype of {', '.join(DTYPES)} and 1 or 2 axes for {name:.40}", str(stored)[:80])
        dtype, count = np.dtype(stored.dtype), math.prod(stored.shape)
        if body + stored.at + count * dtype.itemsize > len(view):
            raise damaged(where, f"{count} numbers for {name:.40}", f"{len(view)} bytes in all")
        (lines, *others), strides = stored.shape, [dtype.itemsize * math.prod(stored.shape[1:]), dtype.itemsize]
        if _has_lines(name) and lines != header.lines:
            if lines != 1:
                raise damaged(where, f"{header.lines} lines, or one for all, of {name:.40}", f"{lines}")
            lines, strides[0] = header.lines, 0
        shape = (lines, *others)
        arrays[name] = np.ndarray(shape, dtype, view, body + stored.at, tuple(strides[: len(shape)]))
    numbers = {name: array for name, array in arrays.items() if "." not in name}
    names = {name.partition(".")[0] for name in arrays if "." in name}
    return Columns(header.lines, numbers, {name: _texts(arrays, name, where) for name in names})


def _has_lines(name):
    """Whether an array has one element for each line; distinct texts and their ends have not."""
    return name.rpartition(".")[2] not in ("ends", "data")


def _is_constant(array, lines, name):
    """Whether one line of an array stands for all."""
    return _has_lines(name) and lines > 1 and bool((array == array[:1]).all())


def _texts(arrays, name, where) -> Texts:
    parts = [arrays.get(f"{name}.{part}", np.zeros(())) for part in ARRAYS_OF_TEXTS]
    if [(part.dtype.str, part.ndim) for part in parts] != [("<u4", 1), ("<i8", 1), ("|u1", 1)]:
        raise damaged(where, f"texts of {name:.40}", "other arrays")
    codes, ends, data = parts
    last = int(ends[-1]) if len(ends) else 0
    if (ends[1:] < ends[:-1]).any() or (ends[:1] < 0).any() or last != len(data):
        raise damaged(where, f"ascending ends of the texts of {name:.40}", "others")
    if len(codes) and codes.max() >= len(ends):
        raise damaged(where, f"numbers below {len(ends)} for the texts of {name:.40}", f"{codes.max()}")
    return Texts(codes, ends, data)


def joined(parts: Sequence[Columns]) -> Columns:
    """Return columns of the same names one after the other."""
    numbers = {name: np.concatenate([part.numbers[name] for part in parts]) for name in parts[0].numbers}
    texts = {name: _joined([part.texts[name] for part in parts]) for name in parts[0].texts}
    return Columns(sum(part.lines for part in parts), numbers, texts)


def _joined(parts: Sequence[Texts]) -> Texts:
    distinct = [[part.distinct(k) for k in range(len(part.ends))] for part in parts]
    every = sorted(set().union(*distinct))
    number = {text: k for k, text in enumerate(every)}
    codes = [
        np.array([number[text] for text in some], np.uint32)[part.codes] if some else part.codes
        for some, part in zip(distinct, parts, strict=True)
    ]
    return _texts_of(np.concatenate(codes), every)


def _part(texts, first, last) -> Texts:
    codes, numbers = np.unique(texts.codes[first:last], return_inverse=True)
    return _texts_of(numbers.astype(np.uint32), [texts.distinct(code) for code in codes.tolist()])


def _texts_of(codes, distinct: Sequence[bytes]) -> Texts:
    ends = np.cumsum([len(text) for text in distinct], dtype=np.int64)
    return Texts(codes, ends, np.frombuffer(b"".join(distinct), np.uint8))
