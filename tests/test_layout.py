"""The layout of the package: few rooms, and imports that go one way through them, also inside each.

A room may import those before it. Nothing is imported inside a function but for a quick start or an optional package,
and the line says which.
"""

import ast
import functools
import importlib
import itertools
import re
import statistics
from pathlib import Path

import pytest

import bcmdist
from bcmdist.app.cli.output import WARNINGS
from bcmdist.data.registry import PLUGINS
from bcmdist.errors import MissingExtra
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood

ROOT = Path(bcmdist.__file__).parent
# Rooms of one line may not import each other.
BELOW = [
    "errors linalg",
    "storage",
    "data",
    "testing",
    "runtime model",
    "experts",
    "committee",
    "prediction",
    "learning",
]
ORDER = [*BELOW, "methods", "api", "app", "__main__ arviz client mlflow xarray"]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms.split()}
MOST_ENTRIES = 20
# Lines; docstrings count in those of files.
LONGEST_FILE, LONGEST_FACADE, LARGEST_MEDIAN, LONGEST_FUNCTION = 400, 300, 150, 60
# Packages of others, and the only folder or file that may import them: whatever changes in one changes one place.
DOORS = {
    "arviz": "bcmdist.api.interop.arviz",
    "click": "bcmdist.app",
    "confluent_kafka": "bcmdist.data.kafka",
    "dask": "bcmdist.runtime.dask",
    "distributed": "bcmdist.runtime.dask",
    "fastapi": "bcmdist.app.service",
    "finufft": "bcmdist.methods.fourier.nufft",
    "icechunk": "bcmdist.data.icechunk",
    "matplotlib": "bcmdist.api.pictures.paper",
    "mlflow": "bcmdist.api.interop.mlflow",
    "obstore": "bcmdist.storage.objects",
    "onnx": "bcmdist.api.interop.onnx",
    "paho": "bcmdist.data.mqtt",
    "prometheus_client": "bcmdist.app.service",
    "pyarrow": "bcmdist.data",
    "ray": "bcmdist.runtime.ray",
    "redis": "bcmdist.data.redis",
    "sklearn": ("bcmdist.api.estimators.scikit", "bcmdist.api.comparison.boosted_trees", "bcmdist.learning"),
    "sqlalchemy": "bcmdist.data.sql",
    "uvicorn": "bcmdist.app.service",
    "zarr": "bcmdist.data",
}
REASONS = ("# quick start", "# optional")


def name_of(path):
    return ".".join(("bcmdist", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def home(name):
    """The module that a dotted name is in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def imported(tree):
    """Names that a tree imports from the package, with the node that does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names if alias.name.startswith("bcmdist"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bcmdist"):
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def edges(modules):
    """Of each module, those that it imports, whatever the import stands in."""
    found = {}
    for name, path in modules.items():
        homes = {home(target) for target, _ in imported(parsed(path))}
        found[name] = homes - {name, "bcmdist"}
    return found


EDGES = edges({name: path for name, path in MODULES.items() if name != "bcmdist"})


def room(name):
    return name.split(".")[1]


def test_there_are_few_entries():
    entries = {path.name for path in ROOT.iterdir()} - {"__pycache__", "py.typed"}
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def against_the_order(edges):
    """Pairs of modules of which the first imports the second from a room that is not before its own."""
    pairs = ((a, b) for a in edges for b in edges[a] if room(a) != room(b))
    return [f"{a} imports {b}" for a, b in pairs if RANK[room(b)] >= RANK[room(a)] > 0 or RANK[room(b)] > RANK[room(a)]]


def test_imports_go_one_way_between_rooms():
    assert against_the_order(EDGES) == []


def circle(edges):
    """Modules that import each other in a circle, in its order; none where there is none."""
    state = {}

    def visit(name, path):
        state[name] = "open"
        for target in sorted(edges[name]):
            if state.get(target) == "open":
                return [*path[path.index(target) :], target]
            if target not in state and (found := visit(target, [*path, target])):
                return found
        state[name] = "done"
        return []

    return next((found for name in sorted(edges) if name not in state and (found := visit(name, [name]))), [])


def test_there_is_no_circle():
    assert " imports ".join(circle(EDGES)) == ""


def test_circles_between_folders_of_a_room():
    """Folders of a room stand in an order too: no two import each other."""
    folders = {(name.rpartition(".")[0], target.rpartition(".")[0]) for name in EDGES for target in EDGES[name]}
    inside = {(a, b) for a, b in folders if a.count(".") == b.count(".") == 2 and room(a) == room(b) and a != b}
    assert [f"{a} and {b}" for a, b in sorted(inside) if (b, a) in inside and a < b] == []


def method_of(name):
    """The folder of `bcmdist/methods` that a module is in, if any."""
    return [*name.split("."), "", ""][2] if room(name) == "methods" else ""


def between_methods(edges):
    """Pairs of modules of which the first imports the second from a method that is not its own."""
    pairs = ((a, b) for a in edges for b in edges[a] if method_of(b) and method_of(a) != method_of(b))
    return [f"{a} imports {b}" for a, b in pairs if a != "bcmdist.methods"]


def test_nothing_imports_a_method_but_itself():
    assert between_methods(EDGES) == []


def foreign(tree):
    """Packages of others that a tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_packages_of_others_stay_behind_their_doors():
    used = {(name, package) for name, path in MODULES.items() for package in foreign(parsed(path))}
    beside = [
        f"{name} imports {package}" for name, package in sorted(used) if not name.startswith(DOORS.get(package, ""))
    ]
    assert beside == []
    without = {
        package for package, door in DOORS.items() if "bcmdist.methods." in str(door) and door not in MODULES
    }  # deleted
    assert {package for _, package in used} >= DOORS.keys() - without


def lines_without_docstring(function):
    first = function.body[0]
    docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_files_and_functions_are_short():
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}
    assert lines["bcmdist.api.gbcm"] <= LONGEST_FACADE
    assert statistics.median(count for count in lines.values() if count > 1) <= LARGEST_MEDIAN
    functions = (
        (name, node)
        for name, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
    )
    sizes = {f"{name}.{node.name}": lines_without_docstring(node) for name, node in functions}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FUNCTION} == {}


# What a family is asked for, it answers itself: nobody else looks at its class.
FAMILIES = {"bcmdist.model.likelihoods": Likelihood, "bcmdist.model.kernels": Kernel}


def subclasses(kind):
    return {kind.__name__}.union(*(subclasses(child) for child in kind.__subclasses__()))


@pytest.mark.parametrize("home", FAMILIES)
def test_nobody_looks_at_the_class_of_a_member(home):
    names = subclasses(FAMILIES[home])
    calls = (
        (name, node)
        for name, path in MODULES.items()
        if not name.startswith(home)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
    )
    looked = {(name, ast.unparse(node)) for name, node in calls}
    assert [
        f"{name}: {text}" for name, text in sorted(looked) if names & set(re.findall(r"(?<!ast\.)\b\w+", text))
    ] == []
    assert len(names) > 5


def guarded(tree):
    """Imports that only a type checker sees."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    return [target for block in blocks for target, _ in imported(block)]


def hidden(path):
    """Imports that stand in a function without a reason, or that only a type checker sees."""
    tree, lines = parsed(path), path.read_text().splitlines()
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inner = {node.lineno for function in functions for _, node in imported(function)}
    return [*guarded(tree), *(lines[n - 1].strip() for n in sorted(inner) if not explained(lines, n))]


def test_no_import_is_hidden():
    modules = set(MODULES) - {"bcmdist"}  # its public names are loaded when they are used
    found = {name: hidden(MODULES[name]) for name in modules}
    assert {name: lines for name, lines in found.items() if lines} == {}


def explained(lines, number):
    """Whether a line, or the one that the imports above it begin with, says why it stands in a function."""
    block = itertools.takewhile(lambda line: "import " in line, (lines[k] for k in range(number - 1, -1, -1)))
    return any(line.rstrip().endswith(REASONS) for line in block)


# --- What texts name ---

TEXTS = [*MODULES.values(), ROOT.parent / "README.md", ROOT.parent / "CHANGELOG.md"]
TEXTS += sorted((ROOT.parent / "examples").glob("*.py"))
NAMED = re.compile(r"(?<![\w./-])bcmdist(?:\.[A-Za-z_]\w*)+")
# Of the last two parts of a name, in docstrings and comments: `module.attribute`.
SHORT = re.compile(r"`([a-z_]+)\.([A-Za-z_]\w*)(?:\(\))?`")
OTHERS = {PLUGINS, WARNINGS}  # names of things that are no modules
NO_CODE = {"se.lengthscale", "zarr.json"}  # a parameter, and a file


def defined(module):
    """Names of the classes and functions of a module that cannot be imported here."""
    return [node.name for node in parsed(MODULES[module]).body if hasattr(node, "name")]


def missing(name):
    """Whether there is no module, attribute or field of that dotted name."""
    module = home(name) if name.partition(".")[0] == "bcmdist" else ""
    try:
        thing = importlib.import_module(module)
    except MissingExtra:  # an optional package is not here: what the source defines
        return name.removeprefix(module).split(".")[1:][:1] not in ([], *([one] for one in defined(module)))
    for part in name.removeprefix(module).split(".")[1:]:
        fields = {field for kind in getattr(thing, "__mro__", ()) for field in getattr(kind, "__annotations__", {})}
        if not hasattr(thing, part):
            return part not in fields
        thing = getattr(thing, part)
    return False


def names_missing(text):
    return sorted(name for name in set(NAMED.findall(text)) - OTHERS if missing(name))


def short_names_missing(text):
    """Of names in backticks with two parts, those of which the first is neither a module with the second, nor a word
    of the code."""
    words = {
        getattr(node, field, None) for node in ast.walk(ast.parse(text)) for field in ("id", "attr", "arg", "name")
    }
    found = {(first, second) for first, second in SHORT.findall(text) if first != "bcmdist"}
    strange = [f"{first}.{second}" for first, second in found if first not in words and not is_in_some(first, second)]
    return sorted({*strange} - NO_CODE)


def is_in_some(stem, name):
    """Whether a module or folder of that name, wherever it is, has another name in it."""
    homes = [module for module in MODULES if module.rpartition(".")[2] == stem]
    return any(f"{module}.{name}" in MODULES or not missing(f"{module}.{name}") for module in homes)


def test_what_texts_name_exists():
    found = {path.relative_to(ROOT.parent): names_missing(path.read_text()) for path in TEXTS}
    assert {path: names for path, names in found.items() if names} == {}


def test_what_docstrings_and_comments_name_for_short_exists():
    found = {name: short_names_missing(path.read_text()) for name, path in MODULES.items()}
    assert {name: names for name, names in found.items() if names} == {}


# --- The checks themselves ---


def test_names_that_do_not_exist_would_be_found():
    text = "`bcmdist.streams.publish`, bcmdist.storage.entry.Entry.key, bcmdist.publish, bcmdist.GBCM.nothing"
    assert names_missing(text) == ["bcmdist.GBCM.nothing", "bcmdist.streams.publish"]
    assert names_missing("bcmdist.runtime.ray.RayRuntime, bcmdist.runtime.ray.Nothing") == [
        "bcmdist.runtime.ray.Nothing"
    ]
    text = "x = 1  # `opening.refuse_changed`, `surveyed.refuse_changed`, `surveyed.nothing`, `x.bit_length()`"
    assert short_names_missing(text) == ["opening.refuse_changed", "surveyed.nothing"]


def test_what_would_be_found():
    wrong = {"bcmdist.data.a": {"bcmdist.model.b"}, "bcmdist.model.b": {"bcmdist.data.a"}}
    assert against_the_order(wrong) == ["bcmdist.data.a imports bcmdist.model.b"]
    assert circle(wrong) == ["bcmdist.data.a", "bcmdist.model.b", "bcmdist.data.a"]
    methods = {"bcmdist.methods.a.x": {"bcmdist.methods.a.y"}, "bcmdist.api.b": {"bcmdist.methods.a.x"}}
    assert between_methods(methods) == ["bcmdist.api.b imports bcmdist.methods.a.x"]
    side_by_side = {"bcmdist.runtime.a": {"bcmdist.model.b"}, "bcmdist.linalg": {"bcmdist.errors"}}
    assert against_the_order(side_by_side) == ["bcmdist.runtime.a imports bcmdist.model.b"]
    hidden = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bcmdist.api.gbcm import GBCM")
    assert guarded(hidden) == ["bcmdist.api.gbcm.GBCM"]


def test_no_two_test_files_have_one_name():
    """pytest imports them by their names alone."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
