"""Relevance vectors beside the rest of the package: bases at uncertain inputs, categories, graphs, plans."""

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
