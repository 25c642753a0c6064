"""The evidence of fitc and sor in hyper-parameters and pseudo-inputs: dense values, finite differences, the climb."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption
from bcmdist.learning.evidence.independent_rows_gradient import diagonal_pullback
from bcmdist.learning.evidence_refinement import IndependentRowsObjective
from bcmdist.learning.settings_checks import with_objective
from bcmdist.model.kernels import split_parameters
from bcmdist.model.likelihoods import Gaussian, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.model.shared.query import prepare
from bcmdist.storage.commits import BlobReference, open_store
from oracles import central_differences, independent_rest
from problems import make_kernel

ROWS, QUERY = 36, 7
SCALING = Scaling(np.array([0.1, -0.2]), np.array([1.1, 0.9]), 0.0, 1.0)
KERNELS = ["se", "matern32", "rq", "arcsine", "se+constant"]


@pytest.fixture
def case(make_data, tmp_path, rng):
    """Rows of various weights and known variances, their noise where 0.05 of it is learned, query points, and a
    function that makes an objective about these."""
    X, weight, known = rng.uniform(-2, 2, (ROWS, 2)), rng.uniform(0.5, 2.0, ROWS), rng.uniform(0.0, 0.2, ROWS)
    y = np.sin(2 * X[:, 0]) + 0.3 * X.sum(axis=1) + 0.1 * rng.standard_normal(ROWS)
    path = make_data(rows_per_chunk=6, X=X, y=y, weight=weight, target_variance=known)
    store = open_store(tmp_path / "model")
    scaling = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(SCALING)})["s"])
    points = rng.uniform(-2, 2, (QUERY, 2))

    def make(residual, mean="constant", rows_per_expert=12, runtime=None):
        parts = partitions(open_data(path), rows_per_expert)
        where = {"scaling": scaling, "mean": mean, "store": store}
        return IndependentRowsObjective(
            runtime or SerialRuntime(), parts, points=points, jitter=1e-8, residual=residual, **where
        )

    return make, X, y, 0.05 / weight + known, points


def moved(kernel, likelihood, theta):
    P = len(kernel.theta)
    values = split_parameters(likelihood.parameters, np.exp(theta[P:]))
    return kernel.with_theta(theta[:P]), likelihood.with_parameters(values)


@pytest.mark.parametrize("residual", ["diagonal", "none"])
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_value_is_the_dense_evidence(case, residual, mean):
    make, X, y, noise, points = case
    kernel, Z = make_kernel("se"), SCALING.inputs(X)
    query = prepare(points, kernel=kernel, mean=Mean(mean), jitters=(1e-8,))
    V = query.design(Z)
    rest = kernel.diagonal(Z) - (V[:, :QUERY] ** 2).sum(axis=1) if residual == "diagonal" else np.zeros(ROWS)
    *_, evidence = independent_rest(V, rest, y, noise, V[:1], rest[:1])
    value, *_ = make(residual, mean).at(kernel, Gaussian(0.05), points)
    assert value == pytest.approx(evidence, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("residual", ["diagonal", "none"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_gradients_are_those_of_finite_differences(case, residual, name, mean):
    make, *_, points = case
    objective, kernel, likelihood = make(residual, mean), make_kernel(name), Gaussian(0.05)
    _, to_parameters, to_points = objective.at(kernel, likelihood, points)
    theta = np.concatenate([kernel.theta, np.log(likelihood.noise_variance)])
    numeric = central_differences(lambda t: objective.at(*moved(kernel, likelihood, t), points)[0], theta)
    np.testing.assert_allclose(to_parameters, numeric, atol=1e-6 * np.abs(numeric).max())
    numeric = central_differences(lambda z: objective.at(kernel, likelihood, z.reshape(-1, 2))[0], points.ravel())
    np.testing.assert_allclose(to_points.ravel(), numeric, atol=1e-6 * np.abs(numeric).max())


def test_any_partitioning_gives_the_same(case, cluster):
    make, *_, points = case
    how = (make_kernel("matern32"), Gaussian(0.05), points)
    value, parameters, to_points = make("diagonal", rows_per_expert=36).at(*how)
    for other in (make("diagonal", rows_per_expert=6), make("diagonal", runtime=cluster)):
        found = other.at(*how)
        assert found[0] == pytest.approx(value, abs=1e-10)
        np.testing.assert_allclose(found[1], parameters, atol=1e-9 * np.abs(parameters).max())
        np.testing.assert_allclose(found[2], to_points, atol=1e-9 * np.abs(to_points).max())


def test_weights_of_partitions_count(case):
    make, *_, points = case
    how = (make_kernel("se"), Gaussian(0.05), points)
    once, twice = make("diagonal"), make("diagonal")
    once.parts = [replace(part, weight=2.0) for part in once.parts]
    twice.parts = [*twice.parts, *twice.parts]
    for found, expected in zip(once.at(*how), twice.at(*how), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", [*KERNELS, "linear"])
def test_diagonal_pullback(name, rng):
    kernel, X, g = make_kernel(name), rng.standard_normal((70, 2)), rng.standard_normal(70)
    numeric = central_differences(lambda t: g @ kernel.with_theta(t).diagonal(X), kernel.theta)
    np.testing.assert_allclose(diagonal_pullback(kernel, X, g), numeric, atol=1e-7)


OPTIMISED = Settings(
    kernel="se", expert="fitc", objective="committee", query_method="optimised", query=QUERY, rows_per_expert=80
)


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["fitc", "sor"])
def test_pseudo_inputs_raise_the_evidence(make_data, expert, rng, tmp_path):
    """Most of what there is to know is in the middle, and centres of k-means are spread evenly."""
    X = rng.uniform(-2, 2, (400, 1))
    y = np.sin(12 * X[:, 0]) * np.exp(-4 * X[:, 0] ** 2) + 0.05 * rng.standard_normal(400)
    path = make_data(X=X, y=y)
    asked = replace(OPTIMISED, expert=expert, effort="quick", objective=None, query_method=None)
    moved = GBCM.fit(path, asked, model=tmp_path / "moved")
    still = GBCM.fit(path, replace(asked, query_method="kmeans"))
    assert moved.info()["log_evidence"] > still.info()["log_evidence"] + 20
    assert moved.score(path)["rmse"] < 0.95 * still.score(path)["rmse"]
    again = GBCM.load(tmp_path / "moved")
    assert again.model.shared.residual == {"fitc": "diagonal", "sor": "none"}[expert]
    assert again.info()["query"] == QUERY


@pytest.mark.parametrize(
    ("changes", "likelihood", "expected"),
    [
        ({"expert": "fitc"}, "gaussian", ("committee", "optimised")),
        ({"expert": "sor"}, "gaussian", ("committee", "optimised")),
        ({"expert": "bcm"}, "gaussian", ("local", "kmeans")),
        ({"expert": "bcm", "objective": "committee"}, "gaussian", ("committee", "kmeans")),
        ({"expert": "fitc"}, "bernoulli", ("local", "kmeans")),
        ({"expert": "fitc"}, "student_t", ("local", "kmeans")),
        ({"expert": "fitc", "learn": False}, "gaussian", ("local", "kmeans")),
        ({"expert": "fitc", "objective": "local"}, "gaussian", ("local", "kmeans")),
        ({"expert": "fitc", "query_method": "random"}, "gaussian", ("committee", "random")),
        ({"expert": "fitc", "query_method": "optimised"}, "gaussian", ("committee", "optimised")),
    ],
)
def test_default_objective_and_points(changes, likelihood, expected):
    """Options decide; else fitc and sor move their points where errors are normal and anything is learned."""
    settings = with_objective(Settings(**changes), make_likelihood(likelihood, 2))
    assert (settings.objective, settings.query_method) == expected


def test_defaults_of_classes(classes):
    """Targets 0 and 1 are classes by default, for which no evidence of the committee can be climbed."""
    assert GBCM.fit(classes[0], Settings(expert="fitc", query=5, effort="quick")).info()["query"] <= 5


def test_other_errors_are_refused(classes, wave):
    told = "fitc, sor or rrgp_star with normal errors, got fitc; give --objective local"
    with pytest.raises(InvalidOption, match=told):
        replace(OPTIMISED, likelihood="bernoulli")
    with pytest.raises(InvalidOption, match=told):
        GBCM.fit(classes[0], OPTIMISED)
