import numpy as np
import pytest
from scipy import integrate
from scipy.special import digamma, expit
from scipy.stats import norm

from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import InvalidOption
from bcmdist.experts.expert import laplace_mode
from bcmdist.model.likelihoods import (
    LIKELIHOODS,
    SVM,
    Bernoulli,
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    InverseGaussian,
    NegativeBinomial,
    Poisson,
    Probit,
    StudentT,
    Weibull,
    logistic_average,
    make_likelihood,
    slopes,
    tasks,
)
from bcmdist.model.likelihoods.classes import FLOOR
from bcmdist.model.likelihoods.lifetimes import LEAST_TIME
from bcmdist.prediction.observation import observe
from bcmdist.testing import check_likelihood
from some_likelihoods import ONE_PROCESS

ONES = np.ones(3)
F = np.array([0.3, -1.2, 2.0])
WEIGHT = np.array([1.0, 2.0, 0.5])
REAL, CLASSES, COUNTS = np.array([-1.0, 0.2, 2.0]), np.array([0.0, 1.0, 1.0]), np.array([0.0, 3.0, 17.0])
POSITIVE = np.array([0.05, 0.8, 4.0])
EVENT, EXPOSURE, TRIALS = np.array([1.0, 0.0, 1.0]), np.array([1.0, 2.5, 40.0]), np.array([2.0, 3.0, 20.0])

CASES = {
    "gaussian": (Gaussian(0.3), REAL),
    "student_t": (StudentT(0.3, 3.5), REAL),
    "bernoulli": (Bernoulli(), CLASSES),
    "probit": (Probit(), CLASSES),
    "svm": (SVM(1.7), CLASSES),
    "binomial": (Binomial(), COUNTS),
    "poisson": (Poisson(), COUNTS),
    "negative_binomial": (NegativeBinomial(2.5), COUNTS),
    "gamma": (Gamma(1.7), POSITIVE),
    "inverse_gaussian": (InverseGaussian(0.6), POSITIVE),
    "exponential": (Exponential(), POSITIVE),
    "weibull": (Weibull(1.6), POSITIVE),
}
every = pytest.mark.parametrize("name", CASES)


def rows(y, weight=ONES):
    return Observations(y, weight, EXPOSURE, TRIALS, EVENT)


def test_every_likelihood_is_tested_and_has_bounds():
    assert CASES.keys() == ONE_PROCESS.keys()
    assert {name for names in tasks().values() for name in names} == set(LIKELIHOODS)
    for name in ONE_PROCESS:
        likelihood = make_likelihood(name)
        assert likelihood.name == name
        for parameter, value in likelihood.parameters.items():
            low, high = likelihood.bounds[parameter]
            assert low < value[0] < high
        assert likelihood.units.name in ("affine", "scale", "exposure", "none")
        assert set(likelihood.companions) <= {"exposure", "trials", "event", "target_variance"}


@every
def test_conformance(name):
    likelihood, y = CASES[name]
    check_likelihood(likelihood, rows(y, WEIGHT), F, tolerance=1e-8)
    check_likelihood(likelihood)


@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if LIKELIHOODS[name].per_class])
def test_conformance_of_several_processes(name):
    check_likelihood(make_likelihood(name, 3))


@pytest.mark.parametrize("name", ["student_t", "inverse_gaussian"])
def test_fisher_weights_are_expected_curvatures(name):
    likelihood, _ = CASES[name]
    f = 0.4
    told = likelihood.distribution(unweighted([1.0]), f)

    def integrand(y):
        return likelihood.hessian(unweighted([y]), np.array([f]))[0] * np.ravel(told.pdf(y))[0]

    low = -np.inf if name == "student_t" else 0.0
    expected, _ = integrate.quad(integrand, low, np.inf)
    np.testing.assert_allclose(likelihood.curvature(unweighted([1.0]), np.array([f])), expected, rtol=1e-7)


def test_gaussian_density():
    obs = Observations(np.array([1.0]), np.array([4.0]))
    np.testing.assert_allclose(Gaussian(0.3).log_density(obs, 0.2), norm.logpdf(1.0, 0.2, np.sqrt(0.3 / 4)))


@every
def test_everything_is_finite_at_huge_latent_values_and_targets(name):
    likelihood, y = CASES[name]
    huge = y if likelihood.units.name == "none" and name != "binomial" else np.full(3, 1e6)
    for targets in (y, huge):
        obs = Observations(targets, ONES, EXPOSURE, np.full(3, 1e6), EVENT)
        for f in (np.full(3, -800.0), np.full(3, 800.0), likelihood.saturated(obs)):
            for method in (
                likelihood.log_density,
                likelihood.score,
                likelihood.curvature,
                likelihood.third,
                likelihood.hessian,
            ):
                assert np.all(np.isfinite(method(obs, f))), method.__name__


def test_poisson_is_the_limit_of_the_negative_binomial():
    obs = rows(COUNTS)
    for method in ("log_density", "score", "curvature", "third"):
        many = getattr(NegativeBinomial(1e9), method)(obs, F)
        # The difference is of order (y + mu)^2 / shape, with mu up to 300.
        np.testing.assert_allclose(many, getattr(Poisson(), method)(obs, F), rtol=1e-6, atol=1e-4)


def test_a_weibull_of_shape_one_is_exponential():
    obs = rows(POSITIVE, WEIGHT)
    for method in ("log_density", "score", "curvature", "third"):
        np.testing.assert_allclose(getattr(Weibull(1.0), method)(obs, F), getattr(Exponential(), method)(obs, F))


def test_one_trial_is_bernoulli():
    obs = unweighted(CLASSES)
    np.testing.assert_allclose(Binomial().log_density(obs, F), Bernoulli().log_density(obs, F))


@pytest.mark.parametrize("likelihood", [Exponential(), Weibull(0.4), Weibull(3.0)])
def test_a_recorded_zero_counts_as_the_least_time(likelihood):
    zero, least = unweighted(np.zeros(1)), unweighted(np.full(1, LEAST_TIME))
    f = np.array([0.2])
    assert np.isfinite(likelihood.log_density(zero, f))
    assert likelihood.log_density(zero, f) == likelihood.log_density(least, f)
    assert likelihood.score(zero, f) == likelihood.score(least, f)


@pytest.mark.parametrize("likelihood", [Exponential(), Weibull(0.2)])
def test_short_times_count_as_they_are(likelihood):
    """However short: of shape .2 a third of all lives last less than a ten-thousandth of the mean."""
    times, f = np.array([1e-4, 1e-6, 1e-12, 1e-30]), np.full(4, 0.3)
    exact = likelihood.distribution(unweighted(times), f)
    np.testing.assert_allclose(likelihood.log_density(unweighted(times), f), exact.logpdf(times), rtol=1e-12)
    lived = Observations(times, np.ones(4), event=np.zeros(4))
    np.testing.assert_allclose(likelihood.log_density(lived, f), exact.logsf(times), rtol=1e-12)


UNSUPPORTED = [
    ("gaussian", {"y": np.nan}),
    ("student_t", {"y": np.inf}),
    ("bernoulli", {"y": 2.0}),
    ("probit", {"y": np.nan}),
    ("svm", {"y": -1.0}),
    ("poisson", {"y": 1.5}),
    ("poisson", {"y": -1.0}),
    ("poisson", {"exposure": 0.0}),
    ("negative_binomial", {"y": np.nan}),
    ("negative_binomial", {"exposure": np.nan}),
    ("binomial", {"y": 3.0}),
    ("binomial", {"y": 1.0, "trials": 1.5}),
    ("binomial", {"y": -1.0}),
    ("gamma", {"y": 0.0}),
    ("inverse_gaussian", {"y": -1.0}),
    ("exponential", {"y": -0.1}),
    ("exponential", {"event": 0.5}),
    ("weibull", {"event": np.nan}),
    ("weibull", {"y": np.inf}),
]


@pytest.mark.parametrize(("name", "wrong"), UNSUPPORTED)
def test_unsupported_rows_are_found(name, wrong):
    likelihood, _ = CASES[name]
    fine = {"y": 1.0, "weight": 1.0, "exposure": 1.0, "trials": 2.0, "event": 1.0}
    columns = {n: np.array([v, wrong.get(n, v)]) for n, v in fine.items()}
    assert likelihood.unsupported(Observations(**columns)).tolist() == [False, True]
    other = [n for n in ("exposure", "trials", "event") if n not in likelihood.companions]
    for n in other:  # companions it does not read do not matter
        assert not likelihood.unsupported(Observations(**columns | {n: np.full(2, np.nan)}))[0]


def test_observations_are_cut_with_their_companions():
    obs = rows(COUNTS, WEIGHT)
    cut = obs[1:]
    assert len(cut) == 2
    for name in ("y", "weight", "exposure", "trials", "event"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(obs, name)[1:])
    np.testing.assert_array_equal(unweighted(COUNTS).event, ONES)


@pytest.mark.parametrize("name", ["gaussian", "gamma", "weibull", "inverse_gaussian"])
def test_slopes_in_log_parameters(name):
    likelihood, y = CASES[name]
    obs = Observations(y, WEIGHT)
    ((parameter, value),) = likelihood.parameters.items()
    exact = {
        "gaussian": lambda s: _gaussian_slopes(y - F, s / WEIGHT),
        "gamma": lambda k: [k * WEIGHT * part for part in _gamma_slopes(y * np.exp(-F), k)],
        "weibull": lambda k: [WEIGHT * part for part in _weibull_slopes(np.log(y) - F, k)],
        "inverse_gaussian": lambda d: _dispersion_slopes(likelihood, obs, d),
    }[name](value[0])
    for found, wanted in zip(slopes(likelihood, obs, F, parameter), exact, strict=True):
        assert found.shape == (3,)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)  # about 1e-11 of the terms


def _gaussian_slopes(e, noise):
    return 0.5 * e**2 / noise - 0.5, -e / noise, -1.0 / noise


def _gamma_slopes(ratio, k):
    return np.log(k * ratio) + 1.0 - ratio - digamma(k), ratio - 1.0, ratio


def _weibull_slopes(a, k):
    z = np.exp(k * a)
    return 1.0 + k * a - k * a * z, k * (z - 1.0) + k**2 * a * z, 2.0 * k**2 * z + k**3 * a * z


def _dispersion_slopes(likelihood, obs, d):
    deviance = likelihood.log_density(obs, F) + 0.5 * obs.weight * np.log(2.0 * np.pi * d * obs.y**3)
    return -deviance - 0.5 * obs.weight, -likelihood.score(obs, F), -likelihood.curvature(obs, F)


def test_slopes_of_two_parameters():
    likelihood, y = CASES["student_t"]
    obs, h = rows(y), 1e-6
    for name, value in likelihood.parameters.items():
        up, down = (likelihood.with_parameters({name: value * np.exp(s * h)}) for s in (1, -1))
        for k, method in enumerate(("log_density", "score", "curvature")):
            plain = (getattr(up, method)(obs, F) - getattr(down, method)(obs, F)) / (2 * h)
            np.testing.assert_allclose(slopes(likelihood, obs, F, name)[k], plain, rtol=1e-7, atol=1e-8)


def test_the_hinge_is_one_sided_and_its_quadratic_lies_above():
    svm, f = SVM(), np.linspace(-3, 3, 601)
    hinge = -svm.log_density(unweighted(np.ones(601)), f)
    np.testing.assert_allclose(hinge, np.maximum(1 - f, 0), atol=FLOOR / 3)  # FLOOR / 4 at the kink
    for old in (-1.0, 0.999, 1.0, 2.5):
        at = unweighted(np.ones(1))
        value, score, weight = (m(at, np.array([old]))[0] for m in (svm.log_density, svm.score, svm.curvature))
        quadratic = -value - score * (f - old) + 0.5 * weight * (f - old) ** 2
        assert np.all(quadratic >= hinge - 1e-12)


def test_majorising_steps_never_raise_the_cost_of_a_support_vector_machine(rng):
    X = rng.uniform(-2, 2, (40, 1))
    K = np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(40)
    obs, svm, f = unweighted((X[:, 0] + 0.5 * rng.standard_normal(40) > 0) * 1.0), SVM(2.0), np.zeros(40)
    costs = []
    for _ in range(60):
        w = svm.curvature(obs, f)
        f = K @ np.linalg.solve(K + np.diag(1 / w), f + svm.score(obs, f) / w)
        costs.append(-svm.log_density(obs, f).sum() + 0.5 * f @ np.linalg.solve(K, f))
    assert np.all(np.diff(costs) <= 1e-9)
    alpha = (2 * obs.y - 1) * np.linalg.solve(K, f)  # of the dual: 0 beyond the margin, the cost inside
    margin = (2 * obs.y - 1) * f
    np.testing.assert_allclose(alpha[margin > 1.05], 0.0, atol=2e-2)
    np.testing.assert_allclose(alpha[margin < 0.95], 2.0, atol=2e-2)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"svm"}))  # majorising steps take too many; see the test above
def test_experts_find_the_mode(name):
    likelihood, y = CASES[name]
    X = np.arange(3.0)[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    obs = rows(y, WEIGHT)
    f = laplace_mode(K, obs, likelihood)
    # The score is known to 1e-9 per unit of weight.
    np.testing.assert_allclose(f, K @ likelihood.score(obs, f), atol=1e-7)


@pytest.mark.parametrize("sd", [0.0, 0.1, 0.999, 1.0, 3.0, 10.0, 100.0])
def test_logistic_average_against_adaptive_quadrature(sd):
    for mean in (-40.0, -4.0, 0.0, 1.5, 200.0):
        edge = np.clip(-mean / sd, -11, 11) if sd else 0.0
        exact, _ = integrate.quad(
            lambda u, m=mean: expit(m + sd * u) * norm.pdf(u), -12, 12, epsabs=1e-14, points=[edge], limit=500
        )
        assert abs(logistic_average([mean], np.array([sd**2]))[0] - exact) < 1e-12


def test_small_probabilities_do_not_underflow():
    p = logistic_average([-100.0, -100.0], np.array([0.25, 4.0]))
    assert np.all(p >= expit(-100.0))


@pytest.mark.parametrize("likelihood", [Bernoulli(), Probit(), SVM()])
def test_label_flip_flips_the_probability(likelihood, rng):
    m, v, obs = rng.standard_normal(5) * 30, rng.uniform(0, 50, 5), unweighted(np.zeros(5))
    one, other = observe(likelihood, m, v, obs), observe(likelihood, -m, v, obs)
    np.testing.assert_allclose(one["probability"], other["probability"][:, ::-1], rtol=1e-12)
    np.testing.assert_allclose(one["probability"].sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(one["probability"] > 0)


@pytest.mark.parametrize("name", ["bernoulli", "probit", "svm"])
def test_probabilities_do_not_exceed_one(name):
    mean = np.linspace(-60.0, 60.0, 2001)
    for variance in (0.1, 1.0, 10.0, 50.0):
        found = observe(make_likelihood(name, (0.0, 1.0)), mean, np.full(2001, variance), unweighted(np.zeros(2001)))
        assert 0.0 <= found["probability"].min() <= found["probability"].max() <= 1.0


def test_unknown_likelihood():
    with pytest.raises(InvalidOption, match="expected one of gaussian, student_t"):
        make_likelihood("poison")


# --- What follows from a likelihood ---


@pytest.mark.parametrize(
    ("name", "kind", "corrected", "one_pass"),
    [
        ("gaussian", "numbers", "errors", True),
        ("student_t", "numbers", "errors", False),
        ("weibull", "events", "errors", False),
        ("bernoulli", "classes", "recalibration", False),
        ("svm", "classes", "calibration", True),
        ("onehot", "classes", "calibration", True),
        ("softmax", "classes", "", False),
    ],
)
def test_what_follows_a_fit(name, kind, corrected, one_pass):
    likelihood = make_likelihood(name, (0.0, 1.0, 2.0))
    assert (likelihood.kind_of_target, likelihood.corrected_by, likelihood.one_pass) == (kind, corrected, one_pass)
    assert likelihood.categorical == (kind == "classes")


def test_zeros_are_replaced_and_counts_have_a_previous_one():
    y = np.array([0.0, 2.0])
    np.testing.assert_array_equal(Weibull(1.6).replace_zeros(y), [LEAST_TIME, 2.0])
    np.testing.assert_array_equal(Poisson().replace_zeros(y), y)
    np.testing.assert_array_equal(Poisson().previous(y), y - 1.0)
    assert Gamma(1.7).previous(y) is None
