"""Layers of deep Gaussian processes: moments by sampling, gradients by differences, the tied energy by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.methods.deep.layer import JITTER, Layer, gradient, tied_energy
from bcmdist.methods.deep.moments import passed
from bcmdist.methods.deep.outputs import log_expectation
from bcmdist.methods.deep.rows import log_densities, through
from bcmdist.methods.deep.shared import Deep
from bcmdist.methods.deep.training import directions, first_layers, last_layer
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from published.correlated_layers import correlated, correlated_through

DRAWS = 10**6
NORMAL = make_likelihood("gaussian")


def layer(rng, M, D, U) -> Layer:
    """A layer of random numbers."""
    root = np.tril(rng.standard_normal((U, M, M)))
    shapes = np.array(0.2), np.array(-2.0), rng.standard_normal((U, M))
    return Layer(rng.standard_normal((M, D)), 0.3 * rng.standard_normal(D), *shapes, root)


def dense(layer, u):
    """z, l, a, K and the moments of the values at the centres of one process, by inverses."""
    K, L = layer.covariance, layer.factor
    C = np.linalg.inv(np.eye(len(K)) + layer.precision[u])
    return np.linalg.inv(K), L @ layer.mean[u], L @ C @ L.T


def covariances(layer, H):
    scaled = (H[:, None] - layer.centres[None]) / np.exp(layer.log_lengthscale)
    return np.exp(layer.log_variance - 0.5 * (scaled**2).sum(axis=2))


@pytest.mark.slow
def test_moments_are_those_of_draws(rng):
    one = layer(rng, 5, 2, 2)
    m, s = np.array([[0.3, -0.2]]), np.array([[0.2, 0.4]])
    found = passed(one.stage(), m, s)
    H = m + np.sqrt(s) * rng.standard_normal((DRAWS, 2))
    k = covariances(one, H)
    for u in range(2):
        inverse, E, V = dense(one, u)
        mean = k @ inverse @ E
        shrunk = inverse - inverse @ V @ inverse
        variance = np.exp(one.log_noise) + np.exp(one.log_variance) - np.einsum("ij,ij->i", k @ shrunk, k)
        # Five standard errors of the averages.
        assert abs(found.mean[0, u] - mean.mean()) < 5 * mean.std() / np.sqrt(DRAWS)
        squares = variance + (mean - mean.mean()) ** 2
        assert abs(found.variance[0, u] - squares.mean()) < 5 * squares.std() / np.sqrt(DRAWS)


def test_covariances_of_outputs_are_those_of_draws(rng):
    """Of an input whose dimensions vary together (SYSTEMS D10)."""
    one = layer(rng, 5, 2, 2)
    m, S = np.array([[0.3, -0.2]]), np.array([[[0.5, 0.3], [0.3, 0.4]]])
    mean, covariance = correlated(one.stage(), m, S)
    H = rng.multivariate_normal(m[0], S[0], DRAWS)
    k = covariances(one, H)
    means, own = np.empty((2, DRAWS)), np.empty((2, DRAWS))
    for u in range(2):
        inverse, E, V = dense(one, u)
        means[u] = k @ inverse @ E
        shrunk = inverse - inverse @ V @ inverse
        own[u] = np.exp(one.log_noise) + np.exp(one.log_variance) - np.einsum("ij,ij->i", k @ shrunk, k)
    errors = means - means.mean(axis=1, keepdims=True)
    for u, w in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        each = errors[u] * errors[w] + (u == w) * own[u]
        # Five standard errors of the averages.
        assert abs(covariance[0, u, w] - each.mean()) < 5 * each.std() / np.sqrt(DRAWS)
        assert abs(mean[0, u] - means[u].mean()) < 5 * means[u].std() / np.sqrt(DRAWS)


def test_outputs_of_independent_inputs_have_the_variances_of_training(rng):
    """To rounding; and one hidden unit has nothing to vary with, so that all layers agree."""
    one, m, s = layer(rng, 5, 2, 3), rng.standard_normal((4, 2)), rng.uniform(0, 1, (4, 2))
    mean, covariance = correlated(one.stage(), m, s[:, :, None] * np.eye(2))
    diagonal = passed(one.stage(), m, s)
    np.testing.assert_allclose(mean, diagonal.mean, rtol=1e-10)
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), diagonal.variance, rtol=1e-9)
    stages = [layer(rng, 5, 2, 1).stage(), layer(rng, 5, 1, 1).stage()]
    mean, covariance = correlated_through(stages, m)
    warped = through(stages, m)[-1]
    np.testing.assert_allclose(mean, warped.mean, rtol=1e-10)
    np.testing.assert_allclose(covariance[:, 0], warped.variance, rtol=1e-9)


def test_certain_inputs_are_the_limit_of_uncertain_ones(rng):
    stage, m = layer(rng, 6, 3, 2).stage(), rng.standard_normal((7, 3))
    certain, nearly = passed(stage, m), passed(stage, m, np.full((7, 3), 1e-12))
    # The jitter makes sums of the order of 1 / JITTER, of which sixteen digits are kept.
    np.testing.assert_allclose(nearly.mean, certain.mean, atol=1e-8)
    np.testing.assert_allclose(nearly.variance, certain.variance, atol=1e-8)


def test_far_away_is_the_prior(rng):
    one = layer(rng, 4, 1, 1)
    found = passed(one.stage(), np.full((1, 1), 100.0), np.ones((1, 1)))
    assert found.mean[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert found.variance[0, 0] == pytest.approx(np.exp(one.log_noise) + np.exp(one.log_variance))


@pytest.mark.parametrize(("depth", "power"), [(1, 1.0), (2, 1.0), (3, 1.0), (1, 0.5), (2, 0.3)])
def test_the_gradient_is_that_of_differences(rng, depth, power):
    widths = [*[3, 2, 2][:depth], 1]
    layers = [layer(rng, 4 + k, widths[k], widths[k + 1]) for k in range(depth)]
    X, y, weight = rng.standard_normal((12, 3)), rng.standard_normal(12), rng.uniform(0.5, 2.0, 12)

    sites = 12 / power

    def densities(layers):
        return log_densities([one.stage(1 - 1 / sites) for one in layers], X, Observations(y, weight), NORMAL, power)

    def energy(layers):
        return densities(layers)[0] + sum(tied_energy(one, sites) for one in layers)

    for k, (one, pull) in enumerate(zip(layers, densities(layers)[1], strict=True)):
        numbers, found, h = one.numbers(), gradient(one, sites, pull).numbers(), 1e-5
        for j in range(len(numbers)):
            step = h * (np.arange(len(numbers)) == j)
            sides = [energy([*layers[:k], one.moved(numbers + way * step), *layers[k + 1 :]]) for way in (1, -1)]
            # Differences of numbers of the order of 100 by steps of 1e-5 have six digits.
            assert found[j] == pytest.approx((sides[0] - sides[1]) / (2 * h), abs=1e-6, rel=1e-6)


def fitc(one, X, y):
    """Noise variances of rows in FITC, their design, and the log evidence, by dense matrices."""
    K = covariances(one, X) @ np.linalg.inv(one.factor).T
    left = np.exp(one.log_variance) + np.exp(one.log_noise) - np.einsum("ij,ij->i", K, K)
    S = K @ K.T + np.diag(left)
    return left, K, -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1])


def with_sites(one, eta, precision) -> Layer:
    """The layer whose sum of what rows say is this."""
    mean = np.linalg.solve(np.eye(len(eta)) + precision, eta)
    return replace(one, mean=mean[None], root=np.linalg.cholesky(precision + 1e-13 * np.eye(len(eta)))[None])


def test_the_tied_energy_of_rows_that_say_the_same_is_the_evidence_of_fitc(rng):
    """Where the tie is no approximation: of equal rows."""
    one = layer(rng, 5, 2, 1)
    X, y = np.tile(rng.standard_normal((1, 2)), (6, 1)), np.full(6, 0.7)
    left, V, evidence = fitc(one, X, y)
    tied = with_sites(one, V.T @ (y / left), V.T @ (V / left[:, None]))
    value = log_densities([tied.stage(5 / 6)], X, unweighted(y), NORMAL)[0] + tied_energy(tied, 6)
    assert value == pytest.approx(evidence, abs=1e-8)


@pytest.mark.parametrize("power", [1.0, 0.5, 0.1])
def test_the_tied_energy_to_a_power_is_that_of_power_ep(rng, power):
    """log N(y; 0, Q + p Lam + s I) - (1 - p) / 2 p sum log(1 + p Lam / s), of equal rows (Bui, Yan & Turner 2017)."""
    one, noise = replace(layer(rng, 5, 2, 1), log_noise=np.log(NORMAL.noise_variance[0])), NORMAL.noise_variance[0]
    X, y = np.tile(rng.standard_normal((1, 2)), (6, 1)), np.full(6, 0.7)
    left, V, _ = fitc(one, X, y)
    Lam = left - noise
    known = power * Lam + noise
    tied, sites = with_sites(one, V.T @ (y / known), V.T @ (V / known[:, None])), 6 / power
    stages = [tied.stage(1 - 1 / sites)]
    value = log_densities(stages, X, unweighted(y), NORMAL, power)[0] + tied_energy(tied, sites)
    S = V @ V.T + np.diag(known)
    expected = -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1])
    expected -= (1 - power) / (2 * power) * np.log1p(power * Lam / noise).sum()
    assert value == pytest.approx(expected, abs=1e-8)


def test_the_tied_energy_is_that_of_its_formula(rng):
    """By inverses and logarithms of normal densities, of rows that differ (SYSTEMS D5)."""
    one, N = layer(rng, 4, 1, 1), 9
    X, y = rng.standard_normal((N, 1)), rng.standard_normal(N)
    left, V, _ = fitc(one, X, y)
    P, h = one.precision[0], one.eta[0]

    def phi(c):
        Lambda = np.eye(4) + c * P
        return 0.5 * c * h @ np.linalg.solve(Lambda, c * h) - 0.5 * np.linalg.slogdet(Lambda)[1]

    c = 1 - 1 / N
    C = np.linalg.inv(np.eye(4) + c * P)
    deviation = np.sqrt(left + np.einsum("ij,jk,ik->i", V, C, V))
    expected = (1 - N) * phi(1.0) + N * phi(c) + norm.logpdf(y, V @ C @ (c * h), deviation).sum()
    value = log_densities([one.stage(c)], X, unweighted(y), NORMAL)[0] + tied_energy(one, N)
    assert value == pytest.approx(expected, abs=1e-8)


# --- What rows say of the last layer ---


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "probit", "poisson"])
def test_what_rows_say_is_an_average_and_its_slopes_are_those_of_differences(rng, name, power):
    likelihood, noise = make_likelihood(name), 0.2
    known = np.array([0.0, 0.1, 0.3])
    obs = Observations(np.array([0.0, 1.0, 1.0]), np.array([1.0, 0.7, 2.0]), target_variance=known)
    m, v = rng.standard_normal(3), np.array([0.5, 1.5, 0.3])
    if likelihood.normal:
        likelihood, s = likelihood.with_parameters({"noise_variance": np.full(1, noise)}), noise
    else:
        s = 0.0

    def value(m, v, noise):
        return log_expectation(likelihood, obs, m[:, None], v[:, None], noise, power).value

    # Of 120 nodes over ten deviations of a smooth function, to rounding.
    nodes, weights = np.polynomial.legendre.leggauss(120)
    f = m[:, None] + 10 * np.sqrt(v - s)[:, None] * nodes
    belief = norm.pdf(10 * nodes) * 10 * weights
    each = np.exp(power * likelihood.log_density(Observations(*(part[:, None] for part in vars(obs).values())), f))
    assert value(m, v, noise) == pytest.approx(np.log(each @ belief).sum() / power, abs=1e-9)
    found, h = log_expectation(likelihood, obs, m[:, None], v[:, None], noise, power), 1e-5
    for k in range(3):
        step = h * (np.arange(3) == k)
        # Differences by steps of 1e-5 have six digits.
        slopes = [value(m + step, v, noise) - value(m - step, v, noise)]
        slopes.append(value(m, v + step, noise) - value(m, v - step, noise))
        np.testing.assert_allclose([found.mean[k, 0], found.variance[k, 0]], np.array(slopes) / (2 * h), atol=1e-6)
    apart = value(m, v + h * (s > 0), noise + h) - value(m, v - h * (s > 0), noise - h)
    whole = apart / (2 * h) if s else 0.0
    assert found.noise == pytest.approx(whole, abs=1e-6)


def shared_by(layers, D) -> Deep:
    return Deep(tuple(layers), parse_kernel("se", inputs=D), Mean("zero"))


def test_one_layer_of_messages_is_fitc(rng):
    """The energy of expectation propagation with a factor for each row is the evidence, and that of the committee."""
    one = layer(rng, 5, 2, 1)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    shared = shared_by([one], 2)
    likelihood = make_likelihood("gaussian").with_parameters({"noise_variance": np.exp(one.log_noise).reshape(1)})
    message = expert_message(shared, likelihood, X, unweighted(y))
    belief = shared.belief(message.eta, message.precision)
    evidence = message.evidence + 0.5 * message.eta @ belief.mean - 0.5 * belief.log_determinant
    assert evidence == pytest.approx(fitc(one, X, y)[2], abs=1e-8)


def test_a_belief_that_rows_were_trained_with_predicts_by_the_moments_of_all_layers(rng):
    from bcmdist.model.shared.belief import factored
    from bcmdist.prediction.latent import predict_latent

    layers = [layer(rng, 6, 3, 2), layer(rng, 5, 2, 1)]
    shared, last = shared_by(layers, 3), layers[-1]
    X = rng.standard_normal((9, 3))
    found = predict_latent(shared, factored(last.eta[0], last.precision[0]), X)
    expected = through([one.stage() for one in layers], X)[-1]
    np.testing.assert_allclose(found[0], expected.mean[:, 0], atol=1e-8)
    np.testing.assert_allclose(found[1] + np.exp(last.log_noise), expected.variance[:, 0], atol=1e-8)


@pytest.mark.parametrize("name", ["bernoulli", "probit", "poisson", "softmax"])
def test_a_site_gives_the_belief_of_training_the_moments_that_rows_leave(rng, name):
    """Of one layer and one row: what it was trained with, times its message, has those of it times p(y | f)."""
    C = 3 if name == "softmax" else 1
    one, likelihood = replace(layer(rng, 5, 2, C), log_noise=np.log(1e-12)), make_likelihood(name, 3)
    shared, X, obs = shared_by([one], 2), rng.standard_normal((1, 2)), unweighted(np.ones(1))
    message = expert_message(shared, likelihood, X, obs)
    m, v = shared.believed(X)
    found = log_expectation(likelihood, obs, m, v, 0.0)
    eta, precision = message.eta.reshape(C, 5), message.precision.reshape(C, 5, 5)
    b, left = shared.design(X)[0], shared.residual_variance(shared.design(X), X)[0]
    for c in range(C):
        # f = b'v + r, where r of several classes is that of all in the mean, which here is the same.
        Lambda = np.eye(5) + one.precision[c] + precision[c]
        mean = b @ np.linalg.solve(Lambda, one.eta[c] + eta[c])
        before = b @ one.share(1.0).mean[c]
        # d log Z / d mean of b'v, times its variance, is the step of its mean.
        spread = b @ one.share(1.0).covariance[c] @ b
        assert v[0, c] == pytest.approx(spread + left, rel=1e-9)
        assert mean - before == pytest.approx(spread * found.mean[0, c], rel=1e-6)
        shrunk = spread - b @ np.linalg.solve(Lambda, b)
        bend = found.mean[0, c] ** 2 - 2.0 * found.variance[0, c]
        assert shrunk == pytest.approx(spread**2 * bend, rel=1e-6)
    # The evidence of one row, whose site is all there is, is its own: the average under the belief.
    if name != "softmax":
        belief = shared.belief(one.eta[0] + eta[0], one.precision[0] + precision[0])
        before = shared.belief(one.eta[0], one.precision[0])

        def normaliser(believed, eta):
            return 0.5 * eta @ believed.mean - 0.5 * believed.log_determinant

        whole = message.evidence + normaliser(belief, one.eta[0] + eta[0]) - normaliser(before, one.eta[0])
        assert whole == pytest.approx(found.value, abs=1e-8)


def test_rows_in_blocks_are_rows_at_once(rng, monkeypatch):
    layers = [layer(rng, 4, 2, 2), layer(rng, 4, 2, 1)]
    X, y = rng.standard_normal((11, 2)), rng.standard_normal(11)
    stages = [one.stage() for one in layers]
    value, pulls = log_densities(stages, X, unweighted(y), NORMAL)
    monkeypatch.setattr("bcmdist.methods.deep.rows.BLOCK_NUMBERS", 30)
    again, other = log_densities(stages, X, unweighted(y), NORMAL)
    assert again == pytest.approx(value, rel=1e-12)
    for one, two in zip(pulls, other, strict=True):
        np.testing.assert_allclose(two.quadratic, one.quadratic, rtol=1e-10, atol=1e-12)


def test_a_layer_is_its_numbers(rng):
    one = layer(rng, 4, 2, 3)
    again = one.moved(one.numbers())
    for name, value in vars(one).items():
        if name in vars(again):
            np.testing.assert_array_equal(getattr(again, name), value)
    assert one.covariance[0, 0] == pytest.approx(np.exp(0.2) * (1 + JITTER))


# --- Where the climb begins ---


def test_hidden_units_begin_as_directions_of_the_targets(rng):
    X = rng.standard_normal((500, 4))
    y = X @ np.array([1.0, 2.0, 0.0, 0.0])
    found = X @ directions(X, y[:, None], 3, rng)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(3), atol=1e-10)
    assert np.corrcoef(found[:, 0], y)[0, 1] > 0.99


@pytest.mark.parametrize(("D", "units", "depth"), [(1, 1, 2), (1, 3, 2), (3, 2, 4), (2, 2, 1)])
def test_layers_begin_with_what_rows_say(rng, D, units, depth):
    """As many units as wanted, of fewer inputs too; one of one input is a warped process."""
    X = rng.uniform(-2, 2, (200, D))
    y = np.sin(X[:, :1])
    layers = first_layers(X[:20], np.full(D, 1.5), X, y, units, depth, rng)
    layers.append(last_layer(layers, X[:20], np.full(D, 1.5), X, y, 0.01, rng))
    assert [one.units for one in layers] == [units] * (depth - 1) + [1]
    found = through([one.stage() for one in layers], X)[-1].mean[:, 0]
    assert np.sqrt(np.mean((found - y[:, 0]) ** 2)) < 0.25


def test_targets_that_say_nothing_begin_somewhere(rng):
    X = np.ones((30, 2))
    assert np.isfinite(directions(X, np.zeros((30, 1)), 2, rng)).all()
