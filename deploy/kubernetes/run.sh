#!/usr/bin/env bash
# Puts the manifests together and validates them, with what is installed here of kubectl, kustomize, kubernetes-validate and
# dask-kubernetes (its files only: pip install --no-deps dask-kubernetes; pip install jsonschema).
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh

if command -v kustomize >/dev/null; then
    kustomize build . >"$scratch/all.yaml"
elif command -v kubectl >/dev/null; then
    kubectl kustomize . >"$scratch/all.yaml"
else
    skip "kustomize, and kubectl"
fi
echo "ok: kustomize, $(grep -c '^kind:' "$scratch/all.yaml") objects"

if python -c 'import yaml' 2>/dev/null; then
    # Kubernetes' own kinds, and the operator's, have schemas of their own.
    python - "$scratch" <<'PYTHON'
import sys
from pathlib import Path

import yaml

for number, one in enumerate(yaml.safe_load_all(Path(sys.argv[1], "all.yaml").read_text())):
    whose = "dask" if one["apiVersion"].startswith("kubernetes.dask.org/") else "object"
    Path(sys.argv[1], f"{whose}-{number}.yaml").write_text(yaml.safe_dump(one))
PYTHON
fi
if [ -f "$scratch/object-0.yaml" ] && command -v kubernetes-validate >/dev/null; then
    kubernetes-validate --strict "$scratch"/object-*.yaml
    echo "ok: kubernetes-validate of all but the DaskCluster"
else
    echo "missing: kubernetes-validate; schemas of Kubernetes were not checked"
fi
if python -c 'import importlib.util, jsonschema, yaml; assert importlib.util.find_spec("dask_kubernetes")' 2>/dev/null; then
    python operator_schema.py "$scratch"/dask-*.yaml
    echo "ok: the DaskCluster against the schema of the operator"
else
    echo "missing: dask-kubernetes, or jsonschema; the DaskCluster was not checked"
fi
echo "missing: a cluster with the Dask operator; nothing was applied"
