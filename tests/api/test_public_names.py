"""Names that users have written down stay."""

import importlib
import subprocess
import sys

import pytest

import bcmdist


@pytest.mark.parametrize("name", bcmdist.__all__)
def test_public_names_are_there(name):
    assert callable(getattr(bcmdist, name))


@pytest.mark.parametrize(
    ("module", "name"),
    [("arviz", "to_inference_data"), ("mlflow", "save_model"), ("xarray", "fill")],
)
def test_modules_that_were_documented_are_found(module, name):
    assert callable(getattr(importlib.import_module(f"bcmdist.{module}"), name))


@pytest.mark.slow
def test_they_are_attributes_too():
    code = "import bcmdist; print(callable(bcmdist.mlflow.save_model), callable(bcmdist.arviz.to_inference_data))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == [
        "True",
        "True",
    ]


def test_other_modules_are_not():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'bcmdist\.nothing'"):
        importlib.import_module("bcmdist.nothing")
