"""Inputs that a data set says are uncertain: predicted, scored and refused as users meet them."""

import json

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.schema import Schema
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidOption

pytestmark = pytest.mark.slow
SETTINGS = {"partition": "chunks", "query": 40, "rows_per_expert": 60, "kernel": "se", "effort": "quick"}
VARIANCE = np.array([0.04, 0.09])


@pytest.fixture
def fitted(wave, tmp_path):
    path, X, _ = wave
    return GBCM.fit(path, Settings(**SETTINGS), model=str(tmp_path / "model")), X


def stored(tmp_path, X, variance, name="new.zarr", **more):
    path = str(tmp_path / name)
    write_dataset(path, {"X": X, **more}, rows_per_chunk=50)
    zarr.open_group(path, mode="r+").create_array("X_variance", data=variance, chunks=(50, *variance.shape[1:]))
    return path


@pytest.mark.parametrize("way", ["exact", "taylor", "montecarlo"])
def test_a_data_set_is_predicted_as_its_rows_are(fitted, tmp_path, cluster, way):
    gbcm, X = fitted
    variance = np.tile(VARIANCE, (len(X), 1))
    expected = gbcm.predict(X, X_variance=variance, inputs=way)
    path = stored(tmp_path, X, variance)
    gbcm.predict_zarr(path, str(tmp_path / "serial"), inputs=way)
    gbcm.predict_zarr(path, str(tmp_path / "dask"), inputs=way, runtime=cluster)
    for out in ("serial", "dask"):
        said = zarr.open_group(str(tmp_path / out))
        # blocks of other sizes round otherwise, and second differences by steps of a hundredth lose four digits
        np.testing.assert_allclose(said["observation_variance"][...], expected["observation_variance"], rtol=1e-8)
        np.testing.assert_allclose(said["mean"][...], expected["mean"], rtol=1e-10)


def test_covariances_and_variances_say_the_same(fitted):
    gbcm, X = fitted
    one = gbcm.predict(X, X_variance=np.tile(VARIANCE, (len(X), 1)))
    other = gbcm.predict(X, X_variance=np.tile(np.diag(VARIANCE), (len(X), 1, 1)))
    np.testing.assert_allclose(one["variance"], other["variance"], rtol=1e-12)


def test_scores_are_better_than_with_inputs_taken_for_certain(fitted, tmp_path, rng):
    """Noisy copies of the inputs, with their true noise: intervals that know of it hold what they should."""
    gbcm, _ = fitted
    new = rng.uniform(-2, 2, (500, 2))
    y = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1] + 0.1 * rng.standard_normal(500)
    seen = new + np.sqrt(VARIANCE) * rng.standard_normal(new.shape)
    path = stored(tmp_path, seen, np.tile(VARIANCE, (500, 1)), y=y)
    write_dataset(str(tmp_path / "certain.zarr"), {"X": seen, "y": y}, rows_per_chunk=50)
    known, certain = gbcm.score(path), gbcm.score(str(tmp_path / "certain.zarr"))
    assert known["mnlp"] < certain["mnlp"] - 1.0
    assert certain["coverage95"] < 0.5
    assert 0.9 < known["coverage95"] < 0.99


def test_columns_in_another_order_take_their_variances_along(tmp_path, rng):
    X = rng.uniform(-2, 2, (200, 2))
    path = str(tmp_path / "named.zarr")
    write_dataset(path, {"X": X, "y": np.sin(2 * X[:, 0])}, rows_per_chunk=50, schema=Schema(("a", "b")))
    gbcm = GBCM.fit(path, Settings(**SETTINGS), model=str(tmp_path / "model"))
    swapped = str(tmp_path / "swapped.zarr")
    write_dataset(swapped, {"X": X[:, ::-1]}, rows_per_chunk=50, schema=Schema(("b", "a")))
    full = np.tile(np.array([[0.09, 0.02], [0.02, 0.04]]), (200, 1, 1))
    zarr.open_group(swapped, mode="r+").create_array("X_variance", data=full, chunks=(50, 2, 2))
    gbcm.predict_zarr(swapped, str(tmp_path / "out"))
    expected = gbcm.predict(X, X_variance=full[:, ::-1, ::-1])
    np.testing.assert_allclose(
        zarr.open_group(str(tmp_path / "out"))["variance"][...], expected["variance"], rtol=1e-10
    )


def test_local_predictions_average_over_draws(wave, tmp_path):
    path, X, _ = wave
    settings = Settings(**SETTINGS | {"partition": "spatial"})
    gbcm = GBCM.fit(path, settings, model=str(tmp_path / "model"))
    X = X[::12]
    variance = np.tile(VARIANCE, (len(X), 1))
    plain, drawn = gbcm.predict(X), gbcm.predict(X, X_variance=variance)
    assert drawn["variance"].mean() > 2 * plain["variance"].mean()
    new = stored(tmp_path, X, variance)
    gbcm.predict_zarr(new, str(tmp_path / "out"))
    np.testing.assert_allclose(zarr.open_group(str(tmp_path / "out"))["mean"][...], drawn["mean"], rtol=1e-9)
    with pytest.raises(InvalidOption, match=r"committee alone.*montecarlo or taylor, or --method committee"):
        gbcm.predict(X, X_variance=variance, inputs="exact")
    gbcm.predict(X, X_variance=variance, inputs="exact", method="committee")


BAD = {
    "shape": (np.ones((240, 3)), r"expected X_variance with shape \(240, 2\)"),
    "negative": (np.r_[np.ones((70, 2)), -np.ones((170, 2))], r"at row 70 \(chunk 1\)"),
    "nan": (np.full((240, 2), np.nan), "at row 0"),
    "indefinite": (np.tile([[1.0, 2.0], [2.0, 1.0]], (240, 1, 1)), "positive semi-definite"),
}


@pytest.mark.parametrize("case", BAD)
def test_variances_that_are_none(fitted, tmp_path, case):
    gbcm, X = fitted
    variance, said = BAD[case]
    path = stored(tmp_path, X, variance)
    with pytest.raises(InvalidData, match=said):
        gbcm.predict_zarr(path, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidData, match="X_variance"):
        gbcm.predict(X, X_variance=variance)


def test_ways_that_cannot_be_had(fitted, wave, tmp_path):
    gbcm, X = fitted
    variance = np.tile(VARIANCE, (len(X), 1))
    with pytest.raises(InvalidOption, match="expected X_variance with 'exact'"):
        gbcm.predict(X, inputs="exact")
    with pytest.raises(InvalidOption, match="expected an array X_variance beside X"):
        gbcm.predict_zarr(wave[0], str(tmp_path / "out"), inputs="taylor")
    with pytest.raises(InvalidOption, match="expected exact, taylor, montecarlo, got 'other'"):
        gbcm.predict(X, X_variance=variance, inputs="other")
    rough = GBCM.fit(wave[0], Settings(**SETTINGS | {"kernel": "matern12"}), model=str(tmp_path / "rough"))
    with pytest.raises(InvalidOption, match="kernel with slopes"):
        rough.predict(X, X_variance=variance, inputs="taylor")
    with pytest.raises(InvalidOption, match="expected kernels se and linear, sums of these"):
        rough.predict(X, X_variance=variance, inputs="exact")
    rough.predict(X, X_variance=variance)  # by draws


def test_command_line(fitted, tmp_path):
    gbcm, X = fitted
    path = stored(tmp_path, X, np.tile(VARIANCE, (len(X), 1)))
    out = str(tmp_path / "out.zarr")
    done = CliRunner().invoke(
        cli, ["predict", gbcm.snapshot.url, path, "--out", out, "--inputs", "taylor", "--serial", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == len(X)
    expected = gbcm.predict(X, X_variance=np.tile(VARIANCE, (len(X), 1)), inputs="taylor")
    np.testing.assert_allclose(zarr.open_group(out)["variance"][...], expected["variance"], rtol=1e-8)
