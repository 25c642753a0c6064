"""EP against dense sequential EP, with the closed-form moments of the probit where they exist."""

import numpy as np
import pytest
from numpy.linalg import inv, slogdet, solve
from scipy.special import log_ndtr

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import EPNotConverged
from bcmdist.experts import ep
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from problems import class_problem, make_kernel, regression_problem, split
from some_likelihoods import Counts, HeavyTailed, Probit, by_trapezoid


def probit_moments(y, m, v):
    """log Z, mean, variance of N(f; m, v) Phi(sign f) (Rasmussen & Williams 2006, eqs. 3.82, 3.85, 3.87)."""
    sign = 2 * y - 1
    z = sign * m / np.sqrt(1 + v)
    ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    return log_ndtr(z), m + sign * v * ratio / np.sqrt(1 + v), v - v**2 * ratio / (1 + v) * (z + ratio)


def dense_ep(K, y, moments, sweeps=200):
    """Sequential EP, one row after the other, with rank-one updates of the covariance: tau, nu, log Z."""
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        before = tau.copy(), nu.copy()
        V = inv(np.eye(n) + K * tau) @ K
        for i in range(n):
            v, m = V[i, i], V[i] @ nu
            cavity_v = 1 / (1 / v - tau[i])
            cavity_m = cavity_v * (m / v - nu[i])
            _, new_m, new_v = moments(y[i], cavity_m, cavity_v)
            change = 1 / new_v - 1 / cavity_v - tau[i]
            tau[i], nu[i] = tau[i] + change, new_m / new_v - cavity_m / cavity_v
            V = V - change / (1 + change * V[i, i]) * np.outer(V[i], V[i])
        if max(np.abs(tau - before[0]).max(), np.abs(nu - before[1]).max()) < 1e-13:
            break
    V = inv(np.eye(n) + K * tau) @ K
    v, m = np.diag(V), V @ nu
    cavity_v = 1 / (1 / v - tau)
    cavity_m = cavity_v * (m / v - nu)
    log_z = np.array([moments(*row)[0] for row in zip(y, cavity_m, cavity_v, strict=True)])
    # log Z_i - log of the cavity's average of exp(nu f - tau f^2 / 2), then the Gaussian integral over f
    average = 0.5 * (m**2 / v - cavity_m**2 / cavity_v + np.log(v / cavity_v))
    return tau, nu, (log_z - average).sum() + 0.5 * nu @ m - 0.5 * slogdet(np.eye(n) + K * tau)[1]


def log_evidence(sites, K):
    """log Z of one expert with prior N(0, K)."""
    B = np.eye(len(K)) + K * sites.tau
    return sites.log_constant + 0.5 * sites.nu @ solve(B, K @ sites.nu) - 0.5 * slogdet(B)[1]


def pass_all(query, likelihood, problem, blocks, passes, *, in_turn=False, step=1.0):
    """Committees after each pass over all experts, and the last sites."""
    messages, sites = [zero(query.size)] * len(blocks), [None] * len(blocks)
    committees = []
    for _ in range(passes):
        total = sum(messages, zero(query.size)) if committees else None
        for i, b in enumerate(blocks):
            if in_turn and committees:
                total = sum(messages, zero(query.size))
            messages[i], sites[i] = ep.ep_pass(
                query, likelihood, problem.X[b], problem.obs[b], total, sites[i], step=step
            )
        committees.append(Committee(sum(messages, zero(query.size))))
    return committees, sites


def dense_pitc_ep(query, kernel, problem, blocks, moments):
    """Dense EP under Q + blkdiag(K_ii - Q_ii): mean and covariance of v, log Z, tau, nu."""
    V = query.design(problem.X)
    K = V @ V.T
    H = query.mean.design(problem.X)
    for b in blocks:
        K[b, b] = kernel.cross(problem.X[b], problem.X[b]) + H[b] @ H[b].T
    tau, nu, log_z = dense_ep(K, problem.obs.y, moments)
    S = K + np.diag(1 / tau)
    return V.T @ solve(S, nu / tau), np.eye(V.shape[1]) - V.T @ solve(S, V), log_z, tau, nu


def distance(query, committee, mean, covariance):
    """Largest error of the posterior at the query points and mean weights, in posterior standard deviations."""
    belief = committee.posterior
    scale = np.eye(query.size)
    scale[: len(query.factor), : len(query.factor)] = query.factor
    exact = scale @ covariance @ scale.T
    sd = np.sqrt(np.diag(exact))
    got = scale @ inv(belief.factor @ belief.factor.T) @ scale.T
    return max(np.abs(scale @ (belief.mean - mean) / sd).max(), np.abs((got - exact) / np.outer(sd, sd)).max())


@pytest.mark.parametrize("variance", [0.1, 1.3, 100.0])
def test_one_expert_is_dense_sequential_ep(rng, variance):
    problem = class_problem(rng, rows=40)
    K = make_kernel("matern32", variance=variance).cross(problem.X, problem.X)
    tau, nu, log_z = dense_ep(K, problem.obs.y, probit_moments)
    sites = ep.fit_sites(K, problem.obs, Probit())
    np.testing.assert_allclose(sites.tau, tau, atol=1e-8)
    np.testing.assert_allclose(sites.nu, nu, atol=1e-8)
    assert log_evidence(sites, K) == pytest.approx(log_z, abs=1e-8)


def test_a_prior_mean_is_a_shift(rng):
    """EP for logit rows under N(m, K) matches, row by row, brute-force moments of the cavities."""
    problem, m = class_problem(rng, rows=20), rng.standard_normal(20)
    K = make_kernel("se", variance=9.0).cross(problem.X, problem.X)
    sites = ep.fit_sites(K, problem.obs, Bernoulli(), prior_mean=m)
    V = inv(inv(K + 1e-10 * np.eye(20)) + np.diag(sites.tau))
    mean = m + V @ (sites.nu - sites.tau * m)
    for i, v in enumerate(np.diag(V)):
        cavity = 1 / (1 / v - sites.tau[i])
        _, exact_mean, exact_v = by_trapezoid(
            Bernoulli(), problem.obs.y[i], cavity * (mean[i] / v - sites.nu[i]), cavity
        )
        assert abs(mean[i] - exact_mean) < 1e-6  # the inverse of K costs digits
        assert abs(v / exact_v - 1) < 1e-6


def test_one_row_is_exact():
    for y in (0.0, 7.0, 1e6):
        K = np.array([[4.0]])
        sites = ep.fit_sites(K, unweighted([y]), Counts(), prior_mean=np.array([2.0]))
        log_z, mean, variance = by_trapezoid(Counts(), y, 2.0, 4.0)
        assert 4 / (1 + 4 * sites.tau[0]) == pytest.approx(variance, rel=1e-9)
        assert (2 + 4 * sites.nu[0]) / (1 + 4 * sites.tau[0]) == pytest.approx(mean, rel=1e-10)
        centred = sites.log_constant + ep._log_average(sites.tau, sites.nu, np.array([2.0]), np.array([4.0]))[0]
        assert centred == pytest.approx(log_z, rel=1e-9, abs=1e-6)  # at 1e6 counts terms of 1e8 cancel


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize(("passes", "in_turn", "step"), [(8, True, 1.0), (12, False, 1.0), (20, False, 0.8)])
def test_passes_converge_to_ep_of_the_whole_model(rng, mean, passes, in_turn, step):
    problem, kernel, blocks = (
        class_problem(rng, rows=70),
        make_kernel("matern32", variance=4.0),
        split(70, [14, 32, 55]),
    )
    query = prepare(problem.Xq, kernel=kernel, mean=Mean(mean))
    exact_mean, covariance, log_z, tau, nu = dense_pitc_ep(query, kernel, problem, blocks, probit_moments)
    committees, sites = pass_all(query, Probit(), problem, blocks, passes, in_turn=in_turn, step=step)
    errors = [distance(query, c, exact_mean, covariance) for c in committees]
    assert errors[0] > 1e-3  # one pass is not enough
    assert errors[-1] <= 1e-6
    assert committees[-1].log_evidence == pytest.approx(log_z, abs=1e-6)
    np.testing.assert_allclose(np.concatenate([s.tau for s in sites]), tau, atol=1e-6)
    np.testing.assert_allclose(np.concatenate([s.nu for s in sites]), nu, atol=1e-6)


def test_query_at_all_rows_is_ep_of_the_full_gp(rng):
    problem, kernel, blocks = class_problem(rng, rows=40), make_kernel("matern12", variance=3.0), split(40, [13, 26])
    query = prepare(problem.X, kernel=kernel, mean=Mean("zero"))
    K = kernel.cross(problem.X, problem.X)
    tau, nu, log_z = dense_ep(K, problem.obs.y, probit_moments)
    committees, _ = pass_all(query, Probit(), problem, blocks, 15)
    mean, variance = predict_latent(query, committees[-1].posterior, problem.Xs)
    Ks, S = kernel.cross(problem.Xs, problem.X), K + np.diag(1 / tau)
    exact = kernel.diagonal(problem.Xs) - np.einsum("ij,ji->i", Ks, solve(S, Ks.T))
    np.testing.assert_allclose(mean, Ks @ solve(S, nu / tau), atol=1e-6)
    np.testing.assert_allclose(variance, exact, atol=1e-6)
    assert committees[-1].log_evidence == pytest.approx(log_z, abs=1e-6)


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_gaussian_rows_need_one_sweep_and_give_the_exact_message(rng, mean):
    problem, kernel = regression_problem(rng, rows=30), make_kernel("matern32")
    obs = Observations(problem.obs.y, rng.uniform(0.5, 2.0, 30))
    query = prepare(problem.Xq, kernel=kernel, mean=Mean(mean))
    exact = expert_message(query, Gaussian(0.05), problem.X, obs)
    message, sites = ep.ep_pass(query, Gaussian(0.05), problem.X, obs)
    again, _ = ep.ep_pass(query, Gaussian(0.05), problem.X, obs, message + exact, sites)
    assert sites.sweeps == 1
    for got in (message, again):
        np.testing.assert_allclose(got.precision, exact.precision, atol=1e-9 * np.abs(exact.precision).max())
        np.testing.assert_allclose(got.eta, exact.eta, atol=1e-9 * np.abs(exact.eta).max())
        assert got.evidence == pytest.approx(exact.evidence, rel=1e-9)
        assert got.rows == 30


@pytest.mark.parametrize("log_rate", [0.0, 5.0, 13.8])
def test_counts_up_to_millions(rng, log_rate):
    """At the fixed point every row's belief has the moments of its cavity times its likelihood."""
    problem = regression_problem(rng, rows=40)
    y = rng.poisson(np.exp(log_rate + problem.obs.y)).astype(float)
    K = make_kernel("matern32").cross(problem.X, problem.X)
    sites = ep.fit_sites(K, unweighted(y), Counts())
    mean, variance, cavity_mean, cavity_variance = ep._cavities(K, np.zeros(40), sites.tau, sites.nu)
    for i in range(0, 40, 5):
        _, m, v = by_trapezoid(Counts(), y[i], cavity_mean[i], cavity_variance[i])
        assert abs(mean[i] - m) <= 1e-6 * np.sqrt(v)
        assert abs(variance[i] / v - 1) <= 1e-6


@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e4, 1e8])
def test_separable_data_and_extreme_variances(variance):
    x = np.linspace(-3, 3, 41)[:, None]
    obs = unweighted((x[:, 0] > 0) * 1.0)
    K = make_kernel("matern32", inputs=1, variance=variance).cross(x, x)
    sites = ep.fit_sites(K, obs, Bernoulli())
    mean, belief, _, cavity = ep._cavities(K, np.zeros(41), sites.tau, sites.nu)
    assert np.all((mean > 0) == (obs.y > 0))
    assert np.all(belief <= cavity * (1 + 1e-12))
    assert np.all(sites.tau >= 0)
    assert log_evidence(sites, K) < 0


def test_one_class_only_works():
    x = np.linspace(0, 1, 20)[:, None]
    sites = ep.fit_sites(make_kernel("se", inputs=1).cross(x, x), unweighted(np.ones(20)), Bernoulli())
    assert np.all(sites.nu > 0)


def test_outliers_of_a_heavy_tailed_likelihood_are_ignored(rng):
    problem = regression_problem(rng, rows=40)
    y = problem.obs.y.copy()
    y[7] += 20.0
    query = prepare(problem.Xq, kernel=make_kernel("matern32"), mean=Mean("zero"))
    message, sites = ep.ep_pass(query, HeavyTailed(), problem.X, unweighted(y))
    assert np.all(sites.tau >= 0)
    assert sites.tau[7] <= 0.05 * np.median(sites.tau)
    assert np.linalg.eigvalsh(message.precision).min() >= -1e-9


def test_row_of_tiny_weight_is_absent(rng):
    problem = class_problem(rng, rows=20)
    weight = np.ones(20)
    weight[-1] = 1e-12
    query = prepare(problem.Xq, kernel=make_kernel("se"), mean=Mean("zero"))
    a, sites = ep.ep_pass(query, Bernoulli(), problem.X, Observations(problem.obs.y, weight))
    b, _ = ep.ep_pass(query, Bernoulli(), problem.X[:-1], problem.obs[:-1])
    assert 0 < sites.tau[-1] < 1e-12
    np.testing.assert_allclose(a.precision, b.precision, atol=1e-9)
    np.testing.assert_allclose(a.eta, b.eta, atol=1e-9)
    assert a.evidence == pytest.approx(b.evidence, abs=1e-9)


def test_no_rows_give_the_zero_message(rng):
    problem = class_problem(rng)
    query = prepare(problem.Xq, kernel=make_kernel("se"), mean=Mean("constant"))
    message, sites = ep.ep_pass(query, Bernoulli(), problem.X[:0], problem.obs[:0])
    again, _ = ep.ep_pass(query, Bernoulli(), problem.X[:0], problem.obs[:0], message, sites)
    for got in (message, again):
        assert got.rows == 0
        assert not got.precision.any()
        assert len(got.eta) == query.size


def test_moves_that_turn_back_are_damped(monkeypatch):
    """Sites that answer their cavity with too much go round in circles by full steps; shorter ones arrive."""
    exact = ep.tilted_site

    def overshooting(likelihood, obs, mean, variance):
        log_z, tau, _ = exact(likelihood, obs, mean, variance)
        return log_z, tau, 1.0 - np.tanh(mean)

    monkeypatch.setattr(ep, "tilted_site", overshooting)
    monkeypatch.setattr(ep, "SWEEPS", 100)
    x = np.linspace(0, 1, 10)[:, None]
    K, obs = make_kernel("se", inputs=1).cross(x, x), unweighted(np.ones(10))
    sites = ep.fit_sites(K, obs, Bernoulli())
    _, _, cavity_mean, _ = ep._cavities(K, np.zeros(10), sites.tau, sites.nu)
    np.testing.assert_allclose(sites.nu, 1.0 - np.tanh(cavity_mean), atol=1e-8)
    monkeypatch.setattr(ep, "STEP_SHORTER", 1.0)
    with pytest.raises(EPNotConverged):
        ep.fit_sites(K, obs, Bernoulli())


def test_not_converging_is_an_error_and_not_an_answer(rng, monkeypatch):
    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    monkeypatch.setattr(ep, "SWEEPS", 2)
    with pytest.raises(EPNotConverged, match=r"expected sites that move by at most 1e-10 .* after 2 sweeps"):
        ep.fit_sites(K, problem.obs, Bernoulli())
