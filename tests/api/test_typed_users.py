"""What users import checks under `mypy --strict`, without stubs and without ignoring anything."""

import json
import re
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


MISTAKES = {
    'Settings(query="many")': "incompatible type",
    'GBCM.fit(X, y, settings, modle="m")': "modle",
    'Client("u").predict(3, X)': "incompatible type",
}


@pytest.mark.slow
def test_a_script_of_a_user_checks_and_its_mistakes_are_found(tmp_path):
    """Both at once: each run of mypy reads the package."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mistakes.py").write_text("\n".join([SCRIPT, *MISTAKES]))
    root = Path(__file__).parents[2]
    how = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    command = [sys.executable, "-m", "mypy", *how, "script.py", "mistakes.py"]
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
    pyright = pytest.importorskip("pyright.cli", reason="pip install pyright; it fetches Node.js")
    (tmp_path / "script.py").write_text(SCRIPT)
    about = {"typeCheckingMode": "strict", "extraPaths": [str(Path(__file__).parents[2])], "include": ["script.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(about))
    command = ["--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = pyright.run(*command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
