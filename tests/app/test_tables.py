"""Tables straight to `fit`, `predict`, `score` and `ingest`: the same numbers as by way of `import`, and nothing that
is left where they are refused."""

import json
import os
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api import imported
from bcmdist.api.carry_out import check
from bcmdist.api.request_json import from_json, to_json
from bcmdist.api.requests import FitRequest
from bcmdist.app.cli.main import cli
from bcmdist.data.tables.options import TableOptions
from bcmdist.errors import BcmdistWarning, DataExists

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 120
QUICK = ["--query", "20", "--no-learn", "--kernel", "se", "--rows-per-expert", "40", "--task", "regression", "--serial"]
COLUMNS = ["--cyclic", "day=year", "--missing", "indicate", "--weight", "w", "--id", "site"]


@pytest.fixture(scope="module")
def table():
    """Sorted by its target, with a category, dates, gaps, names of rows and weights."""
    rng = np.random.default_rng(20261123)
    soil, age = rng.choice(["clay", "loam", "sand"], ROWS), rng.uniform(0, 6, ROWS)
    frame = pd.DataFrame({"site": [f"s{k}" for k in range(ROWS)], "soil": soil, "w": rng.integers(1, 3, ROWS)})
    frame["day"] = np.datetime64("2026-01-01") + rng.integers(0, 300, ROWS)
    frame["age"] = np.where(np.arange(ROWS) % 11 == 0, np.nan, age)
    frame["price"] = np.sin(age) + (soil == "clay") + 0.1 * rng.standard_normal(ROWS)
    assert frame.shape == (ROWS, 6)
    return frame.sort_values("price", ignore_index=True)


def bcmdist(*arguments, fails=False):
    """Figures of a command, or the class and text of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zones, and of columns that are not used
        done = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert (done.exit_code != 0) == fails, done.output
    if fails:
        _, error, message = done.stderr.strip().splitlines()[-1].split(": ", 2)
        return {"error": error, "message": message}
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    """A directory with a table, and a model of it."""
    place = tmp_path_factory.mktemp("fitted")
    table.to_parquet(place / "a.parquet", index=False)
    bcmdist("fit", place / "a.parquet", "--y", "price", "--model", place / "model", *COLUMNS, *QUICK)
    return place


def test_a_fit_is_that_of_an_import(fitted, table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    bcmdist("import", tmp_path / "a.csv", tmp_path / "a.zarr", "--y", "price", *COLUMNS)
    by_hand = bcmdist("fit", tmp_path / "a.zarr", "--model", tmp_path / "model", *QUICK)
    info = bcmdist("info", fitted / "model")
    assert info["columns"] == by_hand["columns"]
    assert info["log_evidence"] == pytest.approx(by_hand["log_evidence"], rel=1e-10)  # the same numbers
    assert info["coded"]["soil"] == "category of 3 levels"
    assert sorted(os.listdir(fitted / "model.data")) == ["a.parquet.zarr"]


def test_a_category_has_one_lengthscale(table, tmp_path):
    """As it is given, one a column, and as it is told: of all its levels, by the name of the column."""
    table[["soil", "w", "price"]].to_csv(tmp_path / "a.csv", index=False)
    model, given = tmp_path / "model", ["--set", "kernel.lengthscale=0.7,2.0"]
    bcmdist("fit", tmp_path / "a.csv", "--y", "price", "--model", model, *QUICK, *given)
    info = bcmdist("info", model)
    assert info["columns"] == ["soil=clay", "soil=loam", "soil=sand", "w"]
    assert info["hyperparameters"]["kernel.lengthscale"] == [0.7, 0.7, 0.7, 2.0]
    assert info["lengthscales"] == {"kernel.lengthscale": {"soil": 0.7, "w": 2.0}}
    said = CliRunner().invoke(cli, ["info", str(model)], catch_exceptions=False).stdout
    assert "kernel.lengthscale (soil 0.7, w 2)" in said


def test_the_same_fit_again_goes_on_with_its_rows(fitted):
    command = ["fit", fitted / "a.parquet", "--y", "price", "--model", fitted / "model", *QUICK]
    before = GBCM.load(fitted / "model").commit
    assert bcmdist(*command, *COLUMNS)["commit"] == before
    error = bcmdist(*command, "--missing", "indicate", fails=True)
    assert error["error"] == "DataExists"
    assert "of which" in error["message"]


def predicted(fitted, frame, out, *more):
    """Means for a frame, by way of a .csv file."""
    frame.to_csv(out.with_suffix(".new.csv"), index=False)
    bcmdist("predict", fitted / "model", out.with_suffix(".new.csv"), "--out", out, "--serial", *more)
    return pd.read_csv(out)


def test_predictions_of_another_order_and_of_one_row(fitted, table, tmp_path):
    whole = predicted(fitted, table, tmp_path / "a.csv", "--id", "site")
    swapped = predicted(fitted, table[["age", "day", "soil"]], tmp_path / "b.csv")
    np.testing.assert_allclose(whole["mean"], swapped["mean"], rtol=1e-9)  # of texts of numbers
    assert whole["site"].tolist() == table.site.tolist()
    some = table[["age", "day", "soil"]].iloc[[7, 11]]
    np.testing.assert_allclose(predicted(fitted, some, tmp_path / "c.csv")["mean"], whole["mean"].iloc[[7, 11]], 1e-9)


def test_names_of_rows_that_are_formulas_are_escaped(fitted, table, tmp_path):
    named = table.assign(site=[f"=1+{k}" for k in range(len(table))])
    assert predicted(fitted, named, tmp_path / "a.csv", "--id", "site")["site"].tolist() == named.site.tolist()
    safe = predicted(fitted, named, tmp_path / "b.csv", "--id", "site", "--csv-safe")
    assert safe["site"].tolist() == [f"'{name}" for name in named.site]
    new, out = tmp_path / "a.new.csv", tmp_path / "c.parquet"
    error = bcmdist("predict", fitted / "model", new, "--out", out, "--serial", "--csv-safe", fails=True)
    assert "--csv-safe: expected --out FILE.csv" in error["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda f: f.drop(columns="soil"), "InvalidData", "'soil' not found among"),
        (lambda f: f.assign(soil="peat"), "InvalidData", "got 'peat' at row 0 (120 such rows); correct it, or fit"),
        (lambda f: f.assign(day="soon"), "InvalidData", "in 'day', got 'soon' at row 0"),
        (lambda f: f.assign(age="old"), "InvalidDtype", "texts in 'age' (all cells, the first 'old' at row 0)"),
        (lambda f: f.assign(soil=None), "InvalidData", "each row of 'soil', got nan at row 0"),
    ],
)
def test_what_cannot_be_predicted_is_named_and_leaves_nothing(change, error, text, fitted, table, tmp_path):
    change(table).to_csv(tmp_path / "new.csv", index=False)
    before = sorted(os.listdir(fitted))
    for command in (["predict", "--out", tmp_path / "p.csv"], ["score"], ["ingest"]):
        command += ["--unseen", "error"]
        said = bcmdist(command[0], fitted / "model", tmp_path / "new.csv", *command[1:], "--serial", fails=True)
        assert said["error"] == error
        assert text in said["message"]
    assert os.listdir(tmp_path) == ["new.csv"]
    assert sorted(os.listdir(fitted)) == before
    assert os.listdir(fitted / "model.data") == ["a.parquet.zarr"]


def test_a_frame_is_coded_as_its_file(fitted, table, tmp_path):
    by_file = predicted(fitted, table, tmp_path / "a.csv")
    gbcm = GBCM.load(fitted / "model")
    said = gbcm.predict(table[["day", "age", "soil"]].astype({"soil": "category"}))
    np.testing.assert_allclose(said["mean"], by_file["mean"], rtol=1e-9)  # of texts of numbers
    other = predicted(fitted, table.assign(soil="peat"), tmp_path / "b.csv")
    with pytest.warns(BcmdistWarning, match="levels of 'soil' in .* rows are not in the training data"):
        found = gbcm.predict(table.assign(soil="peat"))
    np.testing.assert_allclose(found["variance"], other["variance"], rtol=1e-9)


def test_a_check_leaves_nothing(table, tmp_path):
    """As before a job is submitted, which will import the file itself; options travel as JSON."""
    table.to_csv(tmp_path / "a.csv", index=False)
    options = TableOptions(missing="drop", category=["site"], cyclic=["day=week"])
    request = FitRequest(str(tmp_path / "a.csv"), str(tmp_path / "model"), Settings(y="price"), table=options)
    assert from_json(json.loads(json.dumps(to_json(request)))) == request
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zones and gaps
        check(request)
    assert os.listdir(tmp_path) in (["a.csv"], ["a.csv", "model"], ["model", "a.csv"])


def test_a_level_of_its_own_is_less_certain(fitted, table, tmp_path):
    known = predicted(fitted, table.assign(soil="loam"), tmp_path / "a.csv")
    other = predicted(fitted, table.assign(soil="peat"), tmp_path / "b.csv", "--unseen", "other")
    assert np.all(other["variance"] > 0)
    assert other["variance"].mean() > known["variance"].mean()


def test_scores_of_a_table(fitted, table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    of_zarr = bcmdist("score", fitted / "model", fitted / "model.data" / "a.parquet.zarr", "--serial")
    of_file = bcmdist("score", fitted / "model", tmp_path / "a.csv", "--serial")
    assert of_file["rows"] == ROWS
    assert of_file["rmse"] == pytest.approx(of_zarr["rmse"], rel=1e-9)
    assert sorted(os.listdir(fitted)) == ["a.parquet", "model", "model.data"]


@pytest.mark.slow
def test_a_report_on_a_table(fitted, table, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")
    table.to_csv(tmp_path / "a.csv", index=False)
    told = bcmdist("report", fitted / "model", tmp_path / "a.csv", "--out", tmp_path / "a.html", "--serial")
    of_zarr = bcmdist("score", fitted / "model", fitted / "model.data" / "a.parquet.zarr", "--serial")
    assert told["rows"] == ROWS
    assert told["scores"]["rmse"] == pytest.approx(of_zarr["rmse"], rel=1e-9)
    assert (tmp_path / "a.html").is_file()
    assert sorted(os.listdir(fitted)) == ["a.parquet", "model", "model.data"]


@pytest.mark.slow
def test_a_table_is_ingested_once(table, tmp_path):
    first, later = table[::2], table[1::2]
    first.to_csv(tmp_path / "first.csv", index=False)
    later.to_csv(tmp_path / "later.csv", index=False)
    model = tmp_path / "model"
    bcmdist("fit", tmp_path / "first.csv", "--y", "price", "--model", model, *COLUMNS, *QUICK)
    assert bcmdist("ingest", model, tmp_path / "later.csv", "--serial")["rows"] == len(later)
    again = bcmdist("ingest", model, tmp_path / "later.csv", "--serial")
    assert (again["rows"], again["duplicates"]) == (0, 2)
    assert bcmdist("info", model)["rows"] == ROWS
    later[:10].to_csv(tmp_path / "later.csv", index=False)
    assert bcmdist("ingest", model, tmp_path / "later.csv", "--serial", fails=True)["error"] == "DataExists"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (["--y", "no"], "DataNotFound", "expected a column 'no'"),
        (["--y", "price", "--cyclic", "day=moon"], "InvalidOption", "expected day, week, year, got 'moon'"),
        (["--y", "price", "--cyclic", "day"], "InvalidOption", "--cyclic: expected COLUMN=VALUE, got 'day'"),
        (["--y", "price", "--x", "age,Z"], "DataNotFound", "expected a column 'Z', found"),
        (["--y", "price", "--drop", "site", "--missing", "drop", "--task", "counts"], "UnsupportedTarget", "counts"),
    ],
)
def test_a_refused_fit_leaves_nothing(arguments, error, text, table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    said = bcmdist("fit", tmp_path / "a.csv", "--model", tmp_path / "model", "--serial", *arguments, fails=True)
    assert (said["error"], text in said["message"]) == (error, True), said
    assert [name for name in os.listdir(tmp_path) if name != "model"] == ["a.csv"]


def test_options_of_tables_are_for_tables(fitted, tmp_path):
    data = fitted / "model.data" / "a.parquet.zarr"
    for command in (
        ["fit", data, "--model", tmp_path / "m", "--drop", "age"],
        ["score", fitted / "model", data, "--unseen", "other"],
        ["ingest", fitted / "model", data, "--unseen", "other"],
        ["predict", fitted / "model", data, "--unseen", "other", "--out", tmp_path / "p.zarr"],
    ):
        assert "expected a file with --" in bcmdist(*command, "--serial", fails=True)["message"]


def test_options_from_a_file(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    config = 'y = "price"\nmissing = "drop"\ndrop = ["site", "w"]\nquery = 20\nlearn = false\nkernel = "se"\n'
    (tmp_path / "c.toml").write_text(config)
    how = ["--config", tmp_path / "c.toml", "--serial"]
    figures = bcmdist("fit", tmp_path / "a.csv", "--model", tmp_path / "model", *how)
    assert figures["columns"] == ["soil=clay", "soil=loam", "soil=sand", "day", "age"]
    (tmp_path / "c.toml").write_text('drop = "site"\n')
    error = bcmdist("fit", tmp_path / "a.csv", "--model", tmp_path / "other", *how, fails=True)
    assert "expected a list of texts for drop" in error["message"]


def test_the_import_of_another_process_stays(table, tmp_path, monkeypatch):
    """Two fits of one file begin together: the second one is refused, and removes nothing of the first."""

    def after_another(file, place, **how):
        import_file(file, place, **how)
        raise DataExists(f"{place}: expected a new directory")

    import_file = imported.import_file
    monkeypatch.setattr(imported, "import_file", after_another)
    table.to_csv(tmp_path / "a.csv", index=False)
    found = bcmdist("fit", tmp_path / "a.csv", "--y", "price", "--model", tmp_path / "m", *COLUMNS, *QUICK, fails=True)
    assert found["error"] == "DataExists"
    assert os.listdir(tmp_path / "m.data") == ["a.csv.zarr"]
