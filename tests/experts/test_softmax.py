"""Laplace experts of several classes against dense algebra over all classes at once."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations, unweighted
from bcmdist.experts import softmax
from bcmdist.experts.expert import conditional_message, expert_message
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.message import zero_message
from bcmdist.experts.residual import RESIDUALS, Block
from bcmdist.experts.softmax import log_evidence, softmax_mode
from bcmdist.model.likelihoods import Softmax, SoftmaxCoupled
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from bcmdist.testing import check_likelihood
from problems import make_kernel, split
from some_likelihoods import SOFTMAX

C = 3


@pytest.fixture
def problem(rng):
    X = rng.uniform(-2, 2, (30, 2))
    y = rng.integers(0, C, 30).astype(float)
    return X, Observations(y, rng.uniform(0.5, 2.0, 30)), rng.uniform(-2, 2, (6, 2))


def dense_hessian(likelihood, obs, f):
    """W of all classes at once, class by class: (n C, n C)."""
    n = len(f)
    p = likelihood.probability(obs, f) / obs.weight[:, None]
    W = np.zeros((C, n, C, n))
    for i in range(n):
        W[:, i, :, i] = obs.weight[i] * (np.diag(p[i]) - np.outer(p[i], p[i]))
    return W.reshape(C * n, C * n)


def test_factors_serve_for_further_steps_near_the_mode(problem, monkeypatch):
    """And the mode is the same as with a factor for each step."""
    (X, obs, _), steps, factored = problem, [], []
    K, likelihood = make_kernel("se").cross(X, X), Softmax(C)
    coupling, solve = softmax._Coupling, softmax._Coupling.solve
    monkeypatch.setattr(softmax, "_Coupling", lambda *given: factored.append(given) or coupling(*given))
    monkeypatch.setattr(coupling, "solve", lambda self, B: steps.append(B) or solve(self, B))
    f = softmax_mode(K, obs, likelihood)
    assert len(factored) < len(steps)
    monkeypatch.setattr(softmax, "REUSED_SHARE", 0.0)
    np.testing.assert_allclose(f, softmax_mode(K, obs, likelihood), atol=1e-8)


def test_derivatives_of_the_softmax(problem):
    _, obs, _ = problem
    likelihood, f, h = SoftmaxCoupled(C), np.random.default_rng(1).standard_normal((30, C)), 1e-6
    check_likelihood(likelihood, obs, f)
    second = np.zeros((30, C, C))
    for c in range(C):
        up, down = f + h * np.eye(C)[c], f - h * np.eye(C)[c]
        second[:, :, c] = (likelihood.score(obs, up) - likelihood.score(obs, down)) / (2 * h)
    W = dense_hessian(likelihood, obs, f).reshape(C, 30, C, 30)
    np.testing.assert_allclose(-second, np.einsum("cidi->icd", W), atol=1e-8)


def test_mode_and_evidence_are_the_dense_ones(problem):
    X, obs, _ = problem
    likelihood, K = Softmax(C), make_kernel("matern32").cross(X, X)
    f = softmax_mode(K, obs, likelihood)
    assert np.abs(np.linalg.solve(K, f) - likelihood.score(obs, f)).max() <= 1e-8
    big = np.kron(np.eye(C), K)
    W, v = dense_hessian(likelihood, obs, f), f.T.ravel()
    determinant = np.linalg.slogdet(np.eye(len(big)) + big @ W)[1]
    dense = likelihood.log_density(obs, f).sum() - 0.5 * v @ np.linalg.solve(big, v) - 0.5 * determinant
    assert log_evidence(K, obs, likelihood) == pytest.approx(dense, rel=1e-8)


@pytest.mark.parametrize("weights", ["poisson", "fisher", "coupled"])
def test_messages_are_those_of_the_dense_linearised_model(problem, weights):
    """eta = V'(I + W Lam)^-1 (W f + s), precision = V'(I + W Lam)^-1 W V with the W that the form keeps."""
    X, obs, Xq = problem
    likelihood = SOFTMAX[weights](C)
    query = prepare(Xq, kernel=make_kernel("matern32"), mean=Mean("constant"))
    message = expert_message(query, likelihood, X, obs)
    V, K = query.design(X), query.kernel.cross(X, X)
    H = query.mean.design(X)
    f = softmax_mode(K + H @ H.T, obs, likelihood)
    big_V = np.kron(np.eye(C), V)
    Lam = np.kron(np.eye(C), K - V[:, :6] @ V[:, :6].T)
    W = dense_hessian(likelihood, obs, f) if weights == "coupled" else np.diag(likelihood.curvature(obs, f).T.ravel())
    v, s = f.T.ravel(), likelihood.score(obs, f).T.ravel()
    inner = np.linalg.inv(np.eye(len(W)) + W @ Lam)
    eta, precision = big_V.T @ inner @ (W @ v + s), big_V.T @ inner @ W @ big_V
    S = query.size
    if weights == "coupled":
        assert message.eta.shape == (C * S,)
        np.testing.assert_allclose(message.precision, precision, atol=1e-10 * np.abs(precision).max())
    else:
        assert message.precision.shape == (C, S, S)
        for c in range(C):
            own = slice(c * S, (c + 1) * S)
            np.testing.assert_allclose(message.precision[c], precision[own, own], atol=1e-10 * np.abs(precision).max())
    np.testing.assert_allclose(message.eta.ravel(), eta, atol=1e-10 * np.abs(eta).max())


# --- Rows that nothing but the shared variables couples ---


@pytest.mark.parametrize("columns", [0, 4, 40])
def test_modes_and_evidence_do_not_depend_on_how_a_covariance_is_stored(problem, rng, columns):
    """Of fewer columns than rows, of more, and of none."""
    _, obs, _ = problem
    K = LowRank(rng.uniform(0, 2, 30), rng.standard_normal((30, columns)))
    dense, likelihood = np.diag(K.d) + K.U @ K.U.T, Softmax(C)
    prior_mean = rng.standard_normal((30, C))
    for one in (None, prior_mean):
        np.testing.assert_allclose(
            softmax_mode(K, obs, likelihood, one), softmax_mode(dense, obs, likelihood, one), atol=1e-8
        )
    assert log_evidence(K, obs, likelihood) == pytest.approx(log_evidence(dense, obs, likelihood), rel=1e-9)


def test_nothing_to_search_is_the_prior_mean(problem, rng):
    _, obs, _ = problem
    mean = rng.standard_normal((30, C))
    np.testing.assert_array_equal(softmax_mode(LowRank(np.zeros(30), np.empty((30, 0))), obs, Softmax(C), mean), mean)


@pytest.mark.parametrize("weights", ["poisson", "fisher", "coupled"])
@pytest.mark.parametrize("residual", ["none", "diagonal", "augmented"])
def test_messages_of_rows_apart_are_those_of_their_dense_residual(problem, residual, weights):
    """Of a residual that is written down as a matrix: at the expert's own mode, and at that given shared values."""
    X, obs, Xq = problem
    likelihood, mean = SOFTMAX[weights](C), np.linspace(-1, 1, C * 6).reshape(C, 6)
    query = prepare(Xq, kernel=make_kernel("matern32"), mean=Mean("zero"), residual=residual)
    V = query.design(X)
    Lam = RESIDUALS[residual].residual(query, V, X) @ np.eye(30)
    for found, f in [
        (expert_message(query, likelihood, X, obs), softmax_mode(Lam + V @ V.T, obs, likelihood)),
        (
            conditional_message(query, likelihood, X, obs, mean).message,
            softmax_mode(Lam, obs, likelihood, V @ mean.T),
        ),
    ]:
        expected = softmax.softmax_message(V, Block(Lam.copy(order="F")), obs, likelihood, f)
        for part in ("eta", "precision"):
            one, other = getattr(found, part), getattr(expected, part)
            np.testing.assert_allclose(one, other, atol=1e-7 * np.abs(other).max())
        assert found.evidence == pytest.approx(expected.evidence, abs=1e-7)


def test_coupled_evidence_of_one_expert_is_the_local_one(problem):
    X, obs, Xq = problem
    kernel = make_kernel("matern32")
    query = prepare(Xq, kernel=kernel, mean=Mean("zero"))
    committee = Committee(expert_message(query, SoftmaxCoupled(C), X, obs))
    assert committee.log_evidence == pytest.approx(log_evidence(kernel.cross(X, X), obs, Softmax(C)), rel=1e-8)


def converged(query, likelihood, X, obs, blocks, passes):
    """The committee after some passes, values summing to zero over classes as the facade has them."""
    total = sum((expert_message(query, likelihood, X[b], obs[b]) for b in blocks), zero_message(query, likelihood))
    for _ in range(passes):
        mean = Committee(total).posterior.mean.reshape(C, -1)
        mean = mean - mean.mean(axis=0)
        absorbed = [conditional_message(query, likelihood, X[b], obs[b], mean).message for b in blocks]
        total = sum(absorbed, zero_message(query, likelihood))
    return Committee(total)


@pytest.mark.parametrize(("weights", "passes"), [("coupled", 7), ("poisson", 40)])
def test_limit_of_the_passes_is_the_dense_pitc_laplace_solution(problem, weights, passes):
    X, obs, Xq = problem
    likelihood, kernel, blocks = SOFTMAX[weights](C), make_kernel("matern32"), split(30, [9, 21])
    query = prepare(Xq, kernel=kernel, mean=Mean("zero"))
    committee = converged(query, likelihood, X, obs, blocks, passes)
    V = query.design(X)
    K = V @ V.T
    for b in blocks:
        K[b, b] = kernel.cross(X[b], X[b])
    f = softmax_mode(K, obs, likelihood)
    exact = V.T @ likelihood.score(obs, f)  # mean of the whitened values: sum of V' times K^-1 f
    belief = committee.posterior
    mean = belief.mean.reshape(C, -1)
    # In standard deviations of the prior, which are at least those of the posterior times a few.
    assert np.abs(mean - exact.T).max() <= 1e-8


def test_poisson_form_keeps_the_variance_of_differences(problem):
    """What probabilities depend on: close to the coupled form, where the fisher form is too wide."""
    X, obs, Xq = problem
    query = prepare(Xq, kernel=make_kernel("matern32"), mean=Mean("zero"))
    Xs, spread = X[:10] + 0.1, {}
    for weights in ("coupled", "poisson", "fisher"):
        committee = Committee(expert_message(query, SOFTMAX[weights](C), X, obs))
        _, variance = predict_latent(query, committee.posterior, Xs)
        if variance.ndim == 2:
            variance = np.einsum("ic,cd->icd", variance, np.eye(C))
        spread[weights] = variance[:, 0, 0] + variance[:, 1, 1] - 2 * variance[:, 0, 1]
    gap = {weights: spread[weights] / spread["coupled"] - 1 for weights in ("poisson", "fisher")}
    assert np.all(gap["fisher"] > 0)
    assert np.abs(gap["poisson"]).mean() < 0.5 * gap["fisher"].mean()


def test_class_probabilities_against_many_draws(rng):
    mean, A = rng.standard_normal((4, C)), rng.standard_normal((4, C, C))
    covariance = A @ A.transpose(0, 2, 1)
    p = Softmax(C).class_probability(mean, covariance)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    for k in range(4):
        draws = np.exp(multivariate_normal(mean[k], covariance[k]).rvs(200_000, random_state=k))
        exact = (draws / draws.sum(axis=1, keepdims=True)).mean(axis=0)
        np.testing.assert_allclose(p[k], exact, atol=6e-3)  # 256 quasi-random draws: about 2e-3


def test_two_classes_are_the_logistic_model_of_the_difference(rng):
    """f_1 - f_0 of two processes has twice the prior variance; its posterior is that of one process."""
    from bcmdist.experts.laplace import laplace_mode
    from bcmdist.model.likelihoods import Bernoulli

    X = rng.uniform(-2, 2, (25, 2))
    obs = unweighted((X[:, 0] + 0.5 * rng.standard_normal(25) > 0) * 1.0)
    K = make_kernel("matern32").cross(X, X)
    f = softmax_mode(K, obs, Softmax(2))
    np.testing.assert_allclose(f[:, 1] - f[:, 0], laplace_mode(2 * K, obs, Bernoulli()), atol=1e-8)
    np.testing.assert_allclose(f.sum(axis=1), 0.0, atol=1e-8)
