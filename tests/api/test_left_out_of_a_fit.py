"""Rows left out at the end of a fit: the loss of the model beside that of baselines, and what is said about it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api.advice import advice, advised
from bcmdist.app.cli.main import cli

QUICK = {"learn": False, "kernel": "se", "query": 100, "rows_per_expert": 100}
TREES = "boosted trees learned from"


def with_facts(model, **facts):
    return replace(model.snapshot, facts=model.snapshot.facts.changed(**facts))


def thresholds(rng, rows, *, classes=False):
    """Forty skewed columns, mostly zero, of which two count by an exclusive or of thresholds."""
    X = np.exp(1.5 * rng.standard_normal((rows, 40))) * (rng.random((rows, 40)) < 0.3)
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(float)
    return X, y if classes else 3.0 * y + 0.1 * rng.standard_normal(rows)


def test_it_is_the_loss_of_rows_predicted_from_all_others(rng):
    """One expert with query points at all rows is a Gaussian process, whose leave-one-out errors are known."""
    X = rng.uniform(-2, 2, (90, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(90)
    given = {"kernel.variance": 1.0, "kernel.lengthscale": 0.8, "likelihood.noise_variance": 0.1}
    how = {"mean": "zero", "partition": "chunks", "query": 90, "set": given, "target_transform": "none"}
    model = GBCM.fit((X, y), Settings(**QUICK | how))
    Z = model.model.scaling.inputs(X)
    C = model.model.shared.kernel.cross(Z, Z) + 0.1 * np.eye(90)
    precision = np.linalg.inv(C)
    errors = precision @ (y - y.mean()) / np.diag(precision)
    found = model.snapshot.facts.errors.accuracy
    assert (found.rows, found.absorbed, found.loss) == (90, 90, "rmse")
    assert found.model == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-3)
    assert found.learned_from < 90
    assert found.baselines["mean"] == pytest.approx(y.std(), rel=0.05)
    assert found.baselines.keys() == {"mean", "linear least squares", "nearest neighbours", "boosted trees"}


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
@pytest.mark.parametrize(
    ("task", "classes", "loss"),
    [
        ("regression", 0, "rmse"),
        ("classification", 2, "log_loss"),
        ("classification", 3, "log_loss"),
        ("counts", 0, "deviance"),
    ],
)
def test_every_family_says_it(rng, partition, task, classes, loss):
    X = rng.uniform(-2, 2, (300, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = {
        "regression": f,
        "classification": np.digitize(f, np.linspace(-1, 1, classes + 1)[1:-1]),
        "counts": rng.poisson(np.exp(f)),
    }
    model = GBCM.fit((X, y[task].astype(float)), Settings(**QUICK, task=task, partition=partition))
    found = model.snapshot.facts.errors.accuracy
    assert (found.loss, found.rows) == (loss, 300)
    assert found.model < 0.8 * found.baselines["mean"]
    figures = model.info()
    assert figures["left_out"]["model"] == found.model
    assert "left out: 300 rows predicted from the others: " in figures["advice"]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_advice_on_a_table_for_trees_begins_with_them(rng, task, tmp_path):
    X, y = thresholds(rng, 1200, classes=task == "classification")
    given = {"kernel.lengthscale": [3.0, 3.0] + 38 * [30.0]}
    how = Settings(**QUICK, task=task, partition="chunks", set=given)
    model = GBCM.fit((X, y), how, model=str(tmp_path / "m"))
    found = model.snapshot.facts.errors.accuracy
    assert found.baselines["boosted trees"] < 0.5 * found.model < 0.5 * found.baselines["mean"]
    assert GBCM.load(model.url).advised() == model.advised()
    first = model.info()["advice"].split(". ")[0]
    assert first.startswith(
        f"boosted trees learned from {found.learned_from} of the training rows predict better: the "
    )
    assert first.endswith("this table may not suit a Gaussian process")
    result = CliRunner().invoke(cli, ["info", model.url], catch_exceptions=False)
    assert [line.split()[1:3] for line in result.output.splitlines() if line.startswith("advice ")] == [
        ["boosted", "trees"]
    ]


def test_where_the_mean_does_as_well_trees_are_named_if_they_are_far_better(rng):
    X, y = thresholds(rng, 1200)
    model = GBCM.fit((X, y), Settings(**QUICK, partition="chunks", set={"kernel.lengthscale": 100.0}))
    assert re.match("(no better|worse) than a simple baseline.*; boosted trees .* predict better", model.advised()[0])
    close = {**model.facts["accuracy"], "baselines": {"mean": 1.0, "boosted trees": 0.9}, "model": 1.0}
    assert "boosted" not in advised(with_facts(model, accuracy=close))[0]


def test_a_smooth_function_suits_the_model(rng):
    X = rng.uniform(-2, 2, (600, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(600)
    given = {"kernel.lengthscale": 1.0, "likelihood.noise_variance": 0.005}
    model = GBCM.fit((X, y), Settings(**QUICK, partition="chunks", set=given))
    found = model.snapshot.facts.errors.accuracy
    assert found.model < min(found.baselines.values())
    assert TREES not in model.info()["advice"]
    assert "baseline" not in model.info()["advice"]


def test_advice_begins_with_the_worst(rng):
    """A model that a line beats, a gross error, few rows, bounds, unusual errors, query points: in this order."""
    X = rng.uniform(-2, 2, (90, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(90)
    y[3] = 300.0
    model = GBCM.fit((X, y), Settings(**QUICK | {"query": 50}, partition="chunks"))
    worse = {
        "rows": 90,
        "absorbed": 90,
        "loss": "rmse",
        "model": 2.0,
        "baselines": {"linear least squares": 1.0},
        "learned_from": 70,
    }
    bounds = ["kernel.lengthscale[1]", "likelihood.noise_variance"]
    said = advised(with_facts(model, accuracy=worse, at_bounds=bounds))
    begun = [
        "worse than a simple baseline: the root mean square error of rows left out is 2, 1 of",
        "1 of 90 sampled targets lie more than",
        "90 rows are few",
        "hyper-parameters at bounds: kernel.lengthscale[1] (",
        "left out: 90 rows predicted from the others: RMSE 2; linear least squares 1",
    ]
    places = [next(k for k, one in enumerate(said) if one.startswith(text)) for text in begun]
    assert places == sorted(places)
    assert places[0] == 0
    assert "query points" in said[-1]


def test_bounds_are_listed_by_column(rng, make_data):
    X = rng.uniform(-2, 2, (120, 2))
    model = GBCM.fit(
        (X, X[:, 0] ** 2), Settings(**QUICK, partition="chunks", set={"kernel.lengthscale": [0.01, 1000.0]})
    )
    said = advice(with_facts(model, at_bounds=["kernel.lengthscale[0]", "kernel.lengthscale[1]"]))
    assert (
        "hyper-parameters at bounds: kernel.lengthscale[0] (lower), kernel.lengthscale[1] (upper); a column at" in said
    )


def test_rows_that_came_later_are_not_counted_in(rng):
    X = rng.uniform(-2, 2, (120, 2))
    model = GBCM.fit((X, X[:, 0] ** 2), Settings(**QUICK, partition="chunks"))
    later = model.partial_fit(X + 0.01, X[:, 0] ** 2)
    assert later.snapshot.facts.errors.accuracy == model.snapshot.facts.errors.accuracy
    assert "120 rows predicted from the others of 120 rows absorbed then: RMSE" in later.info()["advice"]


def test_models_of_before_say_nothing_of_it(rng, tmp_path):
    X = rng.uniform(-2, 2, (120, 2))
    model = GBCM.fit((X, X[:, 0] ** 2), Settings(**QUICK, partition="chunks"))
    before = with_facts(model, accuracy=None)
    assert "accuracy" not in json.loads(json.dumps(before.facts.to_json()))
    assert "left out" not in advice(before)


def test_a_warning_that_rows_that_repeat_flatter(rng):
    X = np.repeat(rng.uniform(-2, 2, (100, 2)), 2, axis=0)
    model = GBCM.fit((X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)), Settings(**QUICK, partition="chunks"))
    assert "which rows that repeat others flatter" in model.info()["advice"]


def test_a_fit_goes_on_where_nothing_can_be_left_out(rng):
    X = rng.uniform(-2, 2, (120, 2))
    how = {"linearise": "running", "task": "counts", "partition": "chunks"}
    model = GBCM.fit((X, rng.poisson(2.0, 120).astype(float)), Settings(**QUICK, **how))
    assert model.snapshot.facts.errors.accuracy is None
