"""Files that other services read, and the policies: they agree with the project and name what is there."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import bcmdist

ROOT = Path(bcmdist.__file__).parent.parent
POLICIES = sorted((ROOT / ".github").rglob("*.md"))
RENAMED = {"dask": "dask-core"}  # on conda-forge, where dask brings more
PATH = re.compile(r"(?<![\w./-])(?:bcmdist|tests|examples|deploy|\.ci)/[\w./]*\w")

beside = pytest.mark.skipif(not POLICIES, reason=".github: not beside the package")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.skipif(not (ROOT / "deploy").is_dir(), reason="deploy/: not beside the package")
def test_the_recipe_asks_for_what_the_project_does():
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == bcmdist.__version__
    assert f">={recipe['context']['python_min']}" == project()["requires-python"]
    run = [line.split(" ", 1) for line in recipe["requirements"]["run"]]
    needed = [Requirement(line) for line in project()["dependencies"]]
    assert {name: set(versions.split(",")) for name, versions in run if name != "python"} == {
        RENAMED.get(one.name, one.name): set(str(one.specifier).split(",")) for one in needed
    }
    (script,) = recipe["build"]["python"]["entry_points"]
    assert dict([script.split(" = ")]) == project()["scripts"]


@beside
def test_citations_agree():
    record = json.loads((ROOT / ".zenodo.json").read_text())
    (entry,) = re.findall(r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    fields = dict(re.findall(r"(\w+) = \{(.*)\}", entry))
    assert fields["author"] == f"{{{record['creators'][0]['name']}}}"
    assert (fields["title"], fields["version"]) == (record["title"], bcmdist.__version__)
    assert record["keywords"] == project()["keywords"]


@beside
def test_hooks_use_the_tools_of_the_tests():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in hooks} == {"local"}
    programs = {hook["entry"].split()[0] for repo in hooks for hook in repo["hooks"]}
    assert programs <= {Requirement(line).name for line in project()["optional-dependencies"]["test"]}


@beside
def test_the_site_is_built_of_what_is_there():
    site = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / site["mkdocs"]["configuration"]).is_file()
    (install,) = site["python"]["install"]
    assert set(install["extra_requirements"]) <= project()["optional-dependencies"].keys()


@beside
@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_policies_name_what_is_there_and_no_address(path):
    text = path.read_text()
    assert [name for name in PATH.findall(text) if not (ROOT / name).exists()] == []
    assert re.findall(r"\S+@\S+\.\w+|https?://", text) == []
    assert max(map(len, text.splitlines())) <= 160


@beside
def test_issue_forms_have_fields_of_their_own():
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    for form in map(yaml.safe_load, (path.read_text() for path in forms)):
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert {"name", "description", "body"} <= form.keys()
        assert len(ids) == len(set(ids)) > 0
