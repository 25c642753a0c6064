"""A source of your own: rows of a table of SQLite, which other programs append to.

One class for two interfaces: a source delivers partitions after an offset, a reader gives the rows of one of them by
its URL, on whichever worker. `bcmdist.data.sources.open.Source` states what is promised; `check_source` tests it.
"""

import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings, register_source
from bcmdist.data.dataset import entry_data
from bcmdist.data.partition import Partition
from bcmdist.data.reader import EntryShape
from bcmdist.data.sources.delivery import Delivery
from bcmdist.testing import check_source


class Table:
    """Rows of the table `measurements`: partition k of sqlite://FILE is sqlite://FILE?ROWS#k.

    The offset is the number of partitions read. Full partitions stay the same, since rows are only ever appended.
    """

    def __init__(self, url, options):
        self.name, self.options = f"{url}?{options.rows_per_expert}", options

    def lag(self, after):
        with connected(self.name) as (table, size, _):
            return table.execute("select count(*) from measurements").fetchone()[0] // size - (after or 0)

    def read(self, after, most):
        first = after or 0
        return [Delivery((self.partition(k),), k + 1) for k in range(first, first + min(most, self.lag(first)))]

    def partition(self, k):
        url, names = f"{self.name}#{k}", (self.options.x, self.options.y)
        data = entry_data(url, *names, self.shape(url, *names, ()), self.options.schema)
        return Partition(data, 0, data.rows)

    def ack(self, offset, keys):
        """Nothing waits for it: the table keeps its rows."""

    def close(self):
        """Connections are closed after each read."""

    @staticmethod
    def named(url):
        return url

    @classmethod
    def shape(cls, url, x, y, companions):
        return EntryShape(*cls.columns(url, x, y, companions)[x].shape)

    @staticmethod
    def columns(url, x, y, companions):
        with connected(url) as (table, size, k):
            found = table.execute("select a, b, y from measurements order by id limit ? offset ?", (size, size * k))
            rows = np.array(found.fetchall(), dtype=float)
        return {x: rows[:, :2]} | ({y: rows[:, 2]} if y else {})


@contextlib.contextmanager
def connected(url):
    """The table of a URL, rows of a partition, and its number."""
    path, _, rest = url.removeprefix("sqlite://").partition("?")
    size, _, number = rest.partition("#")
    with contextlib.closing(sqlite3.connect(path)) as table:
        yield table, int(size), int(number or 0)


def measure(path, rng, rows):
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows)
    with contextlib.closing(sqlite3.connect(path)) as table, table:
        table.execute("create table if not exists measurements (id integer primary key, a, b, y)")
        table.executemany("insert into measurements (a, b, y) values (?, ?, ?)", np.column_stack([X, y]).tolist())
    return X, y


def main(rows):
    register_source("sqlite", Table, reader=Table)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.db")
        settings = Settings(partition="chunks", kernel="se", query=50, rows_per_expert=100, effort="quick")
        gbcm = GBCM.prepare(measure(file, rng, rows), settings, model=Path(folder, "model"))
        check_source(lambda: gbcm.source(f"sqlite://{file}"))
        for _ in range(2):
            gbcm, report = gbcm.ingest(gbcm.source(f"sqlite://{file}"))
            print(f"{report.rows} rows in {report.partitions} partitions; offset {list(gbcm.offsets.values())}")
            measure(file, rng, rows + 50)


if __name__ == "__main__":
    main(300 if "--quick" in sys.argv else 3000)
