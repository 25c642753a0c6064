"""What the package imports is declared, where it is used, and in no version with known holes."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import bcmdist

ROOT = Path(bcmdist.__file__).parent
PROJECT = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS_ONLY = {"benchmark", "docs", "interop", "test"}  # extras that no module of the package imports
# Where the name to install is another one, also where it is not installed here.
NAMES = {
    "sklearn": "scikit-learn",
    "mlflow": "mlflow-skinny",
    "opentelemetry": "opentelemetry-api",
    "paho": "paho-mqtt",
}
# The folders that use more than the core, and the extra that brings it; a method may have been deleted.
FOLDERS = {
    "app/service": "serve",
    "storage/objects.py": "cloud",
    "data/redis.py": "redis",
    "runtime/ray.py": "ray",
    "data/kafka.py": "kafka",
    "data/mqtt.py": "mqtt",
    "data/icechunk.py": "icechunk",
    "data/sql.py": "sql",
    "api/pictures": "plot",
    "app/tracing.py": "otel",
    "methods/fourier": "fourier",
    "api/interop/onnx_graph.py": "onnx",
}
# The first versions without holes that were published: of requests that hang or smuggle (h11, starlette), of pages of
# the dashboard that run code (distributed), of files that lead elsewhere (onnx) or run code (skops, torch, lightgbm).
SOUND = {
    "dask": "2026.1",
    "distributed": "2026.1",
    "h11": "0.16",
    "lightgbm": "4.6",
    "onnx": "1.21",
    "scikit-learn": "1.5",
    "skops": "0.13",
    "starlette": "0.49.1",
    "torch": "2.10",
}


INSTALLED = packages_distributions()  # which takes a while


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(lines):
    """Names of what is declared in lines of requirements, with their lowest versions."""
    found = {}
    for line in map(Requirement, lines):
        lowest = [Version(one.version) for one in line.specifier if one.operator == ">="]
        found[normal(line.name)] = max(lowest, default=Version("0"))
    return found


CORE = declared(PROJECT["dependencies"])


def imported(path):
    """Packages of others that a file imports, by the names under which they are installed."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        for package in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"bcmdist"}:
            yield normal(NAMES.get(package) or INSTALLED.get(package, [package])[0])


USED = {path.relative_to(ROOT).as_posix(): set(imported(path)) for path in sorted(ROOT.rglob("*.py"))}


def test_everything_that_is_imported_is_declared():
    known = CORE.keys() | {name for extra in EXTRAS.keys() - OURS_ONLY for name in declared(EXTRAS[extra])}
    assert {package: name for name, packages in USED.items() for package in packages - known} == {}


@pytest.mark.parametrize(
    ("folder", "extra"),
    [(folder, extra) for folder, extra in FOLDERS.items() if (ROOT / folder).exists() or "methods/" not in folder],
)
def test_an_extra_brings_what_its_folder_imports(folder, extra):
    """Of an extra alone: what another extra, or a dependency of a dependency, happens to bring is not counted on."""
    used = {package for name, packages in USED.items() if name.startswith(folder) for package in packages}
    optional = {"pyarrow"} if extra == "serve" else set()  # without which the service speaks JSON only
    assert used - CORE.keys() - declared(EXTRAS[extra]).keys() - optional == set()
    assert used - CORE.keys()


@pytest.mark.parametrize("lines", [PROJECT["dependencies"], *EXTRAS.values()], ids=["core", *EXTRAS])
def test_no_version_with_known_holes_is_asked_for(lines):
    low = {name: str(lowest) for name, lowest in declared(lines).items() if lowest < Version(SOUND.get(name, "0"))}
    assert low == {}


def test_every_sound_version_is_of_something_that_is_declared():
    assert {*CORE, *(name for lines in EXTRAS.values() for name in declared(lines))} >= SOUND.keys()
