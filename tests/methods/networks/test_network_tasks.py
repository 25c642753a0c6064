"""The evidence of a network as a sum over partitions, its gradient, and the climb along it."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import SerialRuntime
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks.options import MixtureOptions
from bcmdist.methods.networks.shared import Units
from bcmdist.methods.networks.training import Network, NetworkObjective, climbed, climbed_once, drawn, inner_widths
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.storage.commits import BlobReference, open_store
from oracles import central_differences, marginalised_network, network_columns

ROWS, UNITS = 40, 5
SCALING = Scaling(np.array([0.1, -0.2]), np.array([1.1, 0.9]), 0.2, 1.3)
KERNEL = parse_kernel("arcsine", inputs=2)


@pytest.fixture
def case(make_data, tmp_path, rng):
    """Rows of various weights and known variances, whose noise is as of one weight where 0.05 of it is learned, and a
    function from rows per partition and a mean to an objective over them."""
    X, weight, known = rng.uniform(-2, 2, (ROWS, 2)), rng.uniform(0.5, 2.0, ROWS), rng.uniform(0.0, 0.2, ROWS)
    y = np.sin(2 * X[:, 0]) + 0.3 * X.sum(axis=1) + 0.1 * rng.standard_normal(ROWS)
    path = make_data(rows_per_chunk=10, X=X, y=y, weight=weight, target_variance=known)
    store = open_store(tmp_path / "model")
    scaling = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(SCALING)})["s"])

    def make(rows_per_expert=10, mean="constant", runtime=None):
        ground = TrainingContext(
            runtime or SerialRuntime(), [], lambda *_: [], scaling, store, "", True, "quick", 6, {}, {}
        )
        return NetworkObjective(ground, partitions(open_data(path), rows_per_expert), KERNEL, Mean(mean))

    return make, X, y, 0.05 / (0.05 / weight + known / SCALING.y_scale**2)


def network(rng):
    return Network(rng.standard_normal((UNITS, 3)), 0.7, Gaussian(0.05))


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
def test_value_is_the_dense_evidence(case, mean, rng):
    make, X, y, weight = case
    start = network(rng)
    Z, root = SCALING.inputs(X), np.sqrt(weight)
    columns = np.hstack([network_columns(start.inner, 0.7, Z), Mean(mean).design(Z)])
    *_, evidence = marginalised_network(root[:, None] * columns, 0.05, root * (y - 0.2) / 1.3)
    found = make(mean=mean)(start)
    assert found.value == pytest.approx(evidence + np.log(root).sum(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["zero", "linear"])
@pytest.mark.parametrize("rows_per_expert", [10, 40])
def test_gradient_is_that_of_finite_differences(case, mean, rows_per_expert, rng):
    objective, start = case[0](rows_per_expert, mean), network(rng)

    def moved(theta):
        return start.moved(theta[:-2].reshape(UNITS, 3), *theta[-2:])

    at = np.concatenate([start.inner.ravel(), [0.0, 0.0]])
    found = objective(start)
    numeric = central_differences(lambda theta: objective(moved(theta)).value, at)
    gradient = np.concatenate([found.inner.ravel(), [found.log_scale, found.log_noise]])
    np.testing.assert_allclose(gradient, numeric, atol=1e-6 * np.abs(numeric).max())


def test_any_partitioning_gives_the_same(case, cluster, rng):
    make, start = case[0], network(rng)
    whole = make(40)(start)
    for found in (make(10)(start), make(10, runtime=cluster)(start)):
        assert found.value == pytest.approx(whole.value, abs=1e-10)
        np.testing.assert_allclose(found.inner, whole.inner, atol=1e-10 * np.abs(whole.inner).max())
        assert found.log_scale == pytest.approx(whole.log_scale, abs=1e-9)
        assert found.log_noise == pytest.approx(whole.log_noise, abs=1e-9)


def test_rows_of_weight_two_are_there_twice(case, rng):
    objective, start = case[0](), network(rng)
    doubled = case[0]()
    doubled.parts = [*doubled.parts, *doubled.parts]
    objective.parts = [replace(part, weight=2.0) for part in objective.parts]
    np.testing.assert_allclose(objective(start).inner, doubled(start).inner, rtol=1e-10)
    assert objective(start).log_noise == pytest.approx(doubled(start).log_noise, rel=1e-10)


@pytest.mark.slow
def test_climbing_ends_higher(case, rng):
    objective, start = case[0](), network(rng)
    best, value, evaluations = climbed(objective, start, inner_widths(KERNEL, 2), 30)
    assert value > objective(start).value + 10
    assert value == objective(best).value
    assert 10 < evaluations <= 60


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_next_network(case, rng, tmp_path):
    objective, start, widths = case[0](), network(rng), inner_widths(KERNEL, 2)
    objective.context = replace(objective.context, scratch=str(tmp_path))
    best, value, evaluations = climbed_once(objective, start, widths, 10)

    class Untouched(NetworkObjective):
        def __call__(self, network):
            raise AssertionError("it is there already")

    again = Untouched(objective.context, objective.parts, KERNEL, objective.mean)
    found = climbed_once(again, start, widths, 10)
    np.testing.assert_array_equal(found[0].inner, best.inner)
    assert (found[0].scale, found[1:]) == (best.scale, (value, evaluations))
    assert found[0].likelihood.noise_variance == best.likelihood.noise_variance
    with pytest.raises(AssertionError, match="already"):
        climbed_once(again, start, widths, 11)


def test_networks_are_drawn_from_the_kernel(rng):
    """Units of inner weights N(0, 1 / l^2) about as wide as the kernel is, and other ones in each network."""
    lengthscale = np.array([0.5, 3.0])
    kernel = KERNEL.with_parameters(KERNEL.parameters | {"lengthscale": lengthscale, "variance": np.array([2.0])})
    sample = rng.standard_normal((500, 2))
    rows, box = (sample, None, np.ones(500), 500), (sample.min(axis=0), sample.max(axis=0))
    known = BasisInputs(
        *rows, kernel, Mean("zero"), 2000, "kmeans", 3, "none", *box, options=MixtureOptions(networks=2)
    )
    made = drawn(known)
    assert made.inner.shape == (2, 2000, 3)
    widths = np.array([np.hypot(2.0, 1 / 3.0), 2.0, 1 / 3.0])
    np.testing.assert_allclose(made.inner.std(axis=(0, 1)), widths, rtol=0.04)
    assert np.abs(made.inner[0] - made.inner[1]).max() > 1
    for inner, scale in zip(made.inner, made.scale, strict=True):
        variance = scale**2 * (Units(inner).features(sample) ** 2).sum(axis=1).mean()
        assert variance == pytest.approx(kernel.diagonal(sample).mean())
    np.testing.assert_array_equal(drawn(known).inner, made.inner)
