"""A fit whose query points grow by rows that they do not explain, whatever the runtime, and after interrupts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption
from problems import assert_as_in_its_ledger, assert_same_committee

FIXED = Settings(
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.4, "likelihood.noise_variance": 0.01},
    query=40,
    query_method="random",
    rows_per_expert=100,
    partition="chunks",
)
GROWING = replace(FIXED, grow=True)
COMMON, RARE = 1970, 30


def truth(X):
    return np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1])


def far_away(rng, count):
    return rng.uniform(8, 9, (count, 2))


@pytest.fixture
def rare(make_data, rng):
    """Rows of one place, and in the last partition a cluster of rows far away; the random query points have none."""
    X = np.concatenate([rng.uniform(-2, 2, (COMMON, 2)), far_away(rng, RARE)])
    return make_data("rare.zarr", rows_per_chunk=100, X=X, y=truth(X) + 0.05 * rng.standard_normal(len(X)))


def error(gbcm, X):
    return np.sqrt(np.mean((gbcm.predict(X, method="committee")["mean"] - truth(X)) ** 2))


def assert_same(one, other):
    """Equal up to rounding, with the same query points, of the same query sets."""
    np.testing.assert_allclose(one.model.shared.points, other.model.shared.points, rtol=1e-10, atol=1e-12)
    assert_same_committee(one.committee, other.committee)
    assert {e.key: e.query for e in one.ledger} == {e.key: e.query for e in other.ledger}


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_rows_that_the_sample_lacks_are_predicted(rare, rng, tmp_path, partition):
    how = {"partition": partition}
    plain = GBCM.fit(rare, replace(FIXED, **how), model=tmp_path / "plain")
    grown = GBCM.fit(rare, replace(GROWING, **how), model=tmp_path / "grown")
    assert plain.model.shared.functions == 40 < grown.model.shared.functions
    assert grown.committee.total.rows == COMMON + RARE
    X, near = far_away(rng, 200), rng.uniform(-2, 2, (200, 2))
    assert error(grown, X) < 0.4 * error(plain, X)
    assert error(grown, near) < 1.1 * error(plain, near)
    assert grown.info()["capacity"] == {
        "points": grown.model.shared.functions, "first": 40, "sets": len(grown.model.earlier) + 1, "most": 1000
    }  # fmt: skip
    assert_as_in_its_ledger(grown)
    assert grown.predict(X)["mean"].shape == (200,)


class Dying(SerialRuntime):
    """Is interrupted after so many outcomes of experts, of four partitions each."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def each(self, work, *, label):
        for outcome in super().each(work, label=label):
            self.most -= label == "experts"
            if self.most < 0:
                raise KeyboardInterrupt
            yield outcome


@pytest.mark.parametrize("most", [0, 2, 4])
@pytest.mark.parametrize("share", [None, 0.3])
def test_the_same_fit_goes_on_after_an_interrupt(rare, tmp_path, most, share):
    settings = replace(GROWING, grow_share=share)
    expected = GBCM.fit(rare, settings, model=tmp_path / "expected")
    with pytest.raises(KeyboardInterrupt):
        GBCM.fit(rare, settings, model=tmp_path / "model", runtime=Dying(most))
    before = GBCM.load(tmp_path / "model")
    assert len(before.ledger) <= 4 * most
    found = GBCM.fit(rare, settings, model=tmp_path / "model")
    assert len(found.ledger) == 20
    assert_same(found, expected)


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_a_cluster_grows_the_same(rare, tmp_path, cluster, partition):
    settings = replace(GROWING, partition=partition)
    one, other = (GBCM.fit(rare, settings, model=tmp_path / str(k), runtime=r) for k, r in enumerate([None, cluster]))
    np.testing.assert_allclose(one.model.shared.points, other.model.shared.points, rtol=1e-10, atol=1e-12)
    assert_same_committee(one.committee, other.committee)
    assert [e.query for e in one.ledger] == [e.query for e in other.ledger]


def test_further_passes_are_about_all_points(rare, tmp_path):
    settings = replace(GROWING, likelihood="student_t", set={"kernel.lengthscale": 0.4}, passes="auto")
    found = GBCM.fit(rare, settings, model=tmp_path / "model")
    assert {entry.query for entry in found.ledger} == {len(found.model.earlier)}
    assert found.model.shared.functions > 40


def test_the_command_with_a_limit(rare, tmp_path):
    options = ["--kernel", "se", "--no-learn", "--set", "kernel.lengthscale=0.4", "--query-method", "random", "--json"]
    options += ["--query", "40", "--rows-per-expert", "100", "--partition", "chunks", "--serial", "--grow"]
    done = CliRunner().invoke(cli, ["fit", rare, "--model", str(tmp_path / "m"), *options, "--query-most", "42"])
    assert json.loads(done.stdout)["query"] == 42
    assert GBCM.load(tmp_path / "m").info()["capacity"]["most"] == 42


def test_the_first_query_points_are_within_the_limit(rare, tmp_path):
    found = GBCM.fit(rare, replace(GROWING, query=None, query_most=30), model=tmp_path / "model")
    assert found.model.shared.functions == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expert": "fourier"}, "grow: expected query points of exact inputs, that can be added to, got the expert f"),
        ({"expert": "rvm"}, "got the expert rvm; leave it out, or take --expert bcm"),
        ({"noisy_inputs": "clean"}, "grow: expected query points of exact inputs"),
        ({"approximation": "ep", "likelihood": "student_t"}, "got --approximation ep and --linearise own, whose mess"),
        ({"linearise": "running", "likelihood": "student_t"}, "got --approximation laplace and --linearise running"),
        ({"grow": False, "query_most": 50}, "query_most: expected query_most with --grow, got 50 without it"),
        ({"grow": False, "grow_share": 0.1}, "grow_share: expected grow_share with --grow, got 0.1 without it"),
        ({"query": 50, "query_most": 40}, "query_most: expected at least the 50 query points of --query, got 40"),
    ],
)
def test_what_cannot_grow_is_refused_before_any_work(options, message):
    with pytest.raises(InvalidOption, match=message):
        Settings(**({"grow": True} | options))


def test_a_prepared_fit_does_not_grow(rare, tmp_path):
    command = ["fit", rare, "--model", str(tmp_path / "m"), "--grow", "--prepare-only"]
    done = CliRunner().invoke(cli, command)
    assert "--grow: expected a fit that absorbs rows, got --prepare-only" in done.stderr
    assert not (tmp_path / "m").exists()
