"""Segments of the ledger: immutable blobs of entries, in columns that are searched where they lie.

Entries keep the order in which they were absorbed. Two permutations order them by array and rows, and by digest; where
they are in that order anyway, none is stored. Up to format 5 of a model a segment was a JSON list of entries.
"""

import bisect
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import msgspec
import numpy as np

from bcmdist.storage.columns import Columns, Texts, decoded, encoded, joined
from bcmdist.storage.entry import COMPACTED, KEY, STORED, Entry
from bcmdist.storage.fields import Count, damaged
from bcmdist.storage.json_segments import entries_of_json

DIGEST_BYTES = 32
LARGEST = np.finfo(float).max
# Columns of numbers: their dtype and number of axes.
NUMBERS = {
    "start": ("<i8", 1),
    "stop": ("<i8", 1),
    "rows": ("<i8", 1),
    "query": ("<i8", 1),
    "position": ("<i8", 1),
    "weight": ("<f8", 1),
    "densities": ("<f8", 1),
    "arrival": ("<f8", 2),
    "excess_loss": ("<f8", 2),
}
TEXTS = ("array", "at")
DIGESTS = ("digest", "state", "copy")  # as bytes, (n, 32), where all are SHA-256
NAMES = ("at", "state", "copy")  # of blobs, where not empty
ORDERS = ("by_rows", "by_digest")
AT_ONCE = 4096  # entries made at a time


class SegmentSummary(msgspec.Struct, frozen=True):
    """What a record says of a segment, so that most readers need not open it."""

    entries: Count
    rows: Count
    queries: list[Count]
    """numbers of the query sets of its entries (`Entry.query`), ascending"""
    arrivals: list[Count]
    """lengths of `Entry.arrival` that occur, ascending"""
    arrived: Count
    """number of entries with `Entry.arrival`"""
    blobs: bool
    """whether an entry names a blob"""
    compacted: Count = 0
    """number of rows in compacted entries"""


class Segment:
    """The entries of one segment.

    data : bytes of the blob, or memory that is mapped to it

    Raises
    ------
    ModelDamaged
        It is no segment, or a column has values that no entry has.
    """

    def __init__(self, data: bytes | mmap.mmap, where: str):
        if data[:1] == b"[":
            data = encode(entries_of_json(bytes(data), where))
        self.where, self.data = where, data
        self.columns = decoded(data, where)
        self._check()

    def __len__(self) -> int:
        return self.columns.lines

    @cached_property
    def summary(self) -> SegmentSummary:
        """What the record says of it."""
        numbers, texts = self.columns.numbers, self.columns.texts
        lengths = np.broadcast_to(np.isfinite(_distinct(numbers["arrival"])).sum(axis=1), (len(self),))
        unnamed = all(name in texts and len(texts[name].data) == 0 for name in NAMES)
        return SegmentSummary(
            len(self),
            int(numbers["rows"].sum()),
            _occurring(_distinct(numbers["query"])),
            _occurring(_distinct(lengths)),
            int((lengths > 0).sum()),
            not unnamed,
            sum(entry.rows for entry in self.of_digest(COMPACTED)),
        )

    # --- Entries ---

    def __iter__(self) -> Iterator[Entry]:
        for first in range(0, len(self), AT_ONCE):
            yield from self.some(slice(first, first + AT_ONCE))

    def some(self, lines: slice) -> list[Entry]:
        """Return some entries, in order."""
        try:
            found = {name: self._values(name, lines) for name in ("array", *NUMBERS, "at", *DIGESTS)}
        except UnicodeDecodeError as error:
            raise damaged(self.where, "texts in UTF-8", str(error)[:80]) from error
        keys = [
            array if start < 0 else f"{array}[{start}:{stop}]"
            for array, start, stop in zip(found["array"], found["start"], found["stop"], strict=True)
        ]
        found |= {"key": keys, "position": [None if at < 0 else at for at in found["position"]]}
        found["densities"] = [None if value != value else value for value in found["densities"]]
        for name in ("arrival", "excess_loss"):
            found[name] = [tuple(v for v in line if v == v) for line in found[name]]
        return [Entry(*line) for line in zip(*(found[name] for name in STORED), strict=True)]

    def _values(self, name, lines) -> list:
        if name in self.columns.texts:
            return self.columns.texts[name].texts(lines)
        column = self.columns.numbers[name][lines]
        return [line.tobytes().hex() for line in column] if name in DIGESTS else column.tolist()

    # --- Lookup ---

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        array, start, stop = _split(key)
        code = self._arrays.code(array)
        for line, found, low, high in self._from(code, start):
            if (found, low) != (code, start):
                break
            if high == stop:
                return self._entry(line)
        return None

    def knows(self, array: str) -> bool:
        """Return whether there is an entry of some rows of an array."""
        return self._arrays.code(array) is not None

    def overlapping(self, array: str, start: int, stop: int) -> list[Entry]:
        """Return the entries of an array with some of its rows `start` to `stop`, ascending.

        Rows of entries are assumed to be disjoint.
        """
        code, entries = self._arrays.code(array), list[Entry]()
        for line, found, low, high in self._from(code, start, before=1):
            if found == code and low >= stop:
                break
            if found == code and high > start:
                entries.append(self._entry(line))
            elif code is not None and found > code:
                break
        return entries

    def of_digest(self, digest: str) -> list[Entry]:
        """Return the entries with these contents, in their order."""
        order = self._order("by_digest")
        value, wanted = self._digest_at, digest.encode("utf-8", "surrogatepass")
        if "digest" not in self.columns.texts:
            if not _is_digest(digest):
                return []
            wanted = bytes.fromhex(digest)
        places = range(len(self))
        first = bisect.bisect_left(places, wanted, key=lambda k: value(order[k]))
        last = bisect.bisect_right(places, wanted, lo=first, key=lambda k: value(order[k]))
        return [self._entry(line) for line in sorted(int(order[k]) for k in range(first, last))]

    def _digest_at(self, line) -> bytes:
        texts = self.columns.texts.get("digest")
        return self.columns.numbers["digest"][line].tobytes() if texts is None else texts.distinct(texts.codes[line])

    def arrays(self, prefix: str) -> Iterator[tuple[str, int, int]]:
        """Yield array, start and stop of the entries of arrays whose names begin so."""
        codes, numbers = self._arrays.starting_with(prefix), self.columns.numbers
        if codes:
            inside = (self._arrays.codes >= codes.start) & (self._arrays.codes < codes.stop)
            for line in np.flatnonzero(inside).tolist():
                yield self._arrays.text(line), int(numbers["start"][line]), int(numbers["stop"][line])

    def array_names(self) -> list[str]:
        """Return the names of the arrays whose rows entries have."""
        texts = self._arrays
        return [texts.distinct(code).decode("utf-8", "surrogatepass") for code in range(len(texts.ends))]

    def places(self, numbers: Mapping[str, int]) -> np.ndarray:
        """Return array, start and stop of each entry, (n, 3) int64; arrays have these numbers by name."""
        known = np.array([numbers[name] for name in self.array_names()], np.int64)
        start, stop = (self.columns.numbers[name] for name in ("start", "stop"))
        return np.column_stack([known[self._arrays.codes], start, stop])

    @property
    def _arrays(self) -> Texts:
        return self.columns.texts["array"]

    def _order(self, name) -> Sequence[int] | np.ndarray:
        return self.columns.numbers.get(name, range(len(self)))

    def _from(self, code: int | None, start: int, before=0) -> Iterator[tuple[int, int, int, int]]:
        """Lines in the order of arrays and rows, with number of the array, start and stop, from (code, start) on.

        before : number of lines before that to begin with
        """
        if code is None:
            return
        order, codes = self._order("by_rows"), self._arrays.codes
        starts, stops = self.columns.numbers["start"], self.columns.numbers["stop"]
        places = range(len(self))
        first = bisect.bisect_left(places, (code, start), key=lambda k: (codes[order[k]], starts[order[k]]))
        for place in places[max(0, first - before) :]:
            line = int(order[place])
            yield line, int(codes[line]), int(starts[line]), int(stops[line])

    def _entry(self, line) -> Entry:
        return self.some(slice(line, line + 1))[0]

    # --- Checks ---

    def _check(self):
        """Raise `ModelDamaged` unless the columns are those of ledger entries, in the orders that lookups need."""
        numbers, texts = self.columns.numbers, self.columns.texts
        hashes = {name for name in DIGESTS if name in numbers}
        named = numbers.keys() - set(ORDERS), texts.keys()
        if named != ({*NUMBERS, *hashes}, {*TEXTS, *DIGESTS} - hashes):
            raise damaged(self.where, "the columns of ledger entries", str(sorted(numbers | texts))[:80])
        for name in hashes:
            if (numbers[name].dtype.str, numbers[name].shape[1:]) != ("|u1", (DIGEST_BYTES,)):
                raise damaged(self.where, f"hashes of {name}", "another column")
        for name, (dtype, axes) in NUMBERS.items():
            self._check_numbers(name, dtype, axes)
        for name in ("array", "digest"):
            if name in texts and not texts[name].ascending:
                raise damaged(self.where, f"the texts of {name} in order", "others")
        missing = np.isnan(_distinct(numbers["excess_loss"]))
        width = missing.shape[1]
        if width not in (0, 2) or (width and (missing.any(axis=1) != missing.all(axis=1)).any()):
            raise damaged(self.where, "a mean and its variance as surprise of each ledger entry", "others")
        self._check_order("by_rows", [self._arrays.codes, numbers["start"], numbers["stop"]])
        self._check_order("by_digest", self._parts_of_digests())

    def _check_numbers(self, name, dtype, axes):
        column = self.columns.numbers[name]
        if (column.dtype.str, column.ndim) != (dtype, axes):
            raise damaged(self.where, f"numbers of {name}", "another column")
        signed = name in ("arrival", "excess_loss")
        least = -LARGEST if signed else -1 if name in ("start", "stop", "position") else 0
        short = _distinct(column)
        known = short[~np.isnan(short)]
        unknown = known.size < short.size and not signed and name != "densities"
        if unknown or (known.size and (known.min() < least or known.max() > LARGEST)):
            raise damaged(self.where, f"{name} of ledger entries within bounds", "others")

    def _parts_of_digests(self) -> list[np.ndarray]:
        """Arrays that compare one after the other as digests do."""
        if "digest" in self.columns.texts:
            return [self.columns.texts["digest"].codes]
        digests = np.ascontiguousarray(self.columns.numbers["digest"])
        return list(digests.view(">u8").reshape(-1, DIGEST_BYTES // 8).T)

    def _check_order(self, name, parts):
        order = self.columns.numbers.get(name)
        if order is not None and (order.dtype.str != "<u4" or not np.array_equal(np.sort(order), np.arange(len(self)))):
            raise damaged(self.where, f"a permutation of {len(self)} entries as {name}", "others")
        pairs = max(0, len(self) - 1)
        ascending, equal = np.zeros(pairs, bool), np.ones(pairs, bool)
        for part in parts:
            placed = part if order is None else part[order]
            ascending |= equal & (placed[:-1] < placed[1:])
            equal &= placed[:-1] == placed[1:]
            if not equal.any():
                break
        if not (ascending | equal).all():
            raise damaged(self.where, f"ledger entries in the order {name}", "others")
        if name == "by_rows" and equal.any():
            raise damaged(self.where, "each partition once in the ledger", f"{int(equal.sum())} twice")


def _distinct(column: np.ndarray) -> np.ndarray:
    """The lines of a column, or the first where it stands for all."""
    return column if column.strides[0] else column[:1]


def _occurring(column: np.ndarray) -> list[int]:
    """The values that occur, ascending."""
    return sorted(set(column.tolist())) if len(column) < AT_ONCE else np.unique(column).tolist()


# --- Making ---


def encode(entries: Sequence[Entry]) -> bytes:
    """Return the blob of entries."""
    return encoded(_ordered(_columns(entries)))


def joined_segments(parts: Sequence[Segment], most: int) -> list[bytes]:
    """Return the entries of segments, one after the other, in blobs of `most` entries at most."""
    columns = [_unordered(part.columns) for part in parts]
    for name in DIGESTS:
        if len({name in some.texts for some in columns}) > 1:
            columns = [_with_texts(some, name) for some in columns]
    for name in ("arrival", "excess_loss"):
        width = max(some.numbers[name].shape[1] for some in columns)
        for some in columns:
            shape = len(some.numbers[name]), width - some.numbers[name].shape[1]
            some.numbers[name] = np.concatenate([some.numbers[name], np.full(shape, np.nan)], axis=1)
    together = joined(columns)
    return [encoded(_ordered(together.part(first, first + most))) for first in range(0, together.lines, most)]


def _unordered(columns: Columns) -> Columns:
    return replace(columns, numbers={name: one for name, one in columns.numbers.items() if name not in ORDERS})


def _with_texts(columns: Columns, name) -> Columns:
    """Columns whose digests of this name are texts."""
    if name in columns.texts:
        return columns
    numbers = dict(columns.numbers)
    texts = Texts.of([line.tobytes().hex() for line in numbers.pop(name)])
    return replace(columns, numbers=numbers, texts=columns.texts | {name: texts})


def _columns(entries) -> Columns:
    keys = [_split(entry.key) for entry in entries]
    numbers = {
        "start": np.array([start for _, start, _ in keys], np.int64),
        "stop": np.array([stop for _, _, stop in keys], np.int64),
        "rows": np.array([entry.rows for entry in entries], np.int64),
        "query": np.array([entry.query for entry in entries], np.int64),
        "position": np.array([-1 if e.position is None else e.position for e in entries], np.int64),
        "weight": np.array([entry.weight for entry in entries], float),
        "densities": np.array([np.nan if e.densities is None else e.densities for e in entries], float),
        "arrival": _padded([entry.arrival for entry in entries]),
        "excess_loss": _padded([entry.excess_loss for entry in entries]),
    }
    texts = {"array": Texts.of([array for array, _, _ in keys]), "at": Texts.of([entry.at for entry in entries])}
    for name in DIGESTS:
        found = [getattr(entry, name) for entry in entries]
        if found and all(map(_is_digest, found)):
            numbers[name] = np.frombuffer(bytes.fromhex("".join(found)), np.uint8).reshape(-1, DIGEST_BYTES)
        else:
            texts[name] = Texts.of(found)
    return Columns(len(entries), numbers, texts)


def _padded(lines) -> np.ndarray:
    """Numbers of each line, (n, most), with nan after the last one."""
    table = np.full((len(lines), max(map(len, lines), default=0)), np.nan)
    for number, line in enumerate(lines):
        table[number, : len(line)] = line
    return table


def _is_digest(text) -> bool:
    return len(text) == 2 * DIGEST_BYTES and not text.strip("0123456789abcdef")


def _split(key: str) -> tuple[str, int, int]:
    """Array, start and stop of a key; the key and -1 where it names no range."""
    match = KEY.fullmatch(key)
    if match and max(len(match["start"]), len(match["stop"])) < 19:
        array, start, stop = match["array"], int(match["start"]), int(match["stop"])
        if f"{array}[{start}:{stop}]" == key:
            return array, start, stop
    return key, -1, -1


def _ordered(columns: Columns) -> Columns:
    """Columns with the permutations that lookups need."""
    numbers, texts = columns.numbers, columns.texts
    if "digest" in texts:
        content = np.argsort(texts["digest"].codes, kind="stable")
    else:
        digests = np.ascontiguousarray(numbers["digest"]).view(f"S{DIGEST_BYTES}").ravel()
        content = np.argsort(digests, kind="stable")
    place = np.lexsort((numbers["stop"], numbers["start"], texts["array"].codes))
    orders = {"by_rows": place, "by_digest": content}
    needed = {name: order.astype(np.uint32) for name, order in orders.items() if (np.diff(order) < 0).any()}
    return replace(columns, numbers=numbers | needed)
