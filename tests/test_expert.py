import numpy as np
import pytest

from bcmdist import expert
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.likelihoods import Bernoulli, Gaussian, Observations, unweighted
from bcmdist.mean import Mean
from bcmdist.query import prepare
from problems import class_problem, make_committee, make_kernel


def mode_gap(K, obs, f):
    return np.abs(np.linalg.solve(K, f) - Bernoulli().score(obs, f)).max()


def test_mode_solves_its_equation(rng):
    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    f = expert.laplace_mode(K, problem.obs, Bernoulli())
    assert mode_gap(K, problem.obs, f) <= 1e-8


@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e4, 1e8])
def test_mode_of_separable_data_and_extreme_variances(variance):
    x = np.linspace(-3, 3, 41)[:, None]
    obs = unweighted((x[:, 0] > 0) * 1.0)
    K = make_kernel("matern32", inputs=1, variance=variance).cross(x, x)
    f = expert.laplace_mode(K, obs, Bernoulli())
    assert np.all((f > 0) == (obs.y > 0) | (np.abs(f) < 1e-3 * np.abs(f).max()))
    assert mode_gap(K, obs, f) <= 1e-6


def test_one_class_only_works():
    x = np.linspace(0, 1, 20)[:, None]
    f = expert.laplace_mode(make_kernel("se", inputs=1).cross(x, x), unweighted(np.ones(20)), Bernoulli())
    assert np.all(f > 0)


def test_not_converging_is_an_error_and_not_an_answer(rng, monkeypatch):
    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    monkeypatch.setattr(expert, "NEWTON_STEPS", 1)
    with pytest.raises(LaplaceNotConverged, match=r"expected the score .* after at most 1 damped steps"):
        expert.laplace_mode(K, problem.obs, Bernoulli())


def test_steps_that_overshoot_are_halved(rng):
    """A curvature far too small makes full steps overshoot; damping must still find the mode."""

    class Flat(Bernoulli):
        def curvature(self, obs, f):
            return 0.05 * super().curvature(obs, f)

    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    exact = expert.laplace_mode(K, problem.obs, Bernoulli())
    value = Bernoulli().log_density(problem.obs, np.zeros(60)).sum()
    s, w = Flat().score(problem.obs, np.zeros(60)), Flat().curvature(problem.obs, np.zeros(60))
    a_step = expert._newton_step(K, np.zeros(60), np.zeros(60), s, w)
    step, better = expert._line_search(value, np.zeros(60), np.zeros(60), a_step, K @ a_step, problem.obs, Flat())
    assert step < 1
    assert better >= value
    assert mode_gap(K, problem.obs, exact) <= 1e-8


def test_noise_free_duplicates_are_refused():
    X = np.array([[0.0], [0.0], [1.0]])
    query = prepare(np.array([[0.5]]), kernel=make_kernel("se", inputs=1), mean=Mean("zero"))
    with pytest.raises(NotPositiveDefinite, match=r"raise the noise"):
        expert.expert_message(query, Gaussian(1e-300), X, unweighted(np.arange(3.0)))


def test_row_of_no_weight_is_absent(rng):
    """Noise 1e12 times the usual: the row says nothing."""
    problem, kernel = class_problem(rng, rows=20), make_kernel("se")
    weight = np.ones(20)
    weight[-1] = 1e-12
    faint = type(problem)(problem.X, Observations(problem.obs.y, weight), problem.Xq, problem.Xs)
    _, (a,), _ = make_committee(faint, kernel, Gaussian(0.1), [slice(0, 20)])
    _, (b,), _ = make_committee(problem, kernel, Gaussian(0.1), [slice(0, 19)])
    np.testing.assert_allclose(a.precision, b.precision, atol=1e-9)
    np.testing.assert_allclose(a.eta, b.eta, atol=1e-9)
