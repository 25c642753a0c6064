"""A method is its folder: without it the core imports, and its options are refused by name; without all of them the
tests of the core pass.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import bcmdist
from bcmdist.learning.method_options import method_options
from bcmdist.methods import METHODS

ROOT = Path(bcmdist.__file__).parents[1]
TESTS = ROOT / "tests"
# An option and its value that ask for each method; without the method the value is unknown.
ASKED = {
    "deep": ("expert", "dgp"),
    "fourier": ("expert", "fourier"),
    "networks": ("expert", "mnn"),
    "noisy_inputs": ("noisy_inputs", "clean"),  # an option that no expert of the core reads
    "relevance": ("expert", "rvm"),
}
CORE = "bcm, fitc, sor, rrgp_star"
# The dataclasses of options that are declared in each folder.
OPTIONS = {
    name: {
        kind
        for option in method_options().values()
        for kind in option.kinds
        if kind.__module__ == f"bcmdist.methods.{name}.options"
    }
    for name in METHODS
}
CORE_TESTS = [
    "tests/test_layout.py",
    "tests/test_declared.py",
    "tests/laws/test_one_expert_is_exact_gp.py",
    "tests/laws/test_finite_basis_is_exact.py",
    "tests/model/test_likelihoods.py",
    "tests/prediction/test_uncertain.py",
    "tests/learning/test_evidence_refinement.py",
]
# Every module is imported; then a fit and its predictions by the core.
FIT = """
import contextlib
import pkgutil
from importlib import import_module
import numpy as np
import bcmdist.errors
for found in pkgutil.walk_packages(bcmdist.__path__, "bcmdist."):
    if not found.name.endswith("__main__"):
        with contextlib.suppress(bcmdist.errors.MissingExtra):  # of a package that is not installed here
            import_module(found.name)
X = np.random.default_rng(0).uniform(-2, 2, (120, 2))
bcmdist.write_dataset("data.zarr", {"X": X, "y": X[:, 0]})
gbcm = bcmdist.GBCM.fit(X, np.sin(2 * X[:, 0]), bcmdist.Settings(query=40, rows_per_expert=60, effort="quick"))
print(bcmdist.__file__, np.abs(gbcm.predict(X)["mean"] - np.sin(2 * X[:, 0])).max())
"""


def test_every_method_is_asked_for():
    assert sorted(ASKED) == sorted(METHODS)
    assert all(OPTIONS.values())


def test_no_test_of_the_core_imports_a_method():
    paths = [path for path in TESTS.rglob("*.py") if TESTS / "methods" not in path.parents]
    imports = {
        (path.relative_to(TESTS), name)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if name.startswith("bcmdist.methods.")
    }
    assert imports == set()
    assert len(paths) > 100


@pytest.fixture(
    params=[*(pytest.param([name], marks=pytest.mark.nightly) for name in METHODS), METHODS], ids=[*METHODS, "all"]
)
def without(request, tmp_path):
    """Names of methods, and a copy of the package and the core's tests without them."""
    for name in ("bcmdist", "tests", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in request.param:
        shutil.rmtree(tmp_path / "bcmdist/methods" / name)
    shutil.rmtree(tmp_path / "tests/methods")
    for path in (tmp_path / "examples").rglob("*.py"):
        if "bcmdist.methods." in path.read_text():  # they show how a method computes
            path.unlink()
    return request.param, tmp_path


def run(place, *arguments):
    environment = os.environ | {"PYTHONPATH": str(place)}
    return subprocess.run([sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True)


def refused(place, name):
    """The options that ask for a method are refused."""
    option, value = ASKED[name]
    asked = (f"--{option.replace('_', '-')}", value)
    done = run(place, "-m", "bcmdist", "fit", "data.zarr", "--model", "model", "--json", *asked)
    told = json.loads(done.stdout)
    if option == "expert":
        assert (done.returncode, told["error"]) == (1, "InvalidOption")
        assert told["message"].startswith(f"expert: expected one of {CORE}")
        assert f"got '{value}'; give one of these" in told["message"]
    else:
        assert (done.returncode, told["error"]) == (2, "UsageError")
        assert "No such option '--noisy-inputs'" in told["message"].replace(":", "")


@pytest.mark.slow
def test_the_core_does_without(without):
    names, place = without
    done = run(place, "-c", FIT)
    assert done.returncode == 0, done.stderr
    where, error = done.stdout.split()
    assert Path(where).is_relative_to(place)
    assert float(error) < 0.05
    for name in names:
        refused(place, name)
    declared, others = (
        {one.name for name in some for kind in OPTIONS[name] for one in fields(kind)}
        for some in (names, set(METHODS) - set(names))
    )
    shown = run(place, "-m", "bcmdist", "fit", "--help").stdout
    options = {option: f"--{option.replace('_', '-')} " in shown for option in declared | others}
    assert options == {option: option in others for option in options}
    if names == METHODS:
        files = ("--basetemp", "temporary")  # other runs delete old folders of the place that all share
        done = run(place, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files, *CORE_TESTS)
        assert done.returncode == 0, done.stdout
