#!/usr/bin/env bash
# Puts each overlay together and validates it, with what is installed here of kubectl, kustomize, kubernetes-validate and
# dask-kubernetes (its files only: pip install --no-deps dask-kubernetes; pip install jsonschema).
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh

if command -v kustomize >/dev/null; then
    build=(kustomize build)
elif command -v kubectl >/dev/null; then
    build=(kubectl kustomize)
else
    skip "kustomize, and kubectl"
fi
overlays=(s3 volume operator)
for overlay in "${overlays[@]}"; do
    "${build[@]}" "overlays/$overlay" >"$scratch/$overlay.yaml"
    echo "ok: kustomize $overlay, $(grep -c '^kind:' "$scratch/$overlay.yaml") objects"
done

if python -c 'import yaml' 2>/dev/null; then
    # Kubernetes' own kinds, and the operator's, have schemas of their own; those of cert-manager are not to be had offline.
    python - "$scratch" "${overlays[@]}" <<'PYTHON'
import sys
from pathlib import Path

import yaml

whose = {"kubernetes.dask.org": "dask", "cert-manager.io": "others"}
for overlay in sys.argv[2:]:
    for number, one in enumerate(yaml.safe_load_all(Path(sys.argv[1], f"{overlay}.yaml").read_text())):
        name = whose.get(one["apiVersion"].partition("/")[0], "object")
        Path(sys.argv[1], f"{name}-{overlay}-{number}.yaml").write_text(yaml.safe_dump(one))
PYTHON
fi
if [ -f "$scratch/object-s3-0.yaml" ] && command -v kubernetes-validate >/dev/null; then
    kubernetes-validate --strict "$scratch"/object-*.yaml >"$scratch/validate.log" 2>&1 || { cat "$scratch/validate.log" >&2; exit 1; }
    echo "ok: kubernetes-validate, $(ls "$scratch"/object-*.yaml | wc -l) objects, unknown fields refused"
else
    echo "missing: kubernetes-validate; schemas of Kubernetes were not checked"
fi
if python -c 'import importlib.util, jsonschema, yaml; assert importlib.util.find_spec("dask_kubernetes")' 2>/dev/null; then
    python operator_schema.py "$scratch"/dask-*.yaml
    echo "ok: DaskCluster and DaskAutoscaler against the schemas of the operator"
else
    echo "missing: dask-kubernetes, or jsonschema; DaskCluster and DaskAutoscaler were not checked"
fi
echo "missing: a cluster (kind, k3s); no API server has seen the objects, and those of cert-manager no schema"
