"""A level that training did not have is as uncertain as levels differ: random effects say by how much."""

import functools

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning

LEVELS = tuple(f"s{k:02}" for k in range(12))
SCATTER, NOISE, EACH = 2.5, 0.3, 25


def coded(x, site, coding):
    columns = {"x": x, "site": np.asarray(site)}
    return coding.numbers({name: of_numpy(name, values) for name, values in columns.items()}, "rows")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Models of rows of sites, by mean and scatter: each is fitted once."""
    return functools.cache(functools.partial(fitted, tmp_path_factory))


@pytest.fixture(params=[("constant", 0.5), ("linear", 0.5), ("linear", 2.5)], ids=str)
def sites(request, made):
    """A model, its coding, its rows, and the scatter."""
    return made(*request.param)


@pytest.fixture
def linear(made):
    """The same, of a model whose linear mean has the effects of sites."""
    return made("linear", 2.5)


def fitted(tmp_path_factory, mean, scatter):
    """Twelve sites, as many rows of each, whose means have this standard deviation."""
    rng = np.random.default_rng(7)
    site = np.repeat(np.arange(len(LEVELS)), EACH)
    x = rng.uniform(-2, 2, len(site))
    effect = rng.standard_normal(len(LEVELS))
    effect = scatter * (effect - effect.mean()) / effect.std(ddof=1)
    y = 10.0 + np.sin(2 * x) + effect[site] + NOISE * rng.standard_normal(len(site))
    coding = Coding((Number("x"), Category("site", LEVELS)), unseen="other")
    X = coded(x, np.array(LEVELS)[site], coding)
    path = tmp_path_factory.mktemp("sites") / "t.zarr"
    write_dataset(path, {"X": X, "y": y}, rows_per_chunk=100, schema=Schema(coding.inputs, (), coding))
    model = GBCM.fit(
        path, Settings(partition="chunks", kernel="se", mean=mean, effort="quick", query=60, rows_per_expert=100)
    )
    return model, coding, (x, site, y), scatter


def predictive_sd(x, site, y):
    """Of the mean of a further site, by the analysis of variance of a balanced random-effects model (Searle 1971),
    with sin(2x) and its slope known to be the rest."""
    rest = y - np.sin(2 * x)
    means = np.array([rest[site == k].mean() for k in range(len(LEVELS))])
    within = np.mean([rest[site == k].var(ddof=1) for k in range(len(LEVELS))])
    between = means.var(ddof=1) - within / EACH
    return np.sqrt(between * (1.0 + 1.0 / len(LEVELS)) + within / (EACH * len(LEVELS)))


def test_a_further_level_is_as_uncertain_as_random_effects_say(sites):
    model, coding, rows, scatter = sites
    x = np.linspace(-1.5, 1.5, 9)
    said = model.predict(coded(x, ["new"] * len(x), coding))
    expected = predictive_sd(*rows)
    assert expected == pytest.approx(scatter, rel=0.15)
    np.testing.assert_allclose(np.sqrt(said["variance"]), expected, rtol=0.15)
    np.testing.assert_allclose(said["mean"], 10.0 + np.sin(2 * x), atol=0.4)


def test_it_is_a_draw_from_the_known_levels(linear):
    """The law of total variance, written out over predictions at each of them."""
    model, coding, *_ = linear
    x = np.linspace(-1.5, 1.5, 5)
    known = [model.predict(coded(x, [level] * len(x), coding)) for level in LEVELS]
    means, variances = (np.array([one[name] for one in known]) for name in ("mean", "variance"))
    said = model.predict(coded(x, ["new"] * len(x), coding))
    np.testing.assert_allclose(said["mean"], means.mean(axis=0), rtol=1e-9)
    spread = means.var(axis=0, ddof=1) * (1.0 + 1.0 / len(LEVELS))
    np.testing.assert_allclose(said["variance"], variances.mean(axis=0) + spread, rtol=1e-9)


def test_known_levels_beside_it_are_predicted_as_before(sites):
    model, coding, *_ = sites
    x, level = np.linspace(-1.5, 1.5, 6), ["s00", "new", "s05", "new", "s11", "other"]
    together = model.predict(coded(x, level, coding))
    for k in range(6):
        alone = model.predict(coded(x[k : k + 1], level[k : k + 1], coding))
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][k], value[0], rtol=1e-9, err_msg=name)


def test_scores_and_predictions_agree(linear, tmp_path):
    model, coding, (x, _, y), _ = linear
    X = coded(x[:20], ["new"] * 20, coding)
    said = model.predict(X)
    write_dataset(tmp_path / "s.zarr", {"X": X, "y": y[:20]}, schema=Schema(coding.inputs, (), coding))
    found = model.score(tmp_path / "s.zarr")
    error, variance = y[:20] - said["observation_mean"], said["observation_variance"]
    assert found["mnlp"] == pytest.approx(
        np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * error**2 / variance), abs=0.1
    )


def test_uncertain_inputs_are_averaged_over_as_well(linear):
    model, coding, *_ = linear
    X = coded(np.linspace(-1.5, 1.5, 5), ["new"] * 5, coding)
    nearly, plain = model.predict(X, X_variance=np.full(X.shape, 1e-12)), model.predict(X)
    np.testing.assert_allclose(nearly["variance"], plain["variance"], rtol=1e-4)


def test_rows_of_such_levels_that_were_absorbed_count(linear, tmp_path):
    """Once rows of levels that training did not have have been ingested, they are better than a draw."""
    model, coding, (x, _, _), _ = linear
    X = coded(x[:100], ["new"] * 100, coding)
    y = 20.0 + np.sin(2 * x[:100])
    write_dataset(tmp_path / "n.zarr", {"X": X, "y": y}, rows_per_chunk=100, schema=Schema(coding.inputs, (), coding))
    with pytest.warns(BcmdistWarning, match="far worse than expected"):
        more = model.save(tmp_path / "copy").partial_fit(tmp_path / "n.zarr")
    said = more.predict(X[:9])
    np.testing.assert_allclose(said["mean"], y[:9], atol=1.0)
    assert said["variance"].max() < 0.5
