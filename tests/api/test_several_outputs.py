"""Several outputs in long form, as users fit, predict, score and ingest them, by Python and by the command line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMRegressor, Settings
from bcmdist.app.cli.main import cli
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import WEIGHT_SD
from oracles import several_outputs

NAMES = ("cu", "pb", "zn")
SHIFT, SCALE = np.array([100.0, 0.0, -5.0]), np.array([30.0, 1.0, 0.1])
CORRELATION = np.array([[1.0, 0.9, -0.7], [0.9, 1.0, -0.5], [-0.7, -0.5, 1.0]])
NOISE = np.array([0.01, 0.05, 0.2])
GIVEN = {
    "kernel.coregionalised(metal).output_variance": [0.9, 1.2, 0.7],
    "kernel.coregionalised(metal).loading_angle": [0.5, 2.0, 1.1],
    "kernel.matern32(east, north).variance": 0.8,
    "kernel.matern32(east, north).lengthscale": [0.9, 1.3],
    "likelihood.noise_variance": [0.1, 0.02, 0.3],
}
FIXED = Settings(output="metal", kernel="matern32", mean="constant", learn=False, set=GIVEN, partition="chunks")


def simulated(rng, places, missing=0.0, lengthscale=1.2):
    """Rows of three outputs of known correlation, in units of their own; and the noiseless truth."""
    X = rng.uniform(0.0, 10.0, (places, 2))
    kernel = parse_kernel("se(0, 1)", inputs=2).with_parameters({"variance": [1.0], "lengthscale": [lengthscale] * 2})
    K = kernel.cross(X, X) + 1e-9 * np.eye(places)
    f = np.linalg.cholesky(K) @ rng.standard_normal((places, 3)) @ np.linalg.cholesky(CORRELATION).T
    frame = pd.DataFrame({"east": X[:, 0], "north": X[:, 1]} | dict(zip(NAMES, (SHIFT + SCALE * f).T, strict=True)))
    rows = frame.melt(["east", "north"], list(NAMES), "metal", "truth")
    number = np.array([NAMES.index(name) for name in rows.metal])
    rows["value"] = rows.truth + SCALE[number] * np.sqrt(NOISE[number]) * rng.standard_normal(len(rows))
    out = (rows.metal == "cu") & (rng.uniform(size=len(rows)) < missing)
    mixed = rng.permutation(len(rows))
    return rows.iloc[mixed].reset_index(drop=True), out.to_numpy()[mixed]


def fitted(rows, settings=FIXED, **how):
    return GBCM.fit(rows[["metal", "east", "north"]], rows["value"].to_numpy(), settings, **how)


@pytest.fixture
def rows(rng):
    return simulated(rng, 20)[0]


def numbers_of(rows):
    return np.array([NAMES.index(name) for name in rows.metal])


def test_predictions_are_those_of_the_dense_process_in_units_of_each_output(rng, rows):
    rows, new = rows.iloc[:45], rows.iloc[45:]
    gbcm = fitted(rows)
    number, X = numbers_of(rows), rows[["east", "north"]].to_numpy()
    mean, sd = (np.array([getattr(rows.value[number == k], of)() for k in range(3)]) for of in ("mean", "std"))
    sd = np.array([rows.value[number == k].std(ddof=0) for k in range(3)])
    at, by = X.mean(axis=0), X.std(axis=0)
    of_outputs, of_places = gbcm.model.shared.kernel.parts
    about = of_outputs.kernel.covariance, of_places.kernel, (X - at) / by, number
    y, noise = (rows.value.to_numpy() - mean[number]) / sd[number], np.array(GIVEN["likelihood.noise_variance"])
    places = (new[["east", "north"]].to_numpy() - at) / by
    m, C = several_outputs(*about, y, noise, WEIGHT_SD**2, places, numbers_of(new))
    unit = sd[numbers_of(new)]
    found = gbcm.predict(new, method="committee")
    np.testing.assert_allclose(found["mean"], mean[numbers_of(new)] + unit * m, atol=1e-8)  # with a jitter of 1e-12
    np.testing.assert_allclose(found["variance"], unit**2 * np.diag(C), rtol=1e-8)
    joint = gbcm.predict_joint(new)
    np.testing.assert_allclose(joint[0], found["mean"], rtol=1e-10)
    np.testing.assert_allclose(joint[1], C * unit * unit[:, None], atol=1e-8 * np.abs(C).max() * 900.0)
    observed = unit**2 * (np.diag(C) + noise[numbers_of(new)])
    widening = found["observation_variance"] / observed
    np.testing.assert_allclose(widening, widening[0], rtol=1e-6)


def test_correlations_are_recovered_and_what_is_missing_is_predicted_from_other_outputs(rng):
    rows, out = simulated(rng, 160, missing=0.4, lengthscale=0.6)
    gbcm = fitted(rows[~out], Settings(output="metal", kernel="se", partition="chunks", effort="quick"))
    info = gbcm.info()
    assert info["outputs"]["names"] == list(NAMES)
    np.testing.assert_allclose(info["outputs"]["correlation"], CORRELATION, atol=0.15)  # of 160 places
    noise = np.array(info["hyperparameters"]["likelihood.noise_variance"]) * np.array(info["outputs"]["scale"]) ** 2
    np.testing.assert_allclose(np.log(noise / SCALE**2 / NOISE), 0.0, atol=1.0)
    assert info["kernel"].startswith("coregionalised(metal")
    assert info["mean"] in ("constant(metal)", "linear(metal)")
    alone = rows[~out & (rows.metal == "cu")]
    single = GBCM.fit(
        alone[["east", "north"]], alone["value"].to_numpy(), Settings(kernel="se", partition="chunks", effort="quick")
    )
    test = rows[out]
    together, by_itself = gbcm.score(test, test["value"]), single.score(test[["east", "north"]], test["value"])
    assert together["rmse"] < 0.8 * by_itself["rmse"]
    assert together["mnlp"] < by_itself["mnlp"]


def test_ranks_are_chosen_by_evidence_unless_given(rows):
    info = fitted(rows, Settings(output="metal", kernel="se", partition="chunks", effort="quick")).info()
    one, two = "coregionalised(metal)*se(east, north)", "coregionalised(metal, rank=2)*se(east, north)"
    assert {one, two} <= set(info["kernels_tried"])
    given = Settings(output="metal", kernel=two, partition="chunks", effort="quick")
    assert list(fitted(rows, given).info()["kernels_tried"]) == [two]


def test_a_frame_without_outputs_is_predicted_at_all_of_them(rows):
    gbcm, places = fitted(rows), rows[["east", "north"]].iloc[:5]
    found = gbcm.predict(places, quantiles=(0.9,))
    assert list(found)[:4] == ["mean_cu", "mean_pb", "mean_zn", "variance_cu"]
    for name in NAMES:
        one = gbcm.predict(places.assign(metal=name), quantiles=(0.9,))
        for quantity in one:
            np.testing.assert_array_equal(found[f"{quantity}_{name}"], one[quantity])
    assert "mean_zn" in gbcm.predict_frame(places)


def test_scores_of_each_output_are_in_its_unit(rows):
    gbcm = fitted(rows)
    found, predicted = gbcm.score(rows, rows["value"]), gbcm.predict(rows)
    error, number = rows["value"].to_numpy() - predicted["observation_mean"], numbers_of(rows)
    for k, name in enumerate(NAMES):
        own = found["outputs"][name]
        assert own["rows"] == 20
        assert own["rmse"] == pytest.approx(np.sqrt(np.mean(error[number == k] ** 2)), rel=1e-10)
        spread = rows["value"][number == k].var(ddof=0)
        assert own["nmse"] == pytest.approx(np.mean(error[number == k] ** 2) / spread, rel=1e-8)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-10)
    assert found["mnlp"] == pytest.approx(np.mean([found["outputs"][n]["mnlp"] for n in NAMES]), rel=1e-10)


def test_other_outputs_are_refused(rows):
    gbcm, new = fitted(rows), rows.iloc[:4].copy()
    new.loc[2, "metal"] = "au"
    message = (
        r"expected an output .* of 'metal' \('cu', 'pb', 'zn'\), got 'au' at row 2 \(1 such rows\).* fit a new model"
    )
    for act in (
        lambda: gbcm.predict(new),
        lambda: gbcm.score(new, new["value"]),
        lambda: gbcm.partial_fit(new[["metal", "east", "north"]], new["value"].to_numpy()),
    ):
        with pytest.raises(InvalidData, match=message):
            act()
    new.loc[2, "metal"] = None
    with pytest.raises(InvalidData, match="none at row 2"):
        gbcm.predict(new)


def test_further_rows_count_once(rows):
    gbcm, more = fitted(rows.iloc[:40]), rows.iloc[40:]
    after = gbcm.partial_fit(more[["metal", "east", "north"]], more["value"].to_numpy())
    assert after.info()["rows"] == 60
    assert GBCM.load(after.url).model.outputs == NAMES
    new = simulated(np.random.default_rng(5), 3)[0]
    np.testing.assert_array_equal(after.predict(new)["mean"], GBCM.load(after.url).predict(new)["mean"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"output": "east"}, "names of outputs, or whole numbers as codes, in 'east'"),
        ({"output": "gold"}, "expected a column of .*'metal', 'east', 'north'.*got 'gold'"),
        ({"kernel": "coregionalised(metal)*se", "output": None}, "which output gives"),
        ({"likelihood": "softmax"}, "a likelihood of one latent function"),
        ({"expert": "fourier"}, "shares values at query points"),
        ({"target_transform": "power"}, "give log or none"),
    ],
)
def test_what_cannot_be_is_refused(rows, changed, message):
    settings = {"output": "metal", "learn": False} | changed
    with pytest.raises((InvalidOption, InvalidData), match=message):
        fitted(rows, Settings(**settings))


def test_one_output_alone_is_refused(rows):
    with pytest.raises(InvalidData, match="two outputs or more in 'metal'"):
        fitted(rows[rows.metal == "cu"], Settings(output="metal", learn=False))


def test_codes_are_outputs(rows):
    coded = rows.assign(metal=rows.metal.map({"cu": 29, "pb": 82, "zn": 30}))
    settings = Settings(output="metal", kernel="se", learn=False, partition="chunks")
    by_code, by_name = fitted(coded, settings), fitted(rows, settings)
    assert by_code.model.outputs == ("29", "30", "82")
    np.testing.assert_allclose(by_code.predict(coded)["mean"], by_name.predict(rows)["mean"], rtol=1e-8)


def test_counts_of_several_outputs(rng):
    rows = simulated(rng, 30)[0]
    number = numbers_of(rows)
    y = rng.poisson(np.array([3.0, 30.0, 100.0])[number]).astype(float)
    settings = Settings(task="counts", output="metal", kernel="se", learn=False, partition="chunks")
    gbcm = GBCM.fit(rows[["metal", "east", "north"]], y, settings)
    found = gbcm.predict(rows)["observation_mean"]
    for k in range(3):
        assert found[number == k].mean() == pytest.approx(y[number == k].mean(), rel=0.2)


def test_samples_are_in_units_of_each_output(rows):
    gbcm, new = fitted(rows), rows.iloc[:6]
    mean, covariance = gbcm.predict_joint(new)
    samples = gbcm.sample(new, size=4000, seed=1)
    np.testing.assert_allclose((samples.mean(axis=0) - mean) / np.sqrt(np.diag(covariance)), 0.0, atol=0.1)


def test_query_points_are_places_at_each_output(rng):
    rows = simulated(rng, 60)[0]
    settings = Settings(output="metal", kernel="se", learn=False, partition="chunks", query=60)
    points = fitted(rows, settings).model.query.points
    assert len(points) <= 60
    places, counts = np.unique(points[:, 3:], axis=0, return_counts=True)
    assert len(places) == 20
    assert set(counts) == {3}
    assert set(map(tuple, points[:, :3])) == set(map(tuple, np.eye(3)))


@pytest.mark.slow
def test_cells_hold_all_outputs_of_a_place(rng):
    rows, out = simulated(rng, 400, missing=0.3)
    settings = Settings(output="metal", kernel="se", partition="spatial", rows_per_expert=200, query=90, effort="quick")
    gbcm = fitted(rows[~out], settings)
    tree, X = (
        gbcm.model.cells,
        gbcm.model.scaling.inputs(np.hstack([np.eye(3)[numbers_of(rows)], rows[["east", "north"]]])),
    )
    assert tree.cells > 3
    cells = pd.Series(tree.route(X)).groupby([rows.east, rows.north]).nunique()
    assert cells.max() == 1
    test = rows[out]
    local = gbcm.score(test, test["value"])
    assert local["rmse"] < 0.5 * SCALE[0]
    assert local["rmse"] <= gbcm.score(test, test["value"], method="committee")["rmse"]


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["fitc", "sor", "rrgp_star"])
def test_other_experts(rng, expert):
    rows, out = simulated(rng, 100, missing=0.3)
    gbcm = fitted(rows[~out], Settings(output="metal", kernel="se", expert=expert, effort="quick"))
    test = rows[out]
    assert gbcm.score(test, test["value"])["rmse"] < 0.6 * SCALE[0]


@pytest.mark.slow
def test_a_refit_keeps_the_outputs(rng):
    rows = simulated(rng, 60)[0]
    gbcm = fitted(rows, Settings(output="metal", kernel="se", partition="chunks", effort="quick"))
    again = gbcm.refit()
    assert again.model.outputs == NAMES
    assert again.info()["mean"].endswith("(metal)")
    error = (again.predict(rows)["mean"] - rows.truth) / SCALE[numbers_of(rows)]
    assert np.sqrt(np.mean(error**2)) < 0.3


def test_estimators(rows):
    model = GBCMRegressor(kernel="se", effort="quick", options={"output": "metal"})
    X, y = rows[["metal", "east", "north"]], rows["value"]
    predicted = model.fit(X, y).predict(X)
    assert np.sqrt(np.mean(((predicted - rows.truth) / SCALE[numbers_of(rows)]) ** 2)) < 0.5


# --- The command line ---


def run(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("default", BcmdistWarning)
        return CliRunner().invoke(cli, [*map(str, arguments), "--serial"])


def test_tables_by_the_command_line(rows, tmp_path):
    train, test, places = (tmp_path / f"{name}.csv" for name in ("train", "test", "places"))
    columns = ["east", "north", "metal", "value"]
    rows[columns].iloc[:50].to_csv(train, index=False)
    rows[columns].iloc[50:].to_csv(test, index=False)
    rows[["east", "north"]].iloc[50:].assign(site=range(10)).to_csv(places, index=False)
    model = tmp_path / "model"
    fit = run("fit", train, "--y", "value", "--output", "metal", "--kernel", "se", "--no-learn", "--model", model)
    assert fit.exit_code == 0, fit.output
    assert run("predict", model, test, "--out", tmp_path / "long.csv").exit_code == 0
    wide = run("predict", model, places, "--out", tmp_path / "wide.csv")
    assert wide.exit_code == 0, wide.output
    assert "places.csv: 'site' not used" in wide.output
    long, found = pd.read_csv(tmp_path / "long.csv"), pd.read_csv(tmp_path / "wide.csv")
    assert list(found.columns[:5]) == ["row", "east", "north", "site", "observation_mean_cu"]
    for k in range(10):
        assert found[f"mean_{long.metal[k]}"][k] == pytest.approx(long["mean"][k], rel=1e-9)
    by_id = run("predict", model, places, "--out", tmp_path / "id.parquet", "--id", "site")
    assert by_id.exit_code == 0, by_id.output
    assert pd.read_parquet(tmp_path / "id.parquet").site.tolist() == list(range(10))
    refused = run("predict", model, places, "--out", tmp_path / "wide.zarr")
    assert refused.exit_code == 1
    assert "a table as --out, which has columns for all outputs" in refused.output
    score = run("score", model, test, "--json")
    assert set(json.loads(score.stdout)["outputs"]) == set(rows.metal.iloc[50:])
    assert "cu: rows" in run("score", model, test).output
    assert (
        "cu: mean"
        in run(
            "fit",
            train,
            "--y",
            "value",
            "--output",
            "metal",
            "--kernel",
            "se",
            "--no-learn",
            "--model",
            tmp_path / "other",
        ).output
    )
    once, twice = (json.loads(run("ingest", model, test, "--json").stdout) for _ in range(2))
    assert (once["rows"], twice["rows"]) == (10, 0)
    rows[columns].iloc[:3].assign(metal="au").to_csv(test, index=False)
    refused = run("predict", model, test, "--out", tmp_path / "none.csv")
    assert refused.exit_code == 1
    assert "got 'au' at row 0 (3 such rows)" in refused.output
