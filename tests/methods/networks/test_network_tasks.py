"""The evidence of a network as a sum over partitions, its gradient, and the climb along it."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import SerialRuntime
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks import ascent
from bcmdist.methods.networks.ascent import Ascent, NetworkAscent, climbed
from bcmdist.methods.networks.evidence import DesignedRows, Evidence, EvidenceInMemory, Network
from bcmdist.methods.networks.options import MixtureOptions
from bcmdist.methods.networks.rounds import EvidenceByRounds
from bcmdist.methods.networks.shared import Units
from bcmdist.methods.networks.training import drawn, inner_widths
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

    def make(rows_per_expert=10, mean="constant", runtime=None, held=None):
        context = TrainingContext(
            runtime or SerialRuntime(), [], lambda *_: [], scaling, store, "", True, "quick", 6, {}, {}
        )
        parts = partitions(open_data(path), rows_per_expert)
        return EvidenceByRounds(context, parts[:held], parts[held:] if held else [], Mean(mean))

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
    found = make(mean=mean)(start, whole=True)
    assert found.value == pytest.approx(evidence + np.log(root).sum(), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["zero", "linear"])
@pytest.mark.parametrize("rows_per_expert", [10, 40])
def test_gradient_is_that_of_finite_differences(case, mean, rows_per_expert, rng):
    objective, start = case[0](rows_per_expert, mean), network(rng)

    def moved(theta):
        return start.moved(theta[:-2].reshape(UNITS, 3), *theta[-2:])

    at = np.concatenate([start.inner.ravel(), [0.0, 0.0]])
    found = objective(start, whole=True)
    numeric = central_differences(lambda theta: objective(moved(theta), whole=True).value, at)
    gradient = np.concatenate([found.inner.ravel(), [found.log_scale, found.log_noise]])
    np.testing.assert_allclose(gradient, numeric, atol=1e-6 * np.abs(numeric).max())


def test_any_partitioning_gives_the_same(case, cluster, rng):
    make, start = case[0], network(rng)
    whole = make(40)(start, whole=True)
    for found in (make(10)(start, whole=True), make(10, runtime=cluster, held=2)(start, whole=True)):
        assert found.value == pytest.approx(whole.value, abs=1e-10)
        np.testing.assert_allclose(found.inner, whole.inner, atol=1e-10 * np.abs(whole.inner).max())
        assert found.log_scale == pytest.approx(whole.log_scale, abs=1e-9)
        assert found.log_noise == pytest.approx(whole.log_noise, abs=1e-9)


def test_rows_of_weight_two_are_there_twice(case, rng):
    objective, start = case[0](), network(rng)
    doubled = case[0]()
    doubled.parts = [*doubled.parts, *doubled.parts]
    objective.parts = [replace(part, weight=2.0) for part in objective.parts]
    np.testing.assert_allclose(objective(start, whole=True).inner, doubled(start, whole=True).inner, rtol=1e-10)
    assert objective(start, whole=True).log_noise == pytest.approx(doubled(start, whole=True).log_noise, rel=1e-10)


WIDTHS = inner_widths(KERNEL, 2)


@pytest.mark.slow
def test_climbing_ends_higher(case, rng):
    objective, start = case[0](), network(rng)
    reached = Ascent(WIDTHS, 30)(objective, start)
    assert reached.log_evidence > objective(start, whole=True).value + 10
    assert reached.log_evidence == objective(reached.network, whole=True).value
    assert 10 < reached.evaluations <= 60
    assert not reached.cut


def test_an_ascent_without_time_ends_with_the_best_so_far(case, rng):
    objective, start = case[0](), network(rng)
    reached = Ascent(WIDTHS, 30, seconds=0.0)(objective, start)
    assert reached.cut
    assert reached.evaluations < 30
    assert reached.log_evidence == objective(reached.network, whole=True).value > objective(start, whole=True).value


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_a_task_evaluates_as_two_rounds_do(case, mean, rng, monkeypatch):
    """In blocks of three rows, up to rounding."""
    rounds, start = case[0](mean=mean, held=3), network(rng)
    expected = [rounds(start, whole=whole) for whole in (True, False)]
    density = rounds.density(start)
    monkeypatch.setattr("bcmdist.methods.networks.evidence.BLOCK_NUMBERS", 3 * UNITS)
    ((_, rows),) = read_all([replace(rounds.parts[0], stop=ROWS)])
    X, obs = SCALING.inputs(rows.X), SCALING.observations(rows.obs, Gaussian(0.05).units, rows.X)
    in_memory = EvidenceInMemory(
        *(DesignedRows(X[some], obs[some], Mean(mean), UNITS) for some in (slice(30), slice(30, None)))
    )
    assert (len(in_memory.first.blocks), in_memory.rows_left_out) == (10, 10)
    for whole, other in zip((True, False), expected, strict=True):
        found = in_memory(start, whole=whole)
        assert found.value == pytest.approx(other.value, rel=1e-10)
        np.testing.assert_allclose(found.inner, other.inner, atol=1e-10 * np.abs(found.inner).max())
        assert found.log_scale == pytest.approx(other.log_scale, rel=1e-9)
        assert found.log_noise == pytest.approx(other.log_noise, rel=1e-9)
    assert in_memory.density(start) == pytest.approx(density, rel=1e-10)


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_density_is_that_of_dense_predictions(case, mean, rng):
    make, X, y, weight = case
    start, Z, target = network(rng), SCALING.inputs(X), (y - 0.2) / 1.3
    columns, root = np.hstack([network_columns(start.inner, 0.7, Z), Mean(mean).design(Z)]), np.sqrt(weight)
    first, held = slice(30), slice(30, None)
    b, covariance, _ = marginalised_network(root[first, None] * columns[first], 0.05, (root * target)[first])
    variance = 0.05 / weight[held] + np.einsum("ij,jk,ik->i", columns[held], covariance, columns[held])
    error = target[held] - columns[held] @ b
    expected = -0.5 * (error**2 / variance + np.log(2 * np.pi * variance)).sum()
    assert make(mean=mean, held=3).density(start) == pytest.approx(expected, rel=1e-9)


class ListedDensities(Evidence):
    """The evidence of some rows, with given densities of rows left out, one each time they are looked at."""

    rows_left_out = 1

    def __init__(self, of_rows, densities):
        self.of_rows, self.densities, self.asked = of_rows, iter(densities), []

    def __call__(self, network, *, whole):
        self.asked.append(whole)
        return self.of_rows(network, whole=whole)

    def density(self, network):
        return next(self.densities)


def test_rows_left_out_choose_the_network(case, rng):
    """The best at its first look, then worse at `PATIENCE` more."""
    of_rows, start = case[0](), network(rng)
    listed = ListedDensities(of_rows, [0.0, 9.0, 8.0, 7.0, 6.0, 5.0])
    reached = Ascent(WIDTHS, 300)(listed, start)
    best = Ascent(WIDTHS, ascent.LOOK)(of_rows, start)
    np.testing.assert_array_equal(reached.network.inner, best.network.inner)
    assert reached.log_evidence == of_rows(best.network, whole=True).value
    assert reached.without_left_out is reached.network
    assert listed.asked.count(True) == 1
    assert len(listed.asked) == reached.evaluations < 50


def test_a_network_that_still_gains_climbs_on_with_all_rows(case, rng):
    of_rows, start = case[0](), network(rng)
    listed = ListedDensities(of_rows, range(100))
    reached = Ascent(WIDTHS, 12)(listed, start)
    assert listed.asked == sorted(listed.asked)  # first without the rows left out
    assert 4 <= listed.asked.count(True) < listed.asked.count(False)
    assert reached.log_evidence == of_rows(reached.network, whole=True).value
    first = Ascent(WIDTHS, 8)(of_rows, start)
    np.testing.assert_array_equal(reached.without_left_out.inner, first.network.inner)
    assert first.without_left_out is None


@pytest.fixture
def train(case, rng, tmp_path):
    """A function from a runtime to the networks that two starts reach in ten iterations."""
    starts = [network(rng), network(rng)]

    def reached(runtime, scratch="scratch"):
        (tmp_path / scratch).mkdir(exist_ok=True)
        rounds = case[0](2, runtime=runtime)
        context = replace(rounds.context, scratch=str(tmp_path / scratch))
        return climbed(starts, rounds.parts, rounds.mean, Ascent(WIDTHS, 10), context)

    return reached


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.network.inner, other.network.inner)
        assert (one.network.scale, one.log_evidence) == (other.network.scale, other.log_evidence)
        assert one.network.likelihood.noise_variance == other.network.likelihood.noise_variance
        assert (one.evaluations, one.cut) == (other.evaluations, other.cut)
        first, second = one.without_left_out, other.without_left_out
        np.testing.assert_array_equal(first.inner, second.inner)
        assert first.likelihood.noise_variance == second.likelihood.noise_variance


def test_a_cluster_reaches_the_same_networks_side_by_side(train, cluster):
    """The same numbers: the ascent of a network is one task on one thread."""
    assert_same(train(cluster, "other"), train(SerialRuntime()))


def test_large_designs_are_trained_by_rounds_over_partitions(train, monkeypatch):
    """To the same networks, but for rounding, which ten iterations do not amplify by more than 1e4."""
    expected = train(SerialRuntime())
    monkeypatch.setattr(ascent, "LARGEST_BYTES", 0)
    monkeypatch.setattr(NetworkAscent, "__call__", None)
    for one, other in zip(train(SerialRuntime(), "other"), expected, strict=True):
        assert one.evaluations == other.evaluations
        np.testing.assert_allclose(one.network.inner, other.network.inner, rtol=1e-9)
        assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-10)


def test_a_worker_with_little_memory_does_not_hold_all_rows():
    assert ascent.side_by_side(100_000, 8, 250, allowed_bytes=1e9)
    assert not ascent.side_by_side(100_000, 8, 250, allowed_bytes=4e8)
    assert not ascent.side_by_side(100_000, 8, 500, allowed_bytes=1e10)


@pytest.mark.parametrize("rounds", [False, True])
def test_a_killed_training_goes_on_with_the_networks_left(train, monkeypatch, rounds):
    if rounds:
        monkeypatch.setattr(ascent, "LARGEST_BYTES", 0)
    expected = train(SerialRuntime(), "undisturbed")
    killing, trained = Ascent.__call__, []

    def killed_at_the_second(self, *start):
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(start)
        return killing(self, *start)

    monkeypatch.setattr(Ascent, "__call__", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        train(SerialRuntime())
    trained.append("the second network may be trained")
    assert_same(train(SerialRuntime()), expected)
    assert len(trained) == 3
    assert_same(train(SerialRuntime()), expected)
    assert len(trained) == 3


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
