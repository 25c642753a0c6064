"""Names that users have written down stay."""

import importlib
import subprocess
import sys

import pytest

import bcmdist


@pytest.mark.parametrize("name", bcmdist.__all__)
def test_public_names_are_there(name):
    assert callable(getattr(bcmdist, name))


def test_a_name_of_before():
    assert bcmdist.Wishes is bcmdist.IngestOptions


@pytest.mark.parametrize(
    ("module", "name"),
    [("arrays", "open_data"), ("dataset", "append_rows"), ("partition", "partitions"), ("stream", "publish")],
)
def test_modules_that_were_documented_are_found(module, name):
    assert getattr(importlib.import_module(f"bcmdist.{module}"), name) is getattr(bcmdist, name)


@pytest.mark.slow
def test_they_are_attributes_too():
    code = (
        "import bcmdist; bcmdist.GBCM; print(bcmdist.dataset.append_rows is bcmdist.append_rows, bcmdist.cli.cli.name)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == [
        "True",
        "cli",
    ]


def test_other_modules_are_not():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'bcmdist\.nothing'"):
        importlib.import_module("bcmdist.nothing")
