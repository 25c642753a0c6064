"""Rows that are sent to a service with the errors of their inputs, to a model fitted with such errors."""

import shutil

import numpy as np
import pytest
from services import asked, fitted, new_rows, send

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset

X = np.random.default_rng(8).uniform(-2, 2, (5, 2))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    return folder


@pytest.fixture
def noisy(tmp_path):
    """A service's folder with a model of rows whose inputs were seen with errors."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (40, 2))
    columns = {"X": X, "y": np.sin(2 * X[:, 0]) + X[:, 1], "X_variance": np.tile([0.04, 0.09], (40, 1))}
    write_dataset(tmp_path / "rows.zarr", columns)
    how = {"kernel": "se", "learn": False, "query": 10, "rows_per_expert": 40, "noisy_inputs": "clean"}
    GBCM.fit(tmp_path / "rows.zarr", Settings(**how), model=tmp_path / "models" / "wave")
    return tmp_path / "models"


@pytest.mark.parametrize("errors", [[0.04, 0.09], [[0.04, 0.03], [0.03, 0.09]]], ids=["variances", "covariances"])
def test_rows_come_with_the_errors_of_their_inputs(noisy, tmp_path, errors):
    rows = new_rows(rows=12)
    variance = np.tile(errors, (12, *[1] * np.ndim(errors)))
    columns = {"X": np.array(rows["X"]), "y": np.array(rows["y"]), "X_variance": variance}
    write_dataset(tmp_path / "more.zarr", columns)
    shutil.copytree(noisy / "wave", tmp_path / "alone")
    expected = GBCM.load(tmp_path / "alone").partial_fit(tmp_path / "more.zarr")
    with asked(noisy) as client:
        answer = send(client, rows | {"X_variance": variance.tolist()}, "a")
        assert answer.status_code == 200, answer.text
        again = send(client, rows | {"X_variance": (2 * variance).tolist()}, "a")
        assert again.status_code == 409
    np.testing.assert_allclose(
        GBCM.load(noisy / "wave").predict(X)["mean"], expected.predict(X)["mean"], rtol=1e-9, atol=1e-12
    )


def test_errors_of_inputs_are_refused_by_a_model_that_does_not_read_them(models, noisy):
    rows = new_rows(rows=3)
    with asked(models) as client:
        answer = send(client, rows | {"X_variance": [[0.1, 0.1]] * 3}, "a")
    assert answer.status_code == 422
    assert "X_variance: expected a model fitted with noisy inputs" in answer.text
    with asked(noisy) as client:
        assert send(client, rows | {"X_variance": [[0.1]] * 3}, "a").status_code == 422
        assert send(client, rows | {"X_variance": [[-0.1, 0.1]] * 3}, "b").status_code == 422
        assert send(client, rows, "c").status_code == 422
