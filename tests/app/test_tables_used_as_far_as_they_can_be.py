"""Tables as people have them: the default options use what can be used and say so; `--strict` refuses."""

import json
import re
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM
from bcmdist.app.cli.main import cli
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistWarning

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
