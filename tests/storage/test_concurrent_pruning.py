"""Somebody commits and prunes between the look at what is newest and the hold of it: the newest is taken again."""

import json

import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.errors import ModelNotFound
from bcmdist.storage.commits import ModelStore, open_store

GIVEN = Settings(partition="chunks", kernel="se", query=10, rows_per_expert=60, learn=False)


@pytest.fixture
def overtaken(wave, make_data, tmp_path, monkeypatch):
    """A model, and a function after which the next hold comes too late, so many times; further rows; who counts."""
    path, X, y = wave
    model = str(tmp_path / "model")
    GBCM.fit(path, GIVEN, model=model)
    before, left = ModelStore.hold, []

    def hold(store, number):
        if left and number:
            left.pop()
            newest = store.load()
            for after in (newest.number + 1, newest.number + 2):
                named = {**store.record(newest.number)["arrays"]}
                store.commit(after, arrays=named, facts=newest.facts, segments=newest.ledger.digests, offsets={})
            store.prune(1)
        return before(store, number)

    monkeypatch.setattr(ModelStore, "hold", hold)
    more = make_data("more.zarr", X=X + 0.1, y=y)
    return model, lambda times: left.extend(range(times)), more


@pytest.mark.parametrize(
    "command",
    [
        lambda model, more, out: ["ingest", model, more, "--serial"],
        lambda model, more, out: ["predict", model, more, "--out", out, "--serial"],
        lambda model, more, out: ["score", model, more, "--serial"],
        lambda model, more, out: ["info", model],
    ],
)
def test_a_command_goes_on_from_the_newest(overtaken, tmp_path, command):
    model, overtake, more = overtaken
    overtake(2)
    said = CliRunner().invoke(cli, [*command(model, more, str(tmp_path / "out.zarr")), "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.output.strip().splitlines()[-1])["rows"] in (240, 480)
    assert open_store(model).head() >= 6
    assert open_store(model).storage.names("holds") == []


def test_who_writes_goes_on_from_the_newest(overtaken):
    model, overtake, more = overtaken
    gbcm = GBCM.load(model)
    overtake(1)
    after = gbcm.partial_fit(more)
    assert (after.commit, after.committee.total.rows) == (5, 480)


def test_who_reads_an_immutable_committee_is_told(overtaken, tmp_path):
    model, overtake, more = overtaken
    gbcm = GBCM.load(model)
    overtake(1)
    with pytest.raises(ModelNotFound, match="expected commit 2, found it pruned; load a later one"):
        gbcm.predict_zarr(more, tmp_path / "out.zarr")
    with GBCM.held(model) as newest:
        open_store(model).prune(1)
        assert newest.predict_zarr(more, tmp_path / "out.zarr") == 240


def test_a_named_commit_is_that_or_none(overtaken):
    model, overtake, _ = overtaken
    overtake(1)
    with pytest.raises(ModelNotFound, match="expected commit 2"), GBCM.held(model, commit=2):
        pass
    with pytest.raises(ModelNotFound, match="expected a model directory"), GBCM.held(f"{model}-none"):
        pass
