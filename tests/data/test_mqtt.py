"""The bridge from MQTT into a table, with a real broker: duplicates, losses, messages that are no rows."""

import json
import signal
import sqlite3
import sys

import pytest
from processes import Commands, finish, wait_until

from bcmdist.data.message_table import MessageTable
from bcmdist.data.mqtt import Bridge
from bcmdist.data.sources.open import open_source
from bcmdist.errors import BcmdistWarning, InvalidOption, MissingExtra, SourceUnreachable

pytest.importorskip("paho.mqtt.client", reason="MQTT: pip install 'bcmdist[mqtt]'")
pytest.importorskip("sqlalchemy", reason="MQTT: pip install 'bcmdist[mqtt]'")

ROW = {"sequence": 0, "a": 1.5, "y": -2}


@pytest.fixture
def table(tmp_path):
    return f"sql+sqlite:///{tmp_path}/rows.db?table=rows"


def stored(tmp_path, what="id, a, y from rows"):
    found = sqlite3.connect(tmp_path / "rows.db")
    rows = found.execute(f"select {what}").fetchall()
    found.close()
    return rows


def sent(*rows, topic="t"):
    return [(topic, row if isinstance(row, bytes) else json.dumps(row).encode()) for row in rows]


# --- The inbox ---


def test_a_message_is_one_row_however_often_it_comes(table, tmp_path):
    first = sent(ROW, ROW | {"sequence": 1}, ROW)
    assert MessageTable(table).add(first) == {"rows": 2, "duplicates": 1, "refused": 0}
    inbox = MessageTable(table)  # as after a crash
    assert inbox.add(first) == {"rows": 0, "duplicates": 3, "refused": 0}
    assert inbox.add(sent(ROW, topic="other")) == {"rows": 1, "duplicates": 0, "refused": 0}
    assert inbox.add(sent(ROW | {"publisher": "p", "sequence": 7})) == {"rows": 1, "duplicates": 0, "refused": 0}
    assert stored(tmp_path) == [(k, 1.5, -2.0) for k in (1, 2, 3, 4)]
    assert inbox.missing() == 0
    inbox.add(sent(ROW | {"publisher": "p", "sequence": 10}))
    assert inbox.missing() == 2


def test_rows_and_their_names_are_stored_in_one_transaction(table, tmp_path, monkeypatch):
    inbox = MessageTable(table)
    inbox.add(sent(ROW))
    monkeypatch.setattr(inbox, "_received", None)
    with pytest.raises(AttributeError):
        inbox.add(sent(ROW | {"sequence": 1}))
    assert len(stored(tmp_path)) == 1
    assert MessageTable(table).add(sent(ROW, ROW | {"sequence": 1})) == {"rows": 1, "duplicates": 1, "refused": 0}


REFUSED = {
    "no number": ({"a": 1.0, "y": 2.0}, "expected a JSON object of numbers with a whole number sequence"),
    "number is none": (ROW | {"sequence": "7"}, "expected a JSON object of numbers with a whole number sequence"),
    "no object": (b"[1, 2]", "expected a JSON object of numbers with a whole number sequence"),
    "garbage": (b"\xff\x00", "expected a JSON object of numbers with a whole number sequence"),
    "text": (ROW | {"sequence": 9, "a": "warm"}, "expected numbers, and no id: a"),
    "null": (ROW | {"sequence": 9, "a": None}, "expected numbers, and no id: a"),
    "other columns": ({"sequence": 9, "a": 1.0}, "expected the columns a, y"),
    "counted anew": (ROW | {"a": 2.0}, "t has sent other values as number 0: it must not begin to count anew"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_messages_that_are_no_rows_are_kept_with_the_reason(table, tmp_path, case):
    row, reason = REFUSED[case]
    inbox = MessageTable(table)
    assert inbox.add(sent(ROW, row, ROW | {"sequence": 1})) == {"rows": 2, "duplicates": 0, "refused": 1}
    ((topic, found),) = stored(tmp_path, "topic, reason from rows_refused")
    assert (topic, found.startswith(reason)) == ("t", True), found


# --- The bridge ---


def test_messages_come_while_the_bridge_is_away(mqtt_broker, table, tmp_path):
    source = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows/+"
    mqtt_broker.subscribe(source, table)
    with mqtt_broker.publisher() as publish:
        for k in range(300):
            publish(f"rows/{k % 2}", ROW | {"sequence": k // 2, "a": k})
        publish("rows/0", ROW | {"sequence": 0})  # again, with another value
        publish("rows/0", ROW | {"sequence": 0, "a": 0})
        publish("rows/1", ROW | {"sequence": 152})
    bridge = Bridge(source, table)
    counts = bridge.run(lambda: sum(bridge.counts.values()) == 303)
    assert counts == {"rows": 301, "duplicates": 1, "refused": 1, "missing": 2}
    a = [row[1] for row in stored(tmp_path)]
    assert sorted(a) == sorted([*range(300), 1.5])
    watched = open_source(table, rows_per_expert=100, watch=True, y="y")
    with pytest.warns(BcmdistWarning, match="the model knows no names, its inputs are taken to be 'a' in this order"):
        found = watched.read(None, 9)
    assert sum(part.rows for one in found for part in one.parts) == 300


def test_what_is_not_acknowledged_comes_again(mqtt_broker, table, tmp_path, monkeypatch):
    source = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows"
    mqtt_broker.subscribe(source, table)
    with mqtt_broker.publisher() as publish:
        for k in range(10):
            publish("rows", ROW | {"sequence": k})
    dying = Bridge(source, table)
    monkeypatch.setattr(dying._client, "ack", lambda *_: 1 / 0)  # after the commit
    with pytest.raises(ZeroDivisionError):
        dying.run(lambda: False)
    dying._client._sock_close()
    before = len(stored(tmp_path))
    assert 0 < before <= 10
    bridge = Bridge(source, table)
    counts = bridge.run(lambda: sum(bridge.counts.values()) == 10)
    assert (counts["rows"], counts["duplicates"]) == (10 - before, before)
    assert len(stored(tmp_path)) == 10


def test_a_broker_that_goes_away_and_comes_back(mqtt_broker, table, tmp_path):
    source = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows"
    bridge, rounds = Bridge(source, table), iter(range(10**6))

    def stop():
        turn = next(rounds)
        if turn == 3:
            mqtt_broker.restart()
        if turn == 9:  # it has subscribed again
            with mqtt_broker.publisher() as publish:
                publish("rows", ROW)
        return bridge.counts["rows"] == 1

    wait_until(lambda: bridge.run(stop), "a row")
    assert stored(tmp_path) == [(1, 1.5, -2.0)]


@pytest.mark.slow
def test_the_command_copies_until_it_is_told_to_end(mqtt_broker, table, tmp_path):
    source = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows"
    mqtt_broker.subscribe(source, table)
    process = Commands(tmp_path).bcmdist("bridge", source, table)
    with mqtt_broker.publisher() as publish:
        for k in range(50):
            publish("rows", ROW | {"sequence": k})
    there = "count(*) from sqlite_master where name = 'rows'"
    wait_until(lambda: stored(tmp_path, there) == [(1,)] and len(stored(tmp_path)) == 50, "50 rows")
    process.send_signal(signal.SIGTERM)
    assert finish(process) == {"rows": 50, "duplicates": 0, "refused": 0, "missing": 0}


def test_messages_that_may_be_lost_are_refused(mqtt_broker, table):
    source = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows"
    bridge, rounds = Bridge(source, table), iter(range(10**6))

    def stop():
        turn = next(rounds)
        if turn == 3:
            with mqtt_broker.publisher(qos=0) as publish:
                publish("rows", ROW)
        return turn > 100

    with pytest.raises(InvalidOption, match=r"expected messages published with QoS 1, .* got one of rows with QoS 0"):
        bridge.run(stop)
    bridge._client._sock_close()


def test_what_is_refused(table, monkeypatch):
    with pytest.raises(InvalidOption, match="expected mqtt://HOST") as raised:
        Bridge("mqtt://me:secret@h/rows", table)
    assert "secret" not in str(raised.value)
    with pytest.raises(
        InvalidOption, match=r"MQTT does not keep or number messages; copy them .*`bcmdist bridge mqtt://h/t "
    ):
        open_source("mqtt://h/t", rows_per_expert=10, watch=True)
    with pytest.raises(InvalidOption, match="expected a table with key id"):
        Bridge("mqtt://h/rows", f"{table}&key=time")
    monkeypatch.setattr("bcmdist.data.mqtt.PATIENCE", 0.3)
    with pytest.raises(SourceUnreachable, match="expected an MQTT broker, none answered"):
        Bridge("mqtt://127.0.0.1:1/rows", table).run(lambda: True)
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[mqtt\]'"):
        Bridge("mqtt://h/rows", table)
