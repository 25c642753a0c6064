"""Redis Streams: payloads, a server that is killed, consumers that die."""

import random
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.data import entries as stream
from bcmdist.data.dataset import COMPANIONS, Dataset, open_data
from bcmdist.data.entries import encode, publish, shape_of
from bcmdist.data.partition import Partition, from_key
from bcmdist.data.redis import _logins, connect, redis_stream
from bcmdist.data.rows import read_all
from bcmdist.data.schema import Schema
from bcmdist.data.sources.open import open_source
from bcmdist.data.sources.redis import RedisStream
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    InvalidData,
    InvalidOption,
    MissingChunk,
    SourceUnreachable,
    UnsafeData,
)
from bcmdist.storage.entry import Entry
from bcmdist.storage.ledger import Ledger

pa = pytest.importorskip("pyarrow", reason="Redis: pip install 'bcmdist[redis]'")
redis = pytest.importorskip("redis", reason="Redis: pip install 'bcmdist[redis]'")

ENTRY = "redis://h:1/0/s[7-0]"


def ipc(table, options=None, batches=1):
    batch = pa.record_batch(table) if isinstance(table, dict) else table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decoded(payload, monkeypatch, x="X", y="y"):
    monkeypatch.setattr(stream, "_payload", lambda url: {b"data": payload})
    columns = stream.read_entry(ENTRY, x, y, COMPANIONS)
    rows, inputs, companions, *_ = stream.open_entry(ENTRY, x, y, COMPANIONS)
    assert columns[x].shape == (rows, inputs)
    assert set(columns) == {x, y, *companions}
    assert all(c.dtype == np.float64 for c in columns.values())
    return columns


def test_payloads_hold_rows_exactly(monkeypatch, rng):
    X, y, exposure = rng.standard_normal((7, 3)), rng.standard_normal(7), rng.uniform(size=7)
    columns = decoded(encode(X, y, exposure=exposure), monkeypatch)
    np.testing.assert_array_equal(columns["X"], X)
    np.testing.assert_array_equal(columns["y"], y)
    np.testing.assert_array_equal(columns["exposure"], exposure)
    assert list(decoded(encode(X, y), monkeypatch)) == ["y", "X"]


def test_tables_are_understood_as_import_does(monkeypatch):
    table = {
        "b": pa.array([1, 2], pa.int32()),
        "name": ["x", "y"],
        "weight": [1.0, 2.0],
        "target": pa.array([0.5, 1.5], pa.float32()),
        "a": [True, False],
    }
    columns = decoded(ipc(table), monkeypatch, y="target")
    np.testing.assert_array_equal(columns["X"], [[1, 1], [2, 0]])
    np.testing.assert_array_equal(columns["target"], [0.5, 1.5])
    np.testing.assert_array_equal(columns["weight"], [1, 2])


def test_columns_of_a_table_are_known_by_name(monkeypatch):
    payload = ipc({"b": [1.0, 2.0], "name": ["x", "y"], "y": [0.5, 1.5], "a": [3.0, 4.0]})
    monkeypatch.setattr(stream, "_payload", lambda url: {b"data": payload})
    shape = stream.open_entry(ENTRY, "X", "y", COMPANIONS)
    assert (shape.columns, shape.unused) == (("b", "a"), ("name",))
    data = open_data(ENTRY, schema=Schema(("a", "b")))
    ((_, rows),) = read_all([Partition(data, 0, 2)])
    np.testing.assert_array_equal(rows.X, [[3, 1], [4, 2]])
    with pytest.raises(InvalidData, match=r"'c' is not there \(but 'b'\)"):
        open_data(ENTRY, schema=Schema(("a", "c")))


def test_what_entries_do_not_name_is_said_once():
    """Their inputs where they are one column of lists, and their classes, which are numbers."""
    place = RedisStream("redis://h:1/0/s", x="X", y="y", group="g", schema=Schema(("a", "b"), ("no", "yes")))
    with pytest.warns(BcmdistWarning) as told:
        _ = [place._part("7-0", {b"data": encode(np.ones((3, 2)), np.ones(3))}) for _ in range(2)]
    columns, classes = (str(one.message) for one in told)
    assert "its columns have no names, they are taken for 'a', 'b' in this order" in columns
    assert "numbers in y are taken for the classes 'no', 'yes', from 0 on" in classes


def lists(values, size=2, kind=None):
    return pa.array(values, pa.list_(kind or pa.float64(), size))


def twice():
    return pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([2.0])], names=["y", "X", "X"])


def headless(payload):
    """A stream without its schema."""
    return payload[8 + int.from_bytes(payload[4:8], "little") :]


END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
COMPRESSED = {"y": [1.0], "a": [1.0]}, pa.ipc.IpcWriteOptions(compression="zstd")


WRONG = {
    "nothing": (b"", InvalidData, "an Arrow IPC stream with a record batch, it cannot be read"),
    "text": (b"hello, world, this is no arrow", InvalidData, "an Arrow IPC stream with a record batch, it cannot"),
    "no schema": (headless(ipc({"y": [1.0]}, batches=2)), InvalidData, "a message of type record batch"),
    "schema only": (ipc({"y": [1.0], "a": [1.0]}, batches=0), InvalidData, "an Arrow IPC stream with a record batch"),
    "torn": (encode(np.ones((9, 2)), np.ones(9))[:-60], InvalidData, "an Arrow IPC stream with a record batch"),
    "no rows": (encode(np.ones((0, 2)), np.ones(0)), InvalidData, "at least one row and one column, got 0 and 3"),
    "no target": (ipc({"a": [1.0]}), InvalidData, r"expected one column y of numbers, found a \(double\); publish it"),
    "text target": (
        ipc({"a": [1.0], "y": ["1"]}),
        InvalidData,
        r"one column y of numbers, found a \(double\), y \(str",
    ),
    "no inputs": (ipc({"y": [1.0], "b": ["x"]}), InvalidData, r"expected inputs as a column X of fixed-size lists"),
    "two of a name": (ipc(twice()), InvalidData, r"expected inputs as a column X .* found y .*, X \(double\), X \(dou"),
    "text inputs": (
        ipc({"y": [1.0], "X": lists([["a", "b"]], 2, pa.string())}),
        InvalidData,
        "lists of numbers, or as",
    ),
    "null": (ipc({"y": [1.0, None], "a": [1, 2]}), InvalidData, "a number in every row of y, some are null; fill"),
    "null row": (ipc({"y": [1.0, 2.0], "X": lists([[1, 2], None])}), InvalidData, "a number in every row of X, some"),
    "null cell": (ipc({"y": [1.0, 2.0], "X": lists([[1, 2], [3, None]])}), InvalidData, "in every row of X, some are"),
    "compressed": (
        ipc(*COMPRESSED),
        UnsafeData,
        "expected uncompressed record batches without dictionaries, got another record batch; publish",
    ),
    "dictionary": (
        ipc({"y": [1.0], "a": [1.0], "c": pa.array(["x"]).dictionary_encode()}),
        UnsafeData,
        "without dictionaries, got another dictionary; publish",
    ),
    "second batch torn": (
        ipc({"y": [1.0], "a": [1.0]}, batches=2)[:-60],
        InvalidData,
        "with a record batch, it cannot",
    ),
    "second batch compressed": (
        ipc({"y": [1.0], "a": [1.0]})[: -len(END)] + headless(ipc(*COMPRESSED)),
        UnsafeData,
        "expected uncompressed record batches without dictionaries, got another record batch; publish",
    ),
    "second stream": (
        encode(np.ones((3, 2)), np.ones(3)) * 2,
        InvalidData,
        r"expected nothing behind the end of its Arrow stream, got \d+ bytes; publish",
    ),
    "something behind": (encode(np.ones((3, 2)), np.ones(3)) + b"x", InvalidData, "expected nothing .* got 1 bytes"),
}


def several(sizes):
    """A stream of record batches of so many rows, which count on from each other."""
    batches = [
        pa.record_batch({"X": lists(np.arange(2.0 * size).reshape(size, 2).tolist()), "y": np.arange(size) + 100.0 * k})
        for k, size in enumerate(sizes)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 0, 5), (0, 2)])
def test_all_batches_of_a_stream_are_read(monkeypatch, sizes):
    columns = decoded(several(sizes), monkeypatch)
    expected = [np.arange(2.0 * size).reshape(size, 2) for size in sizes]
    np.testing.assert_array_equal(columns["X"], np.concatenate(expected))
    np.testing.assert_array_equal(columns["y"], np.concatenate([np.arange(n) + 100.0 * k for k, n in enumerate(sizes)]))


def test_batches_that_are_too_large_together_are_refused_before_one_is_decoded(monkeypatch):
    monkeypatch.setattr(stream, "LARGEST_BYTES", 10 * 3 * 8)
    monkeypatch.setattr(pa.ipc, "read_record_batch", None)
    with pytest.raises(UnsafeData, match="at most 240 bytes of rows, it declares 11 rows x 3 columns x 8; publish"):
        shape_of({b"data": several((5, 6))}, ENTRY, "X", "y", COMPANIONS)
    assert shape_of({b"data": several((4, 6))}, ENTRY, "X", "y", COMPANIONS)[:3] == (10, 2, ())


@pytest.mark.parametrize("case", WRONG)
def test_wrong_payloads_are_refused(case, monkeypatch):
    payload, error, text = WRONG[case]
    with pytest.raises(error, match=text) as caught:
        decoded(payload, monkeypatch)
    assert str(caught.value).startswith(ENTRY)


def test_a_batch_beyond_the_limit_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(stream, "LARGEST_BYTES", 10 * 3 * 8)
    monkeypatch.setattr(pa.ipc, "read_record_batch", None)
    fields = {b"data": encode(np.ones((11, 2)), np.ones(11))}
    with pytest.raises(
        UnsafeData, match="at most 240 bytes of rows, it declares 11 rows x 3 columns x 8; publish smal"
    ):
        shape_of(fields, ENTRY, "X", "y", COMPANIONS)
    assert shape_of({b"data": encode(np.ones((10, 2)), np.ones(10))}, ENTRY, "X", "y", COMPANIONS)[:3] == (10, 2, ())


def test_a_batch_that_lies_about_its_rows_is_refused(monkeypatch):
    payload = encode(np.ones((123, 2)), np.ones(123))
    true = (123).to_bytes(8, "little")
    assert payload.count(true) >= 3  # of the batch, and of its columns
    for rows in (2**40, 1_000_000, 2**62, -1):
        lie = payload.replace(true, rows.to_bytes(8, "little", signed=True))
        with pytest.raises((UnsafeData, InvalidData)):
            decoded(lie, monkeypatch)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 10_000))
def test_flipped_bytes_never_do_worse_than_an_error(where, mask, stop):
    payload = bytearray(encode(np.arange(12.0).reshape(6, 2), np.ones(6), weight=np.ones(6)))
    payload[where % len(payload)] ^= mask
    with pytest.MonkeyPatch.context() as patch:
        for torn in (payload, payload[: stop % len(payload)]):
            try:
                decoded(bytes(torn), patch)
            except BcmdistError as error:
                assert str(error).startswith(ENTRY)  # noqa: PT017


def test_names_of_streams():
    assert redis_stream("redis://H/rows").url == "redis://h:6379/0/rows"
    assert redis_stream("rediss://h:1/07/rows").url == "rediss://h:1/7/rows"
    assert redis_stream("redis://[::1]:5/rows").url == "redis://[::1]:5/0/rows"
    for wrong in (
        "redis://h",
        "redis://h/",
        "redis://u:secret@h/a/b",
        "redis:///rows",
        "redis://",
        "redis://h:port/rows",
        "redis://h:99999/rows",
        "redis://h/0/a[b]",
    ):
        with pytest.raises(InvalidOption, match=r"expected redis://HOST\[:PORT\]\[/DB\]/STREAM, got redis:") as caught:
            redis_stream(wrong)
        assert "secret" not in str(caught.value)


# --- With a server ---


def consumer(server, name=None, idle=30.0):
    return RedisStream(server.url(), x="X", y="y", group="g", consumer=name, idle_seconds=idle)


def ids(deliveries):
    return [part.data.url.rpartition("[")[2][:-1] for d in deliveries for part in d.parts]


def keys_of(deliveries):
    return [part.key for d in deliveries for part in d.parts]


def filled(server, entries=6, rows=5):
    rng = np.random.default_rng(1)
    return publish(server.url(), rng.standard_normal((entries * rows, 2)), np.ones(entries * rows), rows_per_entry=rows)


def test_entries_are_partitions(redis_server):
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    _, second = publish(redis_server.url(), X, y, rows_per_entry=6, weight=y + 1)
    key = f"{redis_server.url()}[{second}]/X[0:4]"
    part = from_key(key, y="y")
    assert part.key == key
    assert part.data == Dataset(f"{redis_server.url()}[{second}]", "X", "y", 4, 2, 4, ("weight",))
    ((_, rows),) = read_all([Partition(part.data, 1, 3)])
    np.testing.assert_array_equal(rows.X, X[7:9])
    np.testing.assert_array_equal(rows.obs.weight, [8, 9])
    publish(redis_server.url(), np.full((3, 2), np.nan), np.ones(3))
    *_, last = consumer(redis_server).read(None, 9)
    assert last.position == 13
    with pytest.raises(InvalidData, match=rf"{second[:5]}\d+-\d+\]: expected finite numbers .* in X, got nan at row 0"):
        list(read_all(last.parts))


def test_an_entry_that_is_trimmed_is_named(redis_server):
    one, two = filled(redis_server, entries=2)
    source = consumer(redis_server, "one")
    delivered = source.read(None, 1)
    redis_server.client.xdel("rows", one)
    with pytest.raises(MissingChunk, match=rf"\[{one}\]: expected the entry in its stream, it is not there any more"):
        list(read_all(delivered[0].parts))
    with pytest.raises(MissingChunk, match=one):
        open_data(delivered[0].parts[0].data.url)
    with pytest.warns(BcmdistWarning, match=f"rows: it begins with {two}, 5 rows before are gone"):
        assert ids(consumer(redis_server, "late", idle=0.0).read(None, 9)) == [two]


def test_an_entry_that_is_trimmed_while_another_works_on_it_is_named(redis_server):
    """It was claimed by a consumer that died: whoever takes over reports what was lost, and it can be acknowledged."""
    one, two = filled(redis_server, entries=2)
    consumer(redis_server, "one").read(None, 1)
    second = consumer(redis_server, "two")
    (good,) = second.read(None, 9)
    redis_server.client.xdel("rows", one)
    second.idle_seconds = 0.0
    (lost,) = second.read(good.offset, 9)
    assert ids([lost, good]) == [one, two]
    with pytest.raises(MissingChunk, match=one):
        list(read_all(lost.parts))
    second.ack(good.offset, keys_of([lost, good]))
    assert redis_server.client.xpending("rows", "g")["pending"] == 0


def test_entries_that_cannot_be_read_do_not_stop_the_others(redis_server):
    filled(redis_server, entries=1)
    bad = redis_server.client.xadd("rows", {"date": b"x"}).decode()
    filled(redis_server, entries=1)
    source = consumer(redis_server)
    found = source.read(None, 9)
    assert [p.rows for d in found for p in d.parts] == [5, 0, 5]
    with pytest.raises(
        InvalidData, match=rf"rows\[{bad}\]: expected a field data with an Arrow IPC .* found date; see"
    ):
        list(read_all(found[1].parts))
    source.ack(found[-1].offset, keys_of(found))
    assert source.lag(found[-1].offset) == 0
    assert redis_server.client.xpending("rows", "g")["pending"] == 0


def test_consumers_share_entries_and_take_over_those_of_the_dead(redis_server):
    every = filled(redis_server, entries=10)
    dead, live = consumer(redis_server, "dead"), consumer(redis_server, "live")
    taken, rest = dead.read(None, 4), live.read(None, 20)
    assert ids(taken) == every[:4]
    assert ids(rest) == every[4:]
    live.ack(rest[-1].offset, keys_of(rest))
    assert rest[-1].offset is None  # which stays before entries that are claimed by others
    assert live.read(rest[-1].offset, 20) == []
    live.idle_seconds = 0.0
    late = live.read(rest[-1].offset, 20)
    assert ids(late) == every[:4]
    assert [d.offset["id"] for d in late] == [*every[:3], every[-1]]
    live.ack(late[-1].offset, keys_of(late))
    dead.ack(taken[-1].offset, keys_of(taken))  # the slow one was not dead after all
    assert redis_server.client.xpending("rows", "g")["pending"] == 0
    assert redis_server.client.xlen("rows") == 10  # entries are never deleted


def test_entries_are_trimmed_once_they_are_committed_and_read_by_all_groups(redis_server):
    every, client = filled(redis_server), redis_server.client
    left = lambda: [number.decode() for number, _ in client.xrange("rows")]  # noqa: E731
    source = RedisStream(redis_server.url(), x="X", y="y", group="g", trim=True)
    found = source.read(None, 4)
    assert left() == every  # nothing is committed
    source.ack(found[1].offset, keys_of(found[:2]))
    assert left() == every[2:]
    client.xgroup_create("rows", "other", id="0")
    client.xreadgroup("other", "c", {"rows": ">"}, count=1)
    source.ack(found[3].offset, keys_of(found[2:]))
    assert left() == every[2:]  # the first one is still pending there
    client.xack("rows", "other", every[2])
    source.ack(found[3].offset, [])
    assert left() == every[3:]  # the next one has not been read there
    client.xgroup_destroy("rows", "other")
    rest = source.read(found[3].offset, 9)
    source.ack(rest[-1].offset, keys_of(rest))
    assert left() == []
    assert (source.read(rest[-1].offset, 9), source.lag(rest[-1].offset)) == ([], 0)
    publish(redis_server.url(), np.ones((3, 2)), np.ones(3))
    again = RedisStream(redis_server.url(), x="X", y="y", group="g", trim=True)
    (late,) = again.read(rest[-1].offset, 9)
    assert late.bad is None
    assert late.position == rest[-1].position + 3


def test_only_streams_are_trimmed(tmp_path):
    with pytest.raises(InvalidOption, match="--trim: expected a stream, got"):
        open_source(str(tmp_path), rows_per_expert=10, watch=False, trim=True)


def test_a_restarted_consumer_finds_what_it_had_not_acknowledged(redis_server):
    every = filled(redis_server)
    first = consumer(redis_server, "one")
    found = first.read(None, 4)
    first.ack(found[1].offset, keys_of(found[:2]))
    again = consumer(redis_server, "one")
    rest = again.read(found[1].offset, 9)
    assert ids(rest) == every[4:]  # nobody has claimed these
    late = again.read(rest[-1].offset, 9)
    assert ids(late) == every[2:4]
    assert late[-1].offset["id"] == every[-1]


def test_a_consumer_leaves_the_group_only_without_pending_entries(redis_server):
    filled(redis_server)
    client = redis_server.client
    source = consumer(redis_server, "one")
    found = source.read(None, 9)
    source.close()
    assert [c["pending"] for c in client.xinfo_consumers("rows", "g")] == [6]
    source.ack(None, keys_of(found))
    source.close()
    assert client.xinfo_consumers("rows", "g") == []


def test_a_group_that_is_gone_changes_nothing(redis_server):
    every = filled(redis_server)
    source = consumer(redis_server, "one")
    found = source.read(None, 3)
    source.ack(found[-1].offset, keys_of(found))
    redis_server.client.xgroup_destroy("rows", "g")
    assert ids(source.read(found[-1].offset, 9)) == every[3:]


def test_a_stream_that_is_not_there_yet(redis_server):
    source = consumer(redis_server)
    assert source.read(None, 5) == []
    assert source.lag(None) in (0, None)
    every = filled(redis_server)
    assert ids(source.read(None, 9)) == every


def forget_logins():
    _logins.clear()
    connect.cache_clear()


def test_passwords_are_in_no_name_and_no_error(tmp_path, monkeypatch):
    from redis_server import RedisServer

    server = RedisServer(tmp_path, password="s3cret")
    try:
        open_url = server.url().replace("://", "://:s3cret@")
        publish(open_url, np.ones((4, 2)), np.ones(4))
        source = open_source(open_url, rows_per_expert=1, watch=True)
        (delivery,) = source.read(None, 5)
        assert source.name == server.url()
        assert "s3cret" not in repr(delivery)
        assert next(read_all(delivery.parts))[1].X.shape == (4, 2)
        source.close()
        key = delivery.parts[0].key
        forget_logins()  # as on a worker
        monkeypatch.setenv("REDISCLI_AUTH", "s3cret")
        assert from_key(key, y="y").rows == 4
        for password in ("wr0ng", None):
            forget_logins()
            monkeypatch.setenv("REDISCLI_AUTH", password) if password else monkeypatch.delenv("REDISCLI_AUTH")
            with pytest.raises(
                SourceUnreachable, match=r"expected to be let in, .* environment variable REDISCLI_AUTH"
            ) as e:
                from_key(key, y="y")
            assert "s3cret" not in repr(e.value)
            assert "wr0ng" not in repr(e.value)
    finally:
        forget_logins()
        server.stop()


def test_a_stream_is_no_data_set_to_fit(monkeypatch):
    with pytest.raises(InvalidOption, match="expected a Zarr data set, redis://h:6379/0/rows is a stream") as e:
        open_data("redis://:s3cret@h/rows")
    assert "s3cret" not in repr(e.value)
    forget_logins()


def test_rows_to_publish_must_match():
    with pytest.raises(
        InvalidData, match=r"expected X \(n, D\) and the others \(n,\), got {'X': \(3, 2\), 'y': \(2,\)}"
    ):
        encode(np.ones((3, 2)), np.ones(2))


def test_a_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("bcmdist.data.redis.PATIENCE", 0.3)
    source = open_source("redis://:s3cret@127.0.0.1:1/rows", rows_per_expert=1, watch=True)
    with pytest.raises(
        SourceUnreachable, match=r"redis://127.0.0.1:1/0/rows: expected a Redis server, none answered"
    ) as e:
        source.read(None, 1)
    assert "s3cret" not in str(e.value)
    source.close()


class Reader:
    """One that reads, and commits to a ledger and an offset that it shares with others, as an ingestion does."""

    def __init__(self, server, committed, chance):
        self.server, self.committed, self.chance = server, committed, chance
        self.restart()

    def restart(self):
        """As after a kill: what was read and not committed is forgotten."""
        stored = Ledger.of(Entry(key, "", 0) for key in self.committed["ledger"])
        self.source = RedisStream(self.server.url(), x="X", y="y", group="g", idle_seconds=0.2, ledger=stored)
        self.read_to, self.begun = self.committed["offset"], []

    def step(self):
        """Read some entries, finish some of what was read, commit up to the first that is not; how many came twice."""
        for delivery in self.source.read(self.read_to, 4):
            self.begun.append(delivery)
            self.read_to = delivery.offset
        done = [one for one in self.begun if self.chance.random() < 0.7]
        twice = 0
        for part, read in read_all([part for delivery in done for part in delivery.parts]):
            twice += part.key in self.committed["ledger"]
            self.committed["ledger"].setdefault(part.key, read.obs.y)
        while self.begun and self.begun[0] in done:
            self.committed["offset"] = self.begun.pop(0).offset
        if self.chance.random() < 0.8:  # else cut off between commit and acknowledgement
            self.source.ack(None, keys_of(done))
        return twice


def test_a_server_that_is_killed_and_started_again_loses_nothing(redis_server):
    """A publisher and two readers go on while the server is killed five times; readers die on the way."""
    entries, rows = 120, 3
    y = np.arange(entries * rows, dtype=float)
    writer = threading.Thread(target=publish, args=(redis_server.url(), y[:, None], y), kwargs={"rows_per_entry": rows})
    writer.start()
    committed, chance = {"ledger": {}, "offset": None}, random.Random(2)
    ledger = committed["ledger"]
    readers = [Reader(redis_server, committed, chance) for _ in range(2)]
    kills = twice = 0
    deadline = time.monotonic() + 60
    while len(ledger) < entries and time.monotonic() < deadline:
        twice += sum(reader.step() for reader in readers)
        if chance.random() < 0.1:
            readers[chance.randrange(2)].restart()
        if len(ledger) > (kills + 1) * 20 and kills < 5:
            redis_server.kill()
            redis_server.start()
            kills += 1
    writer.join()
    assert kills == 5
    np.testing.assert_array_equal(np.sort(np.concatenate(list(ledger.values()))), y)  # each row once
    assert redis_server.client.xlen("rows") == entries  # nor was any published twice
    assert twice > 0


@pytest.mark.parametrize("command", ["eval", "xrange", "xinfo_groups", "xpending_range", "execute_command", "xack"])
def test_an_answer_that_is_lost(redis_server, monkeypatch, command):
    """The server has done it, and the connection breaks: asked again, nothing is lost and nothing comes twice."""
    client = connect(redis_server.url().rpartition("/")[0])
    original, lost = getattr(client, command), []

    def loses_one(*arguments, **options):
        answer = original(*arguments, **options)
        if not lost:
            lost.append(answer)
            raise redis.exceptions.ConnectionError("connection lost")
        return answer

    every = [] if command == "eval" else filled(redis_server)
    redis_server.client.xgroup_create("rows", "g", id="0", mkstream=True)

    def breaks(*words, **options):
        return loses_one(*words, **options) if words[0] == "XCLAIM" else original(*words, **options)

    monkeypatch.setattr(client, command, breaks if command == "execute_command" else loses_one)
    every = every or filled(redis_server)
    source, found = consumer(redis_server, "one"), []
    while more := source.read(found[-1].offset if found else None, 2):
        found += more
    assert sorted(ids(found)) == every
    source.ack(found[-1].offset, keys_of(found))
    assert len(lost) == 1
    assert redis_server.client.xpending("rows", "g")["pending"] == 0


def test_a_server_that_pauses_is_waited_for(redis_server, monkeypatch):
    every = filled(redis_server)
    source = consumer(redis_server)
    resume = threading.Timer(0.5, redis_server.process.send_signal, [signal.SIGCONT])
    redis_server.process.send_signal(signal.SIGSTOP)
    resume.start()
    assert ids(source.read(None, 9)) == every
    resume.join()


def test_what_is_no_stream_is_an_error(redis_server):
    redis_server.client.set("rows", "no stream")
    source = consumer(redis_server)
    with pytest.raises(SourceUnreachable, match="/rows: expected a stream, the server answered WRONGTYPE"):
        source.read(None, 5)


@pytest.mark.parametrize("idle", [-1.0, float("nan"), float("inf")])
def test_seconds_that_are_none(idle):
    with pytest.raises(InvalidOption, match="--take-over: expected a number of seconds, got"):
        open_source("redis://h/rows", rows_per_expert=10, watch=False, idle_seconds=idle)
