"""Importing the facade, and a plain fit, load no pictures, reports, forecasts or models for other packages."""

import subprocess
import sys

import pytest

# Loaded when they are first used.
LATER = (
    "bcmdist.api.forecasts",
    "bcmdist.api.interop",
    "bcmdist.api.maps",
    "bcmdist.api.mixture",
    "bcmdist.api.pictures",
    "bcmdist.api.plan",
    "bcmdist.api.report",
    "bcmdist.app",
    "matplotlib",
    "onnx",
)
FIT = """
import numpy as np
from bcmdist import Settings
X = np.random.default_rng(0).uniform(-2, 2, (60, 1))
GBCM.fit(X, np.sin(X[:, 0]), Settings(learn=False, kernel="se", query=10, rows_per_expert=30)).predict(X[:1])
"""


@pytest.mark.parametrize("then", ["", FIT], ids=["import", "fit"])
def test_nothing_is_loaded_that_is_not_used(then):
    code = f"import sys\nfrom bcmdist import GBCM\n{then}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "bcmdist.api.gbcm" in loaded
    assert [name for name in loaded if any(name == late or name.startswith(f"{late}.") for late in LATER)] == []
