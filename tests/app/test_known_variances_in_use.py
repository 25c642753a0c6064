"""Known error variances of targets by every door: tables on the command line, requests, the service, grids, streams."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from services import asked, send

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.data.entries import encode
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.writing import append_rows
from bcmdist.errors import InvalidData
from problems import assert_as_in_its_ledger

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
xr = pytest.importorskip("xarray", reason="grids: pip install 'bcmdist[grids]'")

QUICK = [
    "--query",
    "20",
    "--no-learn",
    "--kernel",
    "se",
    "--rows-per-expert",
    "50",
    "--partition",
    "chunks",
    "--serial",
]
GIVEN = Settings(query=20, learn=False, kernel="se", rows_per_expert=50, partition="chunks")


def made(seed, rows=150):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.uniform(0, 10, rows), "err2": np.where(rng.random(rows) < 0.6, 4.0, 0.01)})
    frame["y"] = np.sin(frame.x) + np.sqrt(frame.err2) * rng.standard_normal(rows)
    return frame


def bcmdist(*arguments, fails=False):
    """Figures of a command, or the class and text of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert (done.exit_code != 0) == fails, done.output
    return done.stderr.strip() if fails else json.loads(done.stdout) | {"stderr": done.stderr}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model of a table with a column of variances, and further tables."""
    place = tmp_path_factory.mktemp("known")
    for seed, name in enumerate(("a", "more", "test")):
        made(seed).to_csv(place / f"{name}.csv", index=False)
    bcmdist("fit", place / "a.csv", "--y", "y", "--target-variance", "err2", "--model", place / "models" / "m", *QUICK)
    return place


@pytest.fixture(scope="module")
def model(place):
    return place / "models" / "m"


def test_a_table_is_its_arrays(place, model):
    frame = made(0)
    gbcm = GBCM.fit(frame[["x"]].to_numpy(), frame.y, GIVEN, companions={"target_variance": frame.err2})
    Z = np.linspace(0, 10, 9)[:, None]
    np.testing.assert_allclose(GBCM.load(model).predict(Z)["mean"], gbcm.predict(Z)["mean"], rtol=1e-9)
    found = bcmdist("info", model)
    assert found["companions"] == ["target_variance"]
    assert found["columns"] == ["x"]


def test_scores_and_later_rows_read_the_column_of_training(place, model, tmp_path):
    test = made(2)
    found = bcmdist("score", model, place / "test.csv")
    own = GBCM.load(model).score(test[["x"]], test.y, companions={"target_variance": test.err2})
    assert found["mnlp"] == pytest.approx(own["mnlp"], rel=1e-9)
    assert found["weighted_rmse"] < found["rmse"]
    bcmdist("fit", place / "a.csv", "--y", "y", "--target-variance", "err2", "--model", tmp_path / "m", *QUICK)
    bcmdist("ingest", tmp_path / "m", place / "more.csv", "--serial")
    assert bcmdist("info", tmp_path / "m")["rows"] == 300
    test.drop(columns="err2").to_csv(tmp_path / "without.csv", index=False)
    for command in ("score", "ingest"):
        error = bcmdist(command, model, tmp_path / "without.csv", fails=True)
        assert "DataNotFound" in error
        assert "expected a column 'err2'" in error


def test_predictions_of_observations_with_and_without(place, model, tmp_path):
    plain = bcmdist("predict", model, place / "test.csv", "--out", tmp_path / "plain.csv")
    assert "observations with the learned noise only; give --target-variance NAME" in plain["stderr"]
    bcmdist("predict", model, place / "test.csv", "--target-variance", "err2", "--out", tmp_path / "own.csv")
    one, other = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("plain", "own"))
    np.testing.assert_allclose(other.observation_variance, one.observation_variance + one.err2, rtol=1e-9)
    np.testing.assert_array_equal(one["mean"], other["mean"])
    error = bcmdist("predict", model, tmp_path, "--target-variance", "e", "--out", tmp_path / "no.csv", fails=True)
    assert "expected a file with --id" in error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "expected variances of errors, at least 0, in 'err2', got -1 at row 7"),
        ("abc", "expected numbers, got texts in 'err2' (1 of 150 cells, the first 'abc' at row 7)"),
        (None, "in each row of 'err2', got nan at row 7"),
    ],
)
def test_bad_values_name_row_and_column(tmp_path, value, text):
    frame = made(0).astype({"err2": object})
    frame.loc[7, "err2"] = value
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["fit", tmp_path / "a.csv", "--y", "y", "--target-variance", "err2", "--model", tmp_path / "m", "--strict"]
    assert text in bcmdist(*words, *QUICK, fails=True)
    assert not (tmp_path / "m").exists()


def test_a_column_of_that_name_is_no_role_by_itself(tmp_path):
    made(0).rename(columns={"err2": "target_variance"}).to_csv(tmp_path / "a.csv", index=False)
    found = bcmdist("fit", tmp_path / "a.csv", "--y", "y", "--model", tmp_path / "m", *QUICK)
    assert "give --target-variance target_variance if it is the target variance of rows" in found["stderr"]


def test_a_fit_like_another_needs_the_column(place, model, tmp_path):
    bcmdist("fit", place / "more.csv", "--like", model, "--model", tmp_path / "like", "--serial")
    merged = bcmdist("merge", model, tmp_path / "like", "--model", tmp_path / "both")
    assert merged["rows"] == 300
    assert bcmdist("info", tmp_path / "both")["companions"] == ["target_variance"]


def test_the_service(place):
    test = made(2, rows=5)
    X = test[["x"]].to_numpy()
    with asked(place / "models") as client:
        body = {"X": X.tolist(), "columns": ["x"]}
        plain = client.post("/models/m/predict", json=body).json()["predictions"]
        own = client.post("/models/m/predict", json=body | {"target_variance": test.err2.tolist()}).json()
        gap = np.array(own["predictions"]["observation_variance"]) - plain["observation_variance"]
        np.testing.assert_allclose(gap, test.err2, rtol=1e-9)
        assert client.post("/models/m/predict", json=body | {"target_variance": -1.0}).status_code == 422
        rows = body | {"y": test.y.tolist()}
        for bad, text in (({}, "as in training, got none"), ({"target_variance": [-1.0] * 5}, "at least 0")):
            answer = send(client, rows | bad, "one", name="m")
            assert answer.status_code == 422, answer.text
            assert text in answer.text
        answer = send(client, rows | {"target_variance": test.err2.tolist()}, "two", name="m")
        assert answer.status_code in (200, 201, 202), answer.text


def test_cells_of_a_grid(rng):
    import bcmdist.xarray  # noqa: F401

    x, z = np.linspace(0, 10, 15), np.linspace(0, 3, 8)
    err2 = np.where(rng.random((8, 15)) < 0.5, 4.0, 0.01)
    y = np.sin(x) + z[:, None] + np.sqrt(err2) * rng.standard_normal((8, 15))
    data = xr.Dataset({"y": (("z", "x"), y), "err2": (("z", "x"), err2)}, {"x": x, "z": z})
    gbcm = data.bcm.fit("y", ["x", "z"], GIVEN, companions={"target_variance": "err2"})
    assert gbcm.info()["companions"] == ["target_variance"]
    assert set(data[["x", "z"]].bcm.predict(gbcm)) >= {"y"}


def test_rows_that_arrive_have_their_variances(tmp_path, rng):
    X, t = rng.uniform(0, 10, (100, 1)), rng.uniform(0, 1, 100)
    y = np.sin(X[:, 0])
    append_rows(tmp_path / "stream.zarr", X[:50], y[:50], target_variance=t[:50], rows_per_chunk=50)
    gbcm = GBCM.fit(tmp_path / "stream.zarr", GIVEN, model=tmp_path / "m")
    append_rows(tmp_path / "stream.zarr", X[50:], y[50:], target_variance=t[50:], rows_per_chunk=50)
    bcmdist("ingest", tmp_path / "m", tmp_path / "stream.zarr", "--serial")
    gbcm = GBCM.load(tmp_path / "m")
    assert_as_in_its_ledger(gbcm)
    assert gbcm.info()["rows"] == 100
    rows = [one for _, one in read_all(partitions(open_data(tmp_path / "stream.zarr"), 50))]
    np.testing.assert_array_equal(np.concatenate([one.obs.target_variance for one in rows]), t)
    assert encode(X, y, target_variance=t)
    append_rows(tmp_path / "bad.zarr", X, y, target_variance=-t, rows_per_chunk=50)
    with pytest.raises(InvalidData, match=r"bad.zarr: expected variances of errors, at least 0, in target_variance"):
        gbcm.absorb(partitions(open_data(tmp_path / "bad.zarr"), 50))
