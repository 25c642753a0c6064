import numpy as np
import pytest

from bcmdist import linalg
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts import expert, laplace
from bcmdist.model.likelihoods import Bernoulli, Gaussian, TwoClass, make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from problems import class_problem, make_committee, make_kernel


def mode_gap(K, obs, f):
    return np.abs(np.linalg.solve(K, f) - Bernoulli().score(obs, f)).max()


def assert_mode(K, obs, likelihood, f):
    """f = K score, but for 1e-9 and the rounding of this sum, of f and w times that of the score."""
    s, w = likelihood.score(obs, f), likelihood.curvature(obs, f)
    error = 1e-9 + 4 * np.finfo(float).eps * np.max(np.abs(K) @ np.abs(s))
    assert np.all(np.abs(f - K @ s) <= error + np.abs(K) @ np.maximum(w, 1.0) * error)


def test_mode_solves_its_equation(rng):
    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    f = laplace.laplace_mode(K, problem.obs, Bernoulli())
    assert mode_gap(K, problem.obs, f) <= 1e-8


@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e4, 1e8])
def test_mode_of_separable_data_and_extreme_variances(variance):
    x = np.linspace(-3, 3, 41)[:, None]
    obs = unweighted((x[:, 0] > 0) * 1.0)
    K = make_kernel("matern32", inputs=1, variance=variance).cross(x, x)
    f = laplace.laplace_mode(K, obs, Bernoulli())
    assert np.all((f > 0) == (obs.y > 0) | (np.abs(f) < 1e-3 * np.abs(f).max()))
    assert mode_gap(K, obs, f) <= 1e-6


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_steps_in_single_precision_find_the_same_mode(rng, name, monkeypatch):
    """Only the way there differs. Tolerance: each mode has an error of 1e-9 in its score, and f = K score."""
    X = rng.uniform(-2, 2, (300, 2))
    obs = unweighted((np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(300) > 0) * 1.0)
    K = make_kernel("matern32", variance=3.0).cross(X, X)
    likelihood, made = make_likelihood(name), []
    solver = laplace.step_solver
    monkeypatch.setattr(laplace, "step_solver", lambda K, root: made.append(K) or solver(K, root))
    single = laplace.laplace_mode(K, obs, likelihood)
    assert {one.dtype for one in made} == {np.dtype(np.float32)}
    made.clear()
    monkeypatch.setattr(laplace, "SINGLE_CONDITION", 0.0)
    tolerance = 2e-9 * K.sum(axis=1).max()
    np.testing.assert_allclose(single, laplace.laplace_mode(K, obs, likelihood), rtol=0, atol=tolerance)
    assert {one.dtype for one in made} == {np.dtype(np.float64)}


def test_one_class_only_works():
    x = np.linspace(0, 1, 20)[:, None]
    f = laplace.laplace_mode(make_kernel("se", inputs=1).cross(x, x), unweighted(np.ones(20)), Bernoulli())
    assert np.all(f > 0)


@pytest.mark.parametrize("seed", range(10))
def test_mode_where_one_row_has_far_more_variance_than_the_others(seed):
    """A polynomial at an outlier: one latent with 1e15 times the variance of the others."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 5))
    X[0] = 300.0
    obs = unweighted((rng.standard_normal(100) > 0) * 1.0)
    K = make_kernel("poly3", inputs=5).cross(X, X)
    assert_mode(K, obs, Bernoulli(), laplace.laplace_mode(K, obs, Bernoulli()))


def test_not_converging_is_an_error_and_not_an_answer(rng, monkeypatch):
    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    monkeypatch.setattr(laplace, "NEWTON_STEPS", 1)
    with pytest.raises(LaplaceNotConverged, match=r"expected the score .* after at most 1 damped steps"):
        laplace.laplace_mode(K, problem.obs, Bernoulli())


def test_steps_that_overshoot_are_halved(rng):
    """A curvature far too small makes full steps overshoot; damping must still find the mode."""

    class Flat(Bernoulli):
        def curvature(self, obs, f):
            return 0.5 * super().curvature(obs, f)

    problem = class_problem(rng)
    K = make_kernel("matern12", variance=5.0).cross(problem.X, problem.X)
    exact = laplace.laplace_mode(K, problem.obs, Bernoulli())
    value = Bernoulli().log_density(problem.obs, np.zeros(60)).sum()
    found = laplace.laplace_mode(K, problem.obs, Flat())
    np.testing.assert_allclose(found, exact, atol=1e-6)  # the score, not the curvature, says where the mode is
    assert Bernoulli().log_density(problem.obs, found).sum() > value


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


COSTS = ["bernoulli", "probit", "binomial", "poisson", "negative_binomial", "gamma", "weibull", "exponential"]


@pytest.mark.parametrize("name", COSTS)
def test_a_laplace_expert_costs_at_most_twelve_factorisations(rng, monkeypatch, name):
    """Mode and message; no inverse of an (n, n) matrix."""
    problem, likelihood = class_problem(rng, rows=200), make_likelihood(name)
    f = np.sin(2 * problem.X[:, 0]) + 0.5 * problem.X[:, 1]
    y = problem.obs.y if isinstance(likelihood, TwoClass) else rng.poisson(3 * np.exp(f)) + 1.0
    obs = Observations(y, np.ones(200), trials=y + rng.poisson(3, 200))
    query = prepare(problem.Xq, kernel=make_kernel("matern32"), mean=Mean("constant"))
    done = []
    factor = linalg.cholesky
    monkeypatch.setattr(linalg, "cholesky", lambda A, *, name: done.append(name) or factor(A, name=name))
    monkeypatch.setattr(linalg, "inverse", None)
    expert.expert_message(query, likelihood, problem.X, obs)
    assert 2 <= len(done) <= 12


@pytest.mark.parametrize("name", ["poisson", "weibull", "gamma", "negative_binomial"])
def test_repeated_rows_and_wide_priors_have_a_mode(name):
    """Few distinct rows of a wide prior: sums K a lose all but a few digits, and the search may not end for that.

    The score is K^-1 f but for the rounding of this sum.
    """
    likelihood = make_likelihood(name)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.random((100, 5)) < 0.3, rng.integers(0, 4, 100)]).astype(float)
        times = np.exp(3.0 * X @ rng.normal(size=6)) * rng.weibull(0.8, 100)
        seen = np.minimum(times, np.quantile(times, rng.uniform(0.2, 0.9)))
        scale = 10.0 ** rng.uniform(2, 6)
        y = np.floor(scale * seen / seen.mean()) if likelihood.discrete else np.maximum(seen / seen.mean(), 1e-12)
        obs = Observations(y, np.ones(100), event=(times <= seen) * 1.0)
        lengthscale = 10.0 ** rng.uniform(-0.5, 2.0)
        kernel = make_kernel("se", inputs=6, variance=10.0 ** rng.uniform(4, 7), lengthscale=lengthscale)
        K = np.asfortranarray(kernel.cross(X, X))
        assert_mode(K, obs, likelihood, laplace.laplace_mode(K, obs, likelihood))


@pytest.mark.parametrize("variance", [100.0, 1000.0])
def test_rows_that_coincide_and_contradict_each_other_have_a_mode(variance):
    """At f = 0 by symmetry, where slopes along steps are nothing but rounding."""
    obs = unweighted(np.array([0.0, 1.0]))
    f = laplace.laplace_mode(np.full((2, 2), variance), obs, make_likelihood("probit"))
    np.testing.assert_allclose(f, 0.0, atol=1e-9 + np.finfo(float).eps * variance)


def test_censored_lifetimes_without_noise_have_a_mode(rng):
    """Exponents of hazards are in the hundreds at the prior mean, and a Newton step lowers them by one."""
    X = rng.normal(size=(100, 2))
    obs = Observations(np.exp(np.sin(X[:, 0]) + X[:, 1]), np.ones(100), event=(rng.random(100) < 0.5) * 1.0)
    K = np.asfortranarray(make_kernel("matern52", variance=300.0, lengthscale=3.0).cross(X, X))
    likelihood = make_likelihood("weibull").with_parameters({"shape": 575.0})
    assert_mode(K, obs, likelihood, laplace.laplace_mode(K, obs, likelihood))


def test_lifetimes_that_their_shape_does_not_explain_have_a_mode():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 2))[rng.integers(0, 40, 40)]
        variance = 10.0 ** rng.uniform(-2, 3)
        kernel = make_kernel("se", variance=variance, lengthscale=10.0 ** rng.uniform(-1, 1.5))
        K = np.asfortranarray(kernel.cross(X, X))
        y = np.exp(min(np.sqrt(variance), 5.0) * rng.normal(size=40)) * rng.exponential(size=40)
        obs = Observations(y, np.ones(40), event=(rng.random(40) < 0.5) * 1.0)
        likelihood = make_likelihood("weibull").with_parameters({"shape": 10.0 ** rng.uniform(-1, 2)})
        assert_mode(K, obs, likelihood, laplace.laplace_mode(K, obs, likelihood))
