"""Terms where users meet them: the picture of effects, reports, estimators, tables of predictions, the command line."""

import csv

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMRegressor, Settings
from bcmdist.api.pictures import effects
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")

KERNEL = "se(age) + linear(rooms) + category(district) + se(age)*se(rooms)"


@pytest.fixture
def table(rng):
    """Rows with the slope 4 of rooms, and differences of 5 between districts."""
    X = pd.DataFrame({"age": rng.uniform(0, 80, 200), "rooms": rng.integers(1, 8, 200)})
    X["district"] = rng.choice(["east", "north", "west"], 200)
    y = 10 * np.exp(-X.age / 20) + 4 * X.rooms + X.district.map({"east": 0, "north": 5, "west": 10})
    return X, (y + 0.5 * rng.standard_normal(200)).to_numpy()


@pytest.fixture
def regressor(table):
    return GBCMRegressor(kernel=KERNEL, mean="constant", query=60, effort="quick", random_state=0).fit(*table)


def test_estimators_and_pictures_show_each_term(regressor, table, tmp_path):
    X, _ = table
    found = regressor.predict_terms(X)
    assert found["term"].tolist() == [*(KERNEL.split(" + ")), "mean"]
    np.testing.assert_allclose(found["term_mean"].sum(axis=1), regressor.predict(X), rtol=1e-10)
    slope = found["term_mean"][:, 1] - found["term_mean"][:, 1].mean()
    np.testing.assert_allclose(np.polyfit(X.rooms, slope, 1)[0], 4.0, atol=0.3)  # noise .5, 200 rows
    gbcm = regressor.gbcm_
    names = [(name, feature.name) for name, _, feature in effects.one_column_terms(gbcm.model)]
    assert names == [("se(age)", "age"), ("linear(rooms)", "rooms"), ("category(district)", "district")]
    assert gbcm.plot(tmp_path / "effects.svg", what="effects") == "effects"
    drawn = (tmp_path / "effects.svg").read_text()
    for text in ("linear(rooms): ", "% of variance", "district", "north"):
        assert text in drawn


def test_a_kernel_without_terms_of_one_column_has_no_effects(rng, tmp_path):
    X = rng.uniform(-1, 1, (60, 2))
    gbcm = GBCM.fit(X, X[:, 0], Settings(kernel="se + linear", learn=False, query=10))
    with pytest.raises(InvalidOption, match="terms of one column"):
        gbcm.plot(tmp_path / "effects.png", what="effects")


def test_from_a_table_to_terms_on_the_command_line(table, tmp_path):
    X, y = table
    X.assign(price=y).to_csv(tmp_path / "rows.csv", index=False)
    X.to_csv(tmp_path / "new.csv", index=False)
    model, rows, out, page = (str(tmp_path / name) for name in ("model", "rows.csv", "out.csv", "page.html"))
    fit = ["fit", rows, "--y", "price", "--model", model, "--kernel", KERNEL, "--mean", "constant", "--no-learn"]
    for arguments in (
        [*fit, "--set", "kernel.linear(rooms).lengthscale=0.5", "--query", "60", "--serial"],
        ["predict", model, str(tmp_path / "new.csv"), "--out", out, "--terms", "--serial"],
        ["report", model, rows, "--out", page, "--serial"],
    ):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
    with open(out, newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    parts = [float(value) for name, value in first.items() if name.startswith("term_mean_")]
    assert sum(parts) == pytest.approx(float(first["mean"]), rel=1e-10)
    assert "term_variance_category(district)" in first
    text = (tmp_path / "page.html").read_text()
    assert "The terms of the kernel" in text
    assert "linear(rooms)" in text


def test_levels_stored_as_numbers_are_points_of_their_own(rng, tmp_path):
    X = np.column_stack([rng.uniform(-1, 1, 90), rng.integers(0, 3, 90) * 10.0])
    gbcm = GBCM.fit(X, X[:, 0] + X[:, 1], Settings(kernel="se(0) + category(1)", learn=False, query=12))
    (_, kernel, feature) = effects.one_column_terms(gbcm.model)[1]
    points = gbcm.model.shared.points
    original = gbcm.model.scaling.original_inputs(points)
    names, rows = effects._levels(kernel, feature, points, original)
    assert names == ["0", "10", "20"]  # no query point lies between levels
    np.testing.assert_array_equal(np.unique(points[:, 1]), rows[:, 1])
