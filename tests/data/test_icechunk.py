"""Repositories of Icechunk: data sets at a snapshot, and branches as sources."""

import json
import sys

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.data.icechunk import Repository, _opened
from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.data.sources.open import open_source
from bcmdist.errors import BcmdistWarning, DataChanged, DataNotFound, InvalidOption, MissingExtra
from bcmdist.testing import check_source

pytest.importorskip("icechunk", reason="Icechunk: pip install 'bcmdist[icechunk]'")

from icechunk_data import append, new_repository

SIZE = 100
SETTINGS = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=SIZE, learn=False)


@pytest.fixture
def repository(tmp_path):
    return new_repository(tmp_path / "repository")


@pytest.fixture
def url(tmp_path, repository):
    return f"icechunk://{tmp_path}/repository"


@pytest.fixture
def prepared(wave, tmp_path):
    return GBCM.prepare(wave[0], SETTINGS, model=tmp_path / "model")


def ingest(gbcm, url, **options):
    return gbcm.ingest(gbcm.source(url), IngestOptions(**options))


def rewrite(repository, row, value=9.0, name="y"):
    session = repository.writable_session("main")
    zarr.open_group(session.store, mode="r+")[name][row] = value
    return session.commit("other values")


def test_conformance(prepared, repository, url, wave):
    for rows in (slice(0, 130), slice(130, 140), slice(140, 240)):
        append(repository, wave[1][rows], wave[2][rows])
    check_source(lambda: prepared.source(url))


def test_snapshots_name_the_rows_that_they_add(prepared, repository, url, wave):
    _, X, y = wave
    first, second = append(repository, X[:130], y[:130]), append(repository, X[130:140], y[130:140])
    after, report = ingest(prepared, url)
    keys = [f"{url}?snapshot={first}/X[0:100]", f"{url}?snapshot={first}/X[100:130]"]
    keys += [f"{url}?snapshot={second}/X[130:140]"]
    assert sorted(entry.key for entry in after.ledger) == sorted(keys)
    assert after.offsets == {url: {"snapshot": second, "row": 140, "more": False}}
    ((_, rows),) = read_all([from_key(keys[1], y="y")])
    np.testing.assert_array_equal(rows.X, X[100:130])
    assert ingest(after, url)[1].rows == 0
    third = append(repository, X[140:], y[140:])
    watching = after.source(url, watch=True)
    found = [part.key for one in watching.read(after.offsets[url], 9) for part in one.parts]
    assert found == [f"{url}?snapshot={third}/X[140:200]", f"{url}?snapshot={third}/X[200:240]"]
    assert watching.lag(after.offsets[url]) == 1
    after, report = ingest(after, url)
    assert (report.rows, report.duplicates) == (100, 3)
    assert watching.read(after.offsets[url], 9) == []


def test_rows_of_a_fit_are_not_absorbed_again(repository, url, wave, tmp_path):
    """They have the name of the snapshot that was newest then."""
    _, X, y = wave
    append(repository, X[:70], y[:70])
    second = append(repository, X[70:200], y[70:200])
    gbcm = GBCM.fit(url, SETTINGS, model=tmp_path / "fitted")
    assert {entry.key.partition("/X[")[0] for entry in gbcm.ledger} == {f"{url}?snapshot={second}"}
    assert ingest(gbcm, url)[1].rows == 0
    append(repository, X[200:], y[200:])
    after, report = ingest(gbcm, url)
    assert (report.rows, after.committee.total.rows) == (40, 240)
    assert ingest(after, url)[1].rows == 0


def test_groups_and_branches(prepared, repository, url, wave):
    _, X, y = wave
    first = append(repository, X[:100], y[:100], group="sea/north")
    repository.create_branch("trial", first)
    append(repository, X[100:200], y[100:200], group="sea/north", branch="trial")
    assert prepared.source(f"{url}?group=sea/north").lag(None) == 1
    after, report = ingest(prepared, f"{url}?group=sea/north&branch=trial")
    assert report.rows == 200
    assert open_data(f"{url}?branch=trial&group=sea/north").url.startswith(f"{url}?group=sea/north&snapshot=")
    with pytest.raises(InvalidOption, match=r"expected the branch that the model has absorbed, .*branch=trial, got"):
        ingest(after, f"{url}?group=sea/north")  # whose rows the other branch has, too


def test_rows_that_a_later_snapshot_changes(prepared, repository, url, wave):
    first = append(repository, wave[1][:130], wave[2][:130])
    after, _ = ingest(prepared, url)
    session = repository.writable_session("main")
    y = zarr.open_group(session.store, mode="r+")["y"]
    y[7] = y[7]  # the same value
    same = session.commit("nothing new")
    assert ingest(after, url)[1].rows == 0
    other = rewrite(repository, 7)
    text = f"expected rows 0 to 49 of y as in the snapshot {same}, which was read, {other} has others; append rows only"
    with pytest.raises(DataChanged, match=text):
        ingest(after, url)
    with pytest.raises(DataChanged, match=text):
        after.source(url, watch=True).read(after.offsets[url], 1)
    key = f"{url}?snapshot={first}/X[0:100]"
    assert after.forget([key]).committee.total.rows == 30  # the rows as they were


def test_a_branch_that_was_reset(prepared, repository, url, wave):
    first = append(repository, wave[1][:100], wave[2][:100])
    second = append(repository, wave[1][100:200], wave[2][100:200])
    after, _ = ingest(prepared, url)
    repository.reset_branch("main", first)
    append(repository, wave[1][:150], wave[2][:150])
    with pytest.raises(
        DataChanged, match=rf"expected the snapshot {second}, which was read, in the history of its branch"
    ):
        after.source(url, watch=True).read(after.offsets[url], 1)


def test_snapshots_that_have_expired(prepared, repository, url, wave):
    _, X, y = wave
    append(repository, X[:100], y[:100])
    after, _ = ingest(prepared, url)
    append(repository, X[100:200], y[100:200])
    after, _ = ingest(after, url)
    newest = repository.lookup_snapshot(after.offsets[url]["snapshot"]).written_at
    assert repository.expire_snapshots(older_than=newest)
    append(repository, X[200:], y[200:])
    _opened.cache_clear()  # as in another process
    with pytest.warns(
        BcmdistWarning, match="1 absorbed snapshots are not kept any more: their rows cannot be compared"
    ):
        after, report = ingest(after, url)
    assert (report.rows, after.committee.total.rows) == (40, 240)


@pytest.mark.parametrize(
    "url", ["icechunk://", "icechunk+gs://bucket/a", "icechunk:///a?tag=v1", "icechunk+s3://me:secret@bucket/a"]
)
def test_urls(url):
    with pytest.raises(InvalidOption, match=r"expected icechunk:///PATH or icechunk.s3://BUCKET/PREFIX") as raised:
        Repository.of(url)
    assert "secret" not in str(raised.value)


def test_what_is_no_source(repository, url, wave, tmp_path, monkeypatch):
    def opened(url, **options):
        return open_source(url, rows_per_expert=SIZE, watch=False, **options)

    with pytest.raises(DataNotFound, match=r"expected a Zarr group at .*repository.snapshot="):
        opened(url)
    snapshot = append(repository, wave[1], wave[2])
    with pytest.raises(DataNotFound, match="expected an array 'target', found"):
        opened(url, y="target")
    with pytest.raises(DataNotFound, match=r"with this branch or snapshot, got: ref not found `trial`"):
        opened(f"{url}?branch=trial")
    with pytest.raises(DataNotFound, match=r"with this branch or snapshot, got: .*snapshot"):
        open_data(f"{url}?snapshot=ZZZZZZZZZZZZZZZZZZZ0")
    with pytest.raises(DataNotFound, match=r"expected a repository of Icechunk at .*/none, found none"):
        opened(f"icechunk://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidOption, match="expected a branch, without --trim and snapshot"):
        opened(f"{url}?snapshot={snapshot}")
    monkeypatch.setitem(sys.modules, "icechunk", None)
    _opened.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[icechunk\]'"):
        opened(url)


def test_commands(repository, url, wave, tmp_path, prepared):
    """Nothing but JSON is on stdout."""
    append(repository, wave[1], wave[2])
    for command in (["ingest", prepared.url, url, "--serial"], ["score", prepared.url, url, "--serial"]):
        done = CliRunner().invoke(cli, [*command, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == 240
