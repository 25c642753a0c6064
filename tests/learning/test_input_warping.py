"""Warped inputs from `Settings.warp` to predictions: by users' choice, and by rows left out."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption, ModelDamaged, ModelsDiffer
from bcmdist.learning.input_warping import skewness
from bcmdist.model.loading import sound_model

GIVEN = {"query": 40, "learn": False, "rows_per_expert": 60, "kernel": "se", "seed": 1}


def skewed(rng, count=240):
    """Rows of a positive, a non-negative and a symmetric column; targets that are smooth in logarithms."""
    X = np.column_stack([np.exp(1.5 * rng.standard_normal(count)), rng.exponential(20.0, count).clip(5.0) - 5.0])
    X = np.column_stack([X, rng.standard_normal(count)])
    y = np.sin(np.log(X[:, 0])) + np.log1p(X[:, 1]) + X[:, 2] + 0.1 * rng.standard_normal(count)
    return X, y


def by_hand(X):
    return np.column_stack([np.log(X[:, 0]), np.log1p(X[:, 1]), X[:, 2]])


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_logarithms_are_as_of_data_transformed_by_hand(rng, partition):
    X, y = skewed(rng)
    settings = GIVEN | {"partition": partition}
    warped = GBCM.fit(X[:200], y[:200], Settings(warp="log,2=none", **settings))
    manual = GBCM.fit(by_hand(X)[:200], y[:200], Settings(warp="none", **settings))
    assert warped.info()["warp"] == {"X[0]": "log", "X[1]": "log1p"}
    assert manual.info()["warp"] == {}
    said, told = warped.predict(X[200:]), manual.predict(by_hand(X)[200:])
    # Cells are found in the same scaled inputs; query points go back through exp, to a rounding.
    for name in ("mean", "variance", "observation_variance", "lower95"):
        np.testing.assert_allclose(said[name], told[name], rtol=1e-9, atol=1e-9)
    assert warped.score(X[200:], y[200:])["rmse"] == pytest.approx(manual.score(by_hand(X)[200:], y[200:])["rmse"])


@pytest.mark.slow
def test_learning_on_logarithms_is_learning_by_hand(rng):
    X, y = skewed(rng)
    settings = {"query": 40, "effort": "quick", "kernel": "se", "rows_per_expert": 60}
    warped = GBCM.fit(X, y, Settings(warp="log,2=none", **settings))
    manual = GBCM.fit(by_hand(X), y, Settings(warp="none", **settings))
    assert warped.info()["hyperparameters"] == manual.info()["hyperparameters"]
    np.testing.assert_allclose(warped.predict(X)["mean"], manual.predict(by_hand(X))["mean"], rtol=1e-9, atol=1e-9)


def test_a_warped_model_is_stored_absorbs_rows_forgets_them_and_merges_with_its_like(rng, tmp_path, make_data):
    X, y = skewed(rng)
    fitted = GBCM.fit(
        X[:120], y[:120], Settings(partition="chunks", warp="rank", **GIVEN), model=str(tmp_path / "model")
    )
    loaded = GBCM.load(tmp_path / "model")
    assert loaded.info()["warp"] == dict.fromkeys(["X[0]", "X[1]", "X[2]"], "rank")
    new = np.vstack([X[120:], [[0.0, -3.0, 50.0], [1e6, 1e6, -1e6]]])  # a stream may leave the range
    before = loaded.predict(new)
    np.testing.assert_array_equal(before["mean"], fitted.predict(new)["mean"])
    assert all(np.all(np.isfinite(values)) for values in before.values())
    more = loaded.partial_fit(make_data(X=X[120:180], y=y[120:180]))
    assert not np.allclose(more.predict(new)["mean"], before["mean"])
    less = more.forget([entry.key for entry in more.ledger[len(loaded.ledger) :]])
    np.testing.assert_allclose(less.predict(new)["mean"], before["mean"], rtol=1e-8, atol=1e-8)
    other = GBCM.fit(
        X[:120], y[:120], Settings(partition="chunks", warp="none", **GIVEN), model=str(tmp_path / "other")
    )
    with pytest.raises(ModelsDiffer):
        fitted.merge(other, model=str(tmp_path / "merged"))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[::-1],
        lambda table: table[:, :3],
        lambda table: np.where(np.arange(4) == 1, 9.0, table),
        lambda table: np.where(np.arange(4) == 0, 7.0, table),
        lambda table: table * [1, 1, -1, 1],
    ],
)
def test_an_altered_table_of_warps_is_named(change, rng):
    X, y = skewed(rng)
    model = GBCM.fit(X, y, Settings(partition="chunks", warp="rank,0=log", **GIVEN)).model
    arrays, facts = model.to_arrays()
    again = sound_model(arrays, facts, "here")
    np.testing.assert_array_equal(again.scaling.inputs(X), model.scaling.inputs(X))
    with pytest.raises(ModelDamaged, match=r"here: expected .* x_warp"):
        sound_model(arrays | {"x_warp": change(arrays["x_warp"])}, facts, "here")


def test_query_points_are_shown_in_original_units(rng):
    X, y = skewed(rng)
    scaling = (gbcm := GBCM.fit(X, y, Settings(partition="chunks", warp="rank", **GIVEN))).model.scaling
    points = scaling.original_inputs(gbcm.model.query.points)
    np.testing.assert_allclose(scaling.inputs(points), gbcm.model.query.points, rtol=1e-8, atol=1e-8)
    low, high = X.min(axis=0), X.max(axis=0)
    assert np.mean((points >= low) & (points <= high)) > 0.9  # few are in gaps beyond the rows


def test_uncertain_inputs_widen_as_by_hand_to_first_order(rng):
    X, y = skewed(rng)
    warped = GBCM.fit(X, y, Settings(partition="chunks", warp="log,2=none", **GIVEN))
    manual = GBCM.fit(by_hand(X), y, Settings(partition="chunks", warp="none", **GIVEN))
    slopes = np.column_stack([1.0 / X[:, 0], 1.0 / (1.0 + X[:, 1]), np.ones(len(X))])
    variance = np.full(X.shape, 0.01)
    said = warped.predict(X, X_variance=variance, inputs="exact")
    told = manual.predict(by_hand(X), X_variance=variance * slopes**2, inputs="exact")
    np.testing.assert_allclose(said["variance"], told["variance"], rtol=1e-7)


def test_columns_that_do_not_vary_and_two_values_stay_as_they_are(rng):
    X, y = skewed(rng)
    X[:, 1] = X[:, 1] > 10.0
    with pytest.warns(match="constant"):
        gbcm = GBCM.fit(np.column_stack([X, np.ones(len(X))]), y, Settings(partition="chunks", warp="rank", **GIVEN))
    assert gbcm.info()["warp"] == {"X[0]": "rank", "X[2]": "rank"}


def test_tables_name_columns_fill_gaps_and_keep_categories(rng, tmp_path):
    X, y = skewed(rng)
    lines = ["income,rooms,soil,price"]
    for k, (row, target) in enumerate(zip(X, y, strict=True)):
        lines.append(f"{row[0]},{'' if k % 9 == 0 else row[1]},{'abc'[k % 3]},{target}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    common = ["--query", "30", "--no-learn", "--kernel", "se", "--serial", "--y", "price", "--missing", "indicate"]

    def fit(warp, name):
        table, model = str(tmp_path / "table.csv"), str(tmp_path / name)
        return CliRunner().invoke(cli, ["fit", table, "--model", model, "--warp", warp, "--json", *common])

    done = fit("log", "a")
    assert done.exit_code == 0, done.output
    assert GBCM.load(tmp_path / "a").info()["warp"] == {"income": "log", "rooms": "log1p"}
    told = CliRunner().invoke(cli, ["info", str(tmp_path / "a")]).output
    assert "warp" in told
    assert "income log, rooms log1p" in told
    for name in ("soil=a", "colour"):
        failed = fit(f"{name}=log", "b")
        assert failed.exit_code == 1
        assert "expected a numeric column with --warp (income, rooms, rooms missing, soil=a, soil=b, soil=c" in (
            failed.output
        )


def test_the_logarithm_of_negative_values_is_refused_by_column_and_row(rng, tmp_path):
    X, y = skewed(rng)
    X[[77, 130], 0] = -1.0
    data = str(tmp_path / "data.zarr")
    write_dataset(data, {"X": X, "y": y}, rows_per_chunk=50)
    with pytest.raises(InvalidOption, match=r"no negative value for --warp 0=log, got one in column 0 at row 77; give"):
        GBCM.fit(data, settings=Settings(partition="chunks", warp="0=log", **GIVEN))
    assert GBCM.fit(X, y, Settings(partition="chunks", warp="log", **GIVEN)).info()["warp"]["X[0]"] == "signed-log"
    with pytest.raises(InvalidOption, match="warp: expected one of auto"):
        Settings(partition="chunks", warp="ln")


def test_skewness_of_known_distributions():
    rng = np.random.default_rng(3)
    assert skewness(np.ones(5)) == 0.0
    # standard errors of sqrt(6 / n) and, for the exponential, some .01 of 200,000 draws
    assert abs(skewness(rng.standard_normal(200_000))) < 0.02
    assert skewness(rng.exponential(size=200_000)) == pytest.approx(2.0, abs=0.1)


def test_without_learning_or_skewed_columns_auto_leaves_inputs_alone(rng, wave):
    X, y = skewed(rng)
    assert GBCM.fit(X, y, Settings(partition="chunks", **GIVEN)).info()["warp"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["chunks", pytest.param("spatial", marks=pytest.mark.nightly)])
def test_left_out_rows_choose_logarithms_where_targets_are_smooth_in_them(rng, partition):
    X, y = skewed(rng, 1200)
    gbcm = GBCM.fit(X[:800], y[:800], Settings(effort="quick", partition=partition))
    assert gbcm.info()["warp"] == {"X[0]": "log", "X[1]": "log1p"}
    (decision,) = [one for one in gbcm.info()["decisions"] if one["of"] == "warp"]
    assert decision["taken"] == "log"
    assert decision["over"]["none"]["nats"] > 3.0 * decision["over"]["none"]["error"]
    plain = GBCM.fit(X[:800], y[:800], Settings(effort="quick", partition=partition, warp="none"))
    test = X[800:], y[800:]
    assert gbcm.score(*test)["mnlp"] < plain.score(*test)["mnlp"] - 0.1
    json.dumps(gbcm.info())


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["dgp", "mnnmix", "rvm"])
def test_left_out_rows_choose_for_experts_that_train_shared_variables(rng, expert):
    X, y = skewed(rng, 400)
    found = GBCM.fit(X, y, Settings(effort="quick", expert=expert, query=None if expert == "mnnmix" else 20))
    assert found.info()["warp"] == {"X[0]": "log", "X[1]": "log1p"}
    assert np.mean((found.predict(X)["mean"] - y) ** 2) < 0.5 * y.var()


@pytest.mark.slow
def test_left_out_rows_keep_skewed_columns_whose_targets_are_linear(rng):
    X, _ = skewed(rng, 1000)
    y = X[:, 0] / X[:, 0].std() + X[:, 2] + 0.2 * rng.standard_normal(1000)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", effort="quick", kernel="se"))
    assert gbcm.info()["warp"] == {}
    (decision,) = [one for one in gbcm.info()["decisions"] if one["of"] == "warp"]
    assert decision["taken"] == "none"
