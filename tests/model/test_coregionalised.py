"""Kernels of several outputs, with their means, scaling and noise."""

import numpy as np
import pytest

from bcmdist.data.observations import Observations, unweighted
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import Coregionalised, finite_metric, metric, parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean, mean_of_outputs
from bcmdist.model.outputs import Outputs
from bcmdist.model.scaling import Scaling, scaling_from_array, scaling_to_array
from bcmdist.model.target_transform import TargetTransform
from bcmdist.model.units import AFFINE
from bcmdist.testing import check_kernel
from oracles import central_differences

SCHEMA_CODES = (Category("metal", ("cu", "pb", "zn")), Number("east"), Number("north"))
SCHEMA = Schema(Coding(SCHEMA_CODES).inputs, (), Coding(SCHEMA_CODES))
OUTPUTS = Outputs((0, 1, 2), (1.0, 20.0, -3.0), (2.0, 10.0, 0.5), (1.0, 20.0, -3.0))


def drawn(rng, outputs, rank):
    kernel = Coregionalised.made(outputs, rank=rank)
    angles = rng.uniform(0.2, 2.9, len(kernel.loading_angle))
    return kernel.with_parameters(
        {"output_variance": rng.uniform(0.3, 3.0, outputs), "loading_angle": angles},
    )


@pytest.mark.parametrize(("outputs", "rank"), [(2, 1), (3, 1), (4, 2), (3, 3)])
def test_conformance(outputs, rank, rng):
    X = rng.standard_normal((7, outputs))
    check_kernel(drawn(rng, outputs, rank), X, np.vstack([X[:2], rng.standard_normal((3, outputs))]))


@pytest.mark.parametrize("name", ["coregionalised(0, 1, 2, rank=2)*matern32(3, 4)", "coregionalised(2, 3)*se(0, 1, 4)"])
def test_conformance_of_products(name, rng):
    X = rng.standard_normal((7, 5))
    kernel = parse_kernel(name, inputs=5)
    kernel = kernel.with_theta(kernel.theta + 0.2 * rng.standard_normal(len(kernel.theta)))
    check_kernel(kernel, X, np.vstack([X[:2], rng.standard_normal((3, 5))]))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_covariance_is_of_low_rank_and_what_each_output_has_alone(rank, rng):
    kernel = drawn(rng, 4, rank)
    W, kappa = kernel.loadings, kernel.own_variance
    assert W.shape == (4, rank)
    assert np.all(kappa > 0.0)
    np.testing.assert_allclose(kernel.covariance, W @ W.T + np.diag(kappa), rtol=1e-12)
    np.testing.assert_allclose(np.diag(kernel.covariance), kernel.output_variance, rtol=1e-12)
    a, b = rng.integers(4, size=6), rng.integers(4, size=5)
    np.testing.assert_allclose(kernel.cross(np.eye(4)[a], np.eye(4)[b]), kernel.covariance[np.ix_(a, b)], rtol=1e-12)
    np.testing.assert_allclose(kernel.along(2).cross(np.ones((1, 1)), np.ones((1, 1))), kernel.covariance[2:3, 2:3])


def test_correlations_may_be_negative():
    kernel = Coregionalised(np.ones(2), np.array([0.3, np.pi - 0.3]))
    assert kernel.covariance[0, 1] == pytest.approx(-(np.cos(0.3) ** 2))


def test_expressions(rng):
    text = "coregionalised(0, 1, 2, rank=2)*matern32(3, 4)"
    kernel = parse_kernel(text, inputs=5)
    assert kernel.expression == text
    assert parse_kernel(kernel.expression, inputs=5).parameters.keys() == kernel.parameters.keys()
    assert parse_kernel("coregionalised(0, 1, rank=1)", inputs=2).expression == "coregionalised(0, 1)"
    columns = KernelColumns(5, SCHEMA, np.array([1.0, 1.0, 1.0, 30.0, 40.0]))
    assert columns.numbered("coregionalised(metal, rank=2)*matern32(east, north)") == text
    assert columns.shown(text) == "coregionalised(metal, rank=2)*matern32(east, north)"
    assert columns.shown("kernel.coregionalised(0, 1, 2).loading_angle") == "kernel.coregionalised(metal).loading_angle"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("coregionalised(0, 1, rank=3)", "a rank of at most the 2 outputs"),
        ("coregionalised(0, 1, rank=0)", "rank as a whole number from 1"),
        ("coregionalised(0, 1, rank=~2)", "rank as a whole number from 1"),
        ("coregionalised(0, 1, period=2)", "expected rank of coregionalised"),
        ("se(0, rank=2)", "expected no options of se"),
    ],
)
def test_wrong_ranks_are_refused(text, message):
    with pytest.raises(InvalidOption, match=message):
        parse_kernel(text, inputs=3)


def test_numbers_are_no_outputs():
    with pytest.raises(InvalidOption, match="a category, whose levels are the outputs"):
        KernelColumns(5, SCHEMA).numbered("coregionalised(east)*se(north)")


def test_outputs_of_a_place_have_no_distance():
    kernel = parse_kernel("coregionalised(1, 2)*matern32(0, 3)", inputs=4)
    assert kernel.output_columns(4).tolist() == [1, 2]
    found = metric(kernel, 4)
    assert np.isinf(found[[1, 2]]).all()
    assert np.isfinite(found[[0, 3]]).all()
    assert finite_metric(kernel, 4)[[1, 2]].tolist() == [1.0, 1.0]
    assert parse_kernel("se", inputs=4).output_columns(4).size == 0


# --- Means ---


@pytest.mark.parametrize("kind", ["constant", "linear"])
def test_each_output_has_a_mean(kind, rng):
    mean, number = Mean(mean_of_outputs(kind, (0, 1, 2))), rng.integers(3, size=8)
    X = np.hstack([np.eye(3)[number], rng.standard_normal((8, 2))])
    H, one = mean.design(X), Mean(kind).design(X[:, 3:])
    assert H.shape == (8, mean.weights(5)) == (8, 3 * one.shape[1])
    np.testing.assert_allclose(H @ H.T, (one @ one.T) * (number[:, None] == number), rtol=1e-12)
    assert mean_of_outputs("zero", (0, 1)) == "zero"
    assert mean_of_outputs(kind, ()) == kind


@pytest.mark.parametrize("name", ["constant(1, 3)", "linear(1, 3)", "linear"])
def test_input_gradients_of_means(name, rng):
    mean, X, G = Mean(name), rng.standard_normal((5, 4)), rng.standard_normal((5, 5))

    def value(x):
        H = mean.design(x.reshape(X.shape))
        return np.sum(G * (H @ H.T))

    numeric = central_differences(value, X.ravel())
    np.testing.assert_allclose(mean.input_gradient(X, G).ravel(), numeric, atol=1e-5 * np.abs(numeric).max())


# --- Scaling and noise ---


def rows(rng, count=9):
    number = np.arange(count) % 3
    return np.hstack([np.eye(3)[number], rng.standard_normal((count, 2))]), number


def scaling(transform=None):
    x_scale = np.array([1.0, 1.0, 1.0, 2.0, 3.0])
    return Scaling(np.array([0.0, 0.0, 0.0, 5.0, 6.0]), x_scale, 4.0, 7.0, transform=transform, outputs=OUTPUTS)


@pytest.mark.parametrize("transform", [None, TargetTransform(0.0, 0.01, 5.0)])
def test_targets_of_each_output_have_their_own_scale(rng, transform):
    (X, number), y = rows(rng), rng.uniform(1.0, 9.0, 9)
    for own in (scaling(transform), scaling_from_array(scaling_to_array(scaling(transform)))):
        obs = own.observations(unweighted(y), AFFINE, X)
        images = np.log(y) if transform else y
        assert obs.output.tolist() == number.tolist()
        np.testing.assert_allclose(obs.y, (images - np.array(OUTPUTS.mean)[number]) / np.array(OUTPUTS.scale)[number])
        there = own.of_rows(obs)
        np.testing.assert_allclose(there.targets(obs.y, AFFINE), y, rtol=1e-12)
        np.testing.assert_allclose(there.original("variance", np.ones(9), AFFINE), np.array(OUTPUTS.scale)[number] ** 2)
        slope = -np.log(y) if transform else 0.0
        np.testing.assert_allclose(there.log_jacobians(y, AFFINE), slope - np.log(np.array(OUTPUTS.scale)[number]))
        assert own.outputs == OUTPUTS


def test_transformed_targets_are_scaled_by_output(rng):
    X, number = rows(rng, 30)
    y = rng.lognormal(np.array([0.0, 2.0, 5.0])[number], np.array([0.5, 1.0, 2.0])[number])
    found = scaling().with_transform(TargetTransform(0.0, 1e-9, 5.0), y, X)
    scaled = found.observations(unweighted(y), AFFINE, X).y
    for k in range(3):
        assert scaled[number == k].mean() == pytest.approx(0.0, abs=1e-12)
        assert scaled[number == k].std() == pytest.approx(1.0)
    assert found.outputs.training_mean == OUTPUTS.training_mean


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [-0.3, -0.3, -0.3]])
def test_rows_of_other_outputs_are_refused(rng, row):
    X, _ = rows(rng)
    X[4, :3] = row
    with pytest.raises(InvalidData, match=r"one of the 3 outputs .* got another at row 4 of 9 \(1 such rows\)"):
        scaling().observations(unweighted(np.ones(9)), AFFINE, X)


def test_noise_of_each_output(rng):
    likelihood = Gaussian(0.1).for_outputs(3).with_parameters({"noise_variance": np.array([0.1, 0.2, 0.4])})
    obs = Observations(np.zeros(4), np.array([1.0, 1.0, 2.0, 1.0]), output=np.array([0, 2, 2, 1]))
    assert likelihood.noise(obs).tolist() == [0.1, 0.4, 0.2, 0.2]
    assert likelihood.noise(obs[:, None]).shape == (4, 1)
    g = rng.standard_normal(4)

    def at(logs):
        return g @ likelihood.with_parameters({"noise_variance": np.exp(logs)}).noise(obs)

    numeric = central_differences(at, np.log(likelihood.noise_variance))
    np.testing.assert_allclose(likelihood.noise_slopes(obs, g), numeric, atol=1e-8)
