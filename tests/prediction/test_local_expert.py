"""The local expert against the formulas of its docstring and of Snelson & Ghahramani (2007), dense, by inverses."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.linalg import inv, solve

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.expert import conditional_message, expert_message, find_mode
from bcmdist.experts.message import zero_message
from bcmdist.model.likelihoods import Bernoulli, Gaussian, OneHot, Poisson, StudentT
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Factored
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import BLOCK_ROWS, predict_latent
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import Site, local_expert, predict_local
from oracles import full_gp, laplace
from problems import Problem, make_kernel, regression_problem, split
from some_likelihoods import SOFTMAX

NOISE = Gaussian(np.array([0.05]))
BLOCKS = split(60, [20, 45])
ALL = slice(0, 60)
# Dense covariances have condition numbers up to 1e4 here; variances are as small as 1e-2.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
means = pytest.mark.parametrize("mean", ["zero", "constant", "linear"])


@dataclass(frozen=True)
class Linearised:
    """A likelihood that is not known to be Gaussian."""

    inner: Gaussian
    processes = 1

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.fixture
def problem(rng):
    """With rows that count more than once."""
    p = regression_problem(rng)
    return Problem(p.X, Observations(p.obs.y, rng.uniform(0.5, 3.0, 60)), p.Xq, p.Xs)


def fitted(p, likelihood, *, kernel=None, mean="zero", blocks=BLOCKS, passes=1, Xq=None):
    """Query set at jitter 0 and the belief of the committee of some blocks after some passes."""
    kernel = kernel or make_kernel("matern32")
    query = prepare(p.Xq if Xq is None else Xq, kernel=kernel, mean=Mean(mean), jitters=(0.0,))
    messages = [expert_message(query, likelihood, p.X[b], p.obs[b]) for b in blocks]
    belief = Committee(sum(messages, zero_message(query, likelihood))).posterior
    for _ in range(passes - 1):
        absorbed = [conditional_message(query, likelihood, p.X[b], p.obs[b], belief.mean).message for b in blocks]
        belief = Committee(sum(absorbed, zero_message(query, likelihood))).posterior
    return query, belief


def local(p, query, likelihood, belief, rows, Xs=None):
    """Mean and variance with the local expert of some rows."""
    rows = np.arange(60)[rows]
    seen, Xs = committee_at_rows(query, belief), p.Xs if Xs is None else Xs
    expert = local_expert(seen, likelihood, p.X[rows], seen.columns(p.X[rows]), p.obs[rows])
    return predict_local(seen, expert, Xs, seen.columns(Xs))


def design(query, X):
    """b(x)' of the rows of X, by an inverse: L^-1 k(X^q, x), then the mean's basis."""
    L = np.linalg.cholesky(query.kernel.cross(query.points, query.points))
    return np.hstack([query.kernel.cross(X, query.points) @ inv(L).T, query.mean.design(X)])


def naive(p, query, belief, rows, sites, pull, Xs):
    """The docstring of `local`: given v, joint Gaussian of f(x) and the rows' f with sites of variance `sites`."""
    Q = len(query.points)
    V, B = design(query, p.X[rows]), design(query, Xs)
    Lam = query.kernel.cross(p.X[rows], p.X[rows]) - V[:, :Q] @ V[:, :Q].T
    T = inv(Lam + np.diag(sites))
    C = query.kernel.cross(p.X[rows], Xs) - V[:, :Q] @ B[:, :Q].T
    A = B - C.T @ T @ V
    covariance = inv(belief.factor @ belief.factor.T)
    residual = query.kernel.diagonal(Xs) - (B[:, :Q] ** 2).sum(axis=1) - np.diag(C.T @ T @ C)
    mean = B @ belief.mean + C.T @ (pull if pull is not None else T @ (p.obs.y[rows] - V @ belief.mean))
    return mean, residual + np.diag(A @ covariance @ A.T)


def dense_pic(kernel, H, Xq, blocks, ys, noise, Xs, own):
    """Snelson & Ghahramani (2007), eqs. 11-12: cov Q + blkdiag(K - Q), new points in the block `own`."""
    X, y = np.vstack(blocks), np.concatenate(ys)
    Kqq = kernel.cross(Xq, Xq)

    def low_rank(A, B):
        return kernel.cross(A, Xq) @ solve(Kqq, kernel.cross(Xq, B)) + H(A) @ H(B).T

    S, cross, start = low_rank(X, X), low_rank(Xs, X), 0
    for k, block in enumerate(blocks):
        rows = slice(start, start + len(block))
        S[rows, rows] = kernel.cross(block, block) + H(block) @ H(block).T
        if k == own:
            cross[:, rows] = kernel.cross(Xs, block) + H(Xs) @ H(block).T
        start += len(block)
    S += np.diag(noise)
    prior = kernel.diagonal(Xs) + (H(Xs) ** 2).sum(axis=1)
    return cross @ solve(S, y), prior - np.einsum("ij,ji->i", cross, solve(S, cross.T))


@means
@pytest.mark.parametrize("kernel", ["se", "matern32", "linear + matern12"])
@pytest.mark.parametrize("query", ["few", "one", "rows"])
def test_one_cell_with_all_rows_is_the_exact_gp(problem, mean, kernel, query):
    p, kernel = problem, make_kernel(kernel)
    Xq = {"few": p.Xq, "one": p.Xq[:1], "rows": p.X[:12]}[query]
    prior, belief = fitted(p, NOISE, kernel=kernel, mean=mean, blocks=[ALL], Xq=Xq)
    Xs = np.vstack([p.Xs, p.X[:3], Xq[:1], [[40.0, -40.0]]])
    exact = full_gp(kernel, Mean(mean).design, p.X, p.obs.y, NOISE.noise(p.obs), Xs)
    found = local(p, prior, NOISE, belief, ALL, Xs)
    scale = np.maximum(1.0, np.abs(np.diag(exact[1])))
    assert np.all(np.abs(found[0] - exact[0]) <= 1e-9 * np.maximum(scale, np.abs(exact[0])))
    assert np.all(np.abs(found[1] - np.diag(exact[1])) <= 1e-9 * scale)


@means
@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_partition_without_halo_is_pic(problem, mean, own):
    p, kernel = problem, make_kernel("matern32")
    query, belief = fitted(p, NOISE, mean=mean)
    blocks, ys = [p.X[b] for b in BLOCKS], [p.obs.y[b] for b in BLOCKS]
    exact = dense_pic(kernel, Mean(mean).design, p.Xq, blocks, ys, NOISE.noise(p.obs), p.Xs, own)
    np.testing.assert_allclose(local(p, query, NOISE, belief, BLOCKS[own]), exact, **TOLERANCE)


@means
def test_core_and_halo_are_the_formula(problem, rng, mean):
    """Rows from several partitions, some of each."""
    query, belief = fitted(problem, NOISE, mean=mean)
    rows = np.sort(rng.choice(60, 31, replace=False))
    exact = naive(problem, query, belief, rows, NOISE.noise(problem.obs[rows]), None, problem.Xs)
    np.testing.assert_allclose(local(problem, query, NOISE, belief, rows), exact, **TOLERANCE)


def test_the_order_of_rows_does_not_matter(problem, rng):
    query, belief = fitted(problem, NOISE)
    rows = rng.choice(60, 31, replace=False)
    one, other = (local(problem, query, NOISE, belief, r) for r in (rows, np.sort(rows)))
    np.testing.assert_allclose(one, other, rtol=1e-11)


def test_new_points_do_not_depend_on_each_other(problem):
    query, belief = fitted(problem, NOISE)
    whole = local(problem, query, NOISE, belief, BLOCKS[1])
    each = [local(problem, query, NOISE, belief, BLOCKS[1], x[None, :]) for x in problem.Xs]
    np.testing.assert_allclose(np.hstack(each), whole, rtol=1e-12)
    many = np.tile(problem.Xs, (BLOCK_ROWS // 11 + 3, 1))  # several blocks
    mean, variance = local(problem, query, NOISE, belief, BLOCKS[1], many)
    assert mean.shape == variance.shape == (len(many),)
    np.testing.assert_allclose(mean[-11:], whole[0], rtol=1e-12)
    empty = local(problem, query, NOISE, belief, BLOCKS[1], problem.Xs[:0])
    assert empty[0].shape == empty[1].shape == (0,)


def test_a_row_of_weight_two_is_two_rows(problem):
    p = problem
    query, belief = fitted(p, NOISE)
    twice = np.concatenate([np.arange(20), np.arange(5)])
    doubled = np.ones(60)
    doubled[:5] = 2.0
    heavy = Problem(p.X, Observations(p.obs.y, doubled), p.Xq, p.Xs)
    plain = Problem(p.X, unweighted(p.obs.y), p.Xq, p.Xs)
    one, other = local(heavy, query, NOISE, belief, BLOCKS[0]), local(plain, query, NOISE, belief, twice)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_far_away_rows_say_nothing(problem):
    query, belief = fitted(problem, NOISE)
    far = problem.Xs + 300.0
    np.testing.assert_allclose(
        local(problem, query, NOISE, belief, ALL, far), predict_latent(query, belief, far), rtol=1e-10, atol=1e-12
    )


@means
def test_gaussian_rows_by_way_of_their_mode(problem, mean):
    query, belief = fitted(problem, NOISE, mean=mean)
    exact = local(problem, query, NOISE, belief, BLOCKS[1])
    np.testing.assert_allclose(local(problem, query, Linearised(NOISE), belief, BLOCKS[1]), exact, rtol=1e-8)


def other_problem(rng, likelihood):
    p = regression_problem(rng)
    y = (p.obs.y > 0) * 1.0 if isinstance(likelihood, Bernoulli) else rng.poisson(np.exp(p.obs.y)) * 1.0
    if isinstance(likelihood, StudentT):
        y = p.obs.y + 0.2 * rng.standard_t(4, 60)
    return Problem(p.X, Observations(y, rng.uniform(0.5, 2.0, 60)), p.Xq, p.Xs)


LIKELIHOODS = [Bernoulli(), Poisson(), StudentT(noise_variance=np.array([0.1]), degrees_of_freedom=np.array([4.0]))]
others = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda likelihood: likelihood.name)


@others
@means
def test_one_cell_with_all_rows_is_laplace_of_the_full_gp(rng, likelihood, mean):
    """At the fixed point of the passes, for any query set: mean k*'s(f), variance with the weights at the mode f."""
    p, kernel = other_problem(rng, likelihood), make_kernel("matern32")
    query, belief = fitted(p, likelihood, mean=mean, blocks=[ALL], passes=40)
    H = Mean(mean).design

    def cov(a, b):
        return kernel.cross(a, b) + H(a) @ H(b).T

    f = find_mode(cov(p.X, p.X), p.obs, likelihood)
    if not isinstance(likelihood, StudentT):
        np.testing.assert_allclose(f, laplace(cov(p.X, p.X), likelihood, p.obs)[0], atol=1e-7)
    Ks = cov(p.Xs, p.X)
    S = cov(p.X, p.X) + np.diag(1 / likelihood.curvature(p.obs, f))
    variance = np.diag(cov(p.Xs, p.Xs)) - np.einsum("ij,ji->i", Ks, solve(S, Ks.T))
    # The mode itself is known to 1e-9 in the score.
    found = local(p, query, likelihood, belief, ALL)
    np.testing.assert_allclose(found[0], Ks @ likelihood.score(p.obs, f), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], variance, rtol=1e-6, atol=1e-6)


@others
def test_where_the_query_is_all_rows_the_local_expert_adds_nothing(rng, likelihood):
    """Given v nothing of f is left at the rows, so that local and committee predictions are one, at any pass."""
    p = other_problem(rng, likelihood)
    query, belief = fitted(p, likelihood, Xq=p.X)
    np.testing.assert_allclose(
        local(p, query, likelihood, belief, ALL), predict_latent(query, belief, p.Xs), rtol=1e-6, atol=1e-8
    )


@others
def test_core_and_halo_of_other_likelihoods_are_the_formula(rng, likelihood):
    p = other_problem(rng, likelihood)
    query, belief = fitted(p, likelihood, mean="constant")
    rows = np.sort(rng.choice(60, 31, replace=False))
    V = design(query, p.X[rows])
    Q = len(query.points)
    Lam = query.kernel.cross(p.X[rows], p.X[rows]) - V[:, :Q] @ V[:, :Q].T
    f = find_mode(np.asfortranarray(Lam), p.obs[rows], likelihood, V @ belief.mean)
    w, s = likelihood.curvature(p.obs[rows], f), likelihood.score(p.obs[rows], f)
    pseudo = f + s / w
    pull = inv(Lam + np.diag(1 / w)) @ (pseudo - V @ belief.mean)
    np.testing.assert_allclose(pull, s, rtol=1e-5, atol=1e-6)  # at the mode: no pseudo-target is needed
    exact = naive(p, query, belief, rows, 1 / w, pull, p.Xs)
    np.testing.assert_allclose(local(p, query, likelihood, belief, rows), exact, rtol=1e-6, atol=1e-7)


def test_one_hot_classes_are_regressions_that_share_a_factor(rng):
    p = regression_problem(rng)
    obs, likelihood = Observations(rng.integers(0, 3, 60) * 1.0, rng.uniform(0.5, 2.0, 60)), OneHot(3, 0.05)
    classes = Problem(p.X, obs, p.Xq, p.Xs)
    query, belief = fitted(classes, likelihood)
    mean, variance = local(classes, query, likelihood, belief, slice(10, 40))
    assert mean.shape == variance.shape == (11, 3)
    for c, y in enumerate(likelihood.targets(obs).T):
        one = Problem(p.X, Observations(y, obs.weight), p.Xq, p.Xs)
        alone = local(one, *_swap(fitted(one, NOISE)), slice(10, 40))
        np.testing.assert_allclose([mean[:, c], variance[:, c]], alone, rtol=1e-9)


def _swap(found):
    query, belief = found
    return query, NOISE, belief


@pytest.mark.parametrize("weights", ["poisson", "fisher"])
def test_softmax_classes_are_processes_with_sites_of_their_own(rng, weights):
    p = regression_problem(rng)
    obs, likelihood = Observations(rng.integers(0, 3, 60) * 1.0, rng.uniform(0.5, 2.0, 60)), SOFTMAX[weights](3)
    classes = Problem(p.X, obs, p.Xq, p.Xs)
    query, belief = fitted(classes, likelihood, mean="constant")
    rows = np.arange(10, 40)
    mean, variance = local(classes, query, likelihood, belief, rows)
    assert mean.shape == variance.shape == (11, 3)
    V = design(query, p.X[rows])
    Lam = query.kernel.cross(p.X[rows], p.X[rows]) - V[:, :9] @ V[:, :9].T
    f = find_mode(np.asfortranarray(Lam), obs[rows], likelihood, V @ belief.mean.T)
    w, s = likelihood.curvature(obs[rows], f), likelihood.score(obs[rows], f)
    for c in range(3):
        alone = Factored(belief.mean[c], belief.factor[c])
        exact = naive(classes, query, alone, rows, 1 / w[:, c], s[:, c], p.Xs)
        np.testing.assert_allclose([mean[:, c], variance[:, c]], exact, rtol=1e-7, atol=1e-8)


def test_times_is_the_operator(rng):
    A = rng.standard_normal((5, 5))
    Lam, w, C = A @ A.T, rng.uniform(0.1, 2.0, 5), rng.standard_normal((5, 3))
    w[2] = 0.0  # says nothing
    root = np.sqrt(w)
    site = Site(root, np.linalg.cholesky(np.eye(5) + root[:, None] * Lam * root))
    T = root[:, None] * inv(np.eye(5) + root[:, None] * Lam * root) * root
    before = C.copy()
    TC, explained = site.times(C)
    np.testing.assert_allclose(TC, T @ C, rtol=1e-10)
    np.testing.assert_allclose(explained, np.diag(C.T @ T @ C), rtol=1e-10)
    plain = Site(None, np.asfortranarray(np.linalg.cholesky(Lam + np.eye(5))))
    np.testing.assert_allclose(plain.times(C)[0], solve(Lam + np.eye(5), C), rtol=1e-9)
    np.testing.assert_array_equal(C, before)
    fortran = np.asfortranarray(C)
    site.times(fortran)  # sites of several processes share it
    np.testing.assert_array_equal(fortran, before)


def test_nothing_is_overwritten(problem):
    query, belief = fitted(problem, NOISE)
    V = query.design(problem.X)
    kept = [np.array(a) for a in (V, belief.mean, belief.factor)]
    seen, B = committee_at_rows(query, belief), query.design(problem.Xs)
    expert = local_expert(seen, NOISE, problem.X, V, problem.obs)
    inside = [np.array(a) for a in (expert.V, expert.pull, expert.sites[0].factor)]
    first = predict_local(seen, expert, problem.Xs, B)
    np.testing.assert_array_equal(first, predict_local(seen, expert, problem.Xs, B))
    for now, before in zip([V, belief.mean, belief.factor], kept, strict=True):
        np.testing.assert_array_equal(now, before)
    for now, before in zip([expert.V, expert.pull, expert.sites[0].factor], inside, strict=True):
        np.testing.assert_array_equal(now, before)


def test_rows_that_coincide_without_noise_are_refused_by_name(problem):
    query, belief = fitted(problem, NOISE)
    twice = np.array([3, 3])
    with pytest.raises(NotPositiveDefinite, match=r"cov\(y \| query\) of a local expert"):
        local(problem, query, Gaussian(np.zeros(1)), belief, twice)
