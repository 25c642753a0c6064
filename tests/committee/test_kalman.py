"""The paper's two Kalman forms against the committee of messages, printed formulas and dense PITC."""

from dataclasses import dataclass

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.errors import InvalidData, NotPositiveDefinite
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import Query
from oracles import expert_posterior, kalman_measurement_form, kalman_posterior_form
from problems import make_committee, make_kernel, regression_problem, split
from published.kalman import (
    joseph_step,
    measurement_form,
    measurement_start,
    measurement_step,
    posterior_belief,
    posterior_form,
    posterior_start,
    posterior_step,
)

NOISE = 0.1
# Rounding times the condition number of Sqq, about 1e3 in the well-conditioned problem.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Blocks:
    """What each form is told of a problem, and the prior covariance of f^q."""

    prior: np.ndarray
    means: list
    covariances: list
    designs: list
    residuals: list
    targets: list

    def posterior(self):
        return self.prior, self.means, self.covariances

    def measurements(self):
        return self.prior, self.designs, self.residuals, self.targets


def updated(problem, query, slices, noise):
    kernel, prior = query.kernel, query.factor @ query.factor.T
    blocks = [(problem.X[s], problem.obs.y[s]) for s in slices]
    whitened = [query.design(X) for X, _ in blocks]
    posteriors = [expert_posterior(kernel, query.points, X, y, np.full(len(X), noise)) for X, y in blocks]
    covariances = [c + query.jitter * np.eye(len(c)) for _, c in posteriors]
    designs = [np.linalg.solve(query.factor.T, V.T).T for V in whitened]
    residuals = [
        kernel.cross(X, X) - V @ V.T + noise * np.eye(len(X)) for (X, _), V in zip(blocks, whitened, strict=True)
    ]
    return Blocks(prior, [m for m, _ in posteriors], covariances, designs, residuals, [y for _, y in blocks])


def belief_of_messages(query, committee):
    """Mean and covariance of f^q."""
    belief = committee.posterior
    half = np.linalg.solve(belief.factor, query.factor.T)
    return query.factor @ belief.mean, half.T @ half


@pytest.fixture
def well(rng):
    """A well-conditioned problem: its blocks, and the belief from messages."""
    problem, slices = regression_problem(rng), split(60, [13, 20, 41])
    query, _, committee = make_committee(problem, make_kernel("matern32"), Gaussian(NOISE), slices)
    assert query.jitter == 0.0
    return updated(problem, query, slices, NOISE), belief_of_messages(query, committee)


def assert_close(one, other, tolerance=TOLERANCE):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def test_posterior_form_is_the_committee(well):
    blocks, belief = well
    mean, covariance = posterior_form(*blocks.posterior())
    assert_close((mean, covariance), belief)
    assert_close((mean, covariance), kalman_posterior_form(*blocks.posterior()))
    np.testing.assert_array_equal(covariance, covariance.T)


@pytest.mark.parametrize("step", [measurement_step, joseph_step])
def test_measurement_form_is_the_committee(well, step):
    blocks, belief = well
    mean, covariance = measurement_form(*blocks.measurements(), step=step)
    assert_close((mean, covariance), belief)
    assert_close((mean, covariance), kalman_measurement_form(*blocks.measurements()))
    np.testing.assert_array_equal(covariance, covariance.T)


def test_one_block_gives_its_own_posterior(well):
    blocks, _ = well
    mean, covariance = posterior_form(blocks.prior, blocks.means[:1], blocks.covariances[:1])
    assert_close((mean, covariance), (blocks.means[0], blocks.covariances[0]))


def test_no_block_gives_the_prior(well):
    blocks, _ = well
    for mean, covariance in [posterior_form(blocks.prior, [], []), measurement_form(blocks.prior, [], [], [])]:
        assert_close((mean, covariance), (np.zeros(9), blocks.prior), 1e-14)


@pytest.mark.parametrize("order", [[3, 1, 0, 2], [2, 3, 1, 0]])
def test_order_does_not_matter(well, order):
    blocks, belief = well

    def reordered(sequence):
        return [sequence[k] for k in order]

    assert_close(posterior_form(blocks.prior, *map(reordered, blocks.posterior()[1:])), belief)
    assert_close(measurement_form(blocks.prior, *map(reordered, blocks.measurements()[1:])), belief)


def test_online_is_batch_at_every_block(well):
    """Each state is asked for its belief and then goes on; no state changes by being stepped from."""
    blocks, _ = well
    posterior, measurement = posterior_start(blocks.prior), measurement_start(blocks.prior)
    for k in range(4):
        before = posterior.covariance.copy(), measurement.covariance.copy()
        next_posterior = posterior_step(posterior, blocks.means[k], blocks.covariances[k])
        next_measurement = measurement_step(measurement, blocks.designs[k], blocks.residuals[k], blocks.targets[k])
        np.testing.assert_array_equal(posterior.covariance, before[0])
        np.testing.assert_array_equal(measurement.covariance, before[1])
        posterior, measurement = next_posterior, next_measurement
        upto = slice(0, k + 1)
        assert posterior.blocks == k + 1
        assert_close(
            posterior_belief(posterior), posterior_form(blocks.prior, blocks.means[upto], blocks.covariances[upto]), 0
        )
        batch = measurement_form(blocks.prior, blocks.designs[upto], blocks.residuals[upto], blocks.targets[upto])
        assert_close((measurement.mean, measurement.covariance), batch, 0)
        assert_close(posterior_belief(posterior), batch)


def ill(rng, *, jitter, rows, blocks):
    """Eighty points of a smooth kernel with a given jitter: problem, query, slices."""
    kernel = make_kernel("se", variance=1.0, lengthscale=2.0)
    problem = regression_problem(rng, rows=rows * blocks, query=80)
    K = kernel.cross(problem.Xq, problem.Xq) + jitter * np.eye(80)
    query = Query(problem.Xq, kernel, Mean("zero"), np.asfortranarray(np.linalg.cholesky(K)), jitter)
    return problem, query, split(rows * blocks, range(rows, rows * blocks, rows))


def error_at_new_points(problem, query, slices, mean):
    """Of E(f^q), carried to new points by eq. 10, against dense PITC with the same jitter."""
    V, Vs = query.design(problem.X), query.design(problem.Xs)
    S = V @ V.T + NOISE * np.eye(len(V))
    for s in slices:
        S[s, s] = query.kernel.cross(problem.X[s], problem.X[s]) + NOISE * np.eye(s.stop - s.start)
    exact = Vs @ (V.T @ np.linalg.solve(S, problem.obs.y))
    return np.abs(Vs @ np.linalg.solve(query.factor, mean) - exact).max() / np.abs(exact).max()


def committee_about(problem, query, slices):
    messages = [expert_message(query, Gaussian(NOISE), problem.X[s], problem.obs[s]) for s in slices]
    return Committee(sum(messages, zero(query.size)))


def test_a_smooth_kernel_ruins_explicit_inverses_and_not_the_factorised_forms(rng):
    """The condition number is about 5e11; errors in the docstring's table, with a margin of ten or more."""
    problem, query, slices = ill(rng, jitter=1e-10, rows=5, blocks=40)
    blocks = updated(problem, query, slices, NOISE)
    assert np.linalg.cond(blocks.prior) > 1e11

    def error(form):
        return error_at_new_points(problem, query, slices, form[0])

    assert error(kalman_posterior_form(*blocks.posterior())) > 1e-3
    posterior = error(posterior_form(*blocks.posterior()))
    messages = error(belief_of_messages(query, committee_about(problem, query, slices)))
    assert messages < 1e-11
    assert 10 * messages < posterior < 1e-7
    assert error(measurement_form(*blocks.measurements())) < 1e-9
    assert error(measurement_form(*blocks.measurements(), step=joseph_step)) < 1e-9


def test_posterior_form_refuses_where_its_difference_is_rounding_and_the_others_go_on(rng):
    problem, query, slices = ill(rng, jitter=1e-14, rows=2, blocks=100)
    blocks = updated(problem, query, slices, NOISE)
    with pytest.raises(NotPositiveDefinite, match=r"posterior form.* use the measurement form, or add messages"):
        posterior_form(*blocks.posterior())
    for mean, tolerance in [
        (measurement_form(*blocks.measurements())[0], 1e-7),
        (belief_of_messages(query, committee_about(problem, query, slices))[0], 1e-9),
    ]:
        assert error_at_new_points(problem, query, slices, mean) < tolerance


def test_whitened_measurements_are_the_committee_s_belief_however_ill_the_prior(rng):
    """No number here depends on the condition number of Sqq, about 5e15."""
    problem, query, slices = ill(rng, jitter=1e-14, rows=5, blocks=20)
    blocks = updated(problem, query, slices, NOISE)
    designs = [query.design(problem.X[s]) for s in slices]
    mean, covariance = measurement_form(np.eye(80), designs, blocks.residuals, blocks.targets)
    belief = committee_about(problem, query, slices).posterior
    half = np.linalg.inv(belief.factor)
    assert_close((mean, covariance), (belief.mean, half.T @ half), 1e-11)


def test_joseph_form_keeps_the_variance_of_nearly_exact_measurements(rng):
    """f^q itself is measured with noise far below rounding of its prior variance."""
    prior, noise = make_kernel("matern32").cross(*2 * [rng.uniform(-2, 2, (5, 2))]), 1e-18
    blocks = prior, [np.eye(5)], [noise * np.eye(5)], [rng.standard_normal(5)]
    _, plain = measurement_form(*blocks)
    _, joseph = measurement_form(*blocks, step=joseph_step)
    # Exactly (prior^-1 + 1 / noise)^-1, which is noise but for a share of 1e-17.
    np.testing.assert_allclose(joseph, noise * np.eye(5), atol=1e-9 * noise)
    assert np.abs(plain - noise * np.eye(5)).max() > 10 * noise


def test_a_block_wider_than_the_prior_is_refused_when_it_matters(well):
    """cov = 100 Sqq twice: D = Sqq - 2 S is negative, though every step was positive definite."""
    blocks, _ = well
    state = posterior_start(blocks.prior)
    for _ in range(2):
        state = posterior_step(state, np.zeros(9), 100.0 * blocks.prior)
    with pytest.raises(NotPositiveDefinite, match=r"after k = 2 blocks: .* a block whose covariance exceeds the prior"):
        posterior_belief(state)
    with pytest.raises(NotPositiveDefinite, match=r"S \+ cov of block 3"):
        posterior_step(state, np.zeros(9), -blocks.prior)
    with pytest.raises(NotPositiveDefinite, match=r"cov\(y \| earlier blocks\)"):
        measurement_step(measurement_start(blocks.prior), np.eye(9), -2.0 * blocks.prior, np.zeros(9))


def test_wrong_shapes_are_refused(well):
    blocks, _ = well
    with pytest.raises(InvalidData, match=r"covariance: expected shape \(9, 9\), got \(8, 8\)"):
        posterior_step(posterior_start(blocks.prior), np.zeros(9), np.eye(8))
    with pytest.raises(InvalidData, match=r"residual: expected shape \(3, 3\), got \(3,\)"):
        measurement_step(measurement_start(blocks.prior), np.ones((3, 9)), np.ones(3), np.zeros(3))
    with pytest.raises(InvalidData, match="expected as many of each"):
        posterior_form(blocks.prior, blocks.means, blocks.covariances[:2])
    with pytest.raises(InvalidData, match="expected as many of each"):
        measurement_form(blocks.prior, blocks.designs, blocks.residuals[:2], blocks.targets)
