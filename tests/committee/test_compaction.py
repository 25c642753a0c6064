"""Compacted ledgers: rows stay recognised, counted once and predicted alike; what needs partitions is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings, write_dataset
from bcmdist.app.cli.main import cli
from bcmdist.committee.compaction import LedgerCompaction, compact
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import DataNotFound, InvalidOption
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.entry import COMPACTED, Entry, ResidualRecord
from bcmdist.storage.ledger import Ledger

ROWS = 50
NO_FADING = Weighting()


def rows_of(seed, count=400):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 2))
    return {"X": X, "y": np.sin(X[:, 0]) + 0.1 * rng.standard_normal(count)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that has absorbed two data sets, in 16 partitions, of which the first has a residual record."""
    folder = tmp_path_factory.mktemp("compaction")
    settings = Settings(partition="chunks", query=30, rows_per_expert=ROWS, kernel="se", learn=False)
    for k in range(3):
        write_dataset(f"{folder}/{k}.zarr", rows_of(k), rows_per_chunk=ROWS)
    gbcm = GBCM.fit(f"{folder}/0.zarr", settings, model=f"{folder}/model")
    with SerialRuntime() as runtime:
        gbcm.ingest(f"{folder}/1.zarr", runtime=runtime)
    snapshot = Snapshot.load(f"{folder}/model")
    first, *others = snapshot.ledger
    snapshot.successor(None, [first, *(replace(one, residuals=None) for one in others)], rewrite=True)
    return folder


@pytest.fixture
def model(folder, tmp_path):
    return Snapshot.load(shutil.copytree(folder / "model", tmp_path / "model").as_posix())


def entry(start, stop, array="/a/X", digest="", **fields):
    fields = {"rows": stop - start, "densities": float(stop - start)} | fields
    return Entry(f"{array}[{start}:{stop}]", digest or f"{start:064x}".replace("0", "f"), **fields)


def compacted(entries, keep, fading=NO_FADING):
    return LedgerCompaction(keep, fading)(Ledger.of(entries))


def test_adjacent_rows_become_one_entry_whatever_their_order():
    order = np.random.default_rng(1).permutation(20)
    entries = [entry(10 * k, 10 * k + 10) for k in order] + [entry(300, 310), entry(310, 320, array="/b/X")]
    found = compacted(entries, 1)
    assert [one.key for one in found] == ["/a/X[0:200]", "/a/X[300:310]", "/b/X[310:320]"]
    assert [one.digest == COMPACTED for one in found] == [True, False, False]
    assert (found.rows, found.compacted_rows) == (220, 200)


@pytest.mark.parametrize("other", [{"query": 1}, {"weight": 0.5}, {"at": "running"}, {"densities": None}])
def test_rows_that_count_in_another_way_stay_apart(other):
    found = compacted([entry(0, 10), entry(10, 20, **other), entry(20, 30)], 1)
    assert [one.key for one in found] == ["/a/X[0:10]", "/a/X[10:20]", "/a/X[20:30]"]
    assert found.compacted_rows == 0


def test_entries_that_predictions_use_stay():
    residuals = ResidualRecord(np.zeros((1, 3)), committee=np.ones(1))
    others = [entry(10 * k, 10 * k + 10) for k in range(2, 7)]
    found = compacted([entry(0, 10, residuals=residuals), entry(10, 20, copy="c" * 64), *others], 1)
    assert [one.key for one in found] == ["/a/X[0:10]", "/a/X[10:20]", "/a/X[20:60]", "/a/X[60:70]"]
    assert [one.compacted for one in found] == [False, False, True, False]
    assert found.find("/a/X[0:10]").residuals is residuals
    assert found.find("/a/X[10:20]").copy == "c" * 64


def test_entries_that_get_residuals_meanwhile_stay():
    """A segment that was read before is read anew when the residual records have changed."""
    entries = [entry(10 * k, 10 * k + 10) for k in range(4)]
    part = replace(Ledger.of(entries).parts[0], digest="d" * 64)
    ledger, compaction = Ledger([part, *Ledger.of([entry(50, 60)]).parts]), LedgerCompaction(1, NO_FADING)
    assert len(compaction(ledger)) == 2
    recorded = replace(entries[1], residuals=ResidualRecord(np.zeros((1, 3)), committee=np.ones(1)))
    found = compaction(Ledger(ledger.parts, {recorded.key: recorded}))
    assert [one.key for one in found] == ["/a/X[10:20]", "/a/X[0:10]", "/a/X[20:40]", "/a/X[50:60]"]
    assert found.opened() is found


def test_again_and_segment_by_segment_is_as_at_once():
    entries = [entry(10 * k, 10 * k + 10) for k in range(30)]
    at_once = compacted(entries, 3)
    ledger = Ledger.of(entries[:7]).extended(entries[7:11])
    ledger = LedgerCompaction(5, NO_FADING)(ledger).extended(entries[11:])
    assert LedgerCompaction(3, NO_FADING)(ledger) == at_once
    assert len(at_once) == 4


def test_densities_count_by_the_weights_of_their_rows():
    fading = Weighting("s", position=400, half_life=30.0)
    entries = [entry(10 * k, 10 * k + 10, position=10 * k + 10) for k in range(20)]
    before = sum(fading.weight(one.position) * one.densities for one in entries)
    after = sum(fading.weight(one.position) * one.densities for one in compacted(entries, 2, fading))
    assert after == pytest.approx(before, rel=1e-13)  # rounding of 20 terms


def test_lookups_in_a_compacted_ledger():
    ledger = compacted([entry(10 * k, 10 * k + 10) for k in range(10)], 2)
    assert all(ledger.holds(f"/a/X[{10 * k}:{10 * k + 10}]") for k in range(10))
    assert ledger.holds("/a/X[15:60]")
    assert not ledger.holds("/a/X[95:105]")
    assert not ledger.holds("/b/X[0:10]")
    assert not ledger.holds("nonsense")
    assert ledger.find("/a/X[10:20]") is None
    assert [one.key for one in ledger.overlapping("/a/X", 75, 85)] == ["/a/X[0:80]", "/a/X[80:90]"]
    assert ledger.rows_twice() is None


def test_entries_in_a_compacted_range_are_not_lost():
    entries = [entry(10 * k, 10 * k + 10) for k in range(10)]
    before, after = Ledger.of(entries), compacted([one for one in entries if one.key != "/a/X[30:40]"], 2)
    assert [one.key for one in before.left_by(after)] == ["/a/X[30:40]"]


def test_the_committee_and_its_predictions_stay(model):
    after = compact(model, 3)
    Z = np.random.default_rng(5).uniform(-2, 2, (20, 2))
    one, other = GBCM.load(model.url, commit=model.commit).predict(Z), GBCM.load(model.url).predict(Z)
    assert after.commit == model.commit + 1
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert (after.ledger.rows, len(model.ledger)) == (model.ledger.rows, 16)
    assert len(after.ledger) < 16
    assert GBCM.load(model.url).info()["log_evidence"] == pytest.approx(GBCM(model).info()["log_evidence"], rel=1e-14)


def test_compacting_twice_commits_once(model):
    after = compact(model, 3)
    assert compact(after, 3).commit == after.commit
    assert compact(after, 100).commit == after.commit


def test_known_rows_are_not_absorbed_again(model, folder):
    compact(model, 3)
    gbcm = GBCM.load(model.url)
    with SerialRuntime() as runtime:
        for k, new in ((0, 0), (1, 0), (2, 8), (2, 0)):
            gbcm, report = gbcm.ingest(f"{folder}/{k}.zarr", runtime=runtime)
            assert (report.partitions, report.duplicates) == (new, 8 - new)
    assert gbcm.snapshot.committee.total.rows == 1200


def test_known_rows_in_other_partitions_are_not_absorbed_again(model, tmp_path):
    rows = rows_of(7, 500)
    with SerialRuntime() as runtime:
        write_dataset(f"{tmp_path}/7.zarr", {name: some[:400] for name, some in rows.items()}, rows_per_chunk=ROWS)
        gbcm, _ = GBCM.load(model.url).ingest(f"{tmp_path}/7.zarr", runtime=runtime)
        entries = [replace(one, residuals=None) for one in gbcm.ledger]
        compact(gbcm.snapshot.successor(None, entries, rewrite=True), 1)
        shutil.rmtree(tmp_path / "7.zarr")
        write_dataset(f"{tmp_path}/7.zarr", rows, rows_per_chunk=130)
        gbcm, report = GBCM.load(model.url).ingest(f"{tmp_path}/7.zarr", runtime=runtime)
    assert gbcm.snapshot.committee.total.rows == 1300
    assert report.rows == 100


def test_compacted_partitions_cannot_be_forgotten(model):
    keys = [one.key for one in model.ledger]
    after = compact(model, 3)
    with SerialRuntime() as runtime:
        whole = next(one.key for one in after.ledger if one.compacted)
        gone = next(key for key in keys if after.ledger.find(key) is None)
        for key in (whole, gone):
            with pytest.raises(DataNotFound, match="of which `prune --keep-ledger` has kept only the range of rows"):
                GBCM.load(model.url).forget([key], runtime=runtime)
        forgotten = GBCM.load(model.url).forget([keys[-1]], runtime=runtime)
    assert forgotten.snapshot.committee.total.rows == 750


def test_commits_of_others_meanwhile_stay(model, folder, monkeypatch):
    committed, other = Snapshot.committed, []

    def after_another(snapshot):
        if snapshot.ledger.compacted_rows and not other:
            other.append(1)
            with SerialRuntime() as runtime:
                GBCM.load(model.url).ingest(f"{folder}/2.zarr", runtime=runtime)
        return committed(snapshot)

    monkeypatch.setattr(Snapshot, "committed", after_another)
    after = compact(model, 3)
    assert (after.committee.total.rows, after.ledger.rows) == (1200, 1200)
    assert other
    assert not any(one.compacted for one in after.ledger[-3:])


def test_an_ingester_goes_on_when_another_process_compacts(model, folder):
    running = GBCM.load(model.url)
    compact(model, 2)
    with SerialRuntime() as runtime:
        gbcm, _ = running.ingest(f"{folder}/2.zarr", runtime=runtime)  # from the commit before
        gbcm, report = gbcm.ingest(f"{folder}/1.zarr", runtime=runtime)
    assert (gbcm.snapshot.committee.total.rows, gbcm.ledger.rows, report.rows) == (1200, 1200, 0)
    assert gbcm.ledger.rows_twice() is None


def test_unknown_keys_are_named(model):
    with SerialRuntime() as runtime, pytest.raises(InvalidOption, match=r"got \['nonsense'\]"):
        GBCM.load(compact(model, 3).url).forget(["nonsense"], runtime=runtime)


def test_a_lease_keeps_what_is_written(model, monkeypatch):
    """Pruning beside a compaction removes none of its blobs."""
    stored = ModelStore.stored

    def pruned_after(store, ledger, **how):
        made = stored(store, ledger, **how)
        store.prune(1)
        return made

    monkeypatch.setattr(ModelStore, "stored", pruned_after)
    assert compact(model, 3).newest().ledger.opened().compacted_rows


def test_a_window_after_compaction_is_refused(model, folder):
    compact(model, 3)
    with SerialRuntime() as runtime, pytest.raises(DataNotFound, match="has kept only the range of rows"):
        GBCM.load(model.url).ingest(f"{folder}/2.zarr", IngestOptions(window=1000), runtime=runtime)


def test_a_window_is_refused(model):
    windowed = model.changed(fading=Weighting("s", 100, None, 1000))
    with pytest.raises(InvalidOption, match="without --window"):
        compact(windowed, 3)
    with pytest.raises(InvalidOption, match="at least 1 partition"):
        compact(model, 0)


@pytest.mark.parametrize("form", [["--json"], []])
def test_the_command_says_what_is_left(model, form):
    done = CliRunner().invoke(cli, ["prune", model.url, "--keep", "1", "--keep-ledger", "3", *form])
    ledger = Snapshot.load(model.url).ledger
    assert done.exit_code == 0, done.output
    assert str(ledger.compacted_rows) in done.stdout
    assert not form or json.loads(done.stdout)["partitions"] == len(ledger)
    assert Snapshot.load(model.url).store.numbers() == [model.commit + 1]
