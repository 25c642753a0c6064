"""Streams, and models restored from copies, copied, replaced or forgotten from: each model absorbs all its rows.

What a consumer group on the server remembers decides nothing: a model reads on from the offset in its own commit.
"""

import shutil
import threading
import time

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.partition import from_key
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning, MissingChunk
from problems import assert_same_committee

pytest.importorskip("redis", reason="Redis: pip install 'bcmdist[redis]'")

from bcmdist.data.entries import encode, publish
from bcmdist.data.redis import patiently

ROWS = 10


def some_rows(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(rows)


def publish_entries(server, first, last):
    for k in range(first, last):
        publish(server.url(), *some_rows(k))


@pytest.fixture
def model(tmp_path):
    """Path of a model that has absorbed nothing."""
    return prepared(tmp_path, "model")


def prepared(folder, name):
    data = folder / "first.zarr"
    if not data.exists():
        write_dataset(data, dict(zip("Xy", some_rows(0, 100), strict=True)))
    settings = Settings(kernel="se", learn=False, query=8, rows_per_expert=ROWS)
    return GBCM.prepare(data, settings, model=folder / name).url


def ingest(model, server, *, watch=False, most=None, skip=False, consumer=None):
    """The model after an ingestion, and its report; under `watch`, until the source has nothing now."""
    gbcm, looks = GBCM.load(model), []
    source = gbcm.source(server.url(), watch=watch, consumer=consumer)
    read = source.read

    def counted(after, number):
        found = read(after, number)
        looks.append(len(found))
        return found

    source.read = counted
    options = IngestOptions(watch=watch, max_partitions=most, skip=skip, stop=lambda: 0 in looks, grow=False)
    try:
        return gbcm.ingest(source, options)
    finally:
        source.close()


def ids(server):
    return [number.decode() for number, _ in server.client.xrange("rows")]


def check_absorbed(gbcm, server, entries):
    """Every entry once, as if all had been absorbed in peace."""
    keys = [f"{server.url()}[{number}]/X[0:{ROWS}]" for number in entries]
    assert sorted(entry.key for entry in gbcm.ledger) == sorted(keys)
    peaceful = GBCM.load(gbcm.url, commit=1)
    parts = [from_key(key, y="y") for key in keys]
    assert_same_committee(
        gbcm.committee,
        peaceful.committee.absorb(peaceful.snapshot.compute_messages(parts, SerialRuntime(), label="").message),
    )


@pytest.mark.parametrize("watch", [False, True])
def test_a_model_restored_from_a_copy_absorbs_what_came_later(model, tmp_path, redis_server, watch):
    publish_entries(redis_server, 0, 3)
    ingest(model, redis_server, watch=watch)
    shutil.copytree(model, tmp_path / "copy")
    publish_entries(redis_server, 3, 8)
    assert ingest(model, redis_server, watch=watch)[1].partitions == 5
    shutil.rmtree(model)
    shutil.copytree(tmp_path / "copy", model)
    gbcm, report = ingest(model, redis_server, watch=watch)
    assert report.partitions == 5
    check_absorbed(gbcm, redis_server, ids(redis_server))


@pytest.mark.parametrize("watch", [False, True])
def test_a_new_model_at_an_old_path_absorbs_all(model, tmp_path, redis_server, watch):
    publish_entries(redis_server, 0, 4)
    ingest(model, redis_server, watch=watch)
    shutil.rmtree(model)
    gbcm, report = ingest(prepared(tmp_path, "model"), redis_server, watch=watch)
    assert report.partitions == 4
    check_absorbed(gbcm, redis_server, ids(redis_server))


@pytest.mark.parametrize("watch", [False, True])
def test_two_copies_of_one_model_absorb_all_each(model, tmp_path, redis_server, watch):
    """On two hosts, at the same path: here, in turn."""
    shutil.copytree(model, tmp_path / "other host")
    publish_entries(redis_server, 0, 4)
    first, _ = ingest(model, redis_server, watch=watch)
    check_absorbed(first, redis_server, ids(redis_server))
    shutil.move(model, tmp_path / "first host")
    shutil.move(tmp_path / "other host", model)
    second, report = ingest(model, redis_server, watch=watch)
    assert report.partitions == 4
    check_absorbed(second, redis_server, ids(redis_server))


def test_a_forgotten_entry_is_absorbed_again_but_not_under_watch(model, redis_server):
    publish_entries(redis_server, 0, 4)
    gbcm, _ = ingest(model, redis_server, watch=True)
    gbcm.forget([gbcm.ledger[1].key])
    assert ingest(model, redis_server, watch=True)[1].partitions == 0
    gbcm, report = ingest(model, redis_server)
    assert (report.partitions, report.duplicates) == (1, 3)
    check_absorbed(gbcm, redis_server, ids(redis_server))


def test_a_plain_ingest_waits_for_no_claim_of_a_process_that_died(model, redis_server):
    """Entries are claimed by one that was killed a moment ago: they are absorbed, not left to a later command."""
    publish_entries(redis_server, 0, 4)
    dead = GBCM.load(model).source(redis_server.url(), consumer="dead")
    assert len(dead.read(None, 2)) == 2
    gbcm, report = ingest(model, redis_server)
    assert (report.partitions, report.waiting) == (4, 0)
    check_absorbed(gbcm, redis_server, ids(redis_server))


def test_two_ingesters_of_one_directory_share_the_entries(model, redis_server):
    publish_entries(redis_server, 0, 12)
    gbcm = GBCM.load(model)
    one, two = (gbcm.source(redis_server.url(), watch=True) for _ in range(2))
    first, second = one.read(None, 4), two.read(None, 4)
    keys = [[part.key for delivery in found for part in delivery.parts] for found in (first, second)]
    assert len({*keys[0], *keys[1]}) == 8
    assert second[-1].offset is None  # what the first one works on is not passed over
    one.ack(first[-1].offset, keys[0])
    two.ack(None, [*keys[0], *keys[1]])  # as a commit that was overtaken says
    (delivery, *_) = two.read(second[-1].offset, 4)
    assert delivery.offset["id"] == ids(redis_server)[8]
    one.close()
    two.close()


def test_two_ingesters_at_the_same_time_are_exact(model, redis_server):
    publish_entries(redis_server, 0, 40)
    reports = {}

    def run(name):
        reports[name] = ingest(model, redis_server, watch=True, consumer=name)[1]

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gbcm, report = ingest(model, redis_server)
    assert report.partitions + sum(one.partitions for one in reports.values()) == 40
    check_absorbed(gbcm, redis_server, ids(redis_server))


def test_a_source_that_is_closed_leaves_commands_of_other_threads_alone(model, redis_server):
    one, other = (GBCM.load(model).source(redis_server.url(), watch=True, consumer=name) for name in ("one", "two"))
    answers = []
    publish_entries(redis_server, 0, 1)
    wait = threading.Thread(
        target=lambda: answers.append(patiently(one.place, lambda client: client.blpop("nothing", timeout=1)))
    )
    wait.start()
    while not any(line["cmd"] == "blpop" for line in redis_server.client.client_list()):
        time.sleep(0.01)
    other.close()
    wait.join()
    assert answers == [None], "nothing came, and nothing failed"
    one.close()


# --- Streams that are trimmed, deleted or made again ---


@pytest.mark.parametrize("watch", [False, True])
def test_rows_that_are_trimmed_before_they_are_read_are_reported(model, redis_server, watch):
    publish_entries(redis_server, 0, 3)
    ingest(model, redis_server, watch=watch)
    publish_entries(redis_server, 3, 8)
    redis_server.client.xtrim("rows", maxlen=2, approximate=False)
    left = ids(redis_server)
    text = rf"rows: expected the entries after \S+ to be kept until they are read, 30 rows before {left[0]} are gone"
    with pytest.raises(MissingChunk, match=text):
        ingest(model, redis_server, watch=watch)
    gbcm, report = ingest(model, redis_server, watch=watch, skip=True)
    assert len(report.skipped) == 1
    assert len(gbcm.ledger) == 5
    assert gbcm.info()["skipped"] == report.skipped
    assert ingest(model, redis_server, watch=watch)[1].partitions == 0  # and says no more of it


@pytest.mark.parametrize("watch", [False, True])
def test_rows_that_are_trimmed_after_they_were_read_are_no_loss(model, redis_server, watch):
    publish_entries(redis_server, 0, 5)
    ingest(model, redis_server, watch=watch)
    redis_server.client.xtrim("rows", maxlen=1, approximate=False)
    publish_entries(redis_server, 5, 7)
    redis_server.client.xtrim("rows", maxlen=2, approximate=False)
    assert ingest(model, redis_server, watch=watch)[1].partitions == 2
    redis_server.client.delete("rows")
    publish_entries(redis_server, 7, 8)
    assert ingest(model, redis_server, watch=watch)[1].partitions == 1


def test_a_new_model_begins_with_what_a_stream_holds(model, redis_server):
    publish_entries(redis_server, 0, 5)
    redis_server.client.xtrim("rows", maxlen=2, approximate=False)
    first = ids(redis_server)[0]
    with pytest.warns(BcmdistWarning, match=f"rows: it begins with {first}, 30 rows before are gone"):
        assert ingest(model, redis_server)[1].partitions == 2
    assert ingest(model, redis_server)[1].partitions == 0


@pytest.mark.parametrize("watch", [False, True])
def test_a_stream_that_is_made_anew_with_smaller_ids_is_read_from_its_beginning(model, redis_server, watch):
    publish_entries(redis_server, 0, 3)
    ingest(model, redis_server, watch=watch)
    redis_server.client.delete("rows")
    for k in range(2):
        redis_server.client.xadd("rows", {"data": encode(*some_rows(10 + k))}, id=f"5-{k}")
    with pytest.warns(BcmdistWarning, match=r"rows: expected a stream with entries up to \S+, its newest is 5-1: it"):
        gbcm, report = ingest(model, redis_server, watch=watch)
    assert report.partitions == 2
    assert len(gbcm.ledger) == 5
    assert ingest(model, redis_server, watch=watch)[1].partitions == 0  # and says no more of it


def test_a_stream_whose_rows_are_counted_anew_is_read_from_its_beginning(model, redis_server):
    """Deleted with its counter; its first entries have smaller ids, its last ones larger."""
    publish_entries(redis_server, 0, 3)
    ingest(model, redis_server, watch=True)
    redis_server.client.delete("rows", "rows:rows")
    redis_server.client.xadd("rows", {"data": encode(*some_rows(10)), "position": ROWS}, id="5-0")
    redis_server.client.set("rows:rows", ROWS)
    publish_entries(redis_server, 11, 12)
    with pytest.warns(BcmdistWarning, match="rows: expected rows to be counted from 30 on, found 10"):
        gbcm, report = ingest(model, redis_server, watch=True)
    assert (report.partitions, len(gbcm.ledger)) == (2, 5)


# --- Lag ---


def test_what_waits_is_counted_from_the_offset_also_before_redis_7(model, redis_server):
    publish_entries(redis_server, 0, 20)
    gbcm = GBCM.load(model)
    source = gbcm.source(redis_server.url(), watch=True)
    assert source.lag(None) == 20
    found = source.read(None, 5)
    assert source.lag(found[-1].offset) == 15
    again = gbcm.source(redis_server.url(), watch=True)
    assert again.lag(found[-1].offset) == 15
    redis_server.client.xtrim("rows", maxlen=10, approximate=False)
    assert again.lag(found[-1].offset) == 10


def test_what_waits_of_entries_without_positions_is_unknown_unless_nothing_does(model, redis_server):
    for k in range(6):
        redis_server.client.xadd("rows", {"data": encode(*some_rows(k))})
    source = GBCM.load(model).source(redis_server.url(), watch=True)
    assert source.lag(None) == 6
    found = source.read(None, 4)
    assert source.lag(found[-1].offset) is None
    (*_, last) = source.read(found[-1].offset, 4)
    assert source.lag(last.offset) == 0
