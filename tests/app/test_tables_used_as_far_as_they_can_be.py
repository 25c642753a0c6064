"""Tables as people have them: the default options use what can be used and say so; `--strict` refuses."""

import json
import re
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMClassifier, GBCMRegressor, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.quantities import Quantities
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidDtype, UnsupportedTarget

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 90
QUICK = ["--y", "rent", "--query", "20", "--no-learn", "--kernel", "se", "--rows-per-expert", "40", "--serial"]


@pytest.fixture
def flats(rng):
    frame = pd.DataFrame({"area": rng.uniform(20, 120, ROWS), "quarter": rng.choice(["north", "south"], ROWS)})
    frame["built"] = np.datetime64("1990-01-01") + rng.integers(0, 9000, ROWS)
    frame["rent"] = 8.0 * frame.area + 100.0 * (frame.quarter == "north") + 30.0 * rng.standard_normal(ROWS) + 200.0
    assert frame.shape == (ROWS, 4)
    return frame


def gaps_in_inputs(frame):
    frame.loc[frame.index[::8], "area"] = np.nan
    frame.loc[3, ["quarter", "built"]] = None
    return frame


def gaps_in_targets(frame):
    frame.loc[[0, 7, 70], "rent"] = np.nan
    return frame


def remarks(frame):
    return frame.assign(remark=[f"seen on day {k}" for k in range(ROWS)])


def numbers_and_texts(frame):
    return frame.assign(floor=["ground" if k == 4 else str(k % 7) for k in range(ROWS)])


def an_empty_column(frame):
    return frame.assign(notes=np.nan)


def written(column, form):
    """The table with the numbers of a column written as texts."""

    def change(frame):
        return frame.assign(**{column: [form(value) for value in frame[column]]})

    return change


def some_unknown(mark):
    def change(frame):
        return frame.assign(area=[mark if k % 9 == 4 else f"{a:.2f}" for k, a in enumerate(frame.area)])

    return change


def with_comma(value):
    return f"{value:.2f}".replace(".", ",")


AS_NUMBERS = r"texts are read as numbers in '{}' \('{}"
AS_GAPS = r"texts are read as numbers in 'area'"
TEXTS = {
    "thousands": (written("area", lambda a: f"{1000 * a:,.0f}"), AS_NUMBERS.format("area", "")),
    "thousands, decimals": (written("area", lambda a: f"{1000 * a:,.2f}"), AS_NUMBERS.format("area", "")),
    "swiss thousands": (
        written("area", lambda a: f"CHF {1000 * a:,.2f}".replace(",", "'")),
        r"texts are read as numbers in 'area' \(.CHF",
    ),
    "french thousands": (
        written("area", lambda a: f"{1000 * a:,.2f} €".replace(",", "\u202f").replace(".", ",")),
        AS_NUMBERS.format("area", ""),
    ),
    "german thousands": (
        written("area", lambda a: f"{1000 * a:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")),
        AS_NUMBERS.format("area", ""),
    ),
    "decimal commas": (written("area", with_comma), AS_NUMBERS.format("area", "")),
    "units": (written("area", lambda a: f"{a:.2f} m²"), AS_NUMBERS.format("area", "")),
    "units without a blank": (written("area", lambda a: f"{a:.2f}sqm"), AS_NUMBERS.format("area", "")),
    "units and decimal commas": (written("area", lambda a: f"{with_comma(a)} qm"), AS_NUMBERS.format("area", "")),
    "percent": (written("area", lambda a: f"{a:.1f}%"), AS_NUMBERS.format("area", "")),
    "a target in a currency": (written("rent", lambda a: f"€ {a:,.2f}"), AS_NUMBERS.format("rent", "€")),
    "a target with decimal commas": (written("rent", with_comma), AS_NUMBERS.format("rent", "")),
    "question marks": (some_unknown("?"), AS_GAPS),
    "dashes": (some_unknown("-"), AS_GAPS),
    "unknown": (some_unknown("Unknown"), AS_GAPS),
}


AWKWARD = {
    "an empty column": (an_empty_column, "'notes' not used: nothing in 'notes'", "InvalidData"),
    "gaps in inputs": (
        gaps_in_inputs,
        r"gaps are filled with the mean and marked by an indicator in 'area' \(12\), 'quarter' \(1\), 'built' \(1\)",
        "InvalidData",
    ),
    "gaps in targets": (gaps_in_targets, "3 rows left out: no value of 'rent'", "InvalidData"),
    "remarks": (remarks, r"'remark' not used: texts in 'remark' \(all cells", "InvalidDtype"),
    "numbers and texts": (numbers_and_texts, r"'floor' not used: texts in 'floor' \(1 of 90 cells", "InvalidDtype"),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("kind", TEXTS)
def test_numbers_as_people_write_them_are_numbers(flats, tmp_path, kind, suffix):
    """As the same table of plain numbers, on the command line and by an estimator; said once; refused by `--strict`."""
    change, warning = TEXTS[kind]
    frame, file, model = change(flats), tmp_path / f"flats.{suffix}", tmp_path / "model"
    frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file, index=False)
    command = ["fit", str(file), "--model", str(model), *QUICK, "--json"]
    if "target" not in kind:  # texts of a target are names of classes, without this
        refused = CliRunner().invoke(cli, [*command, "--strict"])
        assert refused.exit_code == 1
        assert refused.stderr.strip().splitlines()[-1].startswith("bcmdist: InvalidD")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert len(re.findall(warning, done.stderr)) == 1
    fitted = GBCM.load(model)
    found = fitted.predict(frame.drop(columns="rent"))["mean"]
    assert np.corrcoef(found, flats.rent)[0, 1] > 0.8
    scored = CliRunner().invoke(cli, ["score", str(model), str(file), "--serial", "--json"])
    assert json.loads(scored.stdout)["nmse"] < 0.4
    rows = tmp_path / f"rows.{suffix}"
    some = frame.drop(columns="rent").iloc[:20]
    some.to_csv(rows, index=False) if suffix == "csv" else some.to_parquet(rows, index=False)
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "--out", str(tmp_path / "o.csv"), "--serial"])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(pd.read_csv(tmp_path / "o.csv")["mean"], found[:20], rtol=1e-9)
    odd = some.assign(area="12 parsecs")
    with pytest.raises(InvalidDtype, match="12 parsecs"):
        fitted.predict(odd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"query": 20, "kernel": "se", "options": {"learn": False}}
        estimator = GBCMRegressor(**how).fit(frame.drop(columns="rent"), flats.rent)
    assert np.corrcoef(estimator.predict(frame.drop(columns="rent")), flats.rent)[0, 1] > 0.8


@pytest.mark.parametrize(
    "texts",
    [
        ["007", "012", "113"],  # codes
        ["12", "13", "14"],  # as a file of texts has them: may be codes
        ["3 m", "4 km", "5 m"],  # of two units
        ["1,5", "2.5", "3,5"],  # of two decimal marks
        ["zone 1", "zone 2", "zone 3"],
        ["A1", "A2", "A3"],
        ["2026-01-02", "2026-01-03", "2026-01-04"],
        ["1.2.3", "1.2.4", "1.2.5"],
        ["12:30", "12:45", "13:00"],
        ["1,23,4", "5,67,8", "9,10,1"],
        ["?", "-", "n/a"],
    ],
)
def test_other_texts_are_no_numbers(texts):
    quantities = Quantities()
    for text in texts:
        quantities.see(text, 2)
    assert quantities.form() is None


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1,234", "5,678"], [1234.0, 5678.0]),
        (["1,234", "5,67"], [1.234, 5.67]),
        (["1.234,5", "6"], [1234.5, 6.0]),
        (["1'234.5 CHF", "CHF 6"], [1234.5, 6.0]),
        (["-1,200.5", "+3"], [-1200.5, 3.0]),
        (["1e-3", "2 kg"], [0.001, 2.0]),
        (["0,5 %", "10 %", "n/a"], [0.5, 10.0, np.nan]),
        (["$1,000,000", "$2"], [1e6, 2.0]),
    ],
)
def test_texts_are_these_numbers(texts, numbers):
    quantities = Quantities()
    for text in texts:
        quantities.see(text, 3)
    form = quantities.form()
    np.testing.assert_array_equal([form.number(text) for text in texts], numbers)
    assert quantities.total(form) == pytest.approx(3.0 * np.nansum(numbers))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_tables_fit_at_the_first_try(flats, tmp_path, kind, suffix):
    change, warning, error = AWKWARD[kind]
    frame, file, model = change(flats), tmp_path / f"flats.{suffix}", tmp_path / "model"
    frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file, index=False)
    command = ["fit", str(file), "--model", str(model), *QUICK, "--json"]
    refused = CliRunner().invoke(cli, [*command, "--strict"])
    assert refused.exit_code == 1
    assert refused.stderr.strip().splitlines()[-1].startswith(f"bcmdist: {error}: ")
    assert not model.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert len(re.findall(warning, done.stderr)) == 1
    assert done.stderr.count("warning: ") == 1
    kept = frame[frame.rent.notna()]
    assert json.loads(done.stdout)["rows"] == len(kept)
    fitted = GBCM.load(model)
    coded = fitted.model.schema.coding
    found = fitted.predict(kept.drop(columns="rent"))  # the rows as they are in the table
    assert np.corrcoef(found["mean"], kept.rent)[0, 1] > 0.8
    out, rows = tmp_path / "out.csv", tmp_path / "rows.csv"
    frame[list(coded.columns)].to_csv(rows, index=False)
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "--out", str(out), "--serial"])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(pd.read_csv(out)["mean"][frame.rent.notna()], found["mean"], rtol=1e-12)


def test_zones_are_spoken_of_where_hours_matter(flats, tmp_path):
    flats["built"] += np.timedelta64(90, "m")
    flats.to_csv(tmp_path / "flats.csv", index=False)
    with pytest.warns(BcmdistWarning, match="times in 'built' say no time zone; they are taken for UTC"):
        import_file(tmp_path / "flats.csv", str(tmp_path / "flats.zarr"), roles=Roles("rent"))


def test_a_table_of_numbers_without_gaps_warns_of_nothing(flats, tmp_path, recwarn):
    file = tmp_path / "flats.csv"
    flats[["area", "rent"]].to_csv(file, index=False)
    done = CliRunner().invoke(cli, ["fit", str(file), "--model", str(tmp_path / "model"), *QUICK])
    assert done.exit_code == 0
    assert not [one for one in recwarn if issubclass(one.category, UserWarning)]
    assert GBCM.load(tmp_path / "model").model.schema.coding.missing == "error"


def test_nothing_is_left_to_predict_from(flats, tmp_path):
    file = tmp_path / "flats.csv"
    remarks(flats)[["remark", "rent"]].to_csv(file, index=False)
    done = CliRunner().invoke(cli, ["fit", str(file), "--model", str(tmp_path / "model"), *QUICK])
    assert done.exit_code == 1
    assert "expected numbers, dates or categories of few levels in the inputs" in done.stderr


def test_score_and_report_agree_on_a_model_that_a_line_beats(rng, tmp_path):
    """Intervals of the right width around a constant, where a line predicts well."""
    x = rng.uniform(0.0, 1.0, (400, 1))
    frame = pd.DataFrame({"x": x[:, 0], "rent": 3.0 * x[:, 0] + 0.05 * rng.standard_normal(400)})
    frame[:300].to_csv(tmp_path / "train.csv", index=False)
    frame[300:].to_csv(tmp_path / "test.csv", index=False)
    model, fixed = str(tmp_path / "model"), ["--set", "kernel.lengthscale=1e4", "--set", "likelihood.noise_variance=1"]
    train = [str(tmp_path / "train.csv"), "--model", model, *QUICK, "--mean", "constant", *fixed]
    test = str(tmp_path / "test.csv")
    assert CliRunner().invoke(cli, ["fit", *train]).exit_code == 0
    score = CliRunner().invoke(cli, ["score", model, test, "--serial", "--json"], catch_exceptions=False)
    trust = json.loads(score.stdout)["trust"]
    assert trust.startswith("worse than a simple baseline: the root mean square error is 0.9")
    assert "(linear least squares); do not use it before you know why" in trust
    assert "can be trusted" not in trust
    assert trust in CliRunner().invoke(cli, ["score", model, test, "--serial"]).stdout.replace("\n", " ")
    out = ["--out", str(tmp_path / "report.html"), "--serial", "--json"]
    report = CliRunner().invoke(cli, ["report", model, test, *out], catch_exceptions=False)
    assert json.loads(report.stdout)["trust"] == trust


def test_estimators_refuse_what_they_are_told_to(flats):
    X, y = flats[["area", "quarter"]], flats.rent
    how = {"query": 20, "kernel": "se", "options": {"learn": False}}
    usual = GBCMRegressor(**how).fit(X, y)
    other = X.assign(quarter="west")
    with pytest.warns(BcmdistWarning, match="levels of 'quarter' in .* rows are not in the training data"):
        assert np.isfinite(usual.predict(other)).all()
    strict = GBCMRegressor(**how, missing="error", unseen="error").fit(X, y)
    np.testing.assert_array_equal(strict.predict(X), usual.predict(X))
    with pytest.raises(InvalidData, match="expected a level of training in 'quarter'"):
        strict.predict(other)
    with pytest.raises(
        InvalidData, match=r"X: expected a value in each row, got gaps in 'area' \(12\), 'quarter' \(1\)"
    ):
        GBCMRegressor(**how, missing="error").fit(gaps_in_inputs(flats)[["area", "quarter"]], y)


def test_dates_of_another_form_are_named_with_the_option_that_reads_them(flats, tmp_path):
    flats["built"] = flats.built.dt.strftime("%d.%m.%Y")
    flats.to_csv(tmp_path / "flats.csv", index=False)
    command = ["fit", str(tmp_path / "flats.csv"), "--model", str(tmp_path / "model"), *QUICK]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, command)
    assert "--date 'built=%d.%m.%Y' reads dates" in done.stderr
    again = CliRunner().invoke(cli, [*command[:3], str(tmp_path / "other"), *QUICK, "--date", "built=%d.%m.%Y"])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("target", [np.nan, None])
def test_later_rows_without_a_target_are_left_out(flats, tmp_path, target):
    flats.to_csv(tmp_path / "flats.csv", index=False)
    fit = ["fit", str(tmp_path / "flats.csv"), "--model", str(tmp_path / "model"), *QUICK, "--partition", "chunks"]
    assert CliRunner().invoke(cli, fit).exit_code == 0
    later = flats.assign(area=flats.area + 1.0)
    later.loc[[3, 9], "rent"] = target
    later.to_csv(tmp_path / "later.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, ["ingest", str(tmp_path / "model"), str(tmp_path / "later.csv"), "--serial"])
        scored = CliRunner().invoke(cli, ["score", str(tmp_path / "model"), str(tmp_path / "later.csv"), "--serial"])
    assert "2 rows left out: no value of 'rent'" in done.stderr
    assert GBCM.load(tmp_path / "model").info()["rows"] == 2 * ROWS - 2
    assert scored.exit_code == 0, scored.output


def test_negative_targets_are_refused_by_a_model_of_logarithms(flats, tmp_path):
    X, y = flats[["area"]], flats.rent
    made = GBCM.fit(X, y, Settings(target_transform="log", kernel="se", query=20, learn=False, partition="chunks"))
    with pytest.raises(UnsupportedTarget, match=r"expected targets of at least 0 .* the log of positive ones, got -3"):
        made.partial_fit(X[:5], y[:5].where(y.index[:5] != 2, -3.0))
    assert made.partial_fit(X[:5] + 1.0, y[:5].where(y.index[:5] != 2, 0.0)).info()["rows"] == ROWS + 5


def test_estimators_leave_out_what_numbers_the_rows(flats):
    X = flats[["area"]].assign(id=np.arange(ROWS) + 7)
    with pytest.warns(BcmdistWarning, match="X: 'id' not used: it numbers the rows"):
        made = GBCMRegressor(query=20, kernel="se", options={"learn": False}).fit(X, flats.rent)
    assert made.gbcm_.model.schema.columns == ("area",)
    np.testing.assert_array_equal(made.predict(X.assign(id=0)), made.predict(X))
    np.testing.assert_array_equal(made.predict(X[["area"]]), made.predict(X))
    for other in (X[["id"]], X.assign(more=0), X[["id", "area"]]):  # as scikit-learn refuses them
        with pytest.raises(ValueError, match="feature names should match"):
            made.predict(other)


def test_what_numbers_the_rows_is_used_where_nothing_else_is_there(flats, tmp_path):
    X = flats[["area"]].assign(id=np.arange(ROWS))[["id"]]
    made = GBCM.fit(X, flats.rent, Settings(kernel="se", query=20, learn=False))
    assert made.model.schema.columns == ("id",)
    with pytest.raises(InvalidDtype, match="texts in 'remark'"):
        GBCM.fit(remarks(X), flats.rent)
    remarks(X).assign(rent=flats.rent).to_csv(tmp_path / "flats.csv", index=False)
    done = CliRunner().invoke(cli, ["fit", str(tmp_path / "flats.csv"), "--model", str(tmp_path / "model"), *QUICK])
    assert (done.exit_code, "texts in 'remark'" in done.stderr) == (1, True)


@pytest.mark.parametrize("kind", [GBCMRegressor, GBCMClassifier])
def test_unknown_arguments_are_refused_by_the_name_of_the_estimator(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}.__init__\(\) got an unexpected keyword argument 'efort'"):
        kind(efort="quick")
