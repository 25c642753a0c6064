"""Transformed targets from `Settings.target_transform` to predictions: by users' choice, and by rows left out."""

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMRegressor, Settings
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption, ModelDamaged, ModelsDiffer, UnsupportedTarget
from bcmdist.model.loading import sound_model

GIVEN = {"query": 40, "learn": False, "rows_per_expert": 60, "kernel": "se", "noise": "constant", "seed": 1}


def positive(rng, count=240, sd=0.3):
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.exp(1.0 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + sd * rng.standard_normal(count))


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_a_logarithm_is_as_of_targets_transformed_by_hand(rng, partition):
    X, y = positive(rng)
    given = GIVEN | {"partition": partition}
    made = GBCM.fit(X[:200], y[:200], Settings(target_transform="log", **given))
    manual = GBCM.fit(X[:200], np.log(y[:200]), Settings(**given))
    found, expected = made.predict(X[200:], quantiles=[0.3]), manual.predict(X[200:], quantiles=[0.3])
    for name in ("mean", "variance"):  # of the latent function, as behind any other link
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12)
    for name in ("lower95", "upper95", "quantile0.3"):
        np.testing.assert_allclose(found[name], np.exp(expected[name]), rtol=1e-9)
    mnlp = manual.score(X[200:], np.log(y[200:]))["mnlp"] + np.log(y[200:]).mean()
    scores = made.score(X[200:], y[200:])
    assert scores["mnlp"] == pytest.approx(mnlp, rel=1e-9)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y[200:] - found["observation_mean"]) ** 2)))
    assert np.all(found["lower95"] > 0.0)
    assert made.info()["target_transform"] == {"kind": "log", "power": 0.0}
    assert manual.info()["target_transform"] is None


def test_learning_from_logarithms_is_learning_by_hand(rng):
    X, y = positive(rng, 150)
    settings = {"query": 40, "effort": "quick", "kernel": "se", "rows_per_expert": 60}
    made = GBCM.fit(X, y, Settings(target_transform="log", **settings))
    manual = GBCM.fit(X, np.log(y), Settings(**settings))
    for name, values in manual.info()["hyperparameters"].items():
        assert made.info()["hyperparameters"][name] == pytest.approx(values, rel=1e-6)


def test_a_model_with_a_transform_is_stored_absorbs_rows_forgets_them_and_merges_with_its_like(
    rng, tmp_path, make_data
):
    X, y = positive(rng)
    y = (3.0 + np.log(y)) ** 2
    settings = Settings(target_transform="power", **GIVEN)
    fitted = GBCM.fit(X[:120], y[:120], settings, model=str(tmp_path / "model"))
    loaded = GBCM.load(tmp_path / "model")
    assert loaded.info()["target_transform"]["kind"] == "power"
    before = loaded.predict(X[180:])
    np.testing.assert_array_equal(before["observation_mean"], fitted.predict(X[180:])["observation_mean"])
    y[125] = 0.0  # a stream may leave the range
    more = loaded.partial_fit(make_data(X=X[120:180], y=y[120:180]))
    less = more.forget([entry.key for entry in more.ledger[len(loaded.ledger) :]])
    np.testing.assert_allclose(less.predict(X[180:])["mean"], before["mean"], rtol=1e-8, atol=1e-8)
    other = GBCM.fit(X[:120], y[:120], Settings(target_transform="none", **GIVEN), model=str(tmp_path / "other"))
    with pytest.raises(ModelsDiffer):
        fitted.merge(other, model=str(tmp_path / "merged"))
    arrays, facts = fitted.model.to_arrays()
    with pytest.raises(ModelDamaged, match="transform"):
        sound_model(arrays, facts | {"transform": facts["transform"] | {"power": 7.0}}, "here")


def test_rows_left_out_choose_the_logarithm_of_log_normal_targets(rng):
    X, y = positive(rng, 600)
    found = GBCM.fit(X, y, Settings(effort="quick", kernel="se", query=60))
    assert found.model.scaling.transform.kind in ("log", "power")
    decision = next(one for one in found.info()["decisions"] if one["of"] == "target")
    assert decision["over"]["none"]["nats"] > 0.05
    assert np.all(found.predict(X)["lower95"] > 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["dgp", "mnnmix", "rvm"])
def test_rows_left_out_choose_for_experts_that_train_shared_variables(rng, expert):
    X, y = positive(rng, 500)
    given = {"effort": "quick", "expert": expert} | ({} if expert == "mnnmix" else {"query": 20})
    found, plain = (GBCM.fit(X[:400], y[:400], Settings(**given, **one)) for one in ({}, {"target_transform": "none"}))
    assert found.model.scaling.transform.kind in ("log", "power")
    test = X[400:], y[400:]
    # A scale of errors that varies with the inputs (dgp, mnnmix) makes up for half of what the transform gains.
    assert found.score(*test)["mnlp"] < plain.score(*test)["mnlp"] - 0.02


def test_gross_errors_of_a_few_targets_have_no_say(rng):
    X, y = positive(rng, 600)
    y[::150] *= 300.0
    found = GBCM.fit(X, y, Settings(effort="quick", kernel="se", query=60))
    assert found.model.scaling.transform.kind == "log"
    assert np.median(np.abs(found.predict(X)["observation_mean"] / y - 1.0)) < 0.3


@pytest.mark.parametrize("kind", ["normal errors", "zeros"])
def test_other_targets_stay_as_they_are(rng, kind):
    X, y = positive(rng, 400, sd=0.0)
    y = y + 0.1 * rng.standard_normal(400) + 1.0 if kind == "normal errors" else np.maximum(y - 2.0, 0.0)
    assert GBCM.fit(X, y, Settings(effort="quick", kernel="se", query=40)).model.scaling.transform is None


def test_a_series_to_forecast_stays_as_it_is(rng, tmp_path):
    y = np.exp(np.sin(np.arange(400) / 7.0) * 2.0 + 0.2 * rng.standard_normal(400))
    (tmp_path / "a.csv").write_text("\n".join(["y", *(f"{value:.6f}" for value in y)]) + "\n")
    made = CliRunner().invoke(cli, ["import", str(tmp_path / "a.csv"), str(tmp_path / "a.zarr"), "--lags", "3"])
    assert made.exit_code == 0, made.output
    given = Settings(effort="quick", kernel="se", query=40, task="regression")
    assert GBCM.fit(str(tmp_path / "a.zarr"), given).model.scaling.transform is None


def test_targets_and_options_that_do_not_go_together_are_refused(rng, make_data, tmp_path):
    X, y = positive(rng)
    y[17] = 0.0
    with pytest.raises(UnsupportedTarget, match=r"in y with --target-transform log, got 0 as the least \(row 17 is"):
        GBCM.fit(X, y, Settings(target_transform="log", **GIVEN))
    with pytest.raises(InvalidOption, match=r"target_transform: expected auto or none with the likelihood gamma"):
        Settings(target_transform="log", likelihood="gamma")
    with pytest.raises(InvalidOption, match=r"target_transform: expected auto or none with the likelihood bernoulli"):
        Settings(target_transform="power", task="classification")
    args = ["fit", make_data(X=X, y=y), "--model", str(tmp_path / "m"), "--target-transform", "sqrt"]
    refused = CliRunner().invoke(cli, args)
    assert refused.exit_code == 2


def test_what_needs_normal_errors_says_so(rng):
    X, y = positive(rng)
    found = GBCMRegressor(
        partition="chunks", target_transform="log", options={"learn": False}, kernel="se", query=30
    ).fit(X, y)
    assert np.all(found.predict_interval(X) > 0.0)
    with pytest.raises(InvalidOption, match=r"expected normal errors, got gaussian of targets transformed by log"):
        found.predict(X, return_cov=True)


def test_samples_have_the_moments_of_predictions(rng):
    X, y = positive(rng)
    made = GBCMRegressor(
        partition="chunks", target_transform="log", kernel="se", query=30, options={"learn": False}
    ).fit(X, y)
    drawn = made.sample_y(X[:5], 20_000)
    np.testing.assert_allclose(drawn.mean(axis=1), made.predict(X[:5]), rtol=0.05)  # 20,000 draws
    np.testing.assert_allclose(np.median(drawn, axis=1), made.predict(X[:5], quantiles=[0.5])[:, 0], rtol=0.05)


def test_the_command_line_predicts_and_scores_in_original_units(rng, make_data, tmp_path):
    X, y = positive(rng)
    data, model = make_data(X=X, y=y), str(tmp_path / "model")
    made = CliRunner().invoke(
        cli, ["fit", data, "--model", model, "--target-transform", "log", "--no-learn", "--serial", "--json"]
    )
    assert made.exit_code == 0, made.output
    for command in (["score", model, data, "--json"], ["predict", model, data, "--out", str(tmp_path / "p.csv")]):
        assert CliRunner().invoke(cli, command).exit_code == 0
    found = GBCM.load(model).score(X, y)
    assert found["rmse"] < 0.5 * y.std()
