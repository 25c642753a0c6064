"""Kafka topics, tables, snapshots and bridged MQTT messages: 100,000 rows and ten kills equal a peaceful run.

BCMDIST_ROWS=1000000 for more rows.
"""

import multiprocessing
import os
import random
import sqlite3
import time

import numpy as np
import pytest

from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.data.writing import write_dataset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.filterwarnings("ignore:.* the model knows no names"),
]

ROWS, KILLS, SEED = int(os.environ.get("BCMDIST_ROWS", "100000")), 10, 31
EXPERT = 1000  # rows
LONG = 60.0


def some_rows(rows=ROWS):
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows)


@pytest.fixture
def prepare(tmp_path):
    """Prepare a model that has absorbed nothing."""
    X, y = some_rows(1000)
    write_dataset(tmp_path / "first.zarr", {"X": X, "y": y})
    settings = Settings(partition="chunks", kernel="se", learn=False, query=15, rows_per_expert=EXPERT)
    return lambda name: GBCM.prepare(tmp_path / "first.zarr", settings, model=tmp_path / name)


def spawned(target, *arguments):
    """Start a function in a process of its own, from one that has imported the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bcmdist.api.gbcm", "bcmdist.api.fit", "bcmdist.data.mqtt", __name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def ingest(model, url):
    gbcm = GBCM.load(model)
    gbcm.ingest(gbcm.source(url, watch=True), IngestOptions(watch=True, commit_every=5, grow=False))


def copy_messages(url, table):
    from bcmdist.data.mqtt import Bridge

    Bridge(url, table).run(lambda: False)


def kill_again_and_again(start, rows_done):
    """Kill a process after each tenth of the rows or so, at any moment of its work."""
    chance = random.Random(SEED)
    for number in range(KILLS):
        process = start()
        wanted, deadline = ROWS * (number + 0.5) / KILLS, time.monotonic() + LONG
        while rows_done() < wanted:
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 0.05))  # whatever it is about
        process.kill()
        process.join()
        process.close()
    assert rows_done() < ROWS  # it was killed at work


def assert_kills_change_nothing(prepare, url):
    """A model whose ingesters are killed has absorbed the partitions of one that was left in peace."""
    killed = prepare("killed")
    kill_again_and_again(lambda: spawned(ingest, killed.url, url), lambda: GBCM.load(killed.url).ledger.rows)
    killed, deadline = GBCM.load(killed.url), time.monotonic() + LONG
    done = lambda: GBCM.load(killed.url).ledger.rows == ROWS or time.monotonic() > deadline  # noqa: E731
    ours, _ = killed.ingest(killed.source(url, watch=True), IngestOptions(watch=True, stop=done, grow=False))
    ours, report = ours.ingest(ours.source(url))  # compares what was absorbed, and finds nothing that was passed over
    assert (report.rows, report.duplicates) == (0, len(ours.ledger))
    peaceful = prepare("peaceful")
    theirs, report = peaceful.ingest(peaceful.source(url))
    assert report.rows == ROWS == ours.committee.total.rows
    one, other = ({entry.key: entry.digest for entry in gbcm.ledger} for gbcm in (ours, theirs))
    assert one == other
    assert len(one) == len(ours.ledger)
    for name in ("eta", "precision"):  # sums of the same messages, in another order
        one, other = (getattr(gbcm.committee.total, name) for gbcm in (ours, theirs))
        assert np.abs(one - other).max() <= 1e-10 * np.abs(other).max()


def test_a_kafka_topic(prepare, kafka_broker):
    X, y = some_rows()
    for number, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        kafka_broker.publish("rows", {"a": x[0], "b": x[1], "y": target}, number % 4)
    kafka_broker.producer.flush()
    assert_kills_change_nothing(prepare, f"kafka://{kafka_broker.address}/rows")


def test_a_table(prepare, tmp_path):
    pytest.importorskip("sqlalchemy", reason="SQL: pip install 'bcmdist[sql]'")
    with sqlite3.connect(tmp_path / "rows.db") as table:
        table.execute("create table measured (id integer primary key, a real, b real, y real)")
        X, y = some_rows()
        table.executemany("insert into measured (a, b, y) values (?, ?, ?)", np.column_stack([X, y]).tolist())
    table.close()
    assert_kills_change_nothing(prepare, f"sql+sqlite:///{tmp_path}/rows.db?table=measured")


def test_snapshots(prepare, tmp_path):
    servers = pytest.importorskip(
        "icechunk_data", reason="Icechunk: pip install 'bcmdist[icechunk]'", exc_type=ImportError
    )
    X, y = some_rows()
    repository = servers.new_repository(tmp_path / "repository")
    for rows in np.array_split(np.arange(ROWS), 20):
        servers.append(repository, X[rows], y[rows], rows_per_chunk=EXPERT)
    assert_kills_change_nothing(prepare, f"icechunk://{tmp_path}/repository")


def test_messages_of_mqtt(prepare, mqtt_broker, tmp_path):
    """The bridge is killed while messages come, and what it has copied is ingested."""
    source, table = f"mqtt://127.0.0.1:{mqtt_broker.port}/rows/+", f"sql+sqlite:///{tmp_path}/rows.db?table=measured"
    mqtt_broker.subscribe(source, table)
    X, y = some_rows()
    with mqtt_broker.publisher() as publish:
        for number, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
            publish(f"rows/{number % 3}", {"sequence": number // 3, "a": x[0], "b": x[1], "y": target})

    def copied():
        if not (tmp_path / "rows.db").exists():
            return 0
        with sqlite3.connect(tmp_path / "rows.db") as found:
            there = found.execute("select count(*) from sqlite_master where name = 'measured'").fetchone()[0]
            rows = found.execute("select count(*) from measured").fetchone()[0] if there else 0
        found.close()
        return rows

    kill_again_and_again(lambda: spawned(copy_messages, source, table), copied)
    last = spawned(copy_messages, source, table)
    deadline = time.monotonic() + LONG
    while copied() < ROWS and time.monotonic() < deadline:
        time.sleep(0.05)
    last.kill()
    last.join()
    with sqlite3.connect(tmp_path / "rows.db") as found:
        rows = np.array(found.execute("select a, b, y from measured").fetchall())
        assert found.execute("select count(*) from measured_refused").fetchone() == (0,)
    found.close()
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], (sent := np.column_stack([X, y]))[np.lexsort(sent.T)])
    gbcm = prepare("model")
    after, report = gbcm.ingest(gbcm.source(table))
    assert (report.rows, after.committee.total.rows) == (ROWS, ROWS)
