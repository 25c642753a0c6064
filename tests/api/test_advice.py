"""Advice: each sentence where it is meant, and not where all is well."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.api.advice import advice

QUICK = {"partition": "chunks", "learn": False, "kernel": "se", "rows_per_expert": 100}
NOTHING_ELSE = r"query points[^.]* suffice for \d+ effective degrees of freedom$"


def fitted(X, y, **given):
    return GBCM.fit((X, y), Settings(**QUICK | given))


def with_facts(model, **facts):
    return replace(model.snapshot, facts=model.snapshot.facts.changed(**facts))


@pytest.fixture
def wavy(rng):
    X = rng.uniform(-2, 2, (400, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(3 * X[:, 1]) + 0.1 * rng.standard_normal(400)


# --- Query points ---


@pytest.mark.slow
def test_a_committee_with_few_query_points_is_told_to_take_more(wavy):
    X, y = wavy
    model = fitted(X, y, query=10, set={"kernel.lengthscale": 0.3, "likelihood.noise_variance": 0.01})
    assert "10 query points limit the fit, which has" in model.info()["advice"]


@pytest.mark.slow
def test_local_predictions_are_told_so_only_where_it_would_better_them(wavy):
    X, y = wavy
    given = {"set": {"kernel.lengthscale": 0.15, "likelihood.noise_variance": 0.01}, "partition": "spatial"}
    model = fitted(X, y, query=100, **given)
    assert model.snapshot.facts.query.query_loss.nats < 0.01  # a local expert sees all rows
    told = model.info()["advice"]
    assert "suffice for local predictions: with half of them rows left out are predicted as well (to" in told
    assert re.search(
        r"nats a row\); for --method committee, with \d+ effective degrees of freedom, set --query to 200", told
    )
    told = advice(with_facts(model, halving_loss={"nats": 0.2, "error": 0.05}))
    assert "rows left out are predicted worse by 0.2 nats a row; set --query to 200 or more" in told
    assert "suffice" not in told
    assert "suffice for local" in advice(with_facts(model, halving_loss={"nats": 0.04, "error": 0.05}))
    told = fitted(X, y, query=10, **given).info()["advice"]  # half of so few says nothing
    assert re.search("10 query points limit the fit, which has .* degrees of freedom; set --query to 100 or more", told)


@pytest.mark.slow
def test_enough_query_points_are_enough(wavy):
    X, y = wavy
    for partition in ("chunks", "spatial"):
        told = fitted(X, y, query=100, partition=partition, set={"kernel.lengthscale": 2.0}).info()["advice"]
        assert re.search(NOTHING_ELSE, told)


@pytest.mark.slow
def test_more_query_points_need_no_learning_again(wavy, tmp_path):
    """What is advised can be done, and gives what was learned."""
    X, y = wavy
    settings = Settings(partition="chunks", kernel="se", mean="zero", rows_per_expert=100, query=10, effort="quick")
    model = GBCM.fit((X, y), settings)
    told = model.info()
    advised = f"another --model with more of them need not learn again: fit it with --like {model.url}"
    assert advised in told["advice"]
    assert "need not learn" not in fitted(X, y, query=10).info()["advice"]  # nothing was learned
    again = GBCM.fit((X, y), Settings(rows_per_expert=100, query=100, like=model.url))
    assert again.model.shared.functions > 10
    for name, value in told["hyperparameters"].items():
        assert again.info()["hyperparameters"][name] == pytest.approx(value, rel=1e-12)


@pytest.mark.slow
def test_an_automatic_number_is_no_treadmill(wavy):
    model = fitted(*wavy, query=10, set={"kernel.lengthscale": 0.3, "likelihood.noise_variance": 0.01})
    told = advice(with_facts(model, degrees_estimated=4.0))
    assert re.search(
        r"chosen for an estimated 4\) represent .*, more than was estimated; `bcmdist report` on rows that", told
    )
    assert "--query" not in told


# --- Targets ---


@pytest.mark.slow
def test_targets_that_look_like_classes_are_told(wavy):
    X, y = wavy
    model = fitted(X, np.round(2 * y), task="regression", query=20)
    assert "these targets look like classes or counts, they take 5 whole values only" in model.info()["advice"]
    for count in (None, 2, 21):
        assert "targets" not in advice(with_facts(model, whole_targets=count))
    assert fitted(X, y, query=20).snapshot.facts.survey.whole_targets is None


# --- Repeated inputs ---


@pytest.fixture
def repeated(rng):
    """Every other row has the inputs of another one, and a target of its own."""
    X = rng.uniform(-2, 2, (400, 2))
    X = np.vstack([X[:300], X[:100]])[rng.permutation(400)]
    return X, 5.0 * X[:, 0] + 0.5 * rng.standard_normal(400)


@pytest.mark.slow
def test_repeated_inputs_are_told(repeated):
    X, y = repeated
    told = fitted(X, y).info()["advice"]
    assert "50% of rows repeat inputs: the noise is what repeats disagree by, a standard deviation of" in told
    assert float(re.search(r"standard deviation of ([0-9.]+)", told)[1].rstrip(".")) == pytest.approx(0.5, rel=0.2)


def test_copies_are_told_apart(repeated):
    X, _ = repeated
    told = fitted(X, X[:, 0] ** 2).info()["advice"]
    assert "50% of rows repeat inputs and targets of others: if they are copies, leave them out" in told


@pytest.mark.slow
def test_few_repeats_and_those_of_classes_are_not_told(repeated, wavy):
    X, y = wavy
    assert re.search(NOTHING_ELSE, fitted(X, y).info()["advice"])
    X[:8] = X[8:16]  # 4 %
    assert "repeat" not in fitted(X, y).info()["advice"]
    X, y = repeated
    assert "rows repeat" not in fitted(X, (y > 0).astype(float), task="classification").info()["advice"]


# --- Labels ---


@pytest.mark.slow
def test_an_input_that_is_used_as_a_label_is_told(rng):
    """Twenty machines, each with a level of its own, numbered in no order."""
    level = rng.standard_normal(20)
    X = np.column_stack([rng.uniform(-2, 2, 600), rng.integers(0, 20, 600)])
    y = np.sin(X[:, 0]) + level[X[:, 1].astype(int)] + 0.05 * rng.standard_normal(600)
    said = "has 20 distinct values and a lengthscale at its bound: it is used as a label"
    model = GBCM.fit((X, y), Settings(partition="chunks", kernel="matern32", effort="quick", query=100))
    labels = model.snapshot.facts.survey.labels
    at_bound = "kernel.lengthscale[1]" in model.snapshot.facts.learning.at_bounds
    assert labels == ({"X[1]": 20} if at_bound else {})
    assert (said in model.info()["advice"]) == at_bound
    assert f"X[1] {said}" in advice(with_facts(model, labels={"X[1]": 20}))


@pytest.mark.slow
def test_a_smooth_input_of_few_values_is_no_label(rng):
    X = np.column_stack([rng.uniform(-2, 2, 600), rng.integers(0, 20, 600) / 5.0])
    y = np.sin(X[:, 0]) + np.sin(X[:, 1]) + 0.05 * rng.standard_normal(600)
    model = GBCM.fit((X, y), Settings(partition="chunks", kernel="matern32", effort="quick", query=100))
    assert model.snapshot.facts.survey.labels == {}
    assert "label" not in model.info()["advice"]


def test_models_of_before_have_no_such_facts(wavy):
    model = fitted(*wavy)
    before = with_facts(model, repeats=None, labels=None, halving_loss=None, accuracy=None)
    assert re.search(NOTHING_ELSE, advice(before))


# --- Errors ---


@pytest.mark.slow
def test_errors_that_are_heavy_and_larger_in_places_are_told(rng):
    X = rng.uniform(-2, 2, (1500, 2))
    heavy = np.where(rng.random(1500) < 0.08, 5.0, 1.0) * np.exp(0.7 * X[:, 1])
    y = np.sin(2 * X[:, 0]) + 0.1 * heavy * rng.standard_normal(1500)
    model = fitted(X, y, query=50, set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.1})
    told, errors = model.info()["advice"], model.info()["errors"]
    assert "errors are larger in some places than in others: that gains" in told
    assert re.search(r"errors are heavier than normal: \d\.\d% of rows lie more than 3 deviations", told)
    assert errors["scale"] == "varying"
    assert errors["gain"] > 2 * errors["gain_error"] > 0
    assert sum(errors["shape"]["weights"]) == pytest.approx(1.0)
    assert errors["residuals"] == 1500


@pytest.mark.slow
def test_errors_as_the_model_says_are_not(rng):
    X = rng.uniform(-2, 2, (1500, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(1500)
    noise = 0.04 / np.var(y)
    model = fitted(X, y, query=50, set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": noise})
    assert "errors" not in model.info()["advice"]
    quantiles = model.info()["errors"]["shape"]["quantiles"]
    assert quantiles["0.75"] == pytest.approx(0.674, abs=0.06)  # the error of a quartile of 1500 rows is .035
    assert quantiles["0.025"] == pytest.approx(-1.96, abs=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:kernel. north used by no term")
def test_parameters_at_bounds_are_named_by_column(rng):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rng.uniform(-2, 2, (300, 3)), columns=["east", "north", "depth"])
    made = GBCM.fit(X, np.sin(2 * X.east), Settings(kernel="se", effort="quick", query=40))
    facts = made.snapshot.facts
    facts = facts.changed(at_bounds=["kernel.lengthscale[1]", "kernel.lengthscale[2]", "kernel.variance"])
    bound = GBCM(replace(made.snapshot, facts=facts))
    assert bound.info()["at_bounds"] == ["kernel.lengthscale[north]", "kernel.lengthscale[depth]", "kernel.variance"]
    parts = GBCM.fit(X, X.east, Settings(kernel="se(east, depth)", learn=False, query=40))
    facts = parts.snapshot.facts
    (part,) = parts.model.shared.kernel.lengthscale_columns(3)
    facts = facts.changed(at_bounds=[f"kernel.{part}[1]"])
    bound = GBCM(replace(parts.snapshot, facts=facts))
    assert [name.partition("[")[2] for name in bound.info()["at_bounds"]] == ["depth]"]
