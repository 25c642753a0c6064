"""Sites of deep Gaussian processes: moments by quadrature, factors by inverses, energies and fixed points by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.deep.layer import Belief, Layer, tied_energy
from bcmdist.methods.deep.propagation import swept
from bcmdist.methods.deep.rows import log_densities
from bcmdist.methods.deep.sites import (
    Factor,
    definite,
    normaliser,
    packed,
    row_factors,
    site_totals,
    unpacked,
    with_site_totals,
)
from bcmdist.methods.deep.training import first_layers, last_layer
from bcmdist.model.likelihoods import make_likelihood
from oracles import fitc

NOISE = 0.05
NORMAL = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([NOISE])})


@pytest.fixture
def rows(rng):
    """X (24, 2) and y (24,), a wave with errors."""
    X = rng.uniform(-2, 2, (24, 2))
    return X, np.sin(2 * X[:, 0]) + np.sqrt(NOISE) * rng.standard_normal(24)


def begun(rng, rows, depth, units=2) -> list[Layer]:
    """Layers of five centres, as climbs begin."""
    X, y = rows
    lengthscale = np.full(X.shape[1], 1.5)
    layers = first_layers(X[:5], lengthscale, X, y[:, None], units, depth, rng)
    return [*layers, last_layer(layers, X[:5], lengthscale, X, y[:, None], NOISE, rng)]


def energy(layers, total, figures, rows, power=1.0):
    """Of expectation propagation (SYSTEMS D3), from the figures of a sweep."""
    factors = unpacked(total, layers)
    phi = normaliser(factors, [one.believed() for one in factors])
    return (1 - rows / power) * phi + figures[1] + figures[0]


def sweeps(layers, rows, groups, count, step=0.5, power=1.0, least=0.0):
    """Factors (G, K) after some sweeps, at most `count`, and how far the last one moved them."""
    (X, y), each = rows, len(rows[1]) / groups
    factors = np.tile(site_totals(layers) / len(X), (groups, 1))
    for _ in range(count):
        sums, figures = swept(layers, each * factors.sum(axis=0), factors, X, unweighted(y), NORMAL, power)
        moved = np.max(np.abs(sums / each - factors))
        if moved < least * np.max(np.abs(factors)):
            break
        factors += step * (sums / each - factors)
    assert figures[2] == 0  # as it may be of the first ones
    return factors, moved


# --- The factor of a row ---


def test_a_factor_gives_the_moments_of_its_row(rng):
    """Of one layer with classes, by quadrature over f at a certain input (Bui et al., appendix C)."""
    X = rng.standard_normal((30, 2))
    one = replace(begun(rng, (X, X[:, 0]), 1)[0], log_noise=np.log(1e-6))
    likelihood, obs = make_likelihood("probit"), unweighted(np.array([1.0, 0.0]))
    cavity = one.share(0.3)
    (found,) = row_factors([one], [cavity], X[:2], obs, likelihood)
    assert found.proper.all()
    stage = one.seen(cavity)
    m, C = cavity.mean[0], cavity.covariance[0]
    scaled = (X[:2, None] - one.centres) / np.exp(one.log_lengthscale)
    B = np.linalg.solve(one.factor, np.exp(one.log_variance - 0.5 * (scaled**2).sum(axis=2)).T).T
    left = stage.variance + stage.noise - (B**2).sum(axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for b, rest, y, numbers in zip(B, left, obs.y, found.factors, strict=True):
        mean, variance = b @ m, rest + b @ C @ b
        f = mean + np.sqrt(variance) * nodes
        p = weights * norm.cdf((2 * y - 1) * f)
        p /= p.sum()
        first, second = p @ f, p @ f**2 - (p @ f) ** 2
        gain = C @ b / variance
        tilted = m + gain * (first - mean), C + np.outer(gain, gain) * (second - variance)
        (factor,) = unpacked(numbers, [one])
        both = Factor(factor.eta[0] + np.linalg.solve(C, m), factor.precision[0] + np.linalg.inv(C))
        # The quadrature of 60 nodes of a smooth function is exact to rounding; inverses of C lose some digits.
        np.testing.assert_allclose(np.linalg.inv(both.precision), tilted[1], atol=1e-8)
        np.testing.assert_allclose(np.linalg.solve(both.precision, both.eta), tilted[0], atol=1e-8)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_factors_follow_from_slopes_of_log_z(rng, rows, power):
    """m + C g and C - C W C, with g and W by differences, in all layers, minus the cavity, by inverses."""
    layers = begun(rng, rows, 3)
    cavity = [layer.share(0.9) for layer in layers]
    X, obs = rows[0][:1], Observations(rows[1][:1], np.array([0.7]))
    (found,) = row_factors(layers, cavity, X, obs, NORMAL, power)

    def log_z(k, belief):
        stages = [layer.seen(belief if k == j else cavity[j]) for j, layer in enumerate(layers)]
        return power * log_densities(stages, X, obs, NORMAL, power)[0]

    h = 1e-5
    for k, (belief, factor) in enumerate(zip(cavity, unpacked(found.factors[0], layers), strict=True)):
        for u, (m, C) in enumerate(zip(belief.mean, belief.covariance, strict=True)):

            def slope(to_mean, to_covariance, k=k, u=u, belief=belief):
                sides = []
                for way in (h, -h):
                    mean, covariance = belief.mean.copy(), belief.covariance.copy()
                    mean[u] += way * to_mean
                    covariance[u] += way * to_covariance
                    sides.append(log_z(k, Belief(1.0, mean, covariance)))
                return (sides[0] - sides[1]) / (2 * h)

            one = np.eye(len(m))
            g = np.array([slope(e, 0.0) for e in one])
            G = np.array([[slope(0.0, 0.5 * (np.outer(d, e) + np.outer(e, d))) for e in one] for d in one])
            mean, covariance = m + C @ g, C - C @ (np.outer(g, g) - 2 * G) @ C
            P = np.linalg.inv(covariance) - np.linalg.inv(C)
            eta = np.linalg.solve(covariance, mean) - np.linalg.solve(C, m)
            # Differences by steps of 1e-5 have six digits of slopes of the order of ten, and inverses lose some.
            np.testing.assert_allclose(power * factor.precision[u], P, atol=1e-4, rtol=1e-4)
            np.testing.assert_allclose(power * factor.eta[u], eta, atol=1e-4, rtol=1e-4)


def test_numbers_are_those_of_factors(rng):
    layers = [Layer(np.zeros((M, 2)), *3 * [np.zeros(())], np.zeros((U, M)), np.zeros((U, M, M))) for U, M in [(2, 3)]]
    root = rng.standard_normal((4, 2, 3, 3))
    one = Factor(rng.standard_normal((4, 2, 3)), root + np.swapaxes(root, -1, -2))
    (again,) = unpacked(packed([one]), layers)
    np.testing.assert_array_equal(again.eta, one.eta)
    np.testing.assert_array_equal(again.precision, one.precision)


# --- Energies and fixed points ---


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_layer_of_rows_on_their_own_is_fitc(rng, rows, power):
    """Its posterior after one whole sweep from anywhere, since what rows say is normal, and its evidence after that."""
    layers = begun(rng, rows, 1)
    (X, y), N = rows, len(rows[1])
    factors = np.tile(site_totals(layers) / N, (N, 1))
    value, *expected = fitc(layers[0], X, y, power)
    factors, _ = swept(layers, factors.sum(axis=0), factors, X, unweighted(y), NORMAL, power)
    total = factors.sum(axis=0)
    np.testing.assert_allclose(total, packed([Factor(*(one[None] for one in expected))]), rtol=1e-8, atol=1e-8)
    _, figures = swept(layers, total, factors, X, unweighted(y), NORMAL, power)
    assert energy(layers, total, figures, N, power) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("groups", [1, 4, 24])
def test_the_posterior_of_a_layer_is_that_of_fitc_by_any_groups(rng, rows, groups):
    """Since no row heeds its cavity; the energy is the evidence where each has a factor of its own."""
    layers, (X, y) = begun(rng, rows, 1), rows
    factors, _ = sweeps(layers, rows, groups, 1, step=1.0)
    value, *expected = fitc(layers[0], X, y, 1.0)
    total = 24 / groups * factors.sum(axis=0)
    np.testing.assert_allclose(total, packed([Factor(*(one[None] for one in expected))]), rtol=1e-8, atol=1e-8)
    _, figures = swept(layers, total, factors, X, unweighted(y), NORMAL)
    assert (abs(energy(layers, total, figures, 24) - value) < 1e-8) == (groups == 24)


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("depth", [1, 3])
def test_of_one_group_the_energy_is_the_tied_one(rng, rows, depth, power):
    layers, (X, y) = begun(rng, rows, depth), rows
    N, total = len(X), site_totals(layers)
    _, figures = swept(layers, total, total[None] / N, X, unweighted(y), NORMAL, power)
    stages = [layer.stage(1 - power / N) for layer in layers]
    tied = log_densities(stages, X, unweighted(y), NORMAL, power)[0]
    tied += sum(tied_energy(layer, N / power) for layer in layers)
    # Sums of numbers of the order of 1e3.
    assert energy(layers, total, figures, N, power) == pytest.approx(tied, rel=1e-10, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 4, pytest.param(24, marks=pytest.mark.nightly)])
def test_sweeps_of_two_layers_end_where_another_changes_nothing(rng, rows, groups):
    layers = begun(rng, rows, 2, units=1)
    factors, moved = sweeps(layers, rows, groups, 1200, least=5e-7)
    # Linear convergence, by some percent a sweep.
    assert moved < 1e-6 * np.max(np.abs(factors))
    assert np.max(np.abs(factors - site_totals(layers) / 24)) > 1e3 * moved


@pytest.mark.slow
def test_one_group_ends_where_stochastic_expectation_propagation_does(rng, rows):
    """Row by row with a small step, each with cavities and moments by inverses (SYSTEMS D4)."""
    layers, (X, y) = begun(rng, rows, 2, units=1), rows
    ((at,), _), N = sweeps(layers, rows, 1, 1200), len(X)
    visited = at.copy()
    for _ in range(2):
        for n in range(N):
            cavity = [one.believed() for one in unpacked((N - 1) * visited, layers)]
            (found,) = row_factors(layers, cavity, X[n : n + 1], unweighted(y[n : n + 1]), NORMAL)
            visited = visited + (found.factors[0] - visited) / N**2
    # Within a round rows go their own ways, which cancel but for terms of the square of the step.
    each = np.max(np.abs(found.factors[0] - at)) / N**2
    assert np.max(np.abs(visited - at)) < 5 * each


# --- What is no belief ---


def test_a_factor_that_leaves_no_belief_is_not_taken(rng, rows):
    """A row far off, of which the cavity is sure, in a layer whose input is uncertain (SYSTEMS I.7)."""
    layers, (X, y) = begun(rng, rows, 2), rows
    factors = np.tile(site_totals(layers) / len(X), (24, 1))
    total = factors.sum(axis=0)
    far = y.copy()
    far[3] = 40.0
    sums, figures = swept(layers, total, factors, X, unweighted(far), NORMAL)
    usual, _ = swept(layers, total, factors, X, unweighted(y), NORMAL)
    assert figures[2] == 1
    np.testing.assert_array_equal(sums[3], factors[3])
    np.testing.assert_allclose(np.delete(sums, 3, axis=0), np.delete(usual, 3, axis=0))


def test_a_group_without_a_cavity_stays(rng, rows):
    layers, (X, y) = begun(rng, rows, 1), rows
    factors = np.tile(site_totals(layers) / len(X), (24, 1))
    (one,) = unpacked(factors[5], layers)
    factors[5] = packed([Factor(one.eta, one.precision + 1e6 * np.eye(5))])
    total = site_totals(layers)  # in which less of it is left
    sums, figures = swept(layers, total, factors, X, unweighted(y), NORMAL)
    assert figures[2] == 1
    np.testing.assert_array_equal(sums[5], factors[5])


def test_what_is_no_belief_is_refused(rng):
    with pytest.raises(NotPositiveDefinite, match="expected a positive definite precision"):
        Factor(np.zeros((1, 2)), -2.0 * np.eye(2)[None]).believed()
    A = np.stack([np.eye(2), -np.eye(2), np.diag([1.0, -1.0])])
    np.testing.assert_array_equal(definite(A), [True, False, False])


def test_a_layer_is_told_what_rows_say_but_for_less_than_nothing(rng, rows):
    """Directions of negative precision are projected to 0; others, and eta, are kept."""
    layers = begun(rng, rows, 2)
    again = with_site_totals(layers, site_totals(layers))
    for one, other in zip(layers, again, strict=True):
        # Eigenvalues are of the order of 1e3, and thirteen digits are kept.
        np.testing.assert_allclose(other.precision, one.precision, atol=1e-8)
        np.testing.assert_allclose(other.mean, one.mean, atol=1e-8)
    V = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    says = Factor(rng.standard_normal((1, 5)), (V * np.array([3.0, 2.0, 1.0, -0.5, -0.1]) @ V.T)[None])
    (found,) = with_site_totals(layers[1:], packed([says]))
    expected = V * np.array([3.0, 2.0, 1.0, 0.0, 0.0]) @ V.T
    np.testing.assert_allclose(found.precision[0], expected, atol=1e-8)
    np.testing.assert_allclose(found.eta, says.eta, atol=1e-8)
