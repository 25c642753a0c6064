#!/usr/bin/env bash
# Puts the manifests together and validates them, with what is installed here of kubectl, kustomize and kubernetes-validate.
cd "$(dirname "$0")"
. ../processes.sh

if command -v kustomize >/dev/null; then
    kustomize build . >"$scratch/all.yaml"
elif command -v kubectl >/dev/null; then
    kubectl kustomize . >"$scratch/all.yaml"
else
    echo "missing: kustomize, and kubectl; nothing was run"
    exit 0
fi
echo "ok: kustomize, $(grep -c '^kind:' "$scratch/all.yaml") objects"

if command -v kubernetes-validate >/dev/null; then
    # The operator's own kind has no schema there: it is left out.
    python - "$scratch" <<'PYTHON'
import sys
from pathlib import Path

import yaml

for number, one in enumerate(yaml.safe_load_all(Path(sys.argv[1], "all.yaml").read_text())):
    if not one["apiVersion"].startswith("kubernetes.dask.org/"):
        Path(sys.argv[1], f"object-{number}.yaml").write_text(yaml.safe_dump(one))
PYTHON
    kubernetes-validate --strict "$scratch"/object-*.yaml
    echo "ok: kubernetes-validate of all but the DaskCluster"
else
    echo "missing: kubernetes-validate; schemas were not checked"
fi
echo "missing: a cluster with the Dask operator; nothing was applied"
