"""Access to tables of databases by SQLAlchemy: URLs of tables, and the rows after a key.

A table is `sql+DATABASE?table=NAME&key=COLUMN`, where DATABASE is a URL of SQLAlchemy, such as sqlite:////data/rows.db
or postgresql+psycopg://HOST/DB. An entry `TABLE[AFTER;ROWS]` holds the next so many rows after a key, in the order of
the key, a column of unique integers or texts. The password is kept in this process only: workers take it from where the
database's client looks for it (such as PGPASSWORD).
"""

import json
import os
import re
import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import numpy as np

from bcmdist.data.reader import EntryShape
from bcmdist.data.records import Records
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, MissingExtra, SourceUnreachable

# Seconds for which a database that does not answer is asked again: it may be restarting.
PATIENCE = 30.0

READABLE = ' ":'  # in keys, where other characters are quoted
ENTRY = re.compile(r"(?P<table>sql\+.*)\[(?P<after>.*);(?P<rows>\d+)\]", re.DOTALL)


def sqlalchemy_() -> Any:
    """Return the library.

    Raises
    ------
    MissingExtra
    """
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtra("source: SQL tables need sqlalchemy; pip install 'bcmdist[sql]'") from error
    return sqlalchemy


@lru_cache
def engine_of(database) -> Any:
    """Return what connects to a database."""
    sql = sqlalchemy_()
    try:
        return sql.create_engine(_logins.get(database, database), poolclass=sql.pool.NullPool)
    except (sql.exc.ArgumentError, sql.exc.NoSuchModuleError, ImportError) as error:
        raise InvalidOption(
            f"source: expected a database of SQLAlchemy, {error}; correct sql+..., or install it"
        ) from error


@dataclass(frozen=True)
class SqlTable:
    """A table, or a view, in the order of a key."""

    database: str
    """URL of SQLAlchemy, without a password"""
    table: str
    key: str

    @classmethod
    def of(cls, url) -> "SqlTable":
        """Parse sql+DATABASE?table=NAME&key=COLUMN; `key` is `id` by default. Paths of SQLite become absolute.

        Raises
        ------
        InvalidOption, MissingExtra
        """
        sql = sqlalchemy_()
        database, _, text = str(url).removeprefix("sql+").partition("?")
        query = dict(parse_qsl(text))
        table, key = query.pop("table", ""), query.pop("key", "id")
        try:
            full = sql.make_url(database).update_query_dict(query)
        except sql.exc.ArgumentError:
            full = None
        on_disk = full is not None and full.drivername.startswith("sqlite")
        if full is None or not table or (on_disk and not full.database):
            raise InvalidOption(
                "source: expected sql+DATABASE?table=NAME&key=COLUMN, such as sql+sqlite:////data/rows.db?table=rows, "
                f"got sql+{re.sub('//.*@', '//', database):.80}?{text:.80}; correct the URL"
            )
        if on_disk:
            full = full.set(database=os.path.abspath(full.database))
        name = full._replace(password=None).render_as_string()
        if full.password:
            _logins[name] = full
            engine_of.cache_clear()
        return cls(name, table, key)

    @property
    def url(self) -> str:
        joint = "&" if "?" in self.database else "?"
        return f"sql+{self.database}{joint}{urlencode({'table': self.table, 'key': self.key})}"

    def entry(self, after, rows) -> str:
        """Return the URL of the `rows` rows after a key (None: the first ones)."""
        return f"{self.url}[{quote(json.dumps(after), safe=READABLE)};{rows}]"

    def check(self) -> None:
        """Check that the table has the key, without nulls.

        Raises
        ------
        DataNotFound, InvalidData, SourceUnreachable
        """
        self._patiently(lambda link: None, patience=0.0)  # the URL may be wrong
        sql, key = sqlalchemy_(), self._key
        if self._ask(sql.select(sql.func.count()).select_from(key.table).where(key.is_(None)))[1][0][0]:
            raise InvalidData(f"{self.url}: expected a key in every row, {self.key} is null in some; give another key")

    def keys(self, after, most) -> list[Any]:
        """Return the keys of at most `most` rows after a key."""
        return [key for (key,) in self._after(self._key, after, most)[1]]

    def every(self, rows) -> list[Any]:
        """Return each `rows`-th key."""
        sql, key = sqlalchemy_(), self._key
        numbered = (
            sql.select(key, sql.func.row_number().over(order_by=key).label("row_")).where(key.is_not(None)).subquery()
        )
        found = self._ask(sql.select(numbered.c[0]).where(numbered.c.row_ % rows == 0).order_by(numbered.c[0]))
        return [key for (key,) in found[1]]

    def count(self, after) -> int:
        """Return the number of rows after a key."""
        sql = sqlalchemy_()
        later = [] if after is None else [self._key > after]
        return self._ask(sql.select(sql.func.count()).select_from(self._key.table).where(*later))[1][0][0]

    def records(self, url, after, most) -> Records:
        """Return at most `most` rows after a key.

        Raises
        ------
        InvalidData, SourceUnreachable
        """
        names, found = self._after(self._key.table, after, most + 1)
        at = names.index(self.key)
        keys = [row[at] for row in found]
        for key, later in zip(keys, [*keys[1:], None], strict=True):
            if not isinstance(key, int | str) or key == later:
                raise InvalidData(
                    f"{url}: expected unique integers or texts in the key {self.key}, got "
                    f"{'two rows with ' if key == later else ''}{key!r:.80}; give another column as key"
                )
        rows = [[*row[:at], *row[at + 1 :]] for row in found[:most]]
        return Records(url, (*names[:at], *names[at + 1 :]), rows, lambda k: f"{self.key} {keys[k]!r}")

    @cached_property
    def _key(self):
        """The column of the key."""
        sql = sqlalchemy_()
        schema, _, name = self.table.rpartition(".")
        try:
            table = self._patiently(
                lambda link: sql.Table(name, sql.MetaData(), autoload_with=link, schema=schema or None)
            )
        except sql.exc.NoSuchTableError as error:
            raise DataNotFound(f"{self.url}: expected a table {self.table}, found none; correct the URL") from error
        if self.key not in table.c:
            names = ", ".join(table.c.keys())
            raise DataNotFound(
                f"{self.url}: expected a column {self.key} as key, found {names}; name it with &key=NAME"
            )
        return table.c[self.key]

    def _after(self, what, after, most):
        later = [self._key.is_not(None)] if after is None else [self._key > after]
        return self._ask(sqlalchemy_().select(what).where(*later).order_by(self._key).limit(most))

    def _ask(self, query):
        """Return the names of the columns, and the rows, of the answer to a query."""

        def ask(link):
            answer = link.execute(query)
            return tuple(answer.keys()), answer.fetchall()

        return self._patiently(ask)

    def _patiently(self, ask, patience=PATIENCE):
        """Return `ask(connection)`, retried for `patience` seconds while the database does not answer."""
        sql, deadline = sqlalchemy_(), time.monotonic() + patience
        path = sql.make_url(self.database).database if self.database.startswith("sqlite") else ""
        if path and not os.path.isfile(path):  # it would be made
            raise DataNotFound(f"{self.url}: expected a file of SQLite, found none at {path}; check the path")
        while True:
            try:
                with engine_of(self.database).connect() as link:
                    return ask(link)
            except sql.exc.DBAPIError as error:
                if not isinstance(error, sql.exc.OperationalError) or time.monotonic() > deadline:
                    raise SourceUnreachable(
                        f"{self.url}: expected the database to answer, got {error.orig!s:.200}; start it, or correct "
                        "the URL, or the rights of its user"
                    ) from error
            time.sleep(0.5)


class SqlRows:
    """`Reader` of entries, for the registry of schemes."""

    @staticmethod
    def named(url) -> str:
        return SqlTable.of(url).url

    @classmethod
    def shape(cls, url, x, y, companions) -> EntryShape:
        return cls._records(url).shape(x, y, companions)

    @classmethod
    def columns(cls, url, x, y, companions) -> dict[str, np.ndarray]:
        return cls._records(url).columns(x, y, companions)

    @staticmethod
    def _records(url) -> Records:
        match = ENTRY.fullmatch(str(url))
        if match is None:
            raise InvalidOption(
                f"data: expected a Zarr data set, {SqlTable.of(url).url} is a table; `bcmdist ingest` absorbs it"
            )
        return SqlTable.of(match["table"]).records(str(url), json.loads(unquote(match["after"])), int(match["rows"]))


# URLs with passwords, given to this process.
_logins: dict[str, Any] = {}
