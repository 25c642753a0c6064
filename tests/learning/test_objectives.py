from dataclasses import replace

import numpy as np
import pytest

from bcmdist import SerialRuntime
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.errors import InvalidOption
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.committee_tasks import TrialMessage
from bcmdist.learning.evidence.objectives import CommitteeObjective, LocalObjective, improved_points
from bcmdist.learning.search import EFFORTS, learn
from bcmdist.model.kernels import parse_kernel, split_parameters
from bcmdist.model.likelihoods import Bernoulli, Gaussian, NegativeBinomial, OneHot, Poisson, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.storage.commits import BlobReference, open_store
from oracles import central_differences, laplace_evidence, pitc_covariance
from problems import make_kernel

ROWS, INPUTS = 36, 2
LIKELIHOODS = [Gaussian(0.05), Bernoulli(), Poisson(), NegativeBinomial(1.5)]
SCALING = Scaling(np.array([0.1, -0.2]), np.array([1.1, 0.9]), 0.0, 1.0)


@pytest.fixture
def case(make_data, tmp_path, rng):
    """Partitions of targets that suit a likelihood, and what objectives need."""

    def make(likelihood, rows_per_expert=12, runtime=None, points=None, jitter=0.0):
        X = rng.uniform(-2, 2, (ROWS, INPUTS))
        f = np.sin(2 * X[:, 0]) + 0.3 * X.sum(axis=1) + 0.3 * rng.standard_normal(ROWS)
        y = {"gaussian": f, "bernoulli": (f > 0) * 1.0}.get(likelihood.name)
        y = rng.poisson(np.exp(f)).astype(float) if y is None else y
        weight = rng.uniform(0.5, 2.0, ROWS)
        path = make_data(f"{likelihood.name}.zarr", rows_per_chunk=6, X=X, y=y, weight=weight)
        parts = partitions(open_data(path), rows_per_expert)
        store = open_store(tmp_path / "model")
        scaling = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(SCALING)})["s"])
        common = {"scaling": scaling, "mean": "constant"}
        points = rng.uniform(-2, 2, (7, INPUTS)) if points is None else points
        runtime = runtime or SerialRuntime()
        committee = CommitteeObjective(runtime, parts, points=points, jitter=jitter, store=store, **common)
        return committee, LocalObjective(runtime, parts, **common)

    return make


def rows_of(objective):
    """Scaled inputs and observations of all partitions, one by one."""
    return [(SCALING.inputs(rows.X), rows.obs) for _, rows in read_all(objective.parts)]


def at(kernel, likelihood, theta):
    P = len(kernel.theta)
    values = split_parameters(likelihood.parameters, np.exp(theta[P:]))
    return kernel.with_theta(theta[:P]), likelihood.with_parameters(values)


def logs(kernel, likelihood):
    return np.concatenate([kernel.theta, *(np.log(v) for v in likelihood.parameters.values())])


def largest_error(exact, numeric):
    return np.abs(exact - numeric).max() / np.abs(numeric).max()


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda v: v.name)
def test_gradient_of_the_committee(case, likelihood):
    objective, _ = case(likelihood, jitter=1e-2)  # large enough to be seen in the gradient
    kernel = make_kernel("matern32-iso")
    _, gradient = objective(kernel, likelihood)
    numeric = central_differences(
        lambda theta: objective(*at(kernel, likelihood, theta))[0], logs(kernel, likelihood), step=1e-4
    )
    assert largest_error(gradient, numeric) <= 1e-6  # of the differences


POINTS_CASES = [(name, LIKELIHOODS[0]) for name in ("se", "matern52-iso", "rq*linear+constant", "se+poly2")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "likelihood"), [*POINTS_CASES, ("matern32", LIKELIHOODS[3])])
def test_gradient_in_the_query_points(case, rng, name, likelihood):
    objective, _ = case(likelihood, jitter=1e-2)  # large enough to be seen in the gradient
    kernel, points = make_kernel(name), objective.points
    value, gradient = objective.at_points(kernel, likelihood, points)
    assert value == objective(kernel, likelihood)[0]
    direction, h = rng.standard_normal(points.shape), 2e-4
    plus, minus, plus2, minus2 = (
        objective.at_points(kernel, likelihood, points + step * direction)[0] for step in (h, -h, 2 * h, -2 * h)
    )
    numeric = (8.0 * (plus - minus) - (plus2 - minus2)) / (12 * h)
    assert np.vdot(gradient, direction) == pytest.approx(numeric, rel=1e-6)  # of the differences


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda v: v.name)
def test_value_is_that_of_dense_pitc(case, likelihood):
    objective, _ = case(likelihood)
    kernel = make_kernel("matern32")
    value, _ = objective(kernel, likelihood)
    blocks = rows_of(objective)
    K = pitc_covariance(kernel, Mean("constant").design, objective.points, 0.0, [X for X, _ in blocks])
    obs = joined(blocks)
    f = dense_mode(K, likelihood, obs)
    assert value == pytest.approx(laplace_evidence(K, likelihood, obs, f), rel=1e-9)


def joined(blocks):
    return Observations(*(np.concatenate([getattr(o, n) for _, o in blocks]) for n in ("y", "weight")))


def dense_mode(K, likelihood, obs):
    """Newton's iteration for all rows; that of a Gaussian likelihood is there after one step."""
    f = np.zeros(len(K))
    for _ in range(50):
        w = likelihood.curvature(obs, f)
        f = K @ np.linalg.solve(np.eye(len(K)) + w[:, None] * K, w * f + likelihood.score(obs, f))
    return f


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda v: v.name)
def test_one_partition_is_the_exact_gp(case, likelihood):
    """Whatever the query points; and the local objective is the same."""
    committee, local = case(likelihood, rows_per_expert=ROWS)
    kernel = make_kernel("rq")
    ((X, obs),) = rows_of(committee)
    value, gradient = local_evidence(kernel, Mean("constant"), likelihood, X, obs)
    for found, slopes in (committee(kernel, likelihood), local(kernel, likelihood)):
        assert found == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(slopes, gradient, atol=1e-7 * np.abs(gradient).max())  # the mode, to 1e-8


def test_local_is_the_sum_over_its_parts_of_the_moment(case):
    likelihood, kernel = Gaussian(0.05), make_kernel("se")
    _, local = case(likelihood)
    alone = [local_evidence(kernel, Mean("constant"), likelihood, X, obs)[0] for X, obs in rows_of(local)]
    assert local(kernel, likelihood)[0] == pytest.approx(sum(alone), rel=1e-12)
    before = local.identity
    local.parts = local.parts[1:2]
    assert local(kernel, likelihood)[0] == pytest.approx(alone[1], rel=1e-12)
    assert local.identity != before


@pytest.mark.parametrize("likelihood", [LIKELIHOODS[0], LIKELIHOODS[3]], ids=lambda v: v.name)
def test_a_partition_of_weight_two_is_two(case, likelihood):
    objective, _ = case(likelihood)
    kernel, (first, *others) = make_kernel("matern32"), objective.parts
    objective.parts = [first, first, *others]
    twice = objective(kernel, likelihood)
    objective.parts = [type(first)(first.data, first.start, first.stop, 2.0), *others]
    weighted = objective(kernel, likelihood)
    assert weighted[0] == pytest.approx(twice[0], rel=1e-10)
    np.testing.assert_allclose(weighted[1], twice[1], rtol=1e-7)


def test_failures_are_values_with_a_reason(case):
    points = np.zeros((3, INPUTS))
    objective, local = case(Gaussian(0.05), points=points)  # three times the same point, without jitter
    kernel = make_kernel("se")
    value, gradient = objective(kernel, Gaussian(0.05))
    assert value == -np.inf
    np.testing.assert_array_equal(gradient, np.zeros(4))
    assert "query covariance" in objective.reasons[-1]
    assert objective.at_points(kernel, Gaussian(0.05), points)[0] == -np.inf
    np.testing.assert_array_equal(improved_points(objective, kernel, Gaussian(0.05), points, 3), points)
    wide = kernel.with_parameters({"variance": np.full(1, 1e20), "lengthscale": np.full(2, 1e5)})
    assert local(wide, Gaussian(1e-12))[0] == -np.inf
    assert "covariance of a partition's targets" in local.reasons[-1]


def test_passes_that_do_not_converge_are_a_failure(case, monkeypatch):
    objective, _ = case(Poisson())
    monkeypatch.setattr("bcmdist.learning.evidence.objectives.MOST_PASSES", 2)
    assert objective(make_kernel("se"), Poisson())[0] == -np.inf
    assert "joint mode of the committee" in objective.reasons[0]


class FarOut(SerialRuntime):
    """Begins the passes at a belief from which full steps overshoot."""

    def sum(self, task, parts, *, label):
        total = super().sum(task, parts, label=label)
        if not isinstance(task, TrialMessage) or task.at:
            return total
        return replace(total, message=replace(total.message, eta=40.0 * total.message.eta))


def test_steps_towards_the_mode_are_halved(case):
    objective, _ = case(LIKELIHOODS[3])
    kernel = make_kernel("se")
    calm, _ = objective(kernel, LIKELIHOODS[3])
    objective.runtime = FarOut()
    assert objective(kernel, LIKELIHOODS[3])[0] == pytest.approx(calm, rel=1e-9)


def test_nothing_is_left_in_the_store(case):
    objective, _ = case(Poisson())
    before = objective.store.storage.names("blobs")
    assert np.isfinite(objective(make_kernel("se"), Poisson())[0])
    assert objective.store.storage.names("blobs") == before


def test_likelihoods_without_a_committee_evidence_are_refused(case):
    objective, _ = case(Gaussian(0.05))
    for likelihood in (OneHot(3, 0.1), make_likelihood("svm")):
        with pytest.raises(InvalidOption, match="expected a likelihood with probabilities and one latent process"):
            objective(make_kernel("se"), likelihood)


def test_query_points_improve(case):
    objective, _ = case(Gaussian(0.05), points=np.array([[-0.1, 0.0], [0.0, 0.1], [0.1, 0.0]]), jitter=1e-8)
    kernel, likelihood = make_kernel("se"), Gaussian(0.05)
    start, _ = objective(kernel, likelihood)
    better = improved_points(objective, kernel, likelihood, objective.points, 10)
    objective.points = better
    assert objective(kernel, likelihood)[0] > start + 1.0  # nats


def test_learning_climbs_the_committee_and_remembers_it(case, tmp_path):
    objective, local = case(Gaussian(0.05), jitter=1e-8)
    effort = replace(EFFORTS["quick"], isotropic_steps=2, steps=2)
    start = objective(parse_kernel("se-iso", inputs=INPUTS), Gaussian(0.5))[0]
    log = CachedObjective(objective, tmp_path / "log")
    found = learn(lambda _: log, "se", Gaussian(0.5), inputs=INPUTS, effort=effort)
    assert found.objective > start
    again = CachedObjective(objective, tmp_path / "log")
    again(found.kernel, found.likelihood)
    assert again.computed == 0
    again.objective = local
    again(found.kernel, found.likelihood)
    objective.points = objective.points + 0.1
    again.objective = objective
    again(found.kernel, found.likelihood)
    assert again.computed == 2


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [LIKELIHOODS[0], LIKELIHOODS[3]], ids=lambda v: v.name)
def test_serial_is_dask(case, cluster, likelihood):
    objective, local = case(likelihood)
    kernel = make_kernel("matern32")
    for one in (objective, local):
        one.runtime = SerialRuntime()
        serial = one(kernel, likelihood)
        one.runtime = cluster
        value, gradient = one(kernel, likelihood)
        assert value == pytest.approx(serial[0], rel=1e-12)
        np.testing.assert_allclose(gradient, serial[1], rtol=1e-9)
