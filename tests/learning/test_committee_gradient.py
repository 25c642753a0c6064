import functools

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.expert import conditional_message, expert_message
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.message import zero
from bcmdist.learning.evidence import committee_gradient as ce
from bcmdist.model.kernels import split_parameters
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from oracles import central_differences, laplace_evidence, pitc_covariance
from problems import make_kernel, regression_problem, split
from some_likelihoods import NegativeBinomial, ReweightedStudentT, ScoredNegativeBinomial, StudentT

BLOCKS = split(36, [10, 25])
COUNTS = [NegativeBinomial(1.5), ScoredNegativeBinomial(1.5)]
HEAVY = [StudentT(0.5, 4.0), ReweightedStudentT(0.5, 4.0)]


def make_problem(rng, likelihood):
    """Inputs, observations of varied weight and known variance that suit the likelihood, and query points."""
    p = regression_problem(rng, rows=36, query=7)
    noisy = p.obs.y + 0.3 * rng.standard_normal(36)
    match likelihood.name:
        case "bernoulli":
            y = (noisy > 0) * 1.0
        case "negative binomial":
            y = rng.poisson(np.exp(noisy)).astype(float)
        case "student t":
            y = p.obs.y + np.where(np.arange(36) % 9 == 0, 2.0, 0.0)
        case _:
            y = p.obs.y
    return p.X, Observations(y, rng.uniform(0.5, 2.0, 36), target_variance=rng.uniform(0.0, 0.1, 36)), p.Xq


def converged(query, likelihood, X, obs, blocks, start=None):
    """The committee whose experts are all linearised at its own mode."""
    if isinstance(likelihood, Gaussian):
        return Committee(sum((expert_message(query, likelihood, X[b], obs[b]) for b in blocks), zero(query.size)))
    mean = np.zeros(query.size) if start is None else start
    for _ in range(200):
        total = zero(query.size)
        for b in blocks:
            total = total + conditional_message(query, likelihood, X[b], obs[b], mean).message
        last, mean = mean, Committee(total).posterior.mean
        if np.abs(mean - last).max() <= 1e-11:
            return Committee(total)
    pytest.fail("the passes do not converge")


def gradient(query, likelihood, X, obs, blocks, belief):
    """The rounds of the module's docstring."""
    shift = None
    if not isinstance(likelihood, Gaussian):
        shares = [ce.mode_share(query, likelihood, X[b], obs[b], belief) for b in blocks]
        shift = ce.mode_shift(belief, functools.reduce(lambda a, b: a + b, shares))
    total = sum(ce.expert_share(query, likelihood, X[b], obs[b], belief, shift) for b in blocks)
    return ce.committee_gradient(query, belief, total, shift)


def moved(kernel, likelihood, theta):
    P = len(kernel.theta)
    values = split_parameters(likelihood.parameters, np.exp(theta[P:]))
    return kernel.with_theta(theta[:P]), likelihood.with_parameters(values)


def log_parameters(kernel, likelihood):
    return np.concatenate([kernel.theta, *(np.log(v) for v in likelihood.parameters.values())])


def gradient_error(rng, name, mean, likelihood):
    """Against central differences of the committee's own log evidence, relative to the largest entry."""
    X, obs, Xq = make_problem(rng, likelihood)
    kernel = make_kernel(name)
    kernel = kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))
    query = prepare(Xq, kernel=kernel, mean=Mean(mean))
    assert query.jitter == 0
    committee = converged(query, likelihood, X, obs, BLOCKS)
    mode = committee.posterior.mean

    def evidence(theta):
        k, ell = moved(kernel, likelihood, theta)
        return converged(prepare(Xq, kernel=k, mean=Mean(mean)), ell, X, obs, BLOCKS, mode).log_evidence

    numeric = central_differences(evidence, log_parameters(kernel, likelihood))
    exact = gradient(query, likelihood, X, obs, BLOCKS, committee.posterior)
    return np.abs(exact - numeric).max() / np.abs(numeric).max()


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("name", ["se", "matern32", "rq", "se+constant"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli(), COUNTS[0]], ids=lambda v: v.name)
def test_gradient(rng, name, mean, likelihood):
    assert gradient_error(rng, name, mean, likelihood) <= 1e-6  # of the differences


@pytest.mark.parametrize("likelihood", [COUNTS[1], *HEAVY], ids=lambda v: type(v).__name__)
def test_gradient_where_the_hessian_is_not_the_curvature(rng, likelihood):
    assert gradient_error(rng, "matern32", "constant", likelihood) <= 1e-6  # of the differences


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli(), *COUNTS, *HEAVY], ids=lambda v: type(v).__name__)
def test_evidence_is_that_of_dense_pitc(rng, mean, likelihood):
    X, obs, Xq = make_problem(rng, likelihood)
    query = prepare(Xq, kernel=make_kernel("matern32"), mean=Mean(mean))
    committee = converged(query, likelihood, X, obs, BLOCKS)
    K = pitc_covariance(query.kernel, query.mean.design, Xq, query.jitter, [X[b] for b in BLOCKS])

    if isinstance(likelihood, Gaussian):
        f = K @ np.linalg.solve(K + np.diag(likelihood.noise(obs)), obs.y)
    else:
        f = np.concatenate([block_mode(query, likelihood, X[b], obs[b], committee.posterior) for b in BLOCKS])
    # The mode of all rows: the tolerance of the score, 1e-9, times a prior variance of 25 that 36 rows share.
    np.testing.assert_allclose(f, K @ likelihood.score(obs, f), atol=1e-6)
    assert committee.log_evidence == pytest.approx(laplace_evidence(K, likelihood, obs, f), rel=1e-8)


def block_mode(query, likelihood, X, obs, belief):
    V = query.design(X)
    Lam = query.kernel.cross(X, X) - V[:, : len(query.points)] @ V[:, : len(query.points)].T
    return laplace_mode(Lam, obs, likelihood, V @ belief.mean)


@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli(), *COUNTS, *HEAVY], ids=lambda v: type(v).__name__)
def test_a_single_expert_has_its_own_gradient(rng, likelihood):
    """PITC of one block is the exact GP: the query points drop out."""
    X, obs, Xq = make_problem(rng, likelihood)
    kernel, mean = make_kernel("rq"), Mean("linear")
    query, everything = prepare(Xq, kernel=kernel, mean=mean), [slice(None)]
    belief = converged(query, likelihood, X, obs, everything).posterior
    _, alone = local_evidence(kernel, mean, likelihood, X, obs)
    together = gradient(query, likelihood, X, obs, everything, belief)
    np.testing.assert_allclose(together, alone, atol=1e-8 * np.abs(alone).max())


@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli(), COUNTS[1]], ids=lambda v: type(v).__name__)
def test_an_expert_without_rows_adds_nothing(rng, likelihood):
    X, obs, Xq = make_problem(rng, likelihood)
    query = prepare(Xq, kernel=make_kernel("se"), mean=Mean("zero"))
    belief = converged(query, likelihood, X, obs, BLOCKS).posterior
    one = gradient(query, likelihood, X, obs, BLOCKS, belief)
    np.testing.assert_array_equal(gradient(query, likelihood, X, obs, [*BLOCKS, slice(36, 36)], belief), one)


def test_the_shift_solves_the_equations_of_all_rows(rng):
    """V't with t = (I + h K)^-1 v, dense, for Hessians of either sign."""
    likelihood = HEAVY[1]
    X, obs, Xq = make_problem(rng, likelihood)
    query = prepare(Xq, kernel=make_kernel("matern32"), mean=Mean("constant"))
    belief = converged(query, likelihood, X, obs, BLOCKS).posterior
    shares = [ce.mode_share(query, likelihood, X[b], obs[b], belief) for b in BLOCKS]
    shift = ce.mode_shift(belief, shares[0] + shares[1] + shares[2])
    K = pitc_covariance(query.kernel, query.mean.design, Xq, query.jitter, [X[b] for b in BLOCKS])
    f = np.concatenate([block_mode(query, likelihood, X[b], obs[b], belief) for b in BLOCKS])
    h = likelihood.hessian(obs, f)
    assert h.min() < 0
    C = np.linalg.inv(np.linalg.inv(K) + np.diag(likelihood.curvature(obs, f)))
    t = np.linalg.solve(np.eye(36) + h[:, None] * K, 0.5 * np.diag(C) * likelihood.third(obs, f))
    np.testing.assert_allclose(shift, query.design(X).T @ t, atol=1e-8 * np.abs(shift).max())


@pytest.mark.parametrize("name", ["matern32", "se"])
@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli(), COUNTS[1]], ids=lambda v: type(v).__name__)
def test_queries_at_all_rows_give_the_gradient_of_the_full_gp(rng, name, likelihood):
    """Several experts and, for the smooth kernel, a query covariance of condition number 1e12."""
    X, obs, _ = make_problem(rng, likelihood)
    kernel, mean = make_kernel(name, inputs=1), Mean("constant")
    X = X[:, :1]
    query = prepare(X, kernel=kernel, mean=mean)
    belief = converged(query, likelihood, X, obs, BLOCKS).posterior
    _, full = local_evidence(kernel, mean, likelihood, X, obs)
    # The jitter is part of the committee's model only.
    np.testing.assert_allclose(
        gradient(query, likelihood, X, obs, BLOCKS, belief), full, atol=1e-7 * np.abs(full).max()
    )


def test_a_belief_that_is_no_maximum_is_refused():
    belief = Committee(zero(2)).posterior
    with pytest.raises(NotPositiveDefinite, match="Hessian of the committee at its mode"):
        ce.mode_shift(belief, ce.ModeShare(np.ones(2), np.diag([1.0, -2.0])))
