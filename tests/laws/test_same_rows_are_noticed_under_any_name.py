"""The same rows under another name: said by default, refused or allowed on request, in one model or in one run."""

import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.row_ranges import Contents
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, SameRows
from bcmdist.storage.entry import Entry
from problems import assert_same_committee

GIVEN = Settings(partition="chunks", kernel="se", learn=False, query=10, rows_per_expert=20)


@pytest.fixture
def absorbed(wave, make_data, tmp_path):
    """A model that has absorbed 80 rows in 4 partitions, and the path of a copy of them."""
    _, X, y = wave
    path = make_data("day.zarr", rows_per_chunk=20, X=X[:80], y=y[:80])
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    shutil.copytree(path, tmp_path / "again.zarr")
    return gbcm, str(tmp_path / "again.zarr")


SAID = r"4 partitions .*/again\.zarr/X\[0:20\], .*/day\.zarr/X\[0:20\]"


def test_a_copy_is_said_once(absorbed):
    gbcm, copy = absorbed
    with pytest.warns(BcmdistWarning, match=SAID) as told:
        after, tally = gbcm.ingest(gbcm.source(copy), IngestOptions(commit_every=1))
    assert len(told) == 1
    assert (tally.partitions, tally.same_rows, len(after.ledger)) == (4, 4, 8)


@pytest.mark.parametrize("how", ["link", "rename"])
def test_other_paths_to_the_same_rows(absorbed, tmp_path, how):
    gbcm, copy = absorbed
    if how == "link":
        (tmp_path / "other.zarr").symlink_to(copy)
    else:
        shutil.move(tmp_path / "day.zarr", tmp_path / "other.zarr")
    with pytest.warns(BcmdistWarning, match=r"4 partitions .*/other\.zarr/X\[0:20\], .*/day\.zarr/X\[0:20\]"):
        gbcm.partial_fit(tmp_path / "other.zarr")


@pytest.mark.slow
def test_a_copy_that_is_allowed_counts_twice_in_silence(absorbed):
    gbcm, copy = absorbed
    after, tally = gbcm.ingest(gbcm.source(copy), IngestOptions(same_rows="allow"))
    assert (tally.same_rows, after.committee.total.rows) == (4, 160)
    assert gbcm.partial_fit(copy, same_rows="allow").committee.total.rows == 160


@pytest.mark.slow
def test_a_copy_that_is_refused_is_not_heard(absorbed):
    gbcm, copy = absorbed
    with pytest.raises(SameRows, match=r"again\.zarr/X\[0:20\]: expected .*/day\.zarr/X\[0:20\]; .*--same-rows allow"):
        gbcm.partial_fit(copy, same_rows="refuse")
    assert issubclass(SameRows, InvalidData)
    assert_same_committee(GBCM.load(gbcm.url).committee, gbcm.committee)
    with recorded(copy) as group:
        group["y"][70] += 1.0  # a new last partition among old ones
    after, tally = gbcm.ingest(gbcm.source(copy), IngestOptions(same_rows="refuse", skip=True))
    assert (tally.partitions, tally.same_rows, len(tally.skipped)) == (1, 3, 3)
    assert [entry.key.rpartition("[")[2] for entry in after.ledger[4:]] == ["60:80]"]
    assert after.committee.total.rows == 100


def test_absorbing_looks_at_the_rows_too(absorbed):
    gbcm, copy = absorbed
    parts = partitions(open_data(copy), 20)
    with pytest.raises(SameRows, match="expected rows that were not absorbed"):
        gbcm.absorb(parts[1:2], same_rows="refuse")
    with pytest.warns(BcmdistWarning, match=r"1 partition .*/again\.zarr/X\[20:40\], .*/day\.zarr/X\[20:40\]"):
        gbcm.absorb(parts[1:2])


@pytest.mark.slow
def test_twins_in_one_source(absorbed, wave, tmp_path):
    gbcm, _ = absorbed
    X, y = (column[80:100] for column in wave[1:])
    for name in "ab":
        write_dataset(tmp_path / "days" / name, {"X": X, "y": y}, rows_per_chunk=20)
    with pytest.raises(SameRows, match=r"days/b/X\[0:20\]: expected .*/days/a/X\[0:20\]"):
        gbcm.ingest(gbcm.source(tmp_path / "days"), IngestOptions(same_rows="refuse"))
    assert len(GBCM.load(gbcm.url).ledger) == 5


@pytest.mark.slow
def test_rows_that_somebody_else_hears_meanwhile_from_a_copy(absorbed, wave, tmp_path, monkeypatch):
    gbcm, _ = absorbed
    X, y = (column[80:120] for column in wave[1:])
    for name in ("one.zarr", "two.zarr"):
        write_dataset(tmp_path / name, {"X": X, "y": y}, rows_per_chunk=20)
    committed, tries = Snapshot.committed, [1]

    def slow(self):
        if tries:
            tries.clear()
            newest = GBCM.load(gbcm.url)
            newest.ingest(newest.source(tmp_path / "two.zarr"), IngestOptions(max_partitions=1))
        return committed(self)

    monkeypatch.setattr(Snapshot, "committed", slow)
    with pytest.raises(SameRows, match=r"one\.zarr/X\[0:20\]: expected .*/two\.zarr/X\[0:20\]"):
        gbcm.ingest(gbcm.source(tmp_path / "one.zarr"), IngestOptions(same_rows="refuse"))
    keys = [entry.key.rpartition("/")[0].rpartition("/")[2] for entry in GBCM.load(gbcm.url).ledger[4:]]
    assert sorted(keys) == ["one.zarr", "two.zarr"]  # the other half of each


@pytest.mark.slow
def test_one_by_one_as_well(wave, make_data, tmp_path):
    _, X, y = wave
    path = make_data("day.zarr", rows_per_chunk=20, X=X[:40], y=y[:40])
    gbcm = GBCM.fit(path, replace(GIVEN, linearise="running"), model=tmp_path / "model")
    gbcm = gbcm.partial_fit(path)
    shutil.copytree(path, tmp_path / "again.zarr")
    with pytest.raises(SameRows, match="expected rows that were not absorbed"):
        gbcm.partial_fit(tmp_path / "again.zarr", same_rows="refuse")
    assert len(GBCM.load(gbcm.url).ledger) == 2
    with pytest.warns(BcmdistWarning, match="2 partitions"):
        assert gbcm.partial_fit(tmp_path / "again.zarr").committee.total.rows == 80


@pytest.mark.slow
def test_rows_heard_in_cells_are_known_as_they_were_stored(wave, make_data, tmp_path):
    _, X, y = wave
    path = make_data("day.zarr", rows_per_chunk=20, X=X[:80], y=y[:80])
    gbcm = GBCM.fit(path, replace(GIVEN, partition="spatial"), model=tmp_path / "model")
    shutil.copytree(path, tmp_path / "again.zarr")
    with pytest.warns(BcmdistWarning, match=SAID):
        gbcm.partial_fit(tmp_path / "again.zarr")


def test_prepared_rows_are_heard_in_silence(wave, make_data, tmp_path):
    _, X, y = wave
    path = make_data("day.zarr", rows_per_chunk=20, X=X[:80], y=y[:80])
    gbcm = GBCM.prepare(path, GIVEN, model=tmp_path / "model")
    _, tally = gbcm.ingest(gbcm.source(path))
    assert (tally.partitions, tally.same_rows) == (4, 0)


def test_wishes_name_what_to_do_with_the_same_rows():
    with pytest.raises(InvalidOption, match=r"--same-rows: expected one of warn, refuse, allow, got 'often'"):
        IngestOptions(same_rows="often")


def test_on_the_command_line(absorbed):
    gbcm, copy = absorbed
    command = ["ingest", gbcm.url, copy, "--serial", "--json"]
    refused = CliRunner().invoke(cli, [*command, "--same-rows", "refuse"])
    assert refused.exit_code == 1
    assert "SameRows" in refused.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0
    assert said.stderr.count("warning: 4 partitions hold the same rows") == said.stderr.count("warning") == 1
    assert '"same_rows": 4' in said.stdout


def test_partitions_of_other_rows_are_nobodys_twins(absorbed, wave, make_data):
    gbcm, _ = absorbed
    other = make_data("other.zarr", rows_per_chunk=20, X=wave[1][80:120], y=wave[2][80:120])
    _, tally = gbcm.ingest(gbcm.source(other), IngestOptions(same_rows="refuse"))
    assert (tally.partitions, tally.same_rows) == (2, 0)


@pytest.fixture
def repeated(wave, make_data, tmp_path):
    """A model of other rows, and the path of 160 rows of 8 partitions, of which the last one repeats the first one."""
    _, X, y = wave
    gbcm = GBCM.fit(make_data("old.zarr", rows_per_chunk=20, X=X[140:], y=y[140:]), GIVEN, model=tmp_path / "model")
    X, y = (np.concatenate([column[:140], column[:20]]) for column in (X, y))
    return gbcm, make_data("repeated.zarr", rows_per_chunk=20, X=X, y=y)


@pytest.mark.slow
@pytest.mark.parametrize("commit_every", [1, None])
@pytest.mark.parametrize("how", ["warn", "refuse"])
def test_rows_that_a_window_has_let_go_may_come_again(repeated, commit_every, how):
    gbcm, path = repeated
    wishes = IngestOptions(window=45, commit_every=commit_every, same_rows=how, skip=True)
    after, tally = gbcm.ingest(gbcm.source(path), wishes)  # a warning would be an error
    assert (tally.same_rows, tally.skipped) == (0, [])
    assert [entry.key.rpartition("[")[2] for entry in after.ledger] == ["100:120]", "120:140]", "140:160]"]


@pytest.mark.slow
def test_rows_that_a_window_still_holds_count_twice(repeated):
    gbcm, path = repeated
    with pytest.warns(BcmdistWarning, match=r"1 partition holds .*X\[140:160\], which equals .*X\[0:20\]"):
        gbcm.ingest(gbcm.source(path), IngestOptions(window=145, commit_every=1))


def test_of_rows_heard_twice_the_window_lets_one_go_first():
    first, second, third = (Entry(key, "same", 20, position=at) for key, at in (("a", 20), ("b", 80), ("c", 100)))
    contents = Contents([first, second])
    assert contents.twins([third], expired=Weighting("s", 100, window=60).expired) == {"c": "b"}
    assert contents.twins([third], expired=Weighting("s", 100, window=20).expired) == {}
    late = replace(third, key="late", position=10)
    assert contents.twins([late], expired=Weighting("s", 100, window=60).expired) == {}
