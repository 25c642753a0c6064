import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.errors import InvalidOption, MemoryLimit, NotPositiveDefinite
from bcmdist.experts.message import zero
from bcmdist.model.kernels import Constant
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import Query, prepare
from bcmdist.prediction.joint.committee import joint_latent, sample_latent
from bcmdist.prediction.latent import BLOCK_ROWS, predict_latent
from oracles import full_gp, pitc_joint
from problems import class_problem, make_committee, make_kernel, regression_problem, split

NOISE = 0.1
# Rounding times the condition number of Kqq, about 1e3 to 1e4 here.
TOLERANCE = 1e-9


def fitted(problem, name="matern32", mean="zero", likelihood=None, **options):
    prior, _, committee = make_committee(
        problem, make_kernel(name), likelihood or Gaussian(NOISE), split(60, [13, 20, 41]), mean=mean, **options
    )
    return prior, committee.posterior


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
def test_query_at_all_rows_gives_the_covariance_of_the_full_gp(rng, mean):
    problem = regression_problem(rng)
    prior, belief = fitted(problem, mean=mean, query=problem.X)
    m, c = joint_latent(prior, belief, problem.Xs)
    exact_m, exact_c, _ = full_gp(prior.kernel, Mean(mean).design, problem.X, problem.obs.y, NOISE, problem.Xs)
    np.testing.assert_allclose(m, exact_m, atol=TOLERANCE)
    np.testing.assert_allclose(c, exact_c, atol=TOLERANCE)


def test_joint_is_that_of_pitc(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem)
    m, c = joint_latent(prior, belief, problem.Xs)
    slices = split(60, [13, 20, 41])
    blocks, ys = [problem.X[s] for s in slices], [problem.obs.y[s] for s in slices]
    exact_m, exact_c, _ = pitc_joint(prior.kernel, problem.Xq, blocks, ys, NOISE, problem.Xs)
    np.testing.assert_allclose(m, exact_m, atol=TOLERANCE)
    np.testing.assert_allclose(c, exact_c, atol=TOLERANCE)


@pytest.mark.parametrize("mean", ["zero", "linear"])
@pytest.mark.parametrize("name", ["se", "matern12", "poly2", "se*linear+constant"])
@pytest.mark.parametrize("likelihood", [Gaussian(NOISE), Bernoulli()])
def test_laws(rng, name, mean, likelihood):
    """Marginals are those of `predict_latent`; some rows are a block of all; a covariance it is."""
    problem = class_problem(rng)
    prior, belief = fitted(problem, name, mean, likelihood)
    X = np.vstack([problem.Xs, problem.Xq, problem.Xs[:3]])
    m, c = joint_latent(prior, belief, X)
    marginal = predict_latent(prior, belief, X)
    scale = prior.kernel.diagonal(X).max()  # rounding is that of the prior variance
    np.testing.assert_allclose(m, marginal[0], atol=1e-12 * scale)
    np.testing.assert_allclose(np.diag(c), marginal[1], atol=1e-12 * scale)
    rows = rng.permutation(len(X))[:9]
    some_m, some_c = joint_latent(prior, belief, X[rows])
    np.testing.assert_allclose(some_m, m[rows], atol=1e-12 * scale)
    np.testing.assert_allclose(some_c, c[np.ix_(rows, rows)], atol=1e-12 * scale)
    np.testing.assert_array_equal(c, c.T)
    assert np.linalg.eigvalsh(c).min() > -1e-12 * scale


def test_more_rows_than_a_block_of_marginals(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem, "se")
    X = rng.uniform(-3, 3, (BLOCK_ROWS + 10, 2))
    m, c = joint_latent(prior, belief, X)
    marginal = predict_latent(prior, belief, X)
    np.testing.assert_allclose(m, marginal[0], atol=1e-12)
    np.testing.assert_allclose(np.diag(c), marginal[1], atol=1e-12)


def test_far_away_and_without_data_it_is_the_prior(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem, "se")
    far = problem.Xs + 1e3
    m, c = joint_latent(prior, belief, far)
    np.testing.assert_array_equal(m, 0.0)
    np.testing.assert_allclose(c, prior.kernel.cross(far, far), atol=1e-14)
    _, c = joint_latent(prior, Committee(zero(prior.size)).posterior, problem.Xs)
    np.testing.assert_allclose(c, prior.kernel.cross(problem.Xs, problem.Xs), atol=1e-12)


def test_sample_moments_converge(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem)
    m, c = joint_latent(prior, belief, problem.Xs)
    size = 40_000
    samples = sample_latent(prior, belief, problem.Xs, size=size, seed=4)
    assert samples.shape == (size, len(m))
    sd = np.sqrt(np.diag(c))
    # Five standard errors; that of a covariance is at most sqrt(2) sd_i sd_j.
    assert np.all(np.abs(samples.mean(axis=0) - m) < 5 * sd / np.sqrt(size))
    assert np.all(np.abs(np.cov(samples.T) - c) < 5 * np.sqrt(2 / size) * np.outer(sd, sd))


def test_samples_repeat_by_seed(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem)
    one, same, other = (sample_latent(prior, belief, problem.Xs, size=3, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).min() > 0


@pytest.mark.parametrize("name", ["se", "matern12", "poly2"])
def test_duplicates_get_the_same_samples(rng, name):
    """Of a smooth kernel at 400 rows, too, whose covariance has far fewer dimensions."""
    problem = regression_problem(rng)
    prior, belief = fitted(problem, name)
    X = rng.uniform(-2, 2, (200, 2))
    samples = sample_latent(prior, belief, np.vstack([X, X]), size=20, seed=0)
    np.testing.assert_allclose(samples[:, :200], samples[:, 200:], atol=1e-6)
    assert np.std(samples, axis=0).min() > 1e-3


def test_samples_of_a_finite_basis_lie_in_it(rng):
    """Samples of `linear` are planes through the origin."""
    problem = regression_problem(rng)
    prior = prepare(problem.Xq[:2], kernel=make_kernel("linear"), mean=Mean("zero"))
    samples = sample_latent(prior, Committee(zero(2)).posterior, problem.Xs, size=5, seed=0)
    _, distance, rank, _ = np.linalg.lstsq(problem.Xs, samples.T, rcond=None)
    assert rank == 2
    assert distance.max() < 1e-12


def test_nothing_and_refusals(rng):
    problem = regression_problem(rng)
    prior, belief = fitted(problem)
    none = problem.Xs[:0]
    assert [a.shape for a in joint_latent(prior, belief, none)] == [(0,), (0, 0)]
    assert sample_latent(prior, belief, none, size=3, seed=0).shape == (3, 0)
    assert sample_latent(prior, belief, problem.Xs, size=0, seed=0).shape == (0, 11)
    with pytest.raises(InvalidOption, match="size: expected at least 0 samples, got -1"):
        sample_latent(prior, belief, problem.Xs, size=-1, seed=0)


def test_a_damaged_query_factor_is_refused(rng):
    prior, belief = fitted(regression_problem(rng))
    damaged = Query(prior.points, prior.kernel, prior.mean, 0.9 * prior.factor, 0.0)
    with pytest.raises(NotPositiveDefinite, match="variance of f given the query values: expected at least 0, got"):
        joint_latent(damaged, belief, prior.points)


class Untouchable(Constant):
    def cross(self, X, Z):
        raise AssertionError("computed before memory was checked")

    diagonal = cross_and_pullback = cross


@pytest.mark.parametrize("function", [joint_latent, lambda *a, **k: sample_latent(*a, size=2, seed=0, **k)])
def test_memory_is_refused_before_anything_is_computed(function):
    query = Query(np.zeros((1, 2)), Untouchable(np.ones(1)), Mean("zero"), np.ones((1, 1)), 0.0)
    belief = Committee(zero(1)).posterior
    X = np.broadcast_to(np.zeros((1, 2)), (50_000, 2))
    with pytest.raises(
        MemoryLimit,
        match=r"joint prediction of 50000 rows.*: expected .* at most 1 GB .* would need 1\d\d GB; give fewer",
    ):
        function(query, belief, X, allowed_bytes=1e9)
