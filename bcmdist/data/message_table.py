"""A table of a database to which messages are added once each, whatever is delivered again.

A message is a JSON object of numbers, one row, with a whole number `sequence` that its publisher counts, and a text
`publisher` [default: the topic]. Beside TABLE, with the rows and a key `id` that only grows, there are TABLE_received,
with publisher, number and hash of each row, and TABLE_refused, with messages that are no rows. All change in one
transaction.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from bcmdist.data.sql import SqlTable, engine_of, sqlalchemy_
from bcmdist.errors import InvalidOption

SEQUENCE, PUBLISHER = "sequence", "publisher"


class MessageTable:
    """The table of a URL (`bcmdist.data.sql`), made with the first row if there is none.

    Retries, duplicates and loss: `add` may be repeated after a crash; a message with the publisher, number and values
    of an earlier one is a duplicate, one with other values is refused. Numbers that never came are counted.
    """

    def __init__(self, url):
        sql, place = sqlalchemy_(), SqlTable.of(url)
        if place.key != "id" or "." in place.table:
            raise InvalidOption(f"bridge: expected a table with key id, without schema, got {place.url}; correct it")
        self.url, self._name, self._engine = place.url, place.table, engine_of(place.database)
        self._tables, text = sql.MetaData(), sql.Text
        names = sql.Column(PUBLISHER, sql.String(255), primary_key=True)
        numbers = sql.Column(SEQUENCE, sql.BigInteger, primary_key=True, autoincrement=False)
        self._received = sql.Table(f"{self._name}_received", self._tables, names, numbers, sql.Column("hash", text))
        refused = [sql.Column(name, text) for name in ("topic", "payload", "reason")]
        self._refused = sql.Table(f"{self._name}_refused", self._tables, *refused)
        self._tables.create_all(self._engine)
        there = sql.inspect(self._engine).has_table(self._name)
        self._rows: Any = sql.Table(self._name, self._tables, autoload_with=self._engine) if there else None

    def add(self, messages: Iterable[tuple[str, bytes]]) -> dict[str, int]:
        """Add messages, topic and payload of each; return the numbers of new rows, duplicates and messages refused."""
        rows, received, refused = [], dict[tuple[str, int], str](), list[dict]()
        parsed = [(*message, _parsed(*message)) for message in messages]
        with self._engine.begin() as link:
            before = self._hashes(link, [name for _, _, (name, _, _) in parsed if name])
            for topic, payload, (name, row, reason) in parsed:
                reason = reason or self._misfit(link, row)
                digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
                stored = before.get(name, received.get(name))
                if stored not in (None, digest):
                    reason = f"{name[0]} has sent other values as number {name[1]}: it must not begin to count anew"
                if reason:
                    text = payload.decode(errors="replace").replace("\0", "")
                    refused.append({"topic": topic, "payload": text, "reason": reason})
                elif stored is None:
                    received[name] = digest
                    rows.append(row)
            names = [{PUBLISHER: one[0], SEQUENCE: one[1], "hash": digest} for one, digest in received.items()]
            for table, lines in ((self._rows, rows), (self._received, names), (self._refused, refused)):
                if lines:
                    link.execute(table.insert(), lines)
        return {"rows": len(rows), "duplicates": len(parsed) - len(rows) - len(refused), "refused": len(refused)}

    def missing(self) -> int:
        """Return how many numbers between the first and the last one of a publisher have not come."""
        sql, number = sqlalchemy_(), self._received.c[SEQUENCE]
        gaps = sql.func.max(number) - sql.func.min(number) + 1 - sql.func.count()
        with self._engine.connect() as link:
            return sum(gap for (gap,) in link.execute(sql.select(gaps).group_by(self._received.c[PUBLISHER])))

    def _hashes(self, link, names):
        """Return the hashes of rows that were received before, by publisher and number."""
        if not names:
            return {}
        columns, numbers = self._received.c, [number for _, number in names]
        near = columns[PUBLISHER].in_({name for name, _ in names})
        near &= columns[SEQUENCE].between(min(numbers), max(numbers))
        return {(name, number): digest for name, number, digest in link.execute(self._received.select().where(near))}

    def _misfit(self, link, row):
        """Return why a row does not fit into the table, which is made of the first one; "" if it does."""
        sql = sqlalchemy_()
        if self._rows is None:
            columns = [sql.Column(name, sql.Double) for name in row]
            key = sql.Column("id", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True)
            self._rows = sql.Table(self._name, self._tables, key, *columns, sqlite_autoincrement=True)
            self._rows.create(link)
        expected = {column.name for column in self._rows.columns} - {"id"}
        return "" if row.keys() == expected else f"expected the columns {', '.join(sorted(expected))}"


def _parsed(topic, payload):
    """Return publisher and number of a message, its row, and why it is none."""
    try:
        row = json.loads(payload)
        number, name = row.pop(SEQUENCE), row.pop(PUBLISHER, topic)
        bad = [key for key, value in row.items() if not isinstance(value, int | float) or key == "id"]
        reason = f"expected numbers, and no id: {', '.join(bad)}" if bad or not row else ""
        if not isinstance(number, int) or not isinstance(name, str) or len(name) > 255:
            raise ValueError
    except (ValueError, AttributeError, KeyError, TypeError):
        return (
            None,
            {},
            f"expected a JSON object of numbers with a whole number {SEQUENCE} (and a text {PUBLISHER})",
        )
    return (name, number), row, reason
