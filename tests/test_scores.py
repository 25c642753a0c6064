import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm
from sklearn import metrics

from bcmdist.likelihoods import Gaussian, unweighted
from bcmdist.observation import crps, predictive
from bcmdist.scores import class_scores, concordance_pairs, real_scores


def regression_scores(y, p, *, train_mean):
    """Scores of Gaussian predictions without noise."""
    said = predictive(Gaussian(1e-12), p["observation_mean"], p["observation_variance"], unweighted(y))
    log_density = said.log_density(unweighted(y))
    return real_scores(y, p, log_density, train_mean=train_mean, crps=crps(said, y))


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
