"""Relevance vectors are learned from sums as from the rows themselves, by every algorithm."""

import numpy as np
import pytest

from bcmdist.methods.relevance import learners
from bcmdist.methods.relevance.classes import closed
from bcmdist.methods.relevance.dictionaries import Radial
from bcmdist.methods.relevance.learners import Problem, State, posterior
from bcmdist.methods.relevance.method import OneVersusAll
from bcmdist.methods.relevance.sequential import UPDATES, afresh, changed
from bcmdist.methods.relevance.sums import Sums, sums_of
from bcmdist.methods.relevance.training import pull
from bcmdist.testing import check_basis, check_likelihood
from oracles import (
    central_differences,
    relevance_apart,
    relevance_evidence,
    relevance_fast,
    relevance_steps,
)

STEPS = {"em": (learners.em_step, False), "mackay": (learners.mackay_step, True)}


def test_conformance(rng):
    check_basis(Radial(rng.standard_normal((5, 3)), np.array([0.7, 1.0, 2.0]), np.arange(5.0)))
    check_likelihood(OneVersusAll(3))


@pytest.fixture
def rows(rng):
    """Bumps around 12 of 60 rows, and a constant behind them: Phi (60, 13), y (60,)."""
    X = np.sort(rng.uniform(-6, 6, 60))
    Phi = np.exp(-0.5 * (X[:, None] - X[None, ::5]) ** 2)
    y = np.sinc(X / 2) + 0.1 * rng.standard_normal(60)
    assert Phi.shape == (60, 12)
    return np.column_stack([Phi, np.ones(60)]), y


def problem_of(rows, *, parts=1, held=1, keep_noise=False):
    """The sum over partitions."""
    Phi, y = rows
    shares = [sums_of(Phi[k::parts], y[k::parts], np.ones(len(y[k::parts]))) for k in range(parts)]
    return Problem(sum(shares[1:], shares[0]), held, keep_noise)


def some_state(rng, count=13):
    return State(np.arange(count), np.append(rng.uniform(0.5, 5.0, count - 1), 1.0), 0.05)


def apart(state, found):
    return learners.sparsity_and_quality(state.alpha, found.mean, found.variance)


def test_the_posterior_is_that_of_the_rows(rows, rng):
    Phi, y = rows
    state = some_state(rng)
    found = posterior(problem_of(rows, parts=3).sums, state)
    Sigma = np.linalg.inv(Phi.T @ Phi / state.noise + np.diag(state.alpha))
    np.testing.assert_allclose(found.covariance, Sigma, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.mean, Sigma @ Phi.T @ y / state.noise, rtol=1e-10)
    assert found.misfit == pytest.approx(np.sum((y - Phi @ found.mean) ** 2), rel=1e-10)
    assert found.evidence == pytest.approx(relevance_evidence(Phi, y, state.alpha, state.noise), abs=1e-10)


def test_row_weights_divide_the_noise(rows, rng):
    Phi, y = rows
    state, weight = some_state(rng), rng.uniform(0.5, 2.0, 60)
    found = posterior(sums_of(Phi, y, weight), state)
    assert found.evidence == pytest.approx(relevance_evidence(Phi, y, state.alpha, state.noise / weight), abs=1e-10)


def test_sums_of_some_functions_are_a_block(rows):
    Phi, y = rows
    which = np.array([0, 3, 12])
    whole, part = sums_of(Phi, y, np.ones(60)).some(which), sums_of(Phi[:, which], y, np.ones(60))
    np.testing.assert_allclose(whole.gram, part.gram, rtol=1e-13)
    np.testing.assert_allclose(whole.cross, part.cross, rtol=1e-12)
    assert (whole.square, whole.rows) == (part.square, 60)
    nothing = Sums(np.zeros((3, 3)), np.zeros(3), 0.0, 0)
    np.testing.assert_array_equal((part + nothing).gram, part.gram)


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_those_of_the_centralised_algorithm(rows, rng, name):
    step, mackay = STEPS[name]
    Phi, y = rows
    problem, state = problem_of(rows, parts=4), some_state(rng)
    alpha, noise = relevance_steps(Phi, y, state.alpha, state.noise, 8, mackay=mackay, held=1)
    for _ in range(8):
        state = step(problem, state, posterior(problem.sums, state))
    np.testing.assert_allclose(1.0 / state.alpha, 1.0 / alpha, rtol=1e-8, atol=1e-10)
    assert state.noise == pytest.approx(noise, rel=1e-10)
    assert state.alpha[-1] == 1.0


def test_em_never_lowers_the_evidence(rows, rng):
    problem, state = problem_of(rows), some_state(rng)
    values = []
    for _ in range(200):
        found = posterior(problem.sums, state)
        values.append(found.evidence)
        state = learners.em_step(problem, state, found)
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] > values[0] + 1.0


def test_what_each_function_says_apart(rows, rng):
    Phi, y = rows
    state = some_state(rng)
    s, q = apart(state, posterior(problem_of(rows).sums, state))
    for j in range(13):
        expected = relevance_apart(Phi, y, state.alpha, state.noise, j)
        np.testing.assert_allclose((s[j], q[j]), expected, rtol=1e-9)
        without = np.delete(np.arange(13), j)
        rest = relevance_evidence(Phi[:, without], y, state.alpha[without], state.noise)
        share = relevance_evidence(Phi, y, state.alpha, state.noise) - rest
        assert learners.share(state.alpha[j], s[j], q[j]) == pytest.approx(share, abs=1e-9)


def test_the_best_precision_is_the_best(rows, rng):
    s, q = np.array([2.0, 2.0]), np.array([3.0, 1.0])
    best = learners.best_alpha(s, q)
    assert np.isinf(best[1])
    grid = np.exp(np.linspace(-8, 8, 2001))
    assert learners.share(best[0], s[0], q[0]) >= learners.share(grid, s[0], q[0]).max()
    assert np.all(learners.share(grid, s[1], q[1]) < 0)


def test_fast_is_the_centralised_algorithm(rows):
    Phi, y = rows
    state = UPDATES["fast"](problem_of(rows, parts=3, held=0, keep_noise=True), 0.02)
    alpha = relevance_fast(Phi, y, 0.02, learners.LEAST_GAIN)
    np.testing.assert_array_equal(state.active, np.flatnonzero(np.isfinite(alpha)))
    np.testing.assert_allclose(state.alpha, alpha[state.active], rtol=1e-9)
    assert 2 <= len(state.active) < 10


def test_one_change_at_a_time_is_seen_as_afresh(rows):
    """Functions that come, change and go, and the noise that stays."""
    problem = problem_of(rows)
    state = State(np.array([2, 5, 12]), np.array([0.7, 2.0, 1.0]), 0.05)
    sight = afresh(problem, state, posterior(problem.sums, state))
    for j, alpha in [(7, 1.3), (0, 0.2), (5, 9.0), (2, np.inf), (11, 4.0), (0, 0.1), (7, np.inf)]:
        sight = changed(problem, sight, j, alpha)
        expected = afresh(problem, sight.state, posterior(problem.sums, sight.state))
        for name in ("mean", "covariance", "S", "Q"):
            np.testing.assert_allclose(getattr(sight, name), getattr(expected, name), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(sight.state.active, [0, 5, 11, 12])
    np.testing.assert_array_equal(sight.state.alpha, [0.1, 9.0, 4.0, 1.0])
    alpha = np.full(13, np.inf)
    alpha[sight.state.active] = sight.state.alpha
    for j in (1, 2, 3, 7):
        np.testing.assert_allclose((sight.S[j], sight.Q[j]), relevance_apart(*rows, alpha, 0.05, j), rtol=1e-9)


def test_the_gradient_is_that_of_the_evidence(rows, rng):
    Phi, y = rows
    problem, state = problem_of(rows), some_state(rng)

    def evidence(x):
        return relevance_evidence(Phi, y, np.append(np.exp(x[:-1]), 1.0), np.exp(x[-1]))

    found = learners.evidence_gradient(problem, state, posterior(problem.sums, state))
    expected = central_differences(evidence, np.append(np.log(state.alpha[:-1]), np.log(state.noise)))
    np.testing.assert_allclose(np.delete(found, 12), expected, atol=1e-6)
    assert found[12] == 0.0  # held


@pytest.mark.parametrize("name", UPDATES)
def test_each_ends_at_a_maximum_of_the_evidence(rows, name):
    """No function is missed, none in the model is better out of it, and the precisions are about the best."""
    Phi, y = rows
    problem = problem_of(rows, parts=2)
    state = UPDATES[name](problem, 0.02)
    found = posterior(problem.sums, state)
    assert len(state.active) < 8
    assert state.active[-1] == 12  # held
    assert found.evidence == pytest.approx(relevance_evidence(Phi[:, state.active], y, state.alpha, state.noise))
    free = state.active < 12
    s, q = apart(state, found)
    gains = learners.share(learners.best_alpha(s, q), s, q) - learners.share(state.alpha, s, q)
    assert np.all(learners.share(state.alpha, s, q)[free] > 0)
    assert np.all(gains[free] < 0.05)


@pytest.mark.parametrize("name", UPDATES)
def test_noise_may_be_kept(rows, name):
    assert UPDATES[name](problem_of(rows, keep_noise=True), 0.03).noise == 0.03


@pytest.mark.parametrize("name", UPDATES)
def test_nothing_is_kept_of_what_says_nothing(rng, name):
    Phi, y = np.abs(rng.standard_normal((80, 5))), 1e-9 * rng.standard_normal(80)
    state = UPDATES[name](Problem(sums_of(Phi, y, np.ones(80)), keep_noise=True), 1.0)
    assert len(state.active) == 0


def test_the_gradient_in_lengthscales_is_that_of_the_evidence(rng):
    """At fixed precisions and noise, from shares of two partitions (thesis, 2.38, with the factor that is missing)."""
    X, y, weight = rng.uniform(-2, 2, (50, 3)), rng.standard_normal(50), rng.uniform(0.5, 2.0, 50)
    alpha, noise, theta = np.append(rng.uniform(0.5, 5.0, 6), 1.0), 0.1, np.array([0.7, 1.1, 2.0])

    def design(theta):
        return np.column_stack([Radial(X[:6], theta, np.arange(6.0)).features(X), np.ones(50)])

    def evidence(log_theta):
        return relevance_evidence(design(np.exp(log_theta)), y, alpha, noise / weight)

    Phi, basis = design(theta), Radial(X[:6], theta, np.arange(6.0))
    found = posterior(sums_of(Phi, y, weight), State(np.arange(7), alpha, noise))
    told = (found.mean, found.covariance)
    shares = [pull(basis, X[k::2], Phi[k::2], y[k::2], weight[k::2], *told) for k in range(2)]
    gradient = sum(shares) / (noise * theta**2)
    np.testing.assert_allclose(gradient, central_differences(evidence, np.log(theta)), atol=1e-6)


@pytest.mark.parametrize("name", UPDATES)
def test_functions_that_are_out_stay_out_where_none_may_come_in(rows, name):
    """As if there were no others."""
    problem, update = problem_of(rows, keep_noise=True), UPDATES[name]
    start = State(np.array([1, 4, 7, 12]), np.array([1.0, 2.0, 3.0, 1.0]), 0.05)
    found = closed(update, problem, start)
    assert set(found.active) <= set(start.active)
    assert found.active[-1] == 12
    Phi, y = rows
    few = problem_of((Phi[:, start.active], y), keep_noise=True)
    alone = update(few, 0.05, State(np.arange(4), start.alpha, 0.05))
    np.testing.assert_array_equal(found.active, start.active[alone.active])
    np.testing.assert_allclose(found.alpha, alone.alpha, rtol=1e-6)
    assert len(update(problem, 0.05).active) > len(found.active)


@pytest.mark.parametrize("name", list(UPDATES))
def test_targets_without_noise_leave_a_least_noise(rows, name):
    """Of 60 rows with a function about each, which can pass through all of them."""
    X = np.sort(np.random.default_rng(0).uniform(-6, 6, 60))
    Phi = np.column_stack([np.exp(-2.0 * (X[:, None] - X) ** 2), np.ones(60)])
    state = UPDATES[name](Problem(sums_of(Phi, np.sin(X), np.ones(60)), permanent=1), 0.1)
    assert np.isfinite(state.alpha).all()
    assert state.noise > 0.0
