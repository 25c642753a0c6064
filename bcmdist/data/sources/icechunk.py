"""A repository of Icechunk as a source: partitions are rows that a snapshot has added, read in that snapshot.

Snapshots of the branch are read in order. Rows that were absorbed in a snapshot keep its name, so that they are the
same partitions in each reading. A snapshot is whole when it appears: nothing waits until a partition is full. The
offset is the last snapshot of which rows were read, and the number of rows of the array up to there.
"""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.data.dataset import Dataset, check_names, open_data
from bcmdist.data.groups import chunk_rows, open_group
from bcmdist.data.icechunk import Repository, on_icechunk
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistWarning, DataChanged, DataNotFound, InvalidData, InvalidOption


class SnapshotSource:
    """Partitions of the rows that the snapshots of a branch add.

    Retries, duplicates and loss: snapshots do not change, so a read may be repeated, and there is nothing to
    acknowledge. A snapshot that changes rows of an earlier one is an error.
    """

    def __init__(self, url, options):
        self.repository, self.options = Repository.of(url), options
        self.name = self.repository.url
        if options.trim or self.repository.snapshot:
            raise InvalidOption(
                f"source: expected a branch, without --trim and snapshot, got {self.name}; leave them out"
            )
        self._refuse_other_branch()
        self._absorbed = dict[str, tuple[int, int]]()
        """rows absorbed in each snapshot: the first one, and the one after the last"""
        for array, start, stop in options.ledger.arrays(f"{self.repository.scheme}://{self.repository.place}?"):
            one = Repository.of(array.rpartition("/")[0])
            if one.group == self.repository.group:
                low, high = self._absorbed.get(one.snapshot, (start, stop))
                self._absorbed[one.snapshot] = (min(start, low), max(stop, high))
        check_names(self._data(self.repository.tip()), options.schema)

    def _refuse_other_branch(self):
        others = [name for name in self.options.offsets if name != self.name and on_icechunk(name)]
        same = [
            name for name in others if replace(Repository.of(name), branch=self.repository.branch) == self.repository
        ]
        if same:
            raise InvalidOption(
                f"source: expected the branch that the model has absorbed, {same[0]}, got {self.name}, which may "
                "have other rows in their place; ingest it into a model of its own"
            )

    def read(self, after: Any, most: int) -> list[Delivery]:
        found = list[Delivery]()
        if after is None or after["snapshot"] != self.repository.tip().snapshot or after["more"]:
            for part in self._parts(after):
                if len(found) == most:
                    break
                offset = {"snapshot": Repository.of(part.data.url).snapshot, "row": part.stop}
                found.append(Delivery((part,), offset | {"more": part.stop < part.data.rows}, part.stop))
        return found

    def _parts(self, after):
        """Yield the partitions after an offset."""
        history, row = self._history(after)
        before = None
        for number, snapshot in enumerate(history):
            here = self.repository.at(snapshot)
            try:
                data = self._data(here)
            except (DataNotFound, InvalidData):  # not written yet
                if snapshot == history[-1]:
                    raise
                continue
            if row and before:
                self._refuse_rewritten(before, data, row)
            before = here
            later = (self._absorbed.get(one, (row + 1, 0)) for one in history[number + 1 :])
            if snapshot not in self._absorbed and any(start <= row < stop for start, stop in later):
                continue  # its rows have the name of a later one
            for part in partitions(data, self.options.rows_per_expert):
                if part.stop > row:
                    yield Partition(data, max(row, part.start), part.stop)
            row = max(row, data.rows)

    def _history(self, after):
        """Return the snapshots from that of an offset on, oldest first, and the number of rows that were read."""
        begun = after and after["snapshot"]
        history = self.repository.history(begun)
        gone = ({begun} if begun else self._absorbed.keys()) - set(history)
        if gone and (begun or gone == self._absorbed.keys()):
            raise DataChanged(
                f"{self.name}: expected the snapshot {max(gone)}, which was read, in the history of its branch, it is "
                "not there: the branch was reset, or the snapshot has expired; keep the newest snapshot that was "
                "absorbed, or fit a new model"
            )
        if gone:
            text = f"{self.name}: {len(gone)} absorbed snapshots are not kept any more: their rows cannot be compared"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        return history, after["row"] if after else max((self._absorbed[one][1] for one in gone), default=0)

    def _data(self, repository) -> Dataset:
        return open_data(repository.url, x=self.options.x, y=self.options.y, schema=self.options.schema)

    def _refuse_rewritten(self, before, data, rows):
        """Raise `DataChanged` if a snapshot has other values than the one before in the first `rows` rows."""
        later = Repository.of(data.url)
        changes = before.changes(later)
        old: Any = open_group(before.url)
        new: Any = open_group(data.url)
        for name in (data.x, data.y, *data.companions):
            path, size = f"/{later.group}/{name}".replace("//", "/"), chunk_rows(old[name])
            begins = {index[0] * size for index in changes.updated_chunks.get(path, [])}
            if path in changes.new_arrays | changes.deleted_arrays:
                begins = set(range(0, rows, size))
            for start in sorted(one for one in begins if one < rows):
                span = slice(start, min(rows, start + size))
                if data.rows < rows or not np.array_equal(old[name][span], new[name][span], equal_nan=True):
                    raise DataChanged(
                        f"{self.name}: expected rows {span.start} to {span.stop - 1} of {name} as in the snapshot "
                        f"{before.snapshot}, which was read, {later.snapshot} has others; append rows only, or fit anew"
                    )

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """Nothing to acknowledge."""

    def lag(self, after: Any) -> int:
        """Return the number of partitions after an offset."""
        rows = self._data(self.repository.tip()).rows - (after["row"] if after else 0)
        return max(0, -(-rows // self.options.rows_per_expert))

    def close(self) -> None:
        """Nothing to close."""
