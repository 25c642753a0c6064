"""Checks objects of the Dask operator against the schema that it registers, of the package dask-kubernetes.

    python operator_schema.py FILE.yaml ...

A field that the schema does not know is an error as well, as with `kubectl apply --validate=strict`: the API server
would leave it out. Needs dask-kubernetes (its files only: pip install --no-deps), jsonschema and PyYAML.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FOLDER = "operator/deployment/helm/dask-kubernetes-operator/crds"


def schemas(package: str) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Versions and kinds, and the schema of each."""
    for path in Path(package, FOLDER).glob("*.yaml"):
        for kind in yaml.safe_load_all(path.read_text()):
            for version in kind["spec"]["versions"]:
                name = f"{kind['spec']['group']}/{version['name']}", kind["spec"]["names"]["kind"]
                yield name, strict(version["schema"]["openAPIV3Schema"])


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that refuses what it does not know."""
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.setdefault("additionalProperties", False)
    if isinstance(schema.get("items"), dict):
        found["items"] = strict(schema["items"])
    return found


def whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Of an object, whose metadata are everybody's."""
    everybody = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return schema | {"properties": schema["properties"] | everybody}


def main() -> None:
    """Exit with what is wrong."""
    package = importlib.util.find_spec("dask_kubernetes")  # which is not imported: its needs are not installed
    known, wrong = dict(schemas(package.submodule_search_locations[0])), []
    for path in sys.argv[1:]:
        one = yaml.safe_load(Path(path).read_text())
        schema = whole(known[one["apiVersion"], one["kind"]])
        found = jsonschema.Draft202012Validator(schema).iter_errors(one)
        wrong += [f"{one['kind']} {one['metadata']['name']}: {error.json_path}: {error.message}" for error in found]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
