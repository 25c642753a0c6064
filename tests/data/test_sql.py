"""Tables as sources, of SQLite and PostgreSQL: runs in the order of a key, rows that change later, bad rows."""

import sys

import numpy as np
import pytest

from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.data.sources.open import open_source
from bcmdist.data.sql import SqlTable
from bcmdist.errors import (
    BcmdistWarning,
    ChunkConflict,
    DataChanged,
    DataNotFound,
    InvalidData,
    InvalidOption,
    MissingExtra,
    SourceUnreachable,
)
from bcmdist.testing import check_source

sql = pytest.importorskip("sqlalchemy", reason="SQL: pip install 'bcmdist[sql]'")
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.* {text}") for text in ("the model knows no names", "not used, of a type")
]

SIZE = 50


class Rows:
    """A table `measured` of a database, which the rows of `wave` are added to."""

    def __init__(self, database, wave, key="id integer primary key"):
        self.engine = sql.create_engine(database, poolclass=sql.pool.NullPool)
        self.url, self.rows = f"sql+{database}?table=measured", np.column_stack(wave[1:]).tolist()
        self.do(f"create table measured ({key}, a double precision, note text, b double precision, y double precision)")
        self.added = 0

    def do(self, text, values=None):
        with self.engine.begin() as link:
            link.execute(sql.text(text), values)

    def add(self, count, key=lambda k: 10 * k + 1):
        some = self.rows[self.added : self.added + count]
        lines = [{"k": key(self.added + k), "a": a, "b": b, "y": y} for k, (a, b, y) in enumerate(some)]
        self.do("insert into measured values (:k, :a, 'dry', :b, :y)", lines)
        self.added += count


@pytest.fixture
def rows(wave, tmp_path):
    return Rows(f"sqlite:///{tmp_path}/rows.db", wave)


@pytest.fixture
def prepared(wave, tmp_path):
    settings = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=SIZE, learn=False)
    return GBCM.prepare(wave[0], settings, model=tmp_path / "model")


def opened(url, watch=False, **options):
    return open_source(url, rows_per_expert=SIZE, watch=watch, **options)


def ingest(gbcm, rows, **options):
    return gbcm.ingest(gbcm.source(rows.url, watch=False), IngestOptions(**options))


def test_conformance(prepared, rows):
    rows.add(130)
    check_source(lambda: prepared.source(rows.url))


def test_runs_are_named_by_the_key_before_them(prepared, rows, wave):
    _, X, y = wave
    rows.add(120)
    after, _ = ingest(prepared, rows)
    name = SqlTable.of(rows.url).url
    runs = [f"{name}[491;50]/X[0:50]", f"{name}[991;50]/X[0:20]", f"{name}[null;50]/X[0:50]"]
    assert sorted(entry.key for entry in after.ledger) == runs
    assert after.offsets == {name: {"after": 991, "rows": 20, "last": 1191, "position": 120}}
    ((_, found),) = read_all([from_key(runs[0], y="y")])
    np.testing.assert_array_equal(found.X, X[50:100])
    np.testing.assert_array_equal(found.obs.y, y[50:100])
    rows.add(40)
    after, report = ingest(after, rows)
    assert (report.rows, report.duplicates) == (40, 2)
    assert sorted(entry.key for entry in after.ledger[3:]) == [f"{name}[1491;50]/X[0:10]", f"{name}[991;50]/X[20:50]"]
    some = after.forget([runs[0]])
    assert ingest(some, rows)[1].rows == 50


def test_runs_wait_until_they_are_full(rows):
    source = opened(rows.url, watch=True)
    rows.add(49)
    assert source.read(None, 9) == []
    rows.add(11)
    (one,) = source.read(None, 9)
    assert (one.parts[0].rows, one.position) == (50, 50)
    assert source.read(one.offset, 9) == []
    assert source.lag(one.offset) == 1


def test_keys_may_be_texts_in_their_order(prepared, rows, wave, tmp_path):
    texts = Rows(f"sqlite:///{tmp_path}/texts.db", wave, key="id text")
    texts.add(70, key=lambda k: f"2026-01-{k:03} it's [{k}:0]/X")
    check_source(lambda: prepared.source(texts.url))


# --- Rows that are not what they were ---


def test_rows_that_change_after_they_were_read(prepared, rows):
    rows.add(120)
    after, _ = ingest(prepared, rows)
    rows.do("update measured set y = y + 1 where id = 501")
    with pytest.raises(ChunkConflict, match=r"\[491;50\]/X\[0:50\]"):
        ingest(after, rows)
    with pytest.raises(DataChanged, match=r"\[491;50\]/X\[0:50\]"):
        after.forget([next(entry.key for entry in after.ledger if "[491;" in entry.key)])
    rows.do("update measured set y = y - 1 where id = 501")


CHANGES = {
    "removed": "delete from measured where id = 11",
    "inserted": "insert into measured values (15, 1, '', 1, 1)",
    "removed at the end": "delete from measured where id = 1191",
}


@pytest.mark.parametrize("case", CHANGES)
def test_rows_that_are_removed_or_inserted_behind(prepared, rows, case):
    rows.add(120)
    after, _ = ingest(prepared, rows)
    rows.do(CHANGES[case])
    before = len(after.ledger)
    with pytest.raises((DataChanged, InvalidData), match=r"measured"):
        ingest(after, rows)
    with pytest.raises(DataChanged, match="rows were removed, or inserted before the last key"):
        after.source(rows.url, watch=True).read(after.offsets[SqlTable.of(rows.url).url], 1)
    assert len(GBCM.load(after.url).ledger) == before


# --- Bad rows and URLs ---


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("b = 'warm'", "expected a number in b, got 'warm' at id 21; correct"),
        ("a = null", "expected a number in a, got null at id 21; correct"),
    ],
)
def test_bad_rows_are_named_by_their_key(prepared, rows, change, text):
    rows.add(60)
    rows.do(f"update measured set {change} where id = 21")
    with pytest.raises(InvalidData, match=text):
        ingest(prepared, rows)
    after, report = ingest(GBCM.load(prepared.url), rows, skip=True)
    assert report.skipped == [f"{SqlTable.of(rows.url).url}[null;50]"]
    assert after.committee.total.rows == 10


def test_keys_that_are_none(prepared, wave, tmp_path):
    for number, (values, text) in enumerate(
        [((1, 2, 2), "two rows with 2; give another"), ((1, 2, None), "id is null in some"), ((1, 1.5, 2), "got 1.5;")]
    ):
        rows = Rows(f"sqlite:///{tmp_path}/{number}.db", wave, key="id")
        rows.add(3, key=values.__getitem__)
        with pytest.raises(InvalidData, match=text):
            ingest(prepared, rows)


def test_columns_that_are_missing_or_not_used(rows):
    rows.add(60)
    (one, _) = opened(rows.url, y="target").read(None, 2)
    with pytest.raises(InvalidData, match="expected a column target, found a, note, b, y; add it"):
        raise one.bad[1]
    with pytest.warns(BcmdistWarning, match="'note' not used, of a type that is no number"):
        (one,) = opened(rows.url).read(None, 1)
    assert one.parts[0].data.inputs == 2


@pytest.mark.parametrize(
    "url", ["sql+sqlite:///rows.db", "sql+sqlite://?table=a", "sql+:///a?table=a", "sql+postgresql://me:secret@h/db"]
)
def test_urls(url):
    with pytest.raises(InvalidOption, match=r"expected sql.DATABASE.table=NAME&key=COLUMN") as raised:
        opened(url)
    assert "secret" not in str(raised.value)


def test_what_is_no_source(rows, tmp_path, monkeypatch):
    rows.add(10)
    with pytest.raises(DataNotFound, match="expected a file of SQLite, found none at"):
        opened(f"sql+sqlite:///{tmp_path}/none.db?table=a")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(DataNotFound, match="expected a table nothing, found none"):
        opened(rows.url.replace("measured", "nothing"))
    with pytest.raises(DataNotFound, match="expected a column time as key, found id, a, note, b, y"):
        opened(f"{rows.url}&key=time")
    with pytest.raises(InvalidOption, match="expected a database of SQLAlchemy"):
        opened("sql+nothing://h/db?table=a")
    with pytest.raises(InvalidOption, match=r"expected a Zarr data set, .* is a table; `bcmdist ingest`"):
        open_data(rows.url)
    with pytest.raises(InvalidOption, match="--trim: expected a Redis stream, got a table"):
        opened(rows.url, trim=True)
    (tmp_path / "torn.db").write_bytes(b"no database, but a text that is long enough" * 100)
    with pytest.raises(SourceUnreachable, match="expected the database to answer, got file is not a database"):
        opened(f"sql+sqlite:///{tmp_path}/torn.db?table=a")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[sql\]'"):
        opened(rows.url)


def test_a_table_of_postgresql(prepared, wave, postgres):
    """Password in the URL of this process only, a view, and what changes."""
    rows = Rows(postgres.url, wave, key="id bigserial primary key")
    rows.add(120)
    rows.do("create view settled as select id, a, b, y from measured where id < 1000")
    check_source(lambda: prepared.source(rows.url))
    after, report = prepared.ingest(prepared.source(rows.url.replace("table=measured", "table=public.settled")))
    assert report.rows == 100
    assert postgres.password not in str([entry.key for entry in after.ledger]) + str(after.offsets)
    rows.do("update measured set a = 7 where id = 501")
    with pytest.raises(ChunkConflict, match=r"\[491;50\]"):
        after.ingest(after.source(rows.url.replace("table=measured", "table=public.settled")))
    with pytest.raises(SourceUnreachable, match="expected the database to answer"):
        open_source(rows.url.replace(postgres.password, "wrong"), rows_per_expert=SIZE, watch=False)
