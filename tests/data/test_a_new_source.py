"""A source is one class: the rows of an iterator that a Python file defines, registered as another package would."""

import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bcmdist
from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import entry_data, open_data
from bcmdist.data.partition import Partition, from_key
from bcmdist.data.reader import EntryShape
from bcmdist.data.rows import read_all
from bcmdist.data.schemes import READERS
from bcmdist.data.sources.open import SOURCES, Delivery
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.testing import check_source

ROWS = 50
SETTINGS = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=ROWS, learn=False)
ONE_EACH = IngestOptions(commit_every=1)
# What a file of rows looks like. A process that is to die does so at a row, as often as it reads that far.
FILE = """
import os, signal
import numpy as np

def rows():
    for k, (*x, y) in enumerate(np.loadtxt({table!r})):
        if k == int(os.environ.get("DIES_AT_ROW", -1)):
            os.kill(os.getpid(), signal.SIGKILL)
        yield x, y
"""


class IteratorSource:
    """Batches of rows of toy://FILE.py, whose function `rows` gives x (D,) and y: batch k is toy://FILE.py?ROWS#k.

    Its offset is the number of batches read.
    """

    def __init__(self, url, options):
        self.name, self.options = f"{url}?{options.rows_per_expert}", options

    def read(self, after, most):
        found = [self._batch(k) for k in range(after or 0, (after or 0) + most)]
        return [Delivery((part,), k + 1) for k, part in enumerate(found, start=after or 0) if part.rows]

    def _batch(self, k):
        url, names = f"{self.name}#{k}", (self.options.x, self.options.y)
        data = entry_data(url, *names, self.shape(url, *names, ()), self.options.schema)
        return Partition(data, 0, data.rows)

    def ack(self, offset, keys):
        pass

    def lag(self, after):
        return None

    def close(self):
        pass

    # --- As a reader of what it delivers ---

    @staticmethod
    def named(url):
        return url

    @classmethod
    def shape(cls, url, x, y, companions):
        return EntryShape(*cls.columns(url, x, y, companions)[x].shape)

    @staticmethod
    def columns(url, x, y, companions):
        place, _, batch = url.removeprefix("toy://").partition("?")
        if not batch:
            raise InvalidOption(f"data: expected one batch of rows, {url} has many; ingest it")
        size, k = map(int, batch.split("#"))
        rows = list(itertools.islice(runpy.run_path(place)["rows"](), size * k, size * (k + 1)))
        X = np.array([x for x, _ in rows]).reshape(len(rows), -1 if rows else 0)
        return {x: X} | ({y: np.array([y for _, y in rows])} if y else {})


def register():
    bcmdist.register_source("toy", IteratorSource, reader=IteratorSource)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """In this process, for one test."""
    for table in (SOURCES, READERS):
        monkeypatch.setattr(table, "_things", dict(table._things))
    register()


@pytest.fixture
def stream(wave, tmp_path):
    """URL of an iterator of the rows of `wave`."""
    _, X, y = wave
    np.savetxt(tmp_path / "table.txt", np.column_stack([X, y]), fmt="%.17g")
    (tmp_path / "rows.py").write_text(FILE.format(table=str(tmp_path / "table.txt")))
    return f"toy://{tmp_path}/rows.py"


@pytest.fixture
def prepared(wave, tmp_path):
    return GBCM.prepare(wave[0], SETTINGS, model=tmp_path / "model")


def assert_every_row_once(gbcm, path):
    """The committee is that of the same rows fitted in one go."""
    batch = GBCM.fit(path, SETTINGS)
    assert sorted((entry.rows, entry.digest) for entry in gbcm.ledger) == sorted(
        (entry.rows, entry.digest) for entry in batch.ledger
    )
    assert gbcm.committee.total.rows == 240
    np.testing.assert_allclose(gbcm.committee.total.eta, batch.committee.total.eta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(gbcm.committee.total.precision, batch.committee.total.precision, rtol=1e-10, atol=1e-10)


def test_conformance(prepared, stream):
    check_source(lambda: prepared.source(stream))


def test_it_is_heard(prepared, stream, wave):
    after, report = prepared.ingest(prepared.source(stream), ONE_EACH)
    assert (report.partitions, report.rows) == (5, 240)
    assert_every_row_once(after, wave[0])
    assert [entry.key for entry in after.ledger] == [
        f"{stream}?50#{k}/X[0:{n}]" for k, n in enumerate([50, 50, 50, 50, 40])
    ]
    _, report = after.ingest(after.source(stream))
    assert (report.partitions, report.rows) == (0, 0)
    assert_every_row_once(GBCM.load(after.url).partial_fit(stream), wave[0])


INGEST = """
import sys
import test_a_new_source as t
from bcmdist import GBCM
t.register()
gbcm = GBCM.load(sys.argv[1])
gbcm.ingest(gbcm.source(sys.argv[2]), t.ONE_EACH)
"""


@pytest.mark.slow
def test_a_kill_and_a_repeat(prepared, stream, wave):
    paths = os.pathsep.join([str(Path(bcmdist.__file__).parents[1]), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": paths, "DIES_AT_ROW": "160"}
    command = [sys.executable, "-c", INGEST, prepared.url, stream]
    assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    killed = GBCM.load(prepared.url)
    assert killed.committee.total.rows < 240
    after, report = killed.ingest(killed.source(stream), ONE_EACH)
    assert report.rows == 240 - killed.committee.total.rows
    assert_every_row_once(after, wave[0])
    some = after.forget([after.ledger[1].key])  # which reads them again, by the key
    assert some.committee.total.rows == 190
    assert_every_row_once(some.partial_fit(stream), wave[0])


def test_the_command_line_hears_it(prepared, stream, wave):
    done = CliRunner().invoke(cli, ["ingest", prepared.url, stream, "--commit-every", "2", "--serial", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 240
    assert_every_row_once(GBCM.load(prepared.url), wave[0])


@pytest.mark.slow
def test_on_a_cluster(prepared, stream, wave, cluster):
    cluster._client.run(register)
    after, _ = prepared.ingest(prepared.source(stream), runtime=cluster)
    assert_every_row_once(after, wave[0])


# --- What is refused ---


def test_it_is_no_data_set(stream):
    with pytest.raises(InvalidOption, match=r"expected one batch of rows, toy://.* has many; ingest it"):
        open_data(stream)


def test_rows_that_change(prepared, stream):
    ((part,),) = (one.parts for one in prepared.source(stream).read(4, 9))
    assert part == from_key(part.key, y="y")
    table = Path(stream.removeprefix("toy://")).with_name("table.txt")
    table.write_text("\n".join(table.read_text().splitlines()[:-3]))
    with pytest.raises(InvalidData, match=r"#4: expected 40 rows in X, as it was found to hold, got 37; an entry must"):
        next(read_all([part]))


def test_schemes_are_taken_once():
    with pytest.raises(InvalidOption, match="source: expected a name of its own, 'redis' is that of"):
        bcmdist.register_source("redis", IteratorSource)
