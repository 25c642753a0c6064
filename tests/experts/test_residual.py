"""What experts do with the rest of f: against dense oracles, by their limits, and never with an n x n matrix."""

import tracemalloc
from inspect import getmembers, isfunction

import numpy as np
import pytest

from bcmdist import GBCM, Settings, linalg
from bcmdist.committee.committee import Committee
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption, MemoryLimit
from bcmdist.experts import factor
from bcmdist.experts.ep import ep_pass
from bcmdist.experts.expert import conditional_message, expert_message, running_message
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.limits import refuse_expert_of
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.message import zero_message
from bcmdist.experts.residual import RESIDUALS, kind_of
from bcmdist.learning.query_selection import select_points
from bcmdist.model.likelihoods import Bernoulli, Gaussian, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.diagnosis.diagnosis import degrees_share
from bcmdist.prediction.joint.committee import joint_latent
from bcmdist.prediction.latent import predict_latent
from bcmdist.runtime import memory
from bcmdist.testing import check_residual
from oracles import full_gp, independent_rest, laplace_prediction, linear_regression, pitc
from problems import assert_same_committee, class_problem, make_kernel, regression_problem, split

NOISE = 0.1
KERNEL = make_kernel("matern52")
APART = ("none", "diagonal")


def shared_of(problem, residual, mean="zero"):
    return prepare(problem.Xq, kernel=KERNEL, mean=Mean(mean), residual=residual)


def committee_of(shared, likelihood, problem, edges=(20, 41)):
    blocks = split(len(problem.X), edges)
    messages = [expert_message(shared, likelihood, problem.X[b], problem.obs[b]) for b in blocks]
    return Committee(sum(messages, zero_message(shared, likelihood)))


def columns(shared, X):
    """Plain columns b(x) with b'b the part of the prior covariance that the shared variables explain."""
    kernel = shared.kernel
    L = np.linalg.cholesky(kernel.cross(shared.points, shared.points))
    return np.hstack([np.linalg.solve(L, kernel.cross(shared.points, X)).T, shared.mean.design(X)])


def residual_variance(shared, X):
    """What these columns leave of the kernel's variance, for each row."""
    V = columns(shared, X)[:, : len(shared.points)]
    return shared.kernel.diagonal(X) - (V**2).sum(axis=1)


def test_values_at_query_points_alone_are_a_regression_on_their_columns(rng):
    problem = regression_problem(rng)
    shared = shared_of(problem, "none", "constant")
    belief = committee_of(shared, Gaussian(NOISE), problem).posterior
    V, Vs = columns(shared, problem.X), columns(shared, problem.Xs)
    mean, covariance = linear_regression(V, problem.obs.y, NOISE, Vs)
    np.testing.assert_allclose(predict_latent(shared, belief, problem.Xs), [mean, np.diag(covariance)], atol=1e-10)
    np.testing.assert_allclose(joint_latent(shared, belief, problem.Xs)[1], covariance, atol=1e-10)


def test_a_diagonal_is_fitc(rng):
    problem = regression_problem(rng)
    shared = shared_of(problem, "diagonal")
    committee = committee_of(shared, Gaussian(NOISE), problem)
    rows = [row[None] for row in problem.X]
    mean, variance, evidence = pitc(KERNEL, problem.Xq, rows, list(problem.obs.y[:, None]), NOISE, problem.Xs)
    found = predict_latent(shared, committee.posterior, problem.Xs)
    np.testing.assert_allclose(found, [mean, variance], atol=1e-10)
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(np.diag(joint_latent(shared, committee.posterior, problem.Xs)[1]), variance, atol=1e-10)


def test_new_rows_that_are_apart_have_a_rest_of_their_own(rng):
    """The joint covariance of the model itself: between rows only what the shared variables make."""
    problem = regression_problem(rng)
    shared = shared_of(problem, "diagonal")
    belief = committee_of(shared, Gaussian(NOISE), problem).posterior
    V = columns(shared, problem.Xs)
    L = belief.factor
    between = V @ np.linalg.solve(L @ L.T, V.T)
    covariance = between + np.diag(residual_variance(shared, problem.Xs))
    np.testing.assert_allclose(joint_latent(shared, belief, problem.Xs)[1], covariance, atol=1e-10)


def assert_same_message(one, other, tolerance=1e-10):
    np.testing.assert_allclose(one.precision, other.precision, atol=tolerance)
    np.testing.assert_allclose(one.eta, other.eta, atol=tolerance)
    assert one.evidence == pytest.approx(other.evidence, abs=tolerance * max(1.0, abs(other.evidence)))


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "student_t"])
def test_a_diagonal_is_blocks_of_one_row(rng, name):
    """Given the shared variables rows are apart, whoever absorbs them: a law of both."""
    likelihood = make_likelihood(name)
    if name == "student_t":  # so wide that each row has one mode
        likelihood = likelihood.with_parameters({"noise_variance": np.array([4.0])})
    problem = regression_problem(rng, rows=30) if name in ("gaussian", "student_t") else class_problem(rng, rows=30)
    one, each = shared_of(problem, "diagonal", "linear"), shared_of(problem, "block", "linear")
    at = 0.1 * rng.standard_normal(one.size)
    whole = conditional_message(one, likelihood, problem.X, problem.obs, at)
    rows = [conditional_message(each, likelihood, problem.X[b], problem.obs[b], at) for b in split(30, range(1, 30))]
    assert_same_message(whole.message, sum((row.message for row in rows), zero_message(one, likelihood)), 1e-8)
    assert whole.objective == pytest.approx(sum(row.objective for row in rows), abs=1e-8)
    if whole.step is not None:
        assert_same_message(whole.step, sum((row.step for row in rows), zero_message(one, likelihood)), 1e-7)
    if name == "gaussian":
        alone = [expert_message(each, likelihood, problem.X[b], problem.obs[b]) for b in split(30, range(1, 30))]
        found = expert_message(one, likelihood, problem.X, problem.obs)
        assert_same_message(found, sum(alone, zero_message(one, likelihood)))


@pytest.mark.parametrize("residual", APART)
@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_one_laplace_expert_is_the_dense_approximation(rng, residual, name):
    problem, likelihood = class_problem(rng), make_likelihood(name)
    shared = shared_of(problem, residual, "constant")
    belief = committee_of(shared, likelihood, problem, ()).posterior
    V, Vs = columns(shared, problem.X), columns(shared, problem.Xs)
    own, new = (residual_variance(shared, X) * (residual == "diagonal") for X in (problem.X, problem.Xs))
    prior = (Vs**2).sum(axis=1) + new
    exact = laplace_prediction(V @ V.T + np.diag(own), Vs @ V.T, prior, likelihood, problem.obs)
    np.testing.assert_allclose(predict_latent(shared, belief, problem.Xs), exact, atol=1e-8)


@pytest.mark.parametrize("residual", APART)
def test_a_running_belief_is_the_prior_of_the_next(rng, residual):
    problem, likelihood = class_problem(rng), Bernoulli()
    shared = shared_of(problem, residual)
    belief = committee_of(shared, likelihood, problem, ()).posterior
    V, L = columns(shared, problem.X), belief.factor
    own = residual_variance(shared, problem.X) * (residual == "diagonal")
    K = np.diag(own) + V @ np.linalg.solve(L @ L.T, V.T)
    f = laplace_mode(np.asfortranarray(K), problem.obs, likelihood, V @ belief.mean)
    w, s = likelihood.curvature(problem.obs, f), likelihood.score(problem.obs, f)
    found = running_message(shared, likelihood, problem.X, problem.obs, belief)
    np.testing.assert_allclose(found.precision, V.T @ ((w / (1 + w * own))[:, None] * V), atol=1e-7)
    np.testing.assert_allclose(found.eta, V.T @ ((w * f + s) / (1 + w * own)), atol=1e-7)


@pytest.mark.parametrize("residual", APART)
def test_degrees_of_freedom_are_those_of_the_dense_prior(rng, residual):
    """sum w_j var(f_j | all targets) = tr K (K + W^-1)^-1."""
    problem = regression_problem(rng)
    shared, likelihood = shared_of(problem, residual), Gaussian(NOISE)
    belief = committee_of(shared, likelihood, problem).posterior
    found = sum(degrees_share(shared, likelihood, problem.X[b], problem.obs[b], belief) for b in split(60, [20, 41]))
    V = columns(shared, problem.X)
    K = V @ V.T + np.diag(residual_variance(shared, problem.X) * (residual == "diagonal"))
    assert found == pytest.approx(np.trace(K @ np.linalg.inv(K + NOISE * np.eye(60))), abs=1e-9)


@pytest.mark.parametrize("name", ["none", "diagonal", "block", "augmented"])
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_conformance(rng, name, mean):
    problem = regression_problem(rng)
    check_residual(RESIDUALS[name], shared_of(problem, name, mean), problem.X[:9])


def test_conformance_of_a_factor_in_pieces(rng, monkeypatch):
    monkeypatch.setattr(factor, "GRAM_ROWS", 5)  # two pieces, of which the last is short
    problem = regression_problem(rng)
    check_residual(RESIDUALS["diagonal"], shared_of(problem, "diagonal"), problem.X[:9])


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_modes_do_not_depend_on_how_a_covariance_is_stored(rng, size):
    d, U = rng.uniform(0, 1, 40), size * rng.standard_normal((40, 5))
    obs = unweighted((rng.standard_normal(40) > 0) * 1.0)
    dense = laplace_mode(np.asfortranarray(np.diag(d) + U @ U.T), obs, Bernoulli())
    np.testing.assert_allclose(laplace_mode(LowRank(d, U), obs, Bernoulli()), dense, atol=1e-6 * max(1.0, size))


def test_nothing_to_search_is_the_prior_mean(rng):
    """Given the shared variables rows without a rest are known."""
    prior = LowRank(np.zeros(7), np.empty((7, 0)))
    mean = rng.standard_normal(7)
    np.testing.assert_array_equal(laplace_mode(prior, unweighted(np.ones(7)), Bernoulli(), mean), mean)


ROWS, POINTS = 3000, 20


@pytest.fixture
def spied(monkeypatch):
    """Shapes of all matrices that the functions of `linalg` take or give."""
    shapes = []

    def spy(function):
        def called(*args, **kwargs):
            found = function(*args, **kwargs)
            shapes.extend(np.shape(one) for one in (*args, *kwargs.values(), found) if isinstance(one, np.ndarray))
            return found

        return called

    for name, function in getmembers(linalg, isfunction):
        if function.__module__ == linalg.__name__:
            monkeypatch.setattr(linalg, name, spy(function))
    return shapes


@pytest.mark.parametrize("residual", [*APART, "block"])
@pytest.mark.parametrize("name", ["gaussian", "bernoulli"])
def test_rows_apart_never_make_a_matrix_of_rows(rng, spied, residual, name):
    rows = ROWS if residual != "block" else 300  # a block does, as this test would notice
    problem, likelihood = class_problem(rng, rows=rows, query=POINTS), make_likelihood(name)
    shared = shared_of(problem, residual, "linear")
    tracemalloc.start()
    expert_message(shared, likelihood, problem.X, problem.obs)
    message = conditional_message(shared, likelihood, problem.X, problem.obs, np.zeros(shared.size)).message
    belief = Committee(message).posterior
    running_message(shared, likelihood, problem.X, problem.obs, belief)
    predict_latent(shared, belief, problem.X)
    degrees_share(shared, likelihood, problem.X, problem.obs, belief)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    square = [shape for shape in spied if len(shape) == 2 and min(shape) >= rows]
    assert spied
    assert bool(square) == (residual == "block")
    assert (peak < 8 * rows**2) == (residual != "block")


def test_memory_is_projected_without_such_a_matrix(rng):
    """And covers what is taken."""
    rows, points = 20_000, 60
    problem = class_problem(rng, rows=rows, query=points)
    for name in ("gaussian", "bernoulli"):
        likelihood, shared = make_likelihood(name), shared_of(problem, "diagonal")
        tracemalloc.start()
        expert_message(shared, likelihood, problem.X, problem.obs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sizes = {"kernels": 1, "laplace": not likelihood.exact}
        need = {
            residual: RESIDUALS[residual].expert_bytes(rows, shared.size, classes=1, coupled=False, **sizes)
            for residual in RESIDUALS
        }
        assert peak <= need["diagonal"] == need["none"] < 2 * peak + 8 * 20 * points**2
        assert need["block"] > 8 * rows**2


class Part:
    """What limits ask of a partition."""

    rows = 10**6

    class data:  # noqa: N801 - an attribute
        chunk_bytes, chunk_rows, inputs, url = 10**6, 1000, 4, "rows.zarr"


class Worker:
    allowed_bytes = 20e9


def test_large_partitions_are_refused_where_they_make_a_matrix():
    refuse_expert_of([Part], 100, 1, Worker, Gaussian(NOISE), residual="diagonal")
    with pytest.raises(MemoryLimit, match="expert of 1000000 rows about 100 shared variables"):
        refuse_expert_of([Part], 100, 1, Worker, Gaussian(NOISE))
    with pytest.raises(MemoryLimit, match="expert of 1000000 rows about 5000 shared variables"):
        refuse_expert_of([Part], 5000, 1, Worker, Gaussian(NOISE), residual="none")
    assert memory.independent_expert_bytes(10**6, 100, kernels=1, laplace=False) < 20e9


@pytest.mark.parametrize("residual", APART)
def test_expectation_propagation_needs_the_matrix(rng, residual):
    problem = class_problem(rng)
    with pytest.raises(InvalidOption, match="expectation propagation: expected an expert that couples the rows of a p"):
        ep_pass(shared_of(problem, residual), Bernoulli(), problem.X, problem.obs)


def test_a_residual_that_nobody_added(rng):
    shared = shared_of(regression_problem(rng), "wishful")
    with pytest.raises(InvalidOption, match=r"residual: expected one of none, .*augmented.*got 'wishful'"):
        kind_of(shared)


NAMED = {"fitc": "diagonal", "sor": "none"}


@pytest.mark.parametrize("name", NAMED)
def test_experts_about_query_points_by_name(wave, cluster, name):
    """As users choose them: what dense matrices say of the query points that were stored."""
    path, X, y = wave
    given = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05}
    how = {"kernel": "matern52", "mean": "zero", "learn": False, "set": given, "query": 30, "rows_per_expert": 50}
    gbcm = GBCM.fit(path, Settings(expert=name, **how))
    shared, scaling = gbcm.model.shared, gbcm.model.scaling
    assert (gbcm.info()["expert"], shared.kind, shared.residual) == (name, "query", NAMED[name])
    np.testing.assert_array_equal(shared.points, GBCM.prepare(path, Settings(**how)).model.query.points)
    V, own = (part(shared, scaling.inputs(X)) for part in (columns, residual_variance))
    own = own * (name == "fitc")  # SoR has none
    mean, variance, evidence = independent_rest(V, own, (y - y.mean()) / y.std(), 0.05, V, own)
    found = gbcm.predict(X)
    np.testing.assert_allclose(found["mean"], y.mean() + y.std() * mean, atol=1e-8)
    np.testing.assert_allclose(found["variance"], y.var() * variance, atol=1e-8)
    assert gbcm.info()["log_evidence"] == pytest.approx(evidence - 240 * np.log(y.std()), abs=1e-6)
    assert_same_committee(GBCM.fit(path, Settings(expert=name, **how), runtime=cluster).committee, gbcm.committee)
    forgotten = gbcm.forget([gbcm.ledger[0].key])
    again = forgotten.absorb(partitions(open_data(path), 50))
    assert_same_committee(again.committee, gbcm.committee)


@pytest.mark.parametrize("name", ["linear", "linear+constant", "poly2", "poly3"])
def test_a_kernel_of_a_finite_basis_leaves_nothing(rng, name):
    """As many query points as basis functions are the weights of that basis: exact, and no matrix of rows."""
    problem, kernel = regression_problem(rng), make_kernel(name)
    points = select_points(problem.X, 25, kernel=kernel)
    shared = prepare(points, kernel=kernel, mean=Mean("constant"), residual="none")
    committee = committee_of(shared, Gaussian(NOISE), problem)
    mean, covariance, evidence = full_gp(kernel, Mean("constant").design, problem.X, problem.obs.y, NOISE, problem.Xs)
    found = predict_latent(shared, committee.posterior, problem.Xs)
    np.testing.assert_allclose(found, [mean, np.diag(covariance)], atol=1e-9)
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-7)
