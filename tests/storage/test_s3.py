import functools
import hashlib
import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bcmdist
from bcmdist.api.gbcm import GBCM
from bcmdist.api.requests import RefitOptions, absolute
from bcmdist.app.cli.main import cli
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import absolute_url, open_group
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import (
    DataExists,
    InvalidOption,
    MissingExtra,
    StorageUnreachable,
    StoreIgnoresConditions,
    WorkerCannotRead,
)
from bcmdist.learning.blocks.blocks import SampleBlocks
from bcmdist.learning.settings import Settings
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage import ledger
from bcmdist.storage.commits import ModelStore, open_store
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.entry import Entry
from bcmdist.storage.locate import open_storage
from bcmdist.storage.segment import Segment, encode

obstore = pytest.importorskip("obstore")

from obstore.store import MemoryStore  # noqa: E402
from processes import finish, start_ingesting  # noqa: E402

from bcmdist.storage import objects  # noqa: E402
from bcmdist.storage.objects import ObjectStorage  # noqa: E402
from problems import assert_as_in_its_ledger, assert_same_committee  # noqa: E402
from servers import azurite, installed, served, set_azure, set_gcs, set_s3, small_gcs, small_s3  # noqa: E402

pytestmark = pytest.mark.alone

SETTINGS = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=50, learn=False)


@pytest.fixture
def environment(monkeypatch):
    """Sets where S3 is, with credentials."""
    objects._opened.cache_clear()  # a port may come again
    return functools.partial(set_s3, monkeypatch)


@pytest.fixture
def memory(monkeypatch):
    """Every s3:// URL is a store in memory of its own."""

    @functools.cache
    def opened(url, environment):
        return ObjectStorage(url, MemoryStore())

    monkeypatch.setattr(objects, "_opened", opened)


@pytest.fixture(scope="session")
def programs(request):
    return installed(Path(request.config.cache.mkdir("servers")))


@pytest.fixture(scope="session")
def moto_url(programs, tmp_path_factory):
    log = tmp_path_factory.mktemp("moto") / "log"
    with served([programs / "moto_server", "-H", "127.0.0.1", "-p", "{port}"], log=log) as url:
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
        yield url


@pytest.fixture
def moto(moto_url, environment, request):
    """A prefix on an S3 that honours conditional puts."""
    environment(moto_url)
    return f"s3://bucket/{request.node.name}"


@pytest.fixture
def rclone(programs, environment, tmp_path):
    """A prefix on an S3 that ignores the conditions of puts, and the directory behind it."""
    (tmp_path / "files/bucket").mkdir(parents=True)
    command = [programs / "rclone", "serve", "s3", tmp_path / "files", "--addr", "127.0.0.1:{port}"]
    options = ["--auth-key", "testkey,testsecret", "--vfs-cache-mode", "off", "--config", tmp_path / "rclone.conf"]
    with served([*command, *options], log=tmp_path / "log") as url:
        environment(url)
        yield "s3://bucket/place", tmp_path / "files/bucket"


@pytest.fixture
def small(environment):
    """A prefix on an S3 of our own."""
    with small_s3() as server:
        environment(server.url)
        yield "s3://bucket/place"


@pytest.fixture
def small_google(monkeypatch):
    """A prefix on a Google Cloud Storage of our own."""
    with small_gcs() as server:
        set_gcs(monkeypatch, server.url)
        yield "gs://bucket/place"


@pytest.fixture(scope="session")
def azure_server(request, tmp_path_factory):
    """URL of an Azurite with a container, and the key to it."""
    with azurite(Path(request.config.cache.mkdir("azurite")), tmp_path_factory.mktemp("azurite")) as found:
        yield found


@pytest.fixture
def azure(azure_server, monkeypatch, request):
    """A prefix on an Azurite."""
    set_azure(monkeypatch, *azure_server)
    return f"az://container/{request.node.name}"


SERVERS = ["small", "small_google", *(pytest.param(name, marks=pytest.mark.slow) for name in ("moto", "azure"))]


@pytest.fixture(params=["disk", "memory", *SERVERS])
def storage(request, tmp_path):
    """An empty storage of every kind."""
    if request.param == "disk":
        return LocalStorage(tmp_path / "model")
    if request.param == "memory":
        return ObjectStorage("memory://model", MemoryStore())
    return open_storage(request.getfixturevalue(request.param))


def test_a_name_is_written_once(storage):
    data = bytes(range(256)) * 5
    assert storage.put_if_absent("commits/1", data)
    for other in (b"other", data):
        assert not storage.put_if_absent("commits/1", other)
    assert storage.get("commits/1") == data
    storage.put_own("holds/1", data)
    assert storage.get("holds/1") == data
    assert storage.put_if_absent("empty", b"")
    assert storage.get("empty") == b""


def test_names_are_the_last_parts_of_what_a_folder_holds(storage):
    assert storage.names("") == storage.names("blobs") == []
    for name in ("blobs/b", "blobs/a", "blobs/deep/er", "mixture.json", "blob"):
        storage.put_if_absent(name, name.encode())
    assert storage.names("") == ["blob", "blobs", "mixture.json"]
    assert storage.names("blobs") == ["a", "b", "deep"]
    assert storage.names("blobs/deep") == ["er"]
    assert storage.names("blobs/a") == storage.names("blobs/d") == []


def test_what_is_removed_is_gone(storage):
    for name in ("a/1", "a/2", "b/1"):
        storage.put_if_absent(name, b"x")
    storage.remove("a/1")
    storage.remove("a/1")
    storage.remove("b/1")
    assert storage.names("") == ["a"]
    with pytest.raises(FileNotFoundError):
        storage.get("a/1")
    assert storage.put_if_absent("a/1", b"y")
    storage.remove_all()
    storage.remove_all()
    assert storage.names("") == storage.names("a") == []


def test_of_eight_writers_one_wins(storage):
    barrier, won = threading.Barrier(8), []

    def write(number):
        barrier.wait()
        if storage.put_if_absent("commits/1", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.get("commits/1") == b"%d" % won[0]


@pytest.fixture
def object_store(storage):
    """An empty object store of every kind."""
    if isinstance(storage, LocalStorage):
        pytest.skip("a disk lists folders")
    return storage


def test_names_between_two_are_listed_with_their_versions(object_store):
    names = ["a/1", "commits/1", "commits/10", "commits/2", "commits/2/x", "commits0", "holds/1"]
    for name in names:
        object_store.put_own(name, name.encode())
    before = object_store.between("commits/10", "holds/1")
    assert list(before) == sorted(names)[2:6]
    assert object_store.between("commits/10", "holds/1") == before
    object_store.put_own("commits/2", b"other")
    after = object_store.between("commits/10", "holds/1")
    assert [name for name in before if after[name] != before[name]] == ["commits/2"]
    object_store.remove("commits/10")
    assert list(object_store.between("commits/", "commits0")) == ["commits/1", "commits/2", "commits/2/x"]
    assert object_store.between("x", "y") == {}


def test_a_list_of_more_than_a_page_is_whole(environment, monkeypatch):
    monkeypatch.setattr("servers.PAGE", 7)
    with small_s3() as server:
        environment(server.url)
        storage, names = open_storage("s3://bucket/model"), [f"commits/{number:03d}" for number in range(30)]
        for name in names:
            storage.put_own(name, b"x")
        assert list(storage.between("commits/002", "commits/027")) == names[2:27]
        assert storage.names("commits") == [name.removeprefix("commits/") for name in names]


def test_a_model_store_on_every_storage(storage):
    store, entry = ModelStore(storage), Entry("d/X[0:1]", "0" * 64, 1)
    with store.canary() as probe:
        assert probe()
    assert storage.names("") == []
    for number in (1, 2):
        arrays = store.put_arrays({"a": np.full(3, number / 3)})
        store.commit(number, arrays=arrays, facts={"n": number}, segments=[store.put_segment([entry])], offsets={})
    with pytest.raises(FileExistsError, match="expected to write commit 2, but it is taken"):
        store.commit(2, arrays={}, facts={}, segments=[], offsets={})
    assert store.numbers() == [1, 2]
    assert store.load().arrays["a"].tobytes() == np.full(3, 2 / 3).tobytes()
    assert store.load(1).ledger == (entry,)
    assert store.foreign() == []


def test_a_storage_travels_as_its_url_without_secrets(environment):
    environment("http://127.0.0.1:1")
    storage = open_storage("s3://bucket/model/")
    sent = pickle.dumps(storage)
    assert b"testsecret" not in sent
    assert b"testkey" not in sent
    assert pickle.loads(sent) is storage is open_storage("s3://bucket//model")
    assert storage.url == "s3://bucket/model" == absolute_url("s3://bucket/model/")


@pytest.mark.parametrize("retries", [0, 2])  # by us, by the client
@pytest.mark.parametrize("fault", ["503 before", "503 after", "dropped before", "dropped after"])
def test_a_put_whose_answer_was_lost_has_still_won(environment, monkeypatch, fault, retries):
    monkeypatch.setattr(objects, "RETRIES", retries)
    with small_s3() as server:
        environment(server.url)
        storage = open_storage("s3://bucket/model")
        assert storage.put_if_absent("first", b"x")
        server.faults, before = [fault], server.puts
        assert storage.put_if_absent("commits/1", b"ours")
        assert server.puts == before + 2
        assert server.objects["/bucket/model/commits/1"] == b"ours"
        server.faults = [fault]
        assert not storage.put_if_absent("commits/1", b"theirs")
        assert not storage.create("commits/1", b"theirs")


def test_a_name_that_somebody_else_takes_before_we_repeat_is_lost(environment):
    with small_s3() as server:
        environment(server.url)
        storage = open_storage("s3://bucket/model")
        storage.put_if_absent("first", b"x")
        server.faults, before = ["dropped, theirs"], server.puts
        assert not storage.put_if_absent("commits/1", b"ours")
        assert server.puts == before + 2
        assert storage.get("commits/1") == b"theirs"
        server.faults = ["dropped, theirs"]
        assert not storage.put_if_absent("commits/2", b"theirs")  # equal bytes, and not ours
        server.about["/bucket/model/commits/2"].clear()  # a store that keeps no metadata
        assert not storage.put_if_absent("commits/2", b"theirs")


def test_nobody_answers(environment, monkeypatch):
    monkeypatch.setattr(objects, "WAITS", (0.01,))
    monkeypatch.setattr(objects, "RETRIES", 0)
    with small_s3() as server:
        environment(server.url)
    storage = open_storage("s3://bucket/model")
    for work in (lambda: storage.get("x"), lambda: storage.names(""), lambda: storage.put_if_absent("x", b"")):
        with pytest.raises(
            StorageUnreachable, match=r"s3://bucket/model: expected the object store .* AWS_ENDPOINT_URL"
        ):
            work()


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_kept(environment):
    with small_s3(conditional=False) as server:
        environment(server.url)
        store = open_store("s3://bucket/model")
        for _ in range(2):
            with pytest.raises(StoreIgnoresConditions, match=r"s3://bucket/model: .* keep models on AWS S3"):
                store.put_arrays({"a": np.ones(3)})
        assert server.objects == {}


def test_conditions_are_tried_once_for_each_url(environment):
    with small_s3() as server:
        environment(server.url)
        for url, puts in (("s3://bucket/a", 3), ("s3://bucket/a/", 4), ("s3://bucket/b", 7)):
            open_storage(url).put_if_absent(f"x{server.puts}", b"")
            assert server.puts == puts
        assert sorted(server.objects) == ["/bucket/a/x0", "/bucket/a/x3", "/bucket/b/x4"]


def test_urls_that_name_no_bucket():
    with pytest.raises(InvalidOption, match="got no bucket"):
        open_storage("s3://")


def test_without_obstore(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "bcmdist.storage.objects")
    monkeypatch.delattr(bcmdist.storage, "objects")
    for work in (open_storage, open_group):
        with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[cloud\]'"):
            work("s3://bucket/model")


@pytest.fixture
def halves(rng):
    """Two data sets of 150 and 100 rows, by name."""
    X = rng.uniform(-2, 2, (250, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(250)
    return {"one": {"X": X[:150], "y": y[:150]}, "two": {"X": X[150:], "y": y[150:]}}


def worked(place, halves):
    """Everything that is done with a model, and what it predicts in the end."""
    for name, columns in halves.items():
        write_dataset(f"{place}/{name}.zarr", columns, rows_per_chunk=50)
    gbcm = GBCM.fit(f"{place}/one.zarr", SETTINGS, model=f"{place}/model").partial_fit(f"{place}/two.zarr")
    gbcm.predict_zarr(f"{place}/two.zarr", f"{place}/out.zarr")
    first = open_group(f"{place}/out.zarr")["mean"][...]
    gbcm.forget([f"{gbcm.ledger[0].key}"])
    loaded = GBCM.load(f"{place}/model")
    assert loaded.committee.total.rows == 200
    empty = GBCM.prepare(f"{place}/one.zarr", SETTINGS, model=f"{place}/empty")
    merged = loaded.merge(empty, f"{place}/both")
    assert merged.info()["partitions"] == 4
    assert merged.score(f"{place}/two.zarr")["rows"] == 100
    return first, merged.predict(halves["two"]["X"])["mean"]


@pytest.mark.slow
def test_all_that_is_done_with_a_model_is_done_on_an_object_store(memory, halves, tmp_path):
    for ours, theirs in zip(worked("s3://bucket", halves), worked(tmp_path, halves), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)  # the same sums of the same numbers


def test_models_on_an_object_store_grow_are_refitted_and_reverted(memory, halves):
    """Growth, a refit from all and from the newest rows, and the way back; nothing stays in scratch."""
    write_dataset("s3://bucket/one.zarr", halves["one"], rows_per_chunk=50)
    gbcm = GBCM.prepare("s3://bucket/one.zarr", replace(SETTINGS, query=5), model="s3://bucket/model")
    grown, _ = gbcm.ingest(gbcm.source("s3://bucket/one.zarr"), IngestOptions(grow=True, grow_share=0.05))
    assert grown.model.earlier
    assert_as_in_its_ledger(grown)
    for newest in (None, 50):
        after = grown.refit(RefitOptions(newest=newest, effort="quick"))
        assert_as_in_its_ledger(after)
    assert_same_committee(after.revert(grown.commit).committee, grown.committee)
    assert not open_storage("s3://bucket/model/scratch").names("")


def test_an_output_is_not_overwritten_and_a_failed_one_is_removed(memory, halves):
    write_dataset("s3://bucket/one.zarr", halves["one"])
    with pytest.raises(DataExists, match=r"s3://bucket/one.zarr holds something"):
        write_dataset("s3://bucket/one.zarr", halves["two"])
    assert open_data("s3://bucket/one.zarr").rows == 150
    with pytest.raises(InvalidOption, match="got s3://bucket without a prefix"):
        write_dataset("s3://bucket", halves["two"])
    with pytest.raises(ValueError, match="data type"):
        write_dataset("s3://bucket/new.zarr", {"X": np.ones((3, 1)), "y": np.array(["a", "b", "c"], dtype=object)})
    assert open_storage("s3://bucket/new.zarr").names("") == []


def test_what_needs_a_disk_is_refused(memory, halves):
    write_dataset("s3://bucket/one.zarr", halves["one"])
    with pytest.raises(InvalidOption, match="model directory on a disk that all workers share"):
        GBCM.fit("s3://bucket/one.zarr", Settings(partition="spatial"), model="s3://bucket/model")
    assert open_storage("s3://bucket/model").names("") == []


@pytest.mark.parametrize("objective", ["local", "subset"])
def test_a_failed_preparation_leaves_nothing_and_a_sample_is_kept_nearby(memory, halves, monkeypatch, objective):
    """Beside the model, where all workers read, until it is learned from."""
    write_dataset("s3://bucket/one.zarr", halves["one"], rows_per_chunk=50)
    bad = Settings(partition="chunks", kernel="se", learn=False, set={"kernel.nonsense": 1.0}, query=20)
    with pytest.raises(InvalidOption, match="nonsense"):
        GBCM.fit("s3://bucket/one.zarr", bad, model="s3://bucket/model")
    assert open_storage("s3://bucket/model").names("") == []
    settings = Settings(
        partition="chunks", kernel="se", query=20, rows_per_expert=50, effort="quick", objective=objective
    )
    read, original = [], SampleBlocks.__call__
    monkeypatch.setattr(SampleBlocks, "__call__", lambda *args: read.extend(original(*args)) or original(*args))
    GBCM.prepare("s3://bucket/one.zarr", settings, model="s3://bucket/model")
    assert all(block.data.url.startswith("s3://bucket/model/scratch/") for block in read)
    assert sum({block.key: block.rows for block in read}.values()) == len(halves["one"]["y"])
    assert open_storage("s3://bucket/model").names("") == ["acknowledged", "blobs", "commits"]


def run(*arguments):
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_commands_on_s3_do_what_they_do_on_a_disk(moto, halves, tmp_path):
    found = []
    for place in (str(tmp_path), moto):
        for name, columns in halves.items():
            np.savez(tmp_path / f"{name}.npz", **columns)
            run("import", tmp_path / f"{name}.npz", f"{place}/{name}.zarr", "--rows-per-chunk", 50)
        options = ["--kernel", "se", "--query", 20, "--rows-per-expert", 50, "--effort", "quick", "--serial"]
        options += ["--partition", "chunks"]
        run("fit", f"{place}/one.zarr", "--model", f"{place}/model", *options)
        assert run("ingest", f"{place}/model", f"{place}/two.zarr", "--serial")["partitions"] == 2
        assert run("ingest", f"{place}/model", f"{place}/two.zarr/", "--serial")["partitions"] == 0
        run("predict", f"{place}/model", f"{place}/two.zarr", "--out", f"{place}/out.zarr", "--serial")
        out = open_group(f"{place}/out.zarr")
        found.append([out["mean"][...], out["variance"][...]])
        assert run("info", f"{place}/model")["rows"] == 250
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)  # the same sums of the same numbers


def _segments(name):
    """Hashes of a hundred segments that nobody reads."""
    return [hashlib.sha256(f"{name}{number}".encode()).hexdigest() for number in range(100)]


def _commit_hundred(url, name):
    store, known, pause = open_store(url), [], random.Random(name)
    for segment in (*_segments("a"), *_segments("b")):  # names only
        ledger._summaries[segment] = Segment(encode([]), "").summary
    for segment in _segments(name):
        while True:
            try:
                store.commit(len(known) + 1, arrays={}, facts={}, segments=[*known, segment], offsets={})
                known = [*known, segment]
                break
            except FileExistsError:
                time.sleep(pause.uniform(0, 0.05))
                known = store.record(store.head())["segments"]


@pytest.mark.slow
def test_two_processes_commit_a_hundred_times_each(moto):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_commit_hundred, args=(moto, name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    store = open_store(moto)
    assert store.numbers() == list(range(1, 201))
    segments = store.record(200)["segments"]
    ours = {name: _segments(name) for name in "ab"}
    for own in ours.values():
        assert [segment for segment in segments if segment in own] == own
    for some in (segments[:150], segments[50:]):  # at the same time
        assert all(set(some) & set(own) for own in ours.values())


@pytest.mark.slow
def test_workers_read_and_write_by_their_own_environment(moto, halves):
    from bcmdist.runtime.dask.cluster import DaskRuntime

    write_dataset(f"{moto}/one.zarr", halves["one"], rows_per_chunk=50)
    with DaskRuntime(workers=1) as runtime:
        gbcm = GBCM.fit(f"{moto}/one.zarr", SETTINGS, model=f"{moto}/model", runtime=runtime)
        assert gbcm.predict_zarr(f"{moto}/one.zarr", f"{moto}/out.zarr", runtime=runtime) == 150
        runtime._client.run(os.environ.update, AWS_SECRET_ACCESS_KEY="", AWS_ENDPOINT_URL="http://127.0.0.1:1")
        with pytest.raises(WorkerCannotRead, match=r"worker tcp://.* must see s3://bucket/"):
            gbcm.predict_zarr(f"{moto}/one.zarr", f"{moto}/again.zarr", runtime=runtime)
    found = open_group(f"{moto}/out.zarr")["mean"][...]
    np.testing.assert_allclose(found, gbcm.predict(halves["one"]["X"])["mean"], rtol=1e-10)  # blocks of other sizes
    assert open_storage(f"{moto}/again.zarr").names("") == []


@pytest.mark.slow
def test_rclone_holds_data_but_no_models(rclone, halves, tmp_path):
    url, files = rclone
    write_dataset(f"{url}/one.zarr", halves["one"], rows_per_chunk=50)
    before = sorted(files.rglob("*"))
    with pytest.raises(StoreIgnoresConditions, match="s3://bucket/place/model"):
        GBCM.fit(f"{url}/one.zarr", SETTINGS, model=f"{url}/model")
    assert [path for path in sorted(files.rglob("*")) if path not in before and path.is_file()] == []
    gbcm = GBCM.fit(f"{url}/one.zarr", SETTINGS, model=tmp_path / "model")
    gbcm.predict_zarr(f"{url}/one.zarr", f"{url}/out.zarr")
    found = open_group(f"{url}/out.zarr")["mean"][...]
    np.testing.assert_allclose(found, gbcm.predict(halves["one"]["X"])["mean"], rtol=1e-10)  # blocks of other sizes


@pytest.mark.slow
def test_two_processes_ingest_the_same_into_a_model_on_s3(moto, tmp_path):
    rng, rows, count = np.random.default_rng(5), 50, 200
    X = rng.uniform(-2, 2, (rows * count, 2))
    write_dataset(f"{moto}/data.zarr", {"X": X, "y": np.sin(2 * X[:, 0])}, rows_per_chunk=10 * rows)
    settings = Settings(partition="chunks", kernel="se", learn=False, query=20, rows_per_expert=rows)
    gbcm = GBCM.prepare(f"{moto}/data.zarr", settings, model=f"{moto}/model")
    begun = time.monotonic()
    racers = [start_ingesting(gbcm.url, f"{moto}/data.zarr", "--commit-every", "4") for _ in range(2)]
    figures = [finish(racer) for racer in racers]
    print(f"{time.monotonic() - begun:.1f} s, {figures}")
    after = GBCM.load(gbcm.url)
    assert len({entry.key for entry in after.ledger}) == len(after.ledger) == count
    assert sum(told["partitions"] for told in figures) == count
    parts = partitions(open_data(f"{moto}/data.zarr"), rows)
    peaceful = gbcm.committee.absorb(gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="peace").message)
    assert_same_committee(after.committee, peaceful)


SECRET = "wJalr/hunter2"


@pytest.mark.parametrize("url", [f"s3://AKIA:{SECRET}@bucket/place", "s3://AKIA:hunter2@bucket", "s3://AKIA@bucket/m"])
def test_urls_with_credentials_are_refused_and_not_printed(url, tmp_path, wave):
    model = tmp_path / "m"
    GBCM.fit(wave[0], SETTINGS, model=model)
    for command in (
        ["info", url],
        ["fit", url, "--model", tmp_path / "n", "--serial"],
        ["fit", wave[0], "--model", url, "--serial"],
        ["predict", model, wave[0], "--out", url, "--serial"],
        ["score", model, url, "--serial"],
        ["ingest", model, url, "--serial"],
        ["demo", "--out", url, "--serial"],
        ["jobs", "--jobs", url],
        ["submit", "fit", url, "--model", tmp_path / "n", "--scheduler", "tcp://127.0.0.1:1"],
    ):
        done = CliRunner().invoke(cli, list(map(str, command)))
        assert done.exit_code == 1
        assert done.stderr == (
            "bcmdist: InvalidOption: s3://...: expected a URL without user and password, which would be kept with "
            "models and jobs, got one with them; leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on "
            "every machine\n"
        )
    with pytest.raises(InvalidOption, match=r"http://...: expected a URL without user and password"):
        open_data("http://me:hunter2@host/data.zarr")
    with pytest.raises(InvalidOption, match=r"redis://...: expected a URL without user and password"):
        absolute("redis://me:hunter2@host/stream")


def test_users_of_endpoints_are_not_printed(environment, capfd):
    environment("http://me:hunter2@127.0.0.1:1")
    with pytest.raises(
        StorageUnreachable, match=r"expected the object store to answer, .*http://127.0.0.1:1/"
    ) as caught:
        open_storage("s3://bucket/model").get("x")
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in shown
    assert "hunter2" not in "".join(capfd.readouterr())


ENDS = """
import asyncio, threading, obstore
from obstore.store import MemoryStore
import bcmdist.storage.objects
store, loop = MemoryStore(), asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def puts():
    await asyncio.gather(*(obstore.put_async(store, str(k), b"x") for k in range(50)))
asyncio.run_coroutine_threadsafe(puts(), loop).result()
"""


@pytest.mark.slow
def test_a_process_does_not_abort_at_its_end():
    """Without a moment for the client's threads, 9 of 100 such processes abort on a busy machine."""
    for _ in range(20):
        running = [subprocess.Popen([sys.executable, "-c", ENDS]) for _ in range(3)]
        assert [one.wait(120) for one in running] == [0, 0, 0]


@pytest.mark.slow
def test_a_branch_of_icechunk_on_s3_is_a_source(moto, halves, tmp_path):
    data = pytest.importorskip(
        "icechunk_data", reason="Icechunk: pip install 'bcmdist[icechunk]'", exc_type=ImportError
    )
    from bcmdist.data.icechunk import _opened

    _opened.cache_clear()
    bucket, _, prefix = moto.removeprefix("s3://").partition("/")
    where = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "allow_http": True, "force_path_style": True}
    storage = data.icechunk.s3_storage(bucket=bucket, prefix=prefix, region="us-east-1", from_env=True, **where)
    repository, rng = data.icechunk.Repository.create(storage), np.random.default_rng(0)
    write_dataset(tmp_path / "first.zarr", halves["one"])
    gbcm = GBCM.prepare(tmp_path / "first.zarr", SETTINGS, model=tmp_path / "model")
    for rows in (120, 30):
        X = rng.uniform(-2, 2, (rows, 2))
        snapshot = data.append(repository, X, X[:, 0])
        gbcm, report = gbcm.ingest(gbcm.source(f"icechunk+{moto}"))
        assert report.rows == rows
    assert gbcm.offsets == {f"icechunk+{moto}": {"snapshot": snapshot, "row": 150, "more": False}}
    assert gbcm.forget([gbcm.ledger[-1].key]).committee.total.rows == 120
