"""A Zarr data set, perhaps growing along its rows: the offset is the number of rows delivered.

Partitions are those of a fit, under the same keys. While rows may be added (`watch`) only those are delivered that are
certainly written (`dataset.open_growing`) and that growth leaves as they are: the last rows wait until their
partition is full, or until a read without `watch`. A writer that is not `writing.append_rows` writes whole
chunks, chunks of zeros too (`write_empty_chunks`), or advances the attribute `rows_complete` of the group itself, after
its rows.
"""

import bisect

from bcmdist.data.dataset import announced_rows, check_names, open_data, open_growing
from bcmdist.data.groups import absolute_url
from bcmdist.data.partition import Partition, partitions, steady_partitions
from bcmdist.data.schema import UNNAMED
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import DataChanged

# Partitions to look for at least, since each look opens the arrays.
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
        """those found when it was last looked at, in order"""

    def read(self, after, most) -> list[Delivery]:
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
        # Partitions hold up to 1.5 times the wanted rows; one more may have begun before `after`.
        enough = 2 * (most + 1) * self.rows_per_expert
        data = open_growing(self.name, x=self.x, y=self.y, schema=self.schema, start=after, most=enough)
        self._check(data)
        return steady_partitions(data, self.rows_per_expert)

    def _check(self, data):
        """Look at names, once."""
        if not self._checked:
            check_names(data, self.schema)
        self._checked = True

    def _refuse_shrunk(self, rows, after):
        if rows < after:
            raise DataChanged(
                f"{self.name}: expected at least the {after} rows that were delivered before, it has {rows}; give the "
                "data set that was ingested, or ingest another one under a path of its own"
            )

    def ack(self, offset, keys) -> None:
        pass

    def lag(self, after) -> int:
        return max(0, -(-(announced_rows(self.name, x=self.x) - (after or 0)) // self.rows_per_expert))

    def close(self) -> None:
        pass
