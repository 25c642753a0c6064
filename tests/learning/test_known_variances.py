"""Learning from targets with known error variances: units, what is refused, and what is recovered."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, GBCMRegressor, Settings
from bcmdist.api.requests import RefitOptions
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.model.scaling import column_moments, likeliest_variance, without_errors
from problems import GIVEN

LEARNED = Settings(kernel="se", query=60, partition="chunks", effort="quick", rows_per_expert=400)
NOISE = 0.05


def truth(X):
    return np.sin(X[:, 0]) + 0.5 * np.cos(2.3 * X[:, 0])


def unequal(seed, rows=800, large=25.0):
    """Most rows have an error far larger than the function, the others about one as large as the noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 1))
    t = np.where(rng.random(rows) < 0.7, large * rng.uniform(0.5, 2, rows), rng.uniform(0, 0.01, rows))
    return X, truth(X) + NOISE * rng.standard_normal(rows) + np.sqrt(t) * rng.standard_normal(rows), t


def noise_sd(gbcm):
    return float(np.sqrt(gbcm.model.likelihood.noise_variance[0]) * gbcm.model.scaling.y_scale)


def test_hyperparameters_and_intervals_are_those_of_the_function():
    """One climb with the variances, and one that takes all errors for noise of one size."""
    X, y, t = unequal(0)
    Z = np.linspace(0, 10, 500)[:, None]
    new = truth(Z) + NOISE * np.random.default_rng(1).standard_normal(500)
    found = {}
    for name, companions in {"known": {"target_variance": t}, "unknown": {}}.items():
        gbcm = GBCM.fit(X, y, LEARNED, companions=companions)
        p = gbcm.predict(Z)
        inside = np.mean((p["lower95"] <= new) & (new <= p["upper95"]))
        rmse = np.sqrt(np.mean((p["mean"] - truth(Z)) ** 2))
        found[name] = rmse, inside, np.mean(p["upper95"] - p["lower95"]), noise_sd(gbcm)
    known, unknown = found["known"], found["unknown"]
    assert known[0] < 0.1 * unknown[0]
    assert known[0] < 0.04
    assert 0.85 < known[1] < 0.99
    assert known[2] < 0.3 < 10 < unknown[2]  # lengths of intervals; +-2 NOISE is 0.2
    assert known[3] == pytest.approx(NOISE, rel=0.35)
    assert unknown[3] > 3.0


def test_large_errors_do_not_change_the_model():
    """The unit of targets is that of the function, however large the errors of most rows are."""
    X, y, t = unequal(0)
    _, far, huge = unequal(0, large=1e8)
    one, other = (GBCM.fit(X, *(rows, LEARNED), companions={"target_variance": k}) for rows, k in ((y, t), (far, huge)))
    assert one.model.scaling.y_scale == pytest.approx(truth(X).std(), rel=0.2)
    assert other.model.scaling.y_scale == pytest.approx(one.model.scaling.y_scale, rel=0.1)
    Z = np.linspace(0, 10, 100)[:, None]
    assert np.abs(one.predict(Z)["mean"] - other.predict(Z)["mean"]).max() < 0.1
    assert noise_sd(other) == pytest.approx(noise_sd(one), rel=0.2)


def test_errors_may_explain_all_noise(rng):
    """The learned noise goes towards its least value where the known errors are all there is."""
    X, t = rng.uniform(0, 10, (600, 1)), rng.uniform(0.01, 0.2, 600)
    gbcm = GBCM.fit(X, truth(X) + np.sqrt(t) * rng.standard_normal(600), LEARNED, companions={"target_variance": t})
    assert noise_sd(gbcm) < 0.06
    p = gbcm.predict(X, target_variance=t)
    z = (truth(X) - p["mean"]) / np.sqrt(p["variance"])
    assert np.mean(np.abs(z) < 1.96) > 0.85


def test_losses_of_rows_left_out_are_weighted_by_precision():
    X, y, t = unequal(0)
    gbcm = GBCM.fit(X, y, LEARNED, companions={"target_variance": t})
    accuracy = gbcm.info()["left_out"]
    assert accuracy["loss"] == "weighted_rmse"
    assert accuracy["model"] < 0.5 * accuracy["baselines"]["mean"]
    assert "RMSE, weighted by known variances" in gbcm.info()["advice"]
    assert "no better" not in gbcm.info()["advice"]


# --- Units ---


def test_moments_without_errors(rng):
    t = np.where(rng.random(4000) < 0.6, 900.0, 0.1)
    y = 5.0 + 2.0 * rng.standard_normal(4000) + np.sqrt(t) * rng.standard_normal(4000)
    plain = column_moments(y[:, None])
    found = without_errors(plain, Observations(y, np.ones(4000), target_variance=t))
    assert found.mean[0] == pytest.approx(5.0, abs=0.2)
    assert found.scale[0] == pytest.approx(2.0, rel=0.05)
    assert without_errors(plain, unweighted(y)) is plain


@pytest.mark.parametrize("known", [0.5, 1.0, 40.0, 1e4])
def test_the_likeliest_variance_where_known_errors_exceed_all(rng, known):
    """Its standard error is above the mean square: that is the largest, not an empty range."""
    for n in (2, 5, 20, 50):
        e = 0.1 * rng.standard_normal(n)
        for centred in (True, False):
            most = np.mean(e**2) if centred else np.var(e)
            assert 0.0 < likeliest_variance(e, np.full(n, known), centred=centred) <= most * (1 + 1e-12)


def test_the_likeliest_variance(rng):
    e = rng.standard_normal(50)
    assert likeliest_variance(e, np.zeros(50)) == pytest.approx(np.mean(e**2), rel=1e-12)
    assert likeliest_variance(e, np.full(50, 0.4)) == pytest.approx(np.mean(e**2) - 0.4, rel=1e-4)
    at_zero = likeliest_variance(e, np.full(50, 40.0))  # at its bound, or below its own standard error
    assert 0.0 < at_zero <= max(np.mean(e**2), 40.0 * np.sqrt(2 / 50))
    assert likeliest_variance(np.zeros(50), np.ones(50)) > 0.0


# --- Refused ---


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(likelihood="student_t"), "expected the likelihood gaussian with known variances"),
        (Settings(task="counts"), "got negative_binomial|got poisson"),
        (Settings(expert="rvm", partition="chunks"), "got rvm, whose training has one noise variance"),
        (Settings(target_transform="log"), "import the transformed targets"),
    ],
)
def test_what_has_no_variance_of_normal_errors_is_refused(rng, settings, text):
    X, y = rng.uniform(0, 3, (60, 1)), 1.0 + rng.integers(1, 9, 60)
    with pytest.raises(InvalidOption, match=text):
        GBCM.fit(X, y, settings, companions={"target_variance": np.ones(60)})


def test_skewed_targets_stay_as_they_are(rng):
    X = rng.uniform(0, 3, (300, 1))
    y = np.exp(np.sin(2 * X[:, 0]) + 0.5 * rng.standard_normal(300))
    gbcm = GBCM.fit(X, y, replace(LEARNED, query=20), companions={"target_variance": np.full(300, 0.01)})
    assert gbcm.info()["target_transform"] is None


def test_models_without_such_errors_refuse_them(rng):
    X = rng.uniform(0, 3, (60, 1))
    counts = GBCM.fit(X, rng.poisson(3.0, 60).astype(float), Settings(task="counts", learn=False, query=9))
    with pytest.raises(
        InvalidOption,
        match=r"target_variance: expected a model of untransformed targets with normal errors.*negative_binomial",
    ):
        counts.predict(X, target_variance=1.0)
    logs = GBCM.fit(X, np.exp(np.sin(X[:, 0])), Settings(target_transform="log", learn=False, query=9))
    with pytest.raises(InvalidOption, match="transformed by log"):
        logs.predict(X, target_variance=1.0)
    with pytest.raises(InvalidOption, match="transformed by log"):
        logs.score(X, np.exp(np.sin(X[:, 0])), companions={"target_variance": np.ones(60)})


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_bad_variances_name_their_row(rng, bad):
    X, y, t = rng.uniform(0, 3, (60, 1)), rng.standard_normal(60), np.ones(60)
    t[7] = bad
    with pytest.raises(InvalidData, match=r"target_variance.*at row 7"):
        GBCM.fit(X, y, GIVEN, companions={"target_variance": t})
    gbcm = GBCM.fit(X, y, GIVEN, companions={"target_variance": np.zeros(60)})
    with pytest.raises(InvalidData, match=r"target_variance: expected variances, finite and at least 0.*at row 7"):
        gbcm.predict(X, target_variance=t)
    with pytest.raises(InvalidData, match="expected one number or 60"):
        gbcm.predict(X, target_variance=t[:3])
    with pytest.raises(InvalidData, match="target_variance"):
        GBCMRegressor().fit(X, y, target_variance=t)


def test_later_rows_need_them_too(rng, tmp_path):
    X, y = rng.uniform(0, 3, (60, 1)), rng.standard_normal(60)
    gbcm = GBCM.fit(X, y, GIVEN, companions={"target_variance": np.ones(60)}, model=tmp_path / "m")
    with pytest.raises(InvalidData, match="expected an array target_variance beside y, as in training"):
        gbcm.partial_fit(X + 3, y)
    with pytest.raises(InvalidData, match="expected an array target_variance"):
        gbcm.score(X, y)
    more = gbcm.partial_fit(X + 3, y, companions={"target_variance": np.ones(60)})
    assert more.info()["rows"] == 120


# --- Refits, estimators, other experts ---


def test_a_refit_keeps_them(rng, tmp_path):
    X, y, t = unequal(3, rows=300)
    gbcm = GBCM.fit(X, y, replace(LEARNED, query=20), companions={"target_variance": t}, model=tmp_path / "m")
    again = gbcm.refit(RefitOptions(effort="quick"))
    assert again.info()["rows"] == 300
    assert noise_sd(again) == pytest.approx(noise_sd(gbcm), rel=0.5)
    assert noise_sd(again) < 1.0


def test_the_estimator(rng):
    X, y, t = unequal(2, rows=300)
    how = {"kernel": "se", "query": 40, "partition": "chunks", "effort": "quick"}
    known = GBCMRegressor(**how).fit(X, y, target_variance=t)
    Z = np.linspace(0, 10, 50)[:, None]
    assert np.sqrt(np.mean((known.predict(Z) - truth(Z)) ** 2)) < 0.1
    _, sd = known.predict(Z, return_std=True)
    _, larger = known.predict(Z, return_std=True, target_variance=0.25)
    np.testing.assert_allclose(larger**2, sd**2 + 0.25, rtol=1e-9)
    wide = known.predict_interval(Z, target_variance=np.full(50, 0.25))
    assert np.all(np.ptp(wide, axis=1) > np.ptp(known.predict_interval(Z), axis=1))
    weighted = GBCMRegressor(**how).fit(X, y, sample_weight=np.full(300, 2), target_variance=t)
    assert weighted.gbcm_.info()["rows"] == 300  # rows with variances of their own are not repeated
    known.partial_fit(Z, truth(Z), target_variance=0.0)
    assert known.gbcm_.info()["rows"] == 350


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["fitc", "sor", "fourier", "mnnmix", pytest.param("dgp", marks=pytest.mark.nightly)])
def test_other_experts_profit_as_well(expert):
    X, y, t = unequal(0, rows=400)
    Z = np.linspace(0.5, 9.5, 300)[:, None]
    kernel = {"mnnmix": "arcsine"}.get(expert, "se")
    settings = Settings(expert=expert, kernel=kernel, partition="chunks", effort="quick", rows_per_expert=200)
    errors = [
        np.sqrt(np.mean((GBCM.fit(X, y, settings, companions=c).predict(Z)["mean"] - truth(Z)) ** 2))
        for c in ({"target_variance": t}, {})
    ]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["clean", pytest.param("hmc", marks=pytest.mark.nightly)])
def test_with_noisy_inputs(rng, way, monkeypatch):
    """Errors of inputs and of targets at once: that of targets is not learned again. Four rounds of draws do."""
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training.ROUNDS", {"quick": 4})
    X, y, t = unequal(4, rows=300, large=4.0)
    U = X + 0.15 * rng.standard_normal(X.shape)
    settings = Settings(
        kernel="se", query=40, noisy_inputs=way, partition="chunks", effort="quick", rows_per_expert=150
    )
    both = {"X_variance": np.full((300, 1), 0.15**2)}
    Z = np.linspace(0.5, 9.5, 200)[:, None]
    errors = []
    for companions in (both | {"target_variance": t}, both):
        gbcm = GBCM.fit(U, y, settings, companions=companions)
        errors.append(np.sqrt(np.mean((gbcm.predict(Z)["mean"] - truth(Z)) ** 2)))
    assert errors[0] < 0.7 * errors[1]
    plain, uncertain = (gbcm.predict(Z, X_variance=np.full((200, 1), 0.02), target_variance=v) for v in (0.0, 1.0))
    np.testing.assert_allclose(uncertain["observation_variance"], plain["observation_variance"] + 1.0, rtol=1e-6)
