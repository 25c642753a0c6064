import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm, poisson
from sklearn import metrics

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.likelihoods import Gaussian, NegativeBinomial, Poisson, StudentT, Weibull
from bcmdist.prediction.observation import observe, predictive, unit_deviance
from bcmdist.prediction.scoring.pit import pit_ranges
from bcmdist.prediction.scoring.scores import class_scores, concordance_pairs, event_scores, real_scores


def regression_scores(y, p, *, train_mean):
    """Scores of Gaussian predictions without noise."""
    likelihood, obs = Gaussian(1e-12), unweighted(y)
    said = predictive(likelihood, p["observation_mean"], p["observation_variance"], obs)
    where = pit_ranges(likelihood, said, obs)
    return real_scores(y, p, said.log_density(obs), where, train_mean=train_mean, crps=said.crps(y))


@pytest.fixture
def regression(rng):
    y, mean, variance = rng.standard_normal(200), 0.3 * rng.standard_normal(200), rng.uniform(0.5, 2, 200)
    half = norm.ppf(0.975) * np.sqrt(variance)
    named = {"observation_mean": mean, "observation_variance": variance, "lower95": mean - half, "upper95": mean + half}
    return y, named


def test_regression_scores_against_their_definitions(regression):
    y, p = regression
    mean, sd = p["observation_mean"], np.sqrt(p["observation_variance"])
    s = regression_scores(y, p, train_mean=0.1).summary()
    assert s["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, mean))
    assert s["mae"] == pytest.approx(metrics.mean_absolute_error(y, mean))
    assert s["nmse"] == pytest.approx(((y - mean) ** 2).mean() / ((y - 0.1) ** 2).mean())
    assert s["mnlp"] == pytest.approx(-norm.logpdf(y, mean, sd).mean())
    assert s["coverage95"] == pytest.approx(((p["lower95"] <= y) & (y <= p["upper95"])).mean())
    for level, name in [(0.5, "coverage50"), (0.8, "coverage80")]:
        low, high = (norm.ppf(q, mean, sd) for q in (0.5 - level / 2, 0.5 + level / 2))
        assert s[name] == pytest.approx(((low <= y) & (y <= high)).mean())
    shares = np.histogram(norm.cdf(y, mean, sd), bins=20, range=(0, 1))[0] / 200
    np.testing.assert_allclose(s["pit"], shares, rtol=1e-12)
    assert s["pit_distance"] == pytest.approx(np.abs(np.cumsum(shares) - np.arange(1, 21) / 20).max())
    crps = [
        integrate.quad(
            lambda x, k=k: (norm.cdf(x, mean[k], sd[k]) - (x >= y[k])) ** 2, -12, 12, points=[y[k]], limit=200
        )[0]
        for k in range(20)
    ]
    few = regression_scores(y[:20], {n: v[:20] for n, v in p.items()}, train_mean=0.0).summary()
    assert few["crps"] == pytest.approx(np.mean(crps), rel=1e-6)
    pinball = [metrics.mean_pinball_loss(y, p[n], alpha=a) for n, a in [("lower95", 0.025), ("upper95", 0.975)]]
    assert s["interval_score"] == pytest.approx(2 / 0.05 * sum(pinball))


def test_ranking_of_rare_classes(rng):
    p = np.exp(rng.normal(-11, 1.5, 20_000))
    y = (rng.uniform(size=20_000) < 500 * p) * 1.0
    s = class_scores(y, {"probability": np.column_stack([1 - p, p]), "label": np.zeros(20_000)}).summary()
    assert s["auc"] == pytest.approx(metrics.roc_auc_score(y, p), abs=1e-4)


def test_class_scores_against_scikit_learn(rng):
    p = rng.uniform(0.01, 0.99, 3000)
    y = (rng.uniform(size=3000) < p**2) * 1.0
    prediction = {"probability": np.column_stack([1 - p, p]), "label": (p > 0.5) * 1}
    s = class_scores(y, prediction).summary()
    assert s["accuracy"] == pytest.approx(metrics.accuracy_score(y, p > 0.5))
    assert s["log_loss"] == pytest.approx(metrics.log_loss(y, p))
    assert s["brier"] == pytest.approx(metrics.brier_score_loss(y, p))
    assert s["auc"] == pytest.approx(metrics.roc_auc_score(y, p), abs=1e-4)  # ties inside bins
    gaps = 0.0
    for k in range(15):
        inside = (p >= k / 15) & (p < (k + 1) / 15)
        gaps += abs(p[inside].sum() - y[inside].sum())
    assert s["ece"] == pytest.approx(gaps / 3000)


def test_scores_add(regression):
    y, p = regression
    whole = regression_scores(y, p, train_mean=0.0).summary()
    halves = [
        regression_scores(y[r], {n: v[r] for n, v in p.items()}, train_mean=0.0) for r in (slice(0, 70), slice(70, 200))
    ]
    for name, value in (halves[0] + halves[1]).summary().items():
        assert value == pytest.approx(whole[name], rel=1e-12)


def scored_events(likelihood, mean, variance, obs):
    """Scores of counts or lifetimes under beliefs N(mean, variance)."""
    told, said = observe(likelihood, mean, variance, obs), predictive(likelihood, mean, variance, obs)
    deviance = unit_deviance(likelihood, obs, told["observation_mean"])
    return event_scores(obs, told, said.log_density(obs), deviance, pit_ranges(likelihood, said, obs))


def test_scores_of_counts_add_and_are_those_of_their_distribution(rng):
    n = 400
    obs = Observations(rng.poisson(3.0, n) * 1.0, np.ones(n))
    mean, variance = np.full(n, np.log(3.0)), np.full(n, 1e-12)
    whole = scored_events(Poisson(), mean, variance, obs).summary()
    one, other = (scored_events(Poisson(), mean[r], variance[r], obs[r]) for r in (slice(0, 90), slice(90, n)))
    parts = (one + other).summary()
    for name in set(whole):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12, atol=1e-15)
    said = poisson(3.0)
    for level, name in [(0.5, "coverage50"), (0.8, "coverage80"), (0.95, "coverage95")]:
        low, high = said.ppf(0.5 - level / 2), said.ppf(0.5 + level / 2)
        assert whole[name] == pytest.approx(((obs.y >= low) & (obs.y <= high)).mean())
    pinball = [metrics.mean_pinball_loss(obs.y, np.full(n, said.ppf(a)), alpha=a) for a in (0.025, 0.975)]
    assert whole["interval_score"] == pytest.approx(2 / 0.05 * sum(pinball))


def test_lifetimes_are_ranked_by_their_medians(rng):
    """Their means are of far tails where f is uncertain: far from rows they would rank first."""
    n = 200
    mean = rng.standard_normal(n)
    obs = Observations(np.exp(mean), np.ones(n), event=np.ones(n))
    variance = rng.choice([0.01, 9.0], n)
    found = scored_events(Weibull(8.0), mean, variance, obs).summary()
    assert found["concordance"] > 0.97
    middle = predictive(Weibull(8.0), mean, variance, obs).quantile(0.5)
    assert found["mae"] == pytest.approx(np.abs(obs.y - middle).mean())


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(0.5), NegativeBinomial(50.0)])
def test_the_deviance_of_counts_is_that_of_poisson(rng, likelihood):
    """Whatever shape was learned: or the model of the most dispersion would always look best."""
    y, mean, ones = rng.negative_binomial(2.0, 0.4, 200) * 1.0, rng.uniform(0.5, 9.0, 200), np.ones(200)
    found = unit_deviance(likelihood, Observations(y, ones, exposure=rng.uniform(0.5, 2.0, 200)), mean)
    assert found.mean() == pytest.approx(metrics.mean_poisson_deviance(y, mean), rel=1e-9)


def test_intervals_of_censored_rows_are_not_scored():
    ones = np.ones(3)
    for event, finite in [(ones, True), (np.array([1.0, 0.0, 1.0]), False)]:
        obs = Observations(np.array([0.5, 1.0, 2.0]), ones, event=event)
        score = scored_events(Weibull(1.5), 0.1 * ones, 0.2 * ones, obs).summary()
        assert np.isfinite(score["interval_score"]) == finite
        assert sum(score["pit"]) == pytest.approx(1.0)


def test_crps_of_a_mixture_is_that_of_its_distribution():
    likelihood, y = StudentT(0.3, 5.0), np.array([-2.0, 0.1, 1.0])
    said = predictive(likelihood, np.zeros(3), np.full(3, 0.2), unweighted(y))
    z = np.linspace(-15, 15, 6001)
    F = predictive(likelihood, np.zeros(6001), np.full(6001, 0.2), unweighted(z)).cdf(z)
    exact = [np.trapezoid((F - (z >= at)) ** 2, z) for at in y]
    np.testing.assert_allclose(said.crps(y), exact, rtol=0.03)  # 20 levels bring it to about 2 %


def test_one_class_has_no_ranking():
    s = class_scores(np.ones(3), {"probability": np.full((3, 2), 0.5), "label": np.zeros(3)}).summary()
    assert np.isnan(s["auc"])
    assert s["log_loss"] == pytest.approx(np.log(2))


def test_scores_of_many_classes_against_scikit_learn(rng):
    p = rng.dirichlet(np.ones(4), 2000)
    y = np.array([rng.choice(4, p=row) for row in p])
    s = class_scores(y.astype(float), {"probability": p}).summary()
    assert s["accuracy"] == pytest.approx(metrics.accuracy_score(y, p.argmax(axis=1)))
    assert s["log_loss"] == pytest.approx(metrics.log_loss(y, p))
    assert s["brier"] == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(axis=1).mean())
    assert s["auc"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"), abs=1e-4)
    assert s["ece"] < 0.05  # these classes are drawn from p


def test_concordance_counts_comparable_pairs():
    time, event = np.array([1.0, 2.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    predicted = np.array([1.0, 5.0, 2.0, 2.0, 0.0])
    # Row 1 is censored: it is not known to be outlived.
    by_hand = [(0, j) for j in range(1, 5)] + [
        (2, 3),
        (2, 4),
        (3, 4),
    ]
    right = sum(1.0 if predicted[i] < predicted[j] else 0.5 * (predicted[i] == predicted[j]) for i, j in by_hand)
    assert concordance_pairs(time, event, predicted) == (len(by_hand), right)
