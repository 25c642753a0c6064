"""What users import checks under `mypy --strict`, without stubs and without ignoring anything, and has exact types."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="type checks: pip install '.[dev]'")

SCRIPT = """
import numpy as np
import xarray as xr

import bcmdist.xarray
from bcmdist import GBCM, GBCMClassifier, GBCMRegressor, DaskRuntime, Settings, open_data
from bcmdist.client import Client

X = np.zeros((10, 2))
y = np.zeros(10)
settings = Settings(query=20, kernel="se", partition="spatial", task="regression")
gbcm = GBCM.fit(X, y, settings, model="model")
found = gbcm.predict(X)
mean: np.ndarray = found["mean"]
advice: str = gbcm.info()["advice"]
regressor = GBCMRegressor(effort="quick", partition="auto").fit(X, y)
regressor.partial_fit(X, y)
means = regressor.predict(X)
classes = GBCMClassifier().fit(X, y).predict_proba(X)
data = xr.Dataset({"t": (("x",), y)})
field: xr.Dataset = bcmdist.xarray.predict(data, gbcm, latent=True)
filled: xr.Dataset = bcmdist.xarray.fill(data, "model")
names: list[str] = Client("http://127.0.0.1:8000").models()
rows: int = open_data("train.zarr").rows
with DaskRuntime(workers=2) as runtime:
    GBCM.fit("train.zarr", settings, runtime=runtime)
"""


TYPED = """
from typing import Any, assert_type

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import bcmdist.xarray
from bcmdist import GBCM, GBCMClassifier, GBCMCountRegressor, GBCMLifetimeRegressor, GBCMRegressor, Mixture, Settings
from bcmdist import SerialRuntime, sample_posterior


class Frame:
    columns = ("a", "b")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.zeros((10, 2), dtype)


Floats = NDArray[np.float64]
X, y, frame = np.zeros((10, 2)), np.zeros(10), Frame()
regressor = assert_type(GBCMRegressor(random_state=1).fit(frame, y, X_std={"a": 0.1}), GBCMRegressor)
assert_type(regressor.gbcm_, GBCM)
assert_type(regressor.partial_fit([[0.0, 1.0]], [2.0], sample_weight=y), GBCMRegressor)
assert_type(regressor.predict(X), Floats)
assert_type(regressor.predict(frame, return_std=True), tuple[Floats, Floats])
assert_type(regressor.predict(X, return_cov=True), tuple[Floats, Floats])
assert_type(regressor.predict(X, quantiles=[0.05, 0.95]), Floats)
assert_type(regressor.predict_interval(X, 0.9, target_variance=0.1), Floats)
assert_type(regressor.sample_y(X, 3, random_state=np.random.RandomState(0)), Floats)
assert_type(regressor.score(X, y), float)
assert_type(GBCMCountRegressor().fit(X, y, exposure=y).predict(X, return_std=True), tuple[Floats, Floats])
assert_type(GBCMLifetimeRegressor().fit(X, y, event=y).predict(X), Floats)
classifier = assert_type(GBCMClassifier().fit(X, ["a", "b"]), GBCMClassifier)
assert_type(classifier.predict_proba(X), Floats)
assert_type(classifier.predict_terms(X), dict[str, NDArray[Any]])

settings = Settings(kernel="auto", query="auto", effort="quick", partition="chunks", seed=3)
gbcm = assert_type(GBCM.fit(frame, y, settings, companions={"weight": y}, model="model"), GBCM)
assert_type(GBCM.fit("train.zarr", settings, runtime=SerialRuntime()), GBCM)
assert_type(gbcm.partial_fit(X, y, same_rows="allow"), GBCM)
assert_type(gbcm.ingest("more.zarr")[0], GBCM)
assert_type(gbcm.predict(X, method="local", inputs="exact", quantiles=(0.1,)), dict[str, NDArray[Any]])
assert_type(gbcm.predict_joint(X), tuple[Floats, Floats])
assert_type(gbcm.sample(X, size=2), Floats)
assert_type(gbcm.predict_zarr("new.zarr", "out.zarr", of="observations"), int)
assert_type(gbcm.score(X, y), dict[str, Any])
assert_type(gbcm.cross_validate("test.zarr", by="group:a").rows, int)
assert_type(gbcm.lengthscales()[0].share, Floats)
mixture = assert_type(sample_posterior("train.zarr", settings, samples=10), Mixture)
assert_type(sample_posterior((X, y), settings), Mixture)
assert_type(mixture.merge("other", "merged").predict(X), dict[str, NDArray[Any]])
data = xr.Dataset({"t": (("x",), y)})
assert_type(bcmdist.xarray.fit(data, "t", ["x"], settings), GBCM)
assert_type(bcmdist.xarray.predict(data, gbcm), xr.Dataset)
"""


MISTAKES = {
    'Settings(query="many")': "incompatible type",
    'GBCM.fit(X, y, settings, modle="m")': "modle",
    'Client("u").predict(3, X)': "incompatible type",
    "gbcm.predict(X, inputs='exakt')": "incompatible type",
    "gbcm.partial_fit(X, y, same_rows='accept')": "incompatible type",
    "regressor.fit(X)": "Missing positional argument",
    "regressor.predict(X, return_std='yes')": "No overload variant",
    "GBCMRegressor(effort='slow')": "incompatible type",
}


@pytest.mark.slow
def test_scripts_of_users_check_and_their_mistakes_are_found(tmp_path):
    """Both at once: each run of mypy reads the package."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "typed.py").write_text(TYPED)
    (tmp_path / "mistakes.py").write_text("\n".join([SCRIPT, *MISTAKES]))
    root = Path(__file__).parents[2]
    how = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    command = [sys.executable, "-m", "mypy", *how, "script.py", "typed.py", "mistakes.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"MYPYPATH": str(root)})
    found = [
        re.match(r"mistakes\.py:(\d+): error: (.*)", line) for line in done.stdout.splitlines() if "note:" not in line
    ]
    first = SCRIPT.count("\n") + 2
    assert all(found), done.stdout + done.stderr
    assert {int(one[1]) for one in found} == set(range(first, first + len(MISTAKES))), done.stdout
    for line, message in enumerate(MISTAKES.values(), first):
        assert any(message in one[2] for one in found if int(one[1]) == line), done.stdout


@pytest.mark.slow
def test_a_script_of_a_user_checks_in_editors(tmp_path):
    """Pyright, which editors run, also asks for the types of all parameters of a function that is called."""
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("npm install pyright, or pip install pyright")
    (tmp_path / "script.py").write_text(SCRIPT)
    about = {"typeCheckingMode": "strict", "extraPaths": [str(Path(__file__).parents[2])], "include": ["script.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(about))
    command = [pyright, "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
