"""A table of a database as a source: partitions are runs of rows in the order of a key, see `bcmdist.data.sql`.

A run holds `rows_per_expert` rows; the next one begins after its last key. Its name is the key before it, so that all
readers of one model name the same rows alike, as long as rows are only added after the last key. With `watch` a run is
delivered when it is full. The offset names the run, how many of its rows were read, and the key of the last of them.

Rows that were changed, removed or inserted behind are errors: in the last run when the next one is read, and in all
runs when the table is read from its beginning (without `watch`), since the ledger has the hash of the rows of each.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bcmdist.data.dataset import COMPANIONS, entry_data
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.entry_names import EntryNames
from bcmdist.data.sql import SqlRows, SqlTable
from bcmdist.errors import BcmdistError, DataChanged, InvalidOption

START: dict[str, Any] = {"after": None, "rows": 0, "last": None, "position": 0}


class SqlSource:
    """Partitions of one table.

    Retries, duplicates and loss: a read changes nothing, so it may be repeated, and there is nothing to acknowledge.
    """

    def __init__(self, url, options):
        if options.trim:
            raise InvalidOption(
                "--trim: expected a Redis stream, got a table, of which nothing is removed; leave it out"
            )
        self.table, self.options = SqlTable.of(url), options
        self.table.check()
        self.name = self.table.url
        self._names = EntryNames(self.name, options.y, options.schema)
        self._refuse_other_runs()

    def read(self, after: Any, most: int) -> list[Delivery]:
        offset, found, size = after or START, list[Delivery](), self.options.rows_per_expert
        while len(found) < most:
            run, begun = self._run(offset, size)
            keys = self.table.keys(run, size)
            if len(keys) <= begun or (self.options.watch and len(keys) < size):
                break
            position = offset["position"] + len(keys) - begun
            offset = {"after": run, "rows": len(keys), "last": keys[-1], "position": position}
            found.append(self._delivery(self.table.entry(run, size), begun, len(keys), offset))
        return found

    def _run(self, offset, size):
        """Return the key before the run to read, and how many of its rows were read; raise `DataChanged` if rows of the
        run that was read last are not the same ones."""
        run, rows, last = offset["after"], offset["rows"], offset["last"]
        if rows and self.table.keys(run, rows)[-1:] != [last]:
            raise self._changed(f"{rows} rows after the key {json.dumps(run)} up to {json.dumps(last)}, as were read")
        return (last, 0) if rows == size else (run, rows)

    def _delivery(self, url, begun, stop, offset):
        names = self.options.x, self.options.y
        try:
            shape = SqlRows.shape(url, *names, COMPANIONS)
            data = entry_data(url, *names, shape, self.options.schema)
            self._names.warn(shape)
        except BcmdistError as error:
            return Delivery((), offset, bad=(url, error))
        return Delivery((Partition(replace(data, rows=stop), begun, stop),), offset, offset["position"])

    def _refuse_other_runs(self):
        """Raise `DataChanged` if runs that the model has absorbed do not begin where runs begin now."""
        size, arrays = self.options.rows_per_expert, self.options.ledger.arrays(f"{self.name}[")
        absorbed = {array.rpartition("/")[0] for array, _, _ in arrays}
        if absorbed:
            absorbed -= {self.table.entry(key, size) for key in [None, *self.table.every(size)]}
        if absorbed:
            raise self._changed(f"the run {min(absorbed)}, as when it was read")

    def _changed(self, expected):
        return DataChanged(
            f"{self.name}: expected {expected}, there are others now: rows were removed, or inserted before the last "
            "key; restore them, or fit the table anew (rows to come need keys after the last one)"
        )

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """Nothing to acknowledge."""

    def lag(self, after: Any) -> int:
        """Return the number of runs with rows after an offset."""
        return -(-self.table.count((after or START)["last"]) // self.options.rows_per_expert)

    def close(self) -> None:
        """Connections are closed after each query."""
