"""A row that is left out of a committee: by a change of rank one, as by absorbing all others again."""

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.experts.leave_one_out import cavity
from bcmdist.model.likelihoods import Gamma, Gaussian, NegativeBinomial, OneHot, Poisson
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from problems import make_kernel, regression_problem


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("residual", ["block", "diagonal", "none"])
def test_a_row_left_out_is_one_never_heard(residual, weight, rng):
    p, likelihood = regression_problem(rng), Gaussian(0.05)
    shared = prepare(p.Xq, kernel=make_kernel("matern32"), mean=Mean("linear"), residual=residual)
    parts = [slice(0, 35), slice(35, 60)]
    first, second = (expert_message(shared, likelihood, p.X[part], p.obs[part]) for part in parts)
    belief, rows = Committee(first.weighted(weight) + second).posterior, np.array([0, 7, 34])
    here = parts[0]
    mean, variance = left_out_of_committee(shared, likelihood, belief, p.X[here], p.obs[here], rows, weight=weight)
    for k, row in enumerate(rows):
        others = np.delete(np.arange(35), row)
        rest = expert_message(shared, likelihood, p.X[others], p.obs[others]).weighted(weight)
        m, v = predict_latent(shared, Committee(rest + second).posterior, p.X[row : row + 1])
        # Two ways to the same numbers; the precision of a row is a difference of nearly equal ones at worst.
        np.testing.assert_allclose([mean[k], variance[k]], [m[0], v[0]], rtol=1e-9)


def test_classes_as_targets_are_left_out_one_by_one(rng):
    """Of C processes with the same precision each is that of its own targets."""
    p, likelihood = regression_problem(rng), OneHot(3, noise_variance=0.05)
    obs = unweighted(rng.integers(0, 3, len(p.X)).astype(float))
    shared = prepare(p.Xq, kernel=make_kernel("matern32"), mean=Mean("zero"))
    belief, rows = Committee(expert_message(shared, likelihood, p.X, obs), shared.belief).posterior, np.array([0, 7])
    mean, variance = left_out_of_committee(shared, likelihood, belief, p.X, obs, rows)
    assert mean.shape == variance.shape == (2, 3)
    for k, row in enumerate(rows):
        others = np.delete(np.arange(len(p.X)), row)
        rest = expert_message(shared, likelihood, p.X[others], obs[others])
        m, v = predict_latent(shared, Committee(rest, shared.belief).posterior, p.X[row : row + 1])
        np.testing.assert_allclose([mean[k], variance[k]], [m[0], v[0]], rtol=1e-9)


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.0), Gamma(3.0)], ids=lambda one: one.name)
def test_a_row_left_out_of_a_local_expert_is_one_it_never_saw(likelihood, rng):
    """Others stay linearised where they were with it: that moves means by a share of standard deviations."""
    p = regression_problem(rng)
    y = likelihood.distribution(p.obs, np.sin(p.X[:, 0])).rvs(random_state=rng).astype(float)
    obs = unweighted(y)
    query = prepare(p.Xq, kernel=make_kernel("matern32", variance=0.5), mean=Mean("zero"))

    def local(rows, Xs):
        belief = Committee(expert_message(query, likelihood, p.X[rows], obs[rows])).posterior
        seen = committee_at_rows(query, belief)
        expert = local_expert(seen, likelihood, p.X[rows], seen.columns(p.X[rows]), obs[rows])
        return predict_local(seen, expert, Xs, seen.columns(Xs))

    m, v = local(np.arange(60), p.X)
    mean, variance = cavity(m, v, likelihood.score(obs, m), likelihood.curvature(obs, m))
    exact, own = np.transpose([local(np.delete(np.arange(60), k), p.X[k : k + 1]) for k in range(60)])[0]
    gap, ratio = np.abs(mean - exact) / np.sqrt(own), variance / own
    assert gap.max() < 0.15
    assert np.median(gap) < 0.01
    np.testing.assert_allclose(ratio, 1.0, atol=0.2)
    assert np.median(np.abs(m - exact) / np.sqrt(own)) > 0.2  # with itself a row is predicted otherwise


def test_no_row_left_out_is_known_less_than_before_anything_was_heard():
    mean, variance = cavity(np.ones(2), np.ones(2), np.full(2, 0.5), np.array([0.5, 1.5]), prior=np.full(2, 3.0))
    np.testing.assert_allclose(variance, [2.0, 3.0])
    np.testing.assert_allclose(mean, [0.0, -0.5])
