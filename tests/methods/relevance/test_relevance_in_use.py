"""Relevance vectors beside the rest of the package: bases at uncertain inputs, categories, graphs, plans."""

from types import SimpleNamespace

import numpy as np
import pytest
from averages import VARIANCE, Bare, averaged, quadrature, spread

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.methods.relevance.dictionaries import Radial
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import Weights
from bcmdist.prediction.errors.error_distribution import residuals_in
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.uncertain import input_uncertainty
from problems import make_kernel, regression_problem

NOISE = 0.1


def bumps(problem, mean="constant"):
    basis = Radial(problem.Xq, np.array([0.8, 1.1]), np.arange(len(problem.Xq)))
    shared = Weights(basis, np.linspace(0.5, 2.0, len(problem.Xq)), make_kernel("se"), Mean(mean))
    message = expert_message(shared, Gaussian(NOISE), problem.X, problem.obs)
    return Fitted(Bare(shared), Committee(zero(shared.size) + message).posterior)


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_exact_moments_of_relevance_vectors(rng, mean):
    problem = regression_problem(rng)
    predictor, U = bumps(problem, mean), problem.Xs
    expected = quadrature(predictor, U, spread(U))
    for ours, theirs in zip(input_uncertainty.exact_moments(predictor, U, spread(U)), expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.slow
def test_relevance_vectors_of_classes_average_exactly(rng, make_data):
    """Of each class against the rest, with functions of its own."""
    X = rng.uniform(-2, 2, (150, 2))
    path = make_data(X=X, y=np.uint8(X[:, 0] > 0.7) + np.uint8(X[:, 1] > 0))
    gbcm = GBCM.fit(path, Settings(task="classification", expert="rvm", query=20, effort="quick"))
    X = X[:3]
    found = gbcm.predict(X, X_variance=np.tile(VARIANCE, (3, 1)), inputs="exact")
    for c in range(3):

        def of_class(new, c=c):
            said = gbcm.predict(new)
            return {"mean": said["mean"][:, c], "variance": said["variance"][:, c]}

        expected = averaged(of_class, X, ("mean", "variance"))
        np.testing.assert_allclose([found["mean"][:, c], found["variance"][:, c]], expected, rtol=1e-7)


@pytest.mark.slow
def test_levels_of_a_category_share_a_lengthscale_that_is_adapted(tmp_path, rng):
    coding = Coding((Number("age"), Category("soil", ("clay", "loam", "sand"))), unseen="other")
    soil, age = rng.choice(["clay", "loam", "sand"], 180), rng.uniform(-2, 2, 180)
    X = coding.numbers({"age": of_numpy("age", age), "soil": of_numpy("soil", soil)}, "rows")
    effect = np.array([1.0, -1.0, 0.3])[np.searchsorted(["clay", "loam", "sand"], soil)]
    y = np.sin(2 * age) + effect + 0.1 * rng.standard_normal(180)
    path = str(tmp_path / "data.zarr")
    write_dataset(path, {"X": X, "y": y}, schema=Schema(coding.inputs, (), coding), rows_per_chunk=60)
    quick = {"kernel": "se", "effort": "quick", "rows_per_expert": 60}
    asked = Settings(expert="rvm", rvm_lengthscale="adapted", query=30, **quick)
    lengths = GBCM.fit(path, asked).model.shared.kernel.parameters["lengthscale"]
    assert np.ptp(lengths[1:]) == 0.0
    assert lengths[0] != lengths[1]


def test_no_graph_is_written_of_a_basis(rng, tmp_path):
    pytest.importorskip("onnx", reason="ONNX: pip install 'bcmdist[onnx]'")
    X = rng.uniform(-2, 2, (100, 2))
    relevance = GBCM.fit(X, np.sin(X[:, 0]), Settings(expert="rvm", query=20))
    with pytest.raises(InvalidOption, match="expected values at query points"):
        relevance.to_onnx(tmp_path / "model.onnx")


@pytest.mark.slow
def test_intervals_are_as_wide_as_errors_of_rows_that_selection_has_not_seen(make_data, rng):
    """Of the end of a folded arm: functions that are selected fit the noise; intervals hold new rows all the same."""
    X, new = rng.uniform(-1, 1, (400, 8)), rng.uniform(-1, 1, (2000, 8))

    def targets(X):
        angles = 1.2 * X.cumsum(axis=1)
        end = np.hypot(np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1))
        return end + 0.02 * rng.standard_normal(len(X))

    path = make_data("rows.zarr", X=X, y=targets(X))
    asked = Settings(expert="rvm", rvm_lengthscale="adapted", query=400, rows_per_expert=400, effort="quick")
    gbcm = GBCM.fit(path, asked)
    ratio, y, found = gbcm.info()["errors"]["left_out"], targets(new), gbcm.predict(new)
    error, width = np.abs(y - found["mean"]), found["upper95"] - found["lower95"]
    assert np.mean(error < 0.5 * width) >= 0.88  # the ratio is one standard error lower than measured
    assert np.mean(error < 0.5 * width / ratio) < np.mean(error < 0.5 * width) - 0.02


@pytest.mark.slow
def test_the_scale_of_errors_is_the_same_on_a_cluster(make_data, cluster, rng):
    X = rng.uniform(-1, 1, (400, 2))
    path = make_data("rows.zarr", X=X, y=np.sin(3.0 * X).sum(axis=1) + 0.3 * rng.standard_normal(400))
    asked = Settings(expert="rvm", query=200, rows_per_expert=100, effort="quick")
    one, other = GBCM.fit(path, asked), GBCM.fit(path, asked, runtime=cluster)
    found = [model.predict(X[:9])["upper95"] for model in (one, other)]
    np.testing.assert_allclose(*found, rtol=1e-8)


@pytest.mark.slow
def test_no_rows_are_left_out_where_the_sample_is_far_smaller_than_the_data(make_data, rng):
    """A sample of 2,000 of 12,000 rows; and the other functions are those of all rows."""
    X = rng.uniform(-1, 1, (12_000, 2))
    path = make_data("rows.zarr", X=X, y=np.sin(3.0 * X).sum(axis=1) + 0.3 * rng.standard_normal(12_000))
    gbcm = GBCM.fit(path, Settings(expert="rvm", partition="chunks", query=50, effort="quick"))
    assert gbcm.info()["errors"]["left_out"] is None
    assert gbcm.score(path)["nmse"] < 0.2


def test_residuals_of_rows_of_the_fit_are_multiplied_and_those_of_arrivals_are_not():
    entries = [
        SimpleNamespace(key=name, arrival=name == "arrived", residuals=Recorded()) for name in ("arrived", "fit")
    ]
    found = residuals_in(entries, {"arrived": 1.0, "fit": 1.0}, "committee", 1.5)
    np.testing.assert_array_equal(found.arrays()[1], [1.0, -2.0, 1.5, -3.0])


class Recorded:
    """Residuals of two rows."""

    places = np.zeros((2, 3))

    def of(self, method):
        return np.array([1.0, -2.0])
