"""Augmented experts (RRGP*): against dense formulas, by their limits, and as `--expert rrgp_star`."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.linalg import inv, solve

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption
from bcmdist.experts.expert import conditional_message, expert_message
from bcmdist.experts.message import zero_message
from bcmdist.experts.residual import Spanned, kind_of, support
from bcmdist.model.likelihoods import Bernoulli, Gaussian, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.diagnosis.diagnosis import degrees_share
from bcmdist.prediction.joint.committee import joint_latent
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from oracles import laplace_prediction, linear_regression
from problems import assert_same_committee, class_problem, make_kernel, regression_problem, split

NOISE, ROWS = 0.1, 60
KERNEL = make_kernel("matern52")


def shared_of(problem, residual="augmented", mean="zero", kernel=KERNEL):
    return prepare(problem.Xq, kernel=kernel, mean=Mean(mean), residual=residual)


def committee_of(shared, likelihood, problem, edges=()):
    blocks = split(len(problem.X), edges)
    messages = [expert_message(shared, likelihood, problem.X[b], problem.obs[b]) for b in blocks]
    return Committee(sum(messages, zero_message(shared, likelihood)))


def parts_of(shared, X):
    """Columns V of all shared variables and the rest of the rows, by inverses and with the support written out."""
    k, Xq = shared.kernel.cross, shared.points
    V = np.hstack([solve(np.linalg.cholesky(k(Xq, Xq)), k(Xq, X)).T, shared.mean.design(X)])
    s = support(len(X), len(Xq))

    def left(A, B):
        return k(A, B) - k(A, Xq) @ solve(k(Xq, Xq), k(Xq, B))

    return V, left(X, X[s]) @ solve(left(X[s], X[s]), left(X[s], X))


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_message_is_that_of_dense_matrices(rng, mean):
    problem = regression_problem(rng)
    shared, weight = shared_of(problem, mean=mean), rng.uniform(0.5, 2.0, ROWS)
    obs, (V, rest) = replace(problem.obs, weight=weight), parts_of(shared, problem.X)
    R, y = np.diag(NOISE / weight) + rest, problem.obs.y
    found = expert_message(shared, Gaussian(NOISE), problem.X, obs)
    np.testing.assert_allclose(found.precision, V.T @ solve(R, V), atol=1e-10 * np.abs(found.precision).max())
    np.testing.assert_allclose(found.eta, V.T @ solve(R, y), atol=1e-10 * np.abs(found.eta).max())
    evidence = -0.5 * (y @ solve(R, y) + np.linalg.slogdet(R)[1] + ROWS * np.log(2 * np.pi))
    assert found.evidence == pytest.approx(evidence, abs=1e-9)


def test_one_expert_is_the_reduced_rank_process_of_support_and_query_points(rng):
    """T13, augmented jointly by all query points: at these, subset of regressors of both sets."""
    problem = regression_problem(rng)
    shared = shared_of(problem)
    both = np.vstack([problem.Xq, problem.X[support(ROWS, len(problem.Xq))]])
    L = np.linalg.cholesky(KERNEL.cross(both, both))
    Phi, Phis = (solve(L, KERNEL.cross(both, Z)).T for Z in (problem.X, problem.Xq))
    mean, covariance = linear_regression(Phi, problem.obs.y, NOISE, Phis)
    belief = committee_of(shared, Gaussian(NOISE), problem).posterior
    found = joint_latent(shared, belief, problem.Xq)
    np.testing.assert_allclose(found[0], mean, atol=1e-9)
    np.testing.assert_allclose(found[1], covariance, atol=1e-9)


def test_far_from_all_rows_the_prior_is_exact(rng):
    problem = regression_problem(rng)
    shared = shared_of(problem)
    belief = committee_of(shared, Gaussian(NOISE), problem).posterior
    assert predict_latent(shared, belief, np.full((1, 2), 100.0))[1] == pytest.approx(KERNEL.diagonal(problem.X[:1]))


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson"])
def test_with_all_rows_in_the_support_it_is_the_block(rng, name):
    """Partitions of no more rows than query points."""
    likelihood = make_likelihood(name)
    problem = regression_problem(rng) if name == "gaussian" else class_problem(rng)
    edges, block = range(9, ROWS, 9), shared_of(problem, "block")
    one = committee_of(shared_of(problem), likelihood, problem, edges)
    assert_same_committee(one, committee_of(block, likelihood, problem, edges), 1e-8)


def test_one_laplace_expert_is_the_dense_approximation(rng):
    problem = class_problem(rng)
    shared = shared_of(problem, mean="constant")
    belief = committee_of(shared, Bernoulli(), problem).posterior
    (V, rest), (Vs, _) = parts_of(shared, problem.X), parts_of(shared, problem.Xs)
    prior = KERNEL.diagonal(problem.Xs) + (shared.mean.design(problem.Xs) ** 2).sum(axis=1)
    exact = laplace_prediction(V @ V.T + rest, Vs @ V.T, prior, Bernoulli(), problem.obs)
    np.testing.assert_allclose(predict_latent(shared, belief, problem.Xs), exact, atol=1e-7)


@pytest.mark.parametrize("name", ["student_t", "negative_binomial"])
def test_a_later_pass_is_that_of_the_same_matrix_as_a_block(rng, name):
    from bcmdist.experts.laplace import step_message
    from bcmdist.experts.residual import Block

    problem, likelihood = regression_problem(rng, rows=20), make_likelihood(name)
    obs = problem.obs if name == "student_t" else unweighted(rng.poisson(2.0, 20).astype(float))
    shared, f = shared_of(problem), 0.3 * rng.standard_normal(20)
    V = shared.design(problem.X)
    Lam = kind_of(shared).residual(shared, V, problem.X)
    dense = Block(np.asfortranarray(Lam.B @ Lam.B.T))
    one, other = (step_message(V, rest, obs, likelihood, f) for rest in (Lam, dense))
    np.testing.assert_allclose(one.precision, other.precision, atol=1e-10 * np.abs(other.precision).max())
    np.testing.assert_allclose(one.eta, other.eta, atol=1e-10 * np.abs(other.eta).max())
    at = 0.1 * rng.standard_normal(shared.size)
    assert np.isfinite(conditional_message(shared, likelihood, problem.X, obs, at).objective)


def test_what_a_factor_promises(rng):
    B, noise, x = rng.standard_normal((12, 3)), rng.uniform(0.1, 1.0, 12), rng.standard_normal((12, 4))
    A, factor, root = np.diag(noise) + B @ B.T, Spanned(B).factor(noise), rng.uniform(0.0, 2.0, 12)
    T = factor.whiten(np.eye(12))
    np.testing.assert_allclose(T.T @ T, inv(A), atol=1e-12)
    np.testing.assert_allclose(factor.whiten(x), T @ x, atol=1e-12)
    np.testing.assert_allclose(factor.whiten(x[:, 0]), T @ x[:, 0], atol=1e-12)
    np.testing.assert_allclose(factor.weigh(root, x), T @ (root[:, None] * x), atol=1e-12)
    np.testing.assert_allclose(factor.gram(root, x), x.T @ (root[:, None] * inv(A) * root) @ x, atol=1e-11)
    np.testing.assert_allclose(factor.solve(x), solve(A, x), atol=1e-12)
    np.testing.assert_allclose(factor.solve(x[:, 0]), solve(A, x[:, 0]), atol=1e-12)
    np.testing.assert_allclose(factor.inverse_diagonal(np.array([2, 5])), np.diag(inv(A))[[2, 5]], atol=1e-12)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1])
    h = rng.standard_normal(12)
    np.testing.assert_allclose(Spanned(B).pull(h, x), solve(np.eye(12) + h[:, None] * (B @ B.T), x), atol=1e-9)


def test_degrees_and_rows_left_out_are_those_of_dense_matrices(rng):
    problem = regression_problem(rng)
    shared = shared_of(problem)
    belief = committee_of(shared, Gaussian(NOISE), problem).posterior
    V, rest = parts_of(shared, problem.X)
    K = V @ V.T + rest
    found = degrees_share(shared, Gaussian(NOISE), problem.X, problem.obs, belief)
    assert found == pytest.approx(np.trace(K @ inv(K + NOISE * np.eye(ROWS))), abs=1e-8)
    row, kept = 7, np.delete(np.arange(ROWS), 7)
    S = K + NOISE * np.eye(ROWS)
    reach = (V @ V.T)[row, kept]
    mean = reach @ solve(S[np.ix_(kept, kept)], problem.obs.y[kept])
    found = left_out_of_committee(shared, Gaussian(NOISE), belief, problem.X, problem.obs, np.array([row]))
    assert found[0][0] == pytest.approx(mean, abs=1e-8)
    left = KERNEL.diagonal(problem.X[[row]])[0] - reach @ solve(S[np.ix_(kept, kept)], reach)
    assert found[1][0] == pytest.approx(left, abs=1e-8)


def test_rows_at_query_points_leave_nothing(rng):
    """A support that the query points determine, and one that repeats itself, are left out."""
    problem = regression_problem(rng)
    X = np.vstack([problem.Xq, problem.Xq, problem.X[:2], problem.X[:2]])
    y = rng.standard_normal(len(X))
    found = expert_message(shared_of(problem), Gaussian(NOISE), X, unweighted(y))
    block = expert_message(shared_of(problem, "block"), Gaussian(NOISE), X[: len(problem.Xq)], unweighted(y[:9]))
    alone = expert_message(shared_of(problem), Gaussian(NOISE), X[: len(problem.Xq)], unweighted(y[:9]))
    assert np.all(np.isfinite(found.precision))
    np.testing.assert_allclose(alone.precision, block.precision, rtol=1e-5)


def test_no_matrix_of_the_rows(rng):
    X = rng.uniform(-2, 2, (20_000, 2))
    shared = prepare(X[:20], kernel=KERNEL, mean=Mean("constant"), residual="augmented")
    tracemalloc.start()
    expert_message(shared, Gaussian(NOISE), X, unweighted(np.sin(X[:, 0])))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e8 < 20_000**2 * 8


GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05}
ASKED = Settings(expert="rrgp_star", kernel="se", learn=False, set=GIVEN, query=30, rows_per_expert=50)


def test_the_expert_by_its_name(wave, tmp_path):
    path, X, _ = wave
    gbcm = GBCM.fit(path, ASKED, model=tmp_path / "model")
    assert (gbcm.info()["expert"], gbcm.info()["query"]) == ("rrgp_star", 30)
    assert gbcm.model.shared.residual == "augmented"
    assert gbcm.score(path)["rmse"] < 0.3
    found = GBCM.load(tmp_path / "model").predict(X)
    for name, value in gbcm.predict(X).items():
        np.testing.assert_array_equal(found[name], value)


def test_a_committees_life(wave, tmp_path):
    path, *_ = wave
    gbcm = GBCM.fit(path, ASKED, model=tmp_path / "model")
    prepared = GBCM.prepare(path, ASKED, model=tmp_path / "prepared")
    absorbed, _ = prepared.ingest(prepared.source(path))
    assert_same_committee(absorbed.committee, gbcm.committee)
    gone = [entry.key for entry in gbcm.ledger if "[50:" in entry.key]
    parts = [part for part in partitions(open_data(path), 50) if "[50:" not in part.key]
    rest = GBCM.prepare(path, ASKED, model=tmp_path / "rest").absorb(parts)
    assert_same_committee(gbcm.forget(gone).committee, rest.committee)


def test_classes_in_several_passes(classes):
    path, *_ = classes
    given = {name: value for name, value in GIVEN.items() if name.startswith("kernel")}
    gbcm = GBCM.fit(path, replace(ASKED, set=given, passes="auto"))
    assert gbcm.info()["converged"]
    assert gbcm.score(path)["accuracy"] > 0.85


def test_what_it_cannot_do_is_refused():
    for wrong in ({"partition": "spatial"}, {"approximation": "ep", "task": "classification"}):
        with pytest.raises(InvalidOption):
            replace(ASKED, **wrong)
    with pytest.raises(InvalidOption, match="rrgp_star with normal errors, got rrgp_star; give --objective local"):
        Settings(expert="rrgp_star", objective="committee", likelihood="probit")
