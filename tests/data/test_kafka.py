"""Kafka topics as sources, with librdkafka's mock cluster: windows of offsets, messages that are gone, bad messages."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data import kafka as access
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.data.sources.open import open_source
from bcmdist.errors import (
    BcmdistWarning,
    DataChanged,
    InvalidData,
    InvalidOption,
    MissingChunk,
    MissingExtra,
    SourceUnreachable,
)
from bcmdist.testing import check_source

pytest.importorskip("confluent_kafka", reason="Kafka: pip install 'bcmdist[kafka]'")
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.* {text}") for text in ("the model knows no names", "not used, of a type")
]

SIZE = 50


def publish(broker, X, y, number=0):
    for x, target in zip(X.tolist(), y.tolist(), strict=True):
        broker.publish("rows", {"y": target, "b": x[1], "a": x[0]}, number)
    broker.producer.flush()


@pytest.fixture
def url(kafka_broker):
    kafka_broker.create("rows")
    return f"kafka://{kafka_broker.address}/rows"


@pytest.fixture
def prepared(wave, tmp_path):
    settings = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=SIZE, learn=False)
    return GBCM.prepare(wave[0], settings, model=tmp_path / "model")


def opened(url, watch=False, **options):
    return open_source(url, rows_per_expert=SIZE, watch=watch, **options)


def test_conformance(prepared, kafka_broker, url, wave):
    publish(kafka_broker, wave[1][:90], wave[2][:90])
    publish(kafka_broker, wave[1][90:130], wave[2][90:130], 1)
    check_source(lambda: prepared.source(url))


def test_windows_are_named_by_their_offsets(prepared, kafka_broker, url, wave):
    _, X, y = wave
    publish(kafka_broker, X[:120], y[:120])
    after, report = prepared.ingest(prepared.source(url))
    windows = [f"{url}[0:0-50]/X[0:50]", f"{url}[0:100-150]/X[0:20]", f"{url}[0:50-100]/X[0:50]"]
    assert sorted(entry.key for entry in after.ledger) == windows
    assert after.offsets[url]["0"] == 120
    ((_, rows),) = read_all([from_key(windows[2], y="y")])
    np.testing.assert_array_equal(rows.X, X[50:100])
    np.testing.assert_array_equal(rows.obs.y, y[50:100])
    publish(kafka_broker, X[120:160], y[120:160])  # the rest of a window, and another one
    after, report = after.ingest(after.source(url))
    assert (report.rows, report.duplicates) == (40, 2)
    assert sorted(entry.key for entry in after.ledger[3:]) == [
        f"{url}[0:100-150]/X[20:50]",
        f"{url}[0:150-200]/X[0:10]",
    ]
    assert after.ingest(after.source(url))[1].rows == 0


def test_windows_wait_until_they_are_full(kafka_broker, url, wave):
    source = opened(url, watch=True)
    publish(kafka_broker, wave[1][:49], wave[2][:49])
    assert source.read(None, 9) == []
    publish(kafka_broker, wave[1][49:60], wave[2][49:60])
    (one,) = source.read(None, 9)
    assert (one.parts[0].key, one.offset, one.position) == (f"{url}[0:0-50]/X[0:50]", {"0": 50}, 50)
    assert source.read(one.offset, 9) == []
    assert source.lag(one.offset) == 1
    source.close()


@pytest.fixture
def removed(kafka_broker, url):
    """A topic of which the broker has removed the first messages; the first offset that it keeps."""
    for number in range(6000):  # 6 MB, of which it keeps 5
        kafka_broker.publish("rows", {"a": 1.0, "b": number, "y": 2.0, "text": "x" * 1000})
    kafka_broker.producer.flush()
    source = opened(url)
    low, high = source._ends()["0"]
    source.close()
    assert 100 < low < high == 6000
    return low


def test_messages_that_are_gone(url, removed):
    with pytest.raises(
        MissingChunk, match=r"rows\[0:0-50\]: expected the messages from offset 0 on, they are not kept"
    ):
        open_data(f"{url}[0:0-50]")
    source = opened(url, offsets={url: {"0": 100}})
    first, second, *_ = source.read({"0": 100}, 2)
    name, error = first.bad
    assert (name, first.offset) == (f"{url}[0:100-{removed}]", {"0": removed})
    with pytest.raises(MissingChunk, match=f"expected offsets 100 to {removed - 1} of partition 0, they are not kept"):
        raise error
    end = removed - removed % SIZE + SIZE
    first = removed if removed % SIZE else end - SIZE
    assert second.parts[0].key == f"{url}[0:{first}-{end}]/X[0:{end - first}]"
    source.close()


def test_a_topic_whose_beginning_is_gone_is_read_from_there(url, removed):
    source = opened(url)
    with pytest.warns(
        BcmdistWarning, match=f"offsets 0 to {removed - 1} of partition 0, .* read from offset {removed} on"
    ):
        one = source.read(None, 1)[0]
    assert one.parts[0].key.startswith(f"{url}[0:{removed}-")
    source.close()


def test_what_was_absorbed_before_it_was_removed_is_not_missed(url, removed):
    read = removed + 7
    source = opened(url, offsets={url: {"0": read}})
    one = source.read(None, 1)[0]
    begin = read - read % SIZE  # of the window, if all of it is kept
    first = begin if begin >= removed else read
    assert one.parts[0].key == f"{url}[0:{first}-{begin + SIZE}]/X[{read - first}:{begin + SIZE - first}]"
    source.close()


def test_a_topic_that_was_made_again(kafka_broker, url, wave):
    publish(kafka_broker, wave[1][:60], wave[2][:60])
    source = opened(url)
    with pytest.raises(
        DataChanged, match=r"expected the offsets up to 61 in partition 0, it ends at 60: the topic was"
    ):
        source.read({"0": 61}, 1)
    source.close()


BAD = {
    "text": ({"a": 1.0, "b": "warm", "y": 2.0}, "expected a number in b, got 'warm' at offset 1; correct"),
    "null": ({"a": None, "b": 1.0, "y": 2.0}, "expected a number in a, got null at offset 1; correct"),
    "columns": ({"a": 1.0, "y": 2.0}, "expected the columns a, b, y, as at offset 0, got a, y at offset 1"),
    "no row": (b"[1, 2, 3]", "expected a JSON object .* at offset 1; write one row in each"),
    "garbage": (b"\xff\x00", "expected a JSON object .* at offset 1; write one row in each"),
    "tombstone": (None, "expected a JSON object .* got b'nothing' at offset 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_messages_are_named_by_their_offset(kafka_broker, url, case):
    row, text = BAD[case]
    for one in ({"a": 1.0, "b": 2.0, "y": 3.0}, row):
        kafka_broker.publish("rows", one)
    kafka_broker.producer.flush()
    source = opened(url)
    (one,) = source.read(None, 5)
    with pytest.raises(InvalidData, match=rf"rows\[0:0-50\]: {text}"):
        raise one.bad[1]
    assert one.offset == {"0": 2}
    source.close()


def test_columns_that_are_missing_or_not_used(kafka_broker, url):
    kafka_broker.publish("rows", {"a": 1.0, "b": 2, "y": 3.0, "sensor": "north"})
    kafka_broker.producer.flush()
    source = opened(url, y="target")
    (one,) = source.read(None, 5)
    with pytest.raises(InvalidData, match="expected a column target, found a, b, sensor, y; add it"):
        raise one.bad[1]
    source.close()
    source = opened(url)
    with pytest.warns(BcmdistWarning, match="'sensor' not used, of a type that is no number"):
        (one,) = source.read(None, 5)
    assert one.parts[0].data.inputs == 2
    source.close()


def test_the_command(prepared, kafka_broker, url, wave):
    publish(kafka_broker, wave[1], wave[2])
    done = CliRunner().invoke(cli, ["ingest", prepared.url, url, "--serial", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 240
    kafka_broker.publish("rows", {"a": 1.0, "b": "warm", "y": 2.0})
    kafka_broker.producer.flush()
    done = CliRunner().invoke(cli, ["ingest", prepared.url, url, "--serial"])
    assert done.exit_code == 1
    assert "InvalidData: " in done.stderr
    assert "expected a number in b, got 'warm' at offset 240" in done.stderr


def test_bad_windows_are_left_out_if_asked(prepared, kafka_broker, url, wave):
    publish(kafka_broker, wave[1][:50], wave[2][:50])
    kafka_broker.publish("rows", b"garbage")
    publish(kafka_broker, wave[1][50:110], wave[2][50:110])
    _, report = prepared.ingest(prepared.source(url), IngestOptions(skip=True))
    assert report.skipped == [f"{url}[0:50-100]"]
    assert report.rows == 50 + 11


@pytest.mark.parametrize("url", ["kafka://h:1", "kafka://h:1/a/b", "kafka:///rows", "kafka://me:secret@h:1/rows"])
def test_urls(url):
    with pytest.raises(InvalidOption, match="expected kafka://HOST:PORT") as raised:
        opened(url)
    assert "secret" not in str(raised.value)


def test_what_is_no_source(kafka_broker, url, monkeypatch):
    with pytest.raises(InvalidOption, match=r"expected a topic, .*/nothing: .*Unknown topic"):
        opened(url.replace("/rows", "/nothing"))
    with pytest.raises(InvalidOption, match=r"expected a Zarr data set, .* is a topic; `bcmdist ingest`"):
        open_data(url)
    with pytest.raises(InvalidOption, match="without user, password and --trim"):
        opened(url, trim=True)
    monkeypatch.setattr("bcmdist.data.sources.kafka.PATIENCE", 0.5)
    with pytest.raises(SourceUnreachable, match="expected a Kafka broker to answer, got"):
        opened("kafka://127.0.0.1:1/rows")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[kafka\]'"):
        opened(url)


def test_settings_of_the_client(tmp_path, monkeypatch):
    (tmp_path / "client").write_text("# comment\nsecurity.protocol=nonsense\n")
    monkeypatch.setenv("BCMDIST_KAFKA", str(tmp_path / "client"))
    with pytest.raises(InvalidOption, match=r"BCMDIST_KAFKA.*security.protocol"):
        access.consumer_of("127.0.0.1:1")
    monkeypatch.setenv("BCMDIST_KAFKA", str(tmp_path / "none"))
    with pytest.raises(InvalidOption, match="BCMDIST_KAFKA"):
        access.consumer_of("127.0.0.1:1")


def test_rows_hold_numbers_exactly(kafka_broker, url):
    rows = [{"a": 0.1 + 0.2, "b": -5, "y": True, "weight": 2.0}, {"a": 1e-300, "b": 2**53, "y": 0, "weight": 0.5}]
    for row in rows:
        kafka_broker.publish("rows", json.dumps(row).encode())
    kafka_broker.producer.flush()
    columns = access.KafkaMessages().columns(f"{url}[0:0-50]", "X", "y", ("weight", "exposure"))
    assert set(columns) == {"X", "y", "weight"}
    np.testing.assert_array_equal(columns["X"], [[0.1 + 0.2, -5], [1e-300, 2.0**53]])
    np.testing.assert_array_equal(columns["y"], [1, 0])
