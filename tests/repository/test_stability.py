"""What the page on stability promises agrees with the code, the golden models and pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

import bcmdist
from bcmdist.storage.records import FORMAT

ROOT = Path(bcmdist.__file__).parent.parent
PAGE = ROOT / "examples" / "guide" / "stability.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="examples/: not beside the package")


def test_formats_are_those_of_the_code_and_each_has_a_model():
    rows = re.findall(r"^\| (?:1 to )?(\d+) \| yes \| (yes|no) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(str(FORMAT - 1), "no"), (str(FORMAT), "yes")]
    golden = {path.name.partition("_")[0] for path in (ROOT / "tests" / "golden").iterdir()}
    assert golden == {f"format{number}" for number in range(1, FORMAT + 1)}


def test_lowest_versions_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE))
    text = PAGE.read_text()
    assert f"| Python | {project['requires-python'].removeprefix('>=')} and newer |" in text
    assert lowest["dask"] == lowest["distributed"]
    assert f"| dask, distributed | {lowest['dask']} and newer, " in text
    assert f"| zarr | {lowest['zarr']} and newer, below 4; " in text
    versions = ", ".join(lowest[name] for name in ("numpy", "scipy", "scikit-learn"))
    assert f"| numpy, scipy, scikit-learn | {versions} and newer; " in text
