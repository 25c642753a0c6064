"""Aliases of the commits of a mixture: what such a commit names is kept in all members."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from services import asked

from bcmdist import HMC, Mixture, Settings, sample_posterior
from bcmdist.app.cli.main import cli
from bcmdist.app.model_check import checks_of
from bcmdist.committee.mixture_commits import MixtureLog, commit_log, references
from bcmdist.errors import InvalidOption, ModelNotFound
from bcmdist.storage import aliases
from bcmdist.storage.commits import open_store

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default::bcmdist.errors.BcmdistWarning")]
X_NEW = np.random.default_rng(9).uniform(-2, 2, (12, 2))


@pytest.fixture
def mixture(tmp_path, make_data, rng):
    """A mixture of two samples and four commits, in a directory of models."""
    paths = []
    for k in range(4):
        X = rng.uniform(-2, 2, (60, 2))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
        paths.append(make_data(f"rows{k}.zarr", rows_per_chunk=30, X=X, y=y))
    settings = Settings(partition="chunks", kernel="se", mean="zero", query=15, rows_per_expert=30)
    place = tmp_path / "models" / "mix"
    found = sample_posterior(paths[0], settings, model=place, samples=2, hmc=HMC(iterations=20, burn_in=10))
    for path in paths[1:]:
        found, *_ = found.ingest(path)
    assert found.commit == 4
    return found


def named(store):
    return sorted(name for name, alias in store.aliases().items() if alias)


@pytest.mark.parametrize("commit", [1, 2])
def test_a_commit_is_kept_with_those_of_its_members(mixture, tmp_path, commit):
    url = str(tmp_path / "models" / "mix")
    with Mixture.held(url, commit=commit) as found:
        before = found.predict(X_NEW)
    log = commit_log(url)
    assert isinstance(log, MixtureLog)
    log.set_alias("stable", commit)
    pruned = Mixture.load(url).prune(1)
    assert (pruned["kept"], pruned["removed"]) == ([commit, 4], sorted({1, 2, 3} - {commit}))
    for name in ("stable", str(commit)):
        with Mixture.held(url, commit=name) as found:
            assert found.commit == commit
            np.testing.assert_array_equal(found.predict(X_NEW)["mean"], before["mean"])
    back = Mixture.load(url).revert("stable")
    assert back.commit == 5
    np.testing.assert_allclose(back.predict(X_NEW)["mean"], before["mean"], rtol=1e-10, atol=1e-10)
    log.set_alias("stable")
    assert {name: one.commit for name, one in log.aliases().items()} == {"stable": 5}
    members = [open_store(one.url) for one in references(log.newest())]
    assert [named(store) for store in members] == [["stable.5"]] * 2
    log.remove_alias("stable")
    assert [named(store) for store in members] == [[]] * 2
    assert Mixture.load(url).prune(1)["kept"] == [5]
    assert list(checks_of(url))
    with pytest.raises(ModelNotFound, match=f"expected commit {commit}"), Mixture.held(url, commit=commit):
        pass


def test_an_alias_that_was_not_set_keeps_the_one_before(mixture, tmp_path, monkeypatch):
    """The process ends after members have their aliases."""
    log = commit_log(mixture.predictive.version.url)
    log.set_alias("stable", 2)

    put = aliases.put_alias

    def killed(store, *what):
        if isinstance(store, MixtureLog):
            raise KeyboardInterrupt
        put(store, *what)

    monkeypatch.setattr(aliases, "put_alias", killed)
    with pytest.raises(KeyboardInterrupt):
        log.set_alias("stable", 3)
    monkeypatch.undo()
    assert log.number_of("stable") == 2
    assert mixture.prune(1)["kept"] == [2, 3, 4]
    log.set_alias("stable", 4)
    assert Mixture.load(log.url).prune(1)["kept"] == [4]


def test_what_cannot_be_named(mixture):
    log = commit_log(mixture.predictive.version.url)
    with pytest.raises(InvalidOption, match="at most 40 characters for a mixture, got 41"):
        log.set_alias("x" * 41)
    with pytest.raises(InvalidOption, match="alias: expected at most 50 letters"):
        log.set_alias("-a")
    assert [named(open_store(one.url)) for one in references(log.newest())] == [[], []]
    with pytest.raises(ModelNotFound, match="expected commit 9"):
        log.set_alias("stable", 9)
    with pytest.raises(ModelNotFound, match="aliases: none"):
        log.remove_alias("stable")


def test_by_a_command_and_by_the_service(mixture, tmp_path):
    url = str(tmp_path / "models" / "mix")

    def run(*arguments):
        done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert run("alias", "set", url, "stable", "--at", "2") == {"alias": "stable", "commit": 2}
    assert run("alias", "list", url) == {"aliases": {"stable": 2}}
    with asked(tmp_path / "models") as client:
        answer = client.request("PUT", "/models/mix/aliases/best", json={"commit": 3})
        assert answer.json()["aliases"] == {"best": 3, "stable": 2}
        body = {"X": X_NEW.tolist()}
        for alias, number in (("stable", 2), ("best", 3)):
            one = client.post(f"/models/mix/predict?commit={alias}", json=body).json()
            other = client.post(f"/models/mix/predict?commit={number}", json=body).json()
            assert one["predictions"] == other["predictions"]
            assert one["commit"] == other["commit"]
        assert client.request("DELETE", "/models/mix/aliases/best").json()["aliases"] == {"stable": 2}
    assert run("alias", "remove", url, "stable") == {"removed": "stable"}
