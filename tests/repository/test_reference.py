"""The reference of the public names: each parameter, result and error is documented, and each example runs."""

import ast
import doctest
import inspect
import itertools
import re
import shutil
from pathlib import Path

import pytest
from snippets import blocks

import bcmdist
import bcmdist.testing
from bcmdist import errors
from bcmdist.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
# Of scikit-learn.
INHERITED = {"get_metadata_routing", "get_params", "set_params"}
ITEM = re.compile(r"^([\w*][\w*, ]*) : ", re.MULTILINE)
SHAPE = re.compile(r"\((?:[a-zA-Z]\w*,|\w+, \w+)[^()]*\)|array|Data frame")  # (n,), (n, D)
SECTION = re.compile(r"^([A-Z]\w+)\n-+\n(.*?)(?=^[A-Z]\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)


def public_names():
    """All exported functions and classes, by the name by which they are imported."""
    found = {f"bcmdist.{name}": getattr(bcmdist, name) for name in bcmdist.__all__}
    checks = [name for name in bcmdist.testing.__all__ if name.startswith("check_")]
    found |= {f"bcmdist.testing.{name}": getattr(bcmdist.testing, name) for name in checks}
    found["bcmdist.client.Client"] = Client
    xarray = pytest.importorskip("xarray", reason="pip install 'bcmdist[grids]'") and bcmdist.xarray
    return found | {f"bcmdist.xarray.{name}": made for name, made in vars(xarray).items() if callable(made)}


PUBLIC = public_names()
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if not inspect.isclass(thing)}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}


def methods_of(name):
    """The public methods of a class, also inherited ones of this package, by name."""
    members = inspect.getmembers(CLASSES[name], inspect.isroutine)
    ours = {one: thing for one, thing in members if (getattr(thing, "__module__", None) or "").startswith("bcmdist")}
    return {
        f"{name}.{one}": thing
        for one, thing in ours.items()
        if not (one.startswith("_") or one in INHERITED or one.endswith("_request"))
    }


METHODS = {name: method for one in CLASSES for name, method in methods_of(one).items()}
OF_COMMITTEES = [name for name in METHODS if name.startswith("bcmdist.GBCM.")]


def text_of(thing):
    return inspect.getdoc(thing) or ""


def sections(text):
    """The sections of a docstring, by title."""
    return dict(SECTION.findall(text))


def parameters(thing):
    """Names of the parameters of a function, or of those that a class is made with."""
    found = inspect.signature(thing).parameters.values()
    return [one for one in found if one.name not in ("self", "cls") and not one.name.startswith("_")]


def referred(text):
    """The docstrings of public things that a docstring names with "as", such as "as of `fit`": their parameters."""
    everything = PUBLIC | METHODS
    names = re.findall(r"\b[Aa]s(?:\s+(?:of|in))?\s+`([\w.]+)`", text)
    found = [one for name in names for key, one in everything.items() if f".{key}".endswith(f".{name}")]
    return [text_of(one) for one in found]


def documented(text):
    """Names that the list of parameters of a docstring describes, or that its text has in backticks."""
    listed = sections(text).get("Parameters", "")
    found = {name.strip(" *") for names in ITEM.findall(listed) for name in names.split(",")}
    return found | set(re.findall(r"`(\w+)`", text)) | set(re.findall(r"\b(X|y) \(", text))


def fields_with_a_text(kind):
    """Names of the fields of a dataclass that have a text below them."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    pairs = [(one, below) for one, below in itertools.pairwise(body) if isinstance(one, ast.AnnAssign)]
    return {one.target.id for one, below in pairs if isinstance(below, ast.Expr)}


def annotated(thing):
    """Parameters without a type, and "return" where the type of the result is missing."""
    signature = inspect.signature(thing)
    missing = [one.name for one in parameters(thing) if one.annotation is inspect.Parameter.empty]
    returns = [] if inspect.isclass(thing) or signature.return_annotation is not signature.empty else ["return"]
    return missing + returns


def raised(text):
    """The classes of errors that a docstring names under Raises."""
    lines = sections(text).get("Raises", "").splitlines()
    return [name for line in lines if re.match(r"[A-Z]\w+(, [A-Z]\w+)*$", line) for name in line.split(", ")]


@pytest.mark.parametrize("name", [*FUNCTIONS, *OF_COMMITTEES])
def test_functions_are_documented(name):
    thing = (FUNCTIONS | METHODS)[name]
    text, returns = text_of(thing), inspect.signature(thing).return_annotation
    found, names = sections(text), [one.name for one in parameters(thing)]
    listed = {one.strip() for some in ITEM.findall(found.get("Parameters", "")) for one in some.split(",")}
    assert [one for one in names if one not in listed] == []
    assert listed - set(names) == set()
    assert annotated(thing) == []
    assert ("Returns" in found) == (returns is not None)
    if re.search(r"ndarray|xarray\.\S*Dataset|pandas|Forecast", str(returns)):
        assert SHAPE.search(found["Returns"])
    assert all(hasattr(errors, one) for one in raised(text))
    assert ">>> " in found["Examples"]
    assert raised(text) or name in WITHOUT_ERRORS


# What looks at a committee in memory.
WITHOUT_ERRORS = [f"bcmdist.GBCM.{name}" for name in ("advised", "history", "info", "lengthscales")]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_documented(name):
    kind = CLASSES[name]
    text = text_of(kind)
    assert ">>> " in sections(text)["Examples"]
    assert all(hasattr(errors, one) for one in raised(text))
    if issubclass(kind, Exception):
        return
    assert annotated(kind) == []
    described = documented(text).union(*map(documented, referred(text)))
    described |= fields_with_a_text(kind)
    assert [one.name for one in parameters(kind) if one.name not in described] == []
    made = getattr(kind, "__post_init__", None)
    assert raised(text) or made is None or "refuse" not in inspect.getsource(made)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - set(OF_COMMITTEES)))
def test_methods_are_documented(name):
    """Each parameter in the docstring of the method, or in that to which it refers."""
    method = METHODS[name]
    text = text_of(method)
    described = documented(text).union(*map(documented, referred(text)))
    assert annotated(method) == []
    assert [one.name for one in parameters(method) if one.name not in described] == []
    assert text


def examples():
    """The examples of all public things, by name; inherited ones once."""
    names = {text_of(thing): name for name, thing in reversed((PUBLIC | METHODS).items())}
    return {name: text for text, name in reversed(names.items()) if ">>> " in text}


def start():
    """Names with which examples begin: those of the first block of the API page."""
    names = {}
    exec(next(one.text for one in blocks(EXAMPLES / "guide" / "api.md") if one.language == "python"), names)
    return names


def run(name, text, names):
    """Run the example of a docstring; fail with what differs; skip where the package of an extra is missing."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    found = []
    doctest.DocTestRunner(verbose=False).run(test, out=found.append)
    assert test.examples
    if len(found) == 1 and "bcmdist.errors.MissingExtra: " in found[0]:
        pytest.skip(found[0].strip().rpartition("MissingExtra: ")[2])
    assert found == []


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The names of the API page, with its committee in a directory of models."""
    folder = tmp_path_factory.mktemp("reference")
    names = start()
    return names, shutil.copytree(names["gbcm"].url, folder / "wave")


@pytest.fixture
def fresh(model, tmp_path, monkeypatch):
    """The names of the API page, with a copy of its committee; registrations are undone."""
    for registry in registries():
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    monkeypatch.chdir(tmp_path)
    dask = pytest.importorskip("dask")
    names, folder = model
    with dask.config.set(scheduler="synchronous"):  # which leaves no threads
        yield {**names, "gbcm": bcmdist.GBCM.load(shutil.copytree(folder, tmp_path / "models" / "wave"))}


def registries():
    from bcmdist.data.schemes import READERS
    from bcmdist.data.sources.open import SOURCES
    from bcmdist.experts.residual import RESIDUALS
    from bcmdist.learning.experts import EXPERTS
    from bcmdist.model.kernels import KERNELS
    from bcmdist.model.likelihoods import LIKELIHOODS
    from bcmdist.prediction.predictive_model import PREDICTORS

    return READERS, SOURCES, RESIDUALS, EXPERTS, KERNELS, LIKELIHOODS, PREDICTORS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
@pytest.mark.parametrize("name", examples())
def test_examples_run(name, fresh, request):
    text = examples()[name]
    if name == "bcmdist.publish":
        text = text.replace("127.0.0.1:6379", f"127.0.0.1:{request.getfixturevalue('redis_port')}")
    if name == "bcmdist.client.Client":
        request.getfixturevalue("service")
    run(name, text, fresh)


@pytest.fixture
def redis_port(tmp_path):
    pytest.importorskip("redis", reason="pip install 'bcmdist[redis]'")
    pytest.importorskip("pyarrow", reason="pip install 'bcmdist[redis]'")
    from redis_server import RedisServer, redis_program

    if redis_program() is None:
        pytest.skip("no redis-server")
    server = RedisServer(tmp_path)
    yield server.port
    server.stop()


@pytest.fixture
def service(fresh, tmp_path, monkeypatch):
    """`Client` asks a service in this process."""
    import services

    with services.asked(tmp_path / "models") as service:
        monkeypatch.setattr(bcmdist.client, "Client", type(services.client_of(service)))
        yield service


def test_an_example_that_differs_is_found():
    with pytest.raises(AssertionError, match="Expected"):
        run("wrong", ">>> 1 + 1\n3\n", {})
