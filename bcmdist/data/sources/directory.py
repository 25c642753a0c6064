"""Sources over Zarr data: a directory of data sets (`Directory`), and one data set that may grow (`GrownArray`).

Directory: its sub-directories are data sets, and new ones may appear at any time, under any name. A data set is read
once it is complete. Data sets written by bcmdist appear complete, because they are written under a name with
`.partial-` and then renamed (do the same when copying); others are complete when all their chunks are stored. With
`watch` an incomplete data set is left for a later read; otherwise it is reported as bad. A bad data set does not block
the others. Sub-directories that are not data sets, such as a model or an empty directory, are skipped with a warning.

The offset of a directory holds the number of data sets delivered completely, the sum of the hashes of their names, and
the position within the next one, so its size does not grow with the directory. After a restart these data sets are
identified if they are the first ones by name. If a data set was added before them or removed, all are delivered again;
the ledger recognises their keys without reading a row.

Data set: it may grow along its rows; the offset is the number of rows delivered.

Partitions, and their keys, are the same as in a fit. While rows may be appended (`watch`), a partition is delivered
only if its rows are certainly written (`dataset.open_growing`) and further growth cannot change it: the last rows wait
until their partition is full, or until a read without `watch`. A writer other than `writing.append_rows` must either
write whole chunks, including chunks of zeros (`write_empty_chunks`), or advance the attribute `rows_complete` of the
group after writing rows.
"""

import bisect
import hashlib
import os
import warnings
from collections.abc import Iterable
from typing import Any

from bcmdist.data.dataset import (
    Dataset,
    announced_rows,
    check_names,
    complete_rows,
    missing_chunk,
    open_data,
    open_growing,
)
from bcmdist.data.groups import absolute_url, open_group
from bcmdist.data.partition import Partition, partitions, steady_partitions
from bcmdist.data.schema import UNNAMED
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    DataChanged,
    DataDamaged,
    DataNotFound,
    MissingChunk,
    UnsafeData,
)

# Minimum number of partitions to find at a time, since each search opens the arrays.
LEAST_LOOK = 256


class GrownArray:
    """Partitions of one data set in the order of its rows.

    Retries, duplicates and loss: a read changes nothing, so it may be repeated, and there is nothing to acknowledge.
    """

    def __init__(self, url, *, x, y, rows_per_expert, watch, schema=UNNAMED):
        self.name = absolute_url(url)
        self.x, self.y, self.rows_per_expert, self.watch, self.schema = x, y, rows_per_expert, watch, schema
        self._checked = False
        self._parts: list[Partition] = []
        """partitions found by the last search, in order"""

    def read(self, after: Any, most: int) -> list[Delivery]:
        later = self._later(after or 0, most)
        if len(later) < most:
            self._parts = self._found(after or 0, max(most, LEAST_LOOK))
            later = self._later(after or 0, most)
        return [Delivery((part,), part.stop, part.stop) for part in later]

    def _later(self, after, most):
        first = bisect.bisect_right(self._parts, after, key=lambda part: part.stop)
        return self._parts[first : first + most]

    def _found(self, after, most):
        if not self.watch:
            data = open_data(self.name, x=self.x, y=self.y, schema=self.schema)
            self._refuse_shrunk(data.rows, after)
            self._check(data)
            return partitions(data, self.rows_per_expert)
        self._refuse_shrunk(announced_rows(self.name, x=self.x), after)
        # Partitions hold up to 1.5 times `rows_per_expert`; one more may have begun before `after`.
        enough = 2 * (most + 1) * self.rows_per_expert
        data = open_growing(self.name, x=self.x, y=self.y, schema=self.schema, start=after, most=enough)
        self._check(data)
        return steady_partitions(data, self.rows_per_expert)

    def _check(self, data):
        """Check the names of columns and classes, once."""
        if not self._checked:
            check_names(data, self.schema)
        self._checked = True

    def _refuse_shrunk(self, rows, after):
        if rows < after:
            raise DataChanged(
                f"{self.name}: expected at least the {after} rows that were delivered before, it has {rows}; give the "
                "data set that was ingested, or ingest another one under a path of its own"
            )

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        pass

    def lag(self, after: Any) -> int:
        return max(0, -(-(announced_rows(self.name, x=self.x) - (after or 0)) // self.rows_per_expert))

    def close(self) -> None:
        pass


NO_ARRAYS = "one of its arrays"
GROUP_FILES = ("zarr.json", ".zgroup", ".zmetadata")  # a data set has one of these
START = {"stores": 0, "names": "0", "store": None, "row": 0}


class Directory:
    """Partitions of the data sets of a directory, one data set after the other.

    Retries, duplicates and loss: a read changes nothing on disk, so it may be repeated, and there is nothing to
    acknowledge. The state of this object only saves work.
    """

    def __init__(self, url, *, x, y, rows_per_expert, watch, schema=UNNAMED):
        self.name = absolute_url(url)
        self.x, self.y, self.rows_per_expert, self.watch, self.schema = x, y, rows_per_expert, watch, schema
        self._order: list[str] = []
        """data sets delivered completely, in that order; the last one may be partly delivered"""
        self._waiting: list[str] = []
        """data sets still to be delivered, from the last listing of the directory"""
        self._read_to = START
        """offset to which `_order` and `_waiting` belong"""
        self._opened: dict[str, Dataset] = {}
        self._left_out: set[str] = set()
        """names of sub-directories that are not data sets, already warned about"""

    def read(self, after: Any, most: int) -> list[Delivery]:
        found = self._found(most) if after == self._read_to else []
        if not found:
            self._read_to, self._order = self._resumed(after or START)
            self._waiting = self._next(self._order, self._read_to["store"])
            found = self._found(most)
        return found

    def _found(self, most):
        """Return deliveries from the waiting data sets."""
        found: list[Delivery] = []
        for name in list(self._waiting):
            if len(found) == most:
                break
            offset = self._read_to
            try:
                data = self._complete(name)
                if data is None:
                    continue
                parts = self._later(data, offset["row"] if name == offset["store"] else 0)
            except BcmdistError as error:
                offset = _ended(offset, name)
                found.append(Delivery((), offset, bad=(f"{self.name}/{name}", error)))
                parts = []
            for part in parts[: most - len(found)]:
                offset = _advanced(offset, part)
                found.append(Delivery((part,), offset))
            self._read_to = offset
            if offset["store"] is None:
                self._waiting.remove(name)
                self._order.append(name)
                self._opened.pop(name, None)
        return found

    def _later(self, data, begun):
        if data.rows < begun:
            raise DataChanged(
                f"{data.url}: expected at least the {begun} rows that were delivered before, it has {data.rows}; give "
                "the data set that was ingested"
            )
        return [part for part in partitions(data, self.rows_per_expert) if part.stop > begun]

    def _resumed(self, offset):
        """Return an offset and the names of the data sets that it counts; the start if the names are unknown."""
        if offset == self._read_to:
            return offset, self._order
        count = offset["stores"]
        for names in (self._order, self._names()):
            if len(names) >= count and _sum_of_names(names[:count]) == offset["names"]:
                return offset, names[:count]
        return START, []

    def _next(self, done, begun):
        """Return the names still to be delivered: the partly delivered data set first, then by name."""
        names = set(self._names()) - set(done)
        return sorted(names, key=lambda name: (name != begun, name))

    def _names(self):
        """Return the names of the data sets in the directory, sorted."""
        try:
            found = sorted(os.scandir(self.name), key=lambda entry: entry.name)
        except OSError as error:
            raise DataNotFound(f"{self.name}: expected a directory of data sets ({error}); check the path") from error
        root = os.path.realpath(self.name)
        names = []
        for entry in found:
            if entry.name.startswith(".") or ".partial-" in entry.name or not entry.is_dir():
                continue
            if os.path.commonpath([root, os.path.realpath(entry.path)]) != root:
                raise UnsafeData(
                    f"{entry.path}: expected a data set within {self.name}, it is a link to "
                    f"{os.path.realpath(entry.path)}; copy the data set there, or ingest it where it lies"
                )
            if self._is_data_set(entry):
                names.append(entry.name)
        return names

    def _is_data_set(self, entry):
        """Return whether a directory is a data set, perhaps an unfinished one; warn if it is not."""
        there = os.listdir(entry.path)
        if any(name in there for name in (*GROUP_FILES, self.x)) or (self.watch and not there):
            return True
        if entry.name not in self._left_out:
            self._left_out.add(entry.name)
            text = f"{entry.path}: expected a data set, found {'another' if there else 'an empty'} directory; left out"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        return False

    def _complete(self, name):
        """Open a data set; return None if it is still being written."""
        if name in self._opened:
            return self._opened[name]
        url = f"{self.name}/{name}"
        lost = self._incomplete(url)
        if lost and self.watch:
            return None
        if lost:
            raise MissingChunk(
                f"{url}: expected a data set with all its chunks, {lost} is missing; let its writer finish (it must "
                "store chunks of zeros too: write_empty_chunks), or move it away"
            )
        self._opened[name] = open_data(url, x=self.x, y=self.y, schema=self.schema)
        check_names(self._opened[name], self.schema)
        return self._opened[name]

    def _incomplete(self, url):
        """Describe in a few words what a data set lacks; None if it is complete."""
        try:
            rows = announced_rows(url, x=self.x)
            complete = complete_rows(open_group(url), url)
            if complete is not None and complete < rows:
                return "the end of its rows"
            return missing_chunk(url, x=self.x, y=self.y)
        except (DataNotFound, DataDamaged):
            return NO_ARRAYS

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        pass

    def lag(self, after: Any) -> int:
        offset, done = self._resumed(after or START)
        urls = [f"{self.name}/{name}" for name in self._next(done, offset["store"])]
        rows = sum(self._announced(url) for url in urls)
        return max(0, -(-(rows - offset["row"]) // self.rows_per_expert))

    def _announced(self, url):
        """Return the announced rows of a data set; 0 if it cannot be opened yet."""
        try:
            return announced_rows(url, x=self.x) if self._incomplete(url) != NO_ARRAYS else 0
        except BcmdistError:  # reported when the data set is read
            return 0

    def close(self) -> None:
        pass


def _advanced(offset, part):
    """Return the offset after delivery of a further partition."""
    name = os.path.basename(part.data.url)
    if part.stop < part.data.rows:
        return offset | {"store": name, "row": part.stop}
    return _ended(offset, name)


def _ended(offset, name):
    """Return the offset after the end of a data set."""
    names = _added(offset["names"], name)
    return offset | {"stores": offset["stores"] + 1, "names": names, "store": None, "row": 0}


def _sum_of_names(names):
    """Return the sum of the hashes of names, which does not depend on their order."""
    total = "0"
    for name in names:
        total = _added(total, name)
    return total


def _added(total, name):
    return f"{(int(total, 16) + int.from_bytes(hashlib.sha256(name.encode()).digest()[:16])) % 2**128:x}"
