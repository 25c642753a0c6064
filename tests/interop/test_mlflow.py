"""MLflow's pyfunc models beside the committees that they hold."""

import numpy as np
import pytest

import bcmdist.mlflow
from bcmdist import GBCM, Settings
from bcmdist.errors import DataExists

mlflow = pytest.importorskip("mlflow", reason="MLflow: pip install 'bcmdist[interop]'")
pd = pytest.importorskip("pandas", reason="MLflow: pip install 'bcmdist[interop]'")

QUICK = Settings(query=20, learn=False, kernel="se", rows_per_expert=60, task="regression")


@pytest.fixture
def frame(rng):
    X = pd.DataFrame(rng.uniform(-2, 2, (200, 2)), columns=["east", "north"])
    return X, np.sin(X.east) + 0.1 * rng.standard_normal(200)


def test_mean_and_deviation(frame, tmp_path):
    X, y = frame
    gbcm = GBCM.fit(X, y, QUICK)
    bcmdist.mlflow.save_model(gbcm, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    told, said = loaded.predict(X.iloc[5:15]), gbcm.predict(X.iloc[5:15])
    assert list(told.columns) == ["mean", "std", "lower95", "upper95"]
    assert list(told.index) == list(range(5, 15))
    np.testing.assert_array_equal(told["mean"], said["observation_mean"])
    np.testing.assert_array_equal(told["std"], np.sqrt(said["observation_variance"]))
    assert loaded.metadata.signature.inputs.input_names() == ["east", "north"]


def test_arrays_and_classes(frame, tmp_path):
    X, y = frame
    labels = np.where(y > 0, "up", "down")
    gbcm = GBCM.fit(X.to_numpy(), labels, Settings(query=20, learn=False, kernel="se"))
    bcmdist.mlflow.save_model(gbcm, tmp_path / "saved")
    told = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(X.to_numpy()[:10])
    said = gbcm.predict(X.to_numpy()[:10])
    np.testing.assert_array_equal(told["label"], said["label"])
    np.testing.assert_array_equal(told[["probability_0", "probability_1"]], said["probability"])


def test_nothing_is_overwritten(frame, tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(DataExists, match="choose another name"):
        bcmdist.mlflow.save_model(GBCM.fit(*frame, QUICK), tmp_path)


@pytest.mark.filterwarnings("ignore")  # of MLflow, about what it has deprecated in itself
def test_logged_to_a_run(frame, tmp_path, monkeypatch):
    X, y = frame
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    gbcm = GBCM.fit(X, y, QUICK)
    with mlflow.start_run():
        logged = bcmdist.mlflow.log_model(gbcm, name="waves")
    told = mlflow.pyfunc.load_model(logged.model_uri).predict(X)
    np.testing.assert_array_equal(told["mean"], gbcm.predict(X)["observation_mean"])
