#!/usr/bin/env bash
# Checks the compose file, builds the image and runs the package in it, with what is installed here of docker and buildah.
# BASE (python:3.12-slim) comes from the environment.
cd "$(dirname "$0")"
. ../processes.sh
base=${BASE:-python:3.12-slim}
run=()

if docker compose version >/dev/null 2>&1; then
    docker compose -f compose.yaml config --quiet
    echo "ok: docker compose config"
else
    echo "missing: docker compose; compose.yaml was not checked by it"
fi

if docker info >/dev/null 2>&1; then
    docker build -q -f Dockerfile --build-arg "BASE=$base" -t bcmdist ../..
    run=(docker run --rm bcmdist)
elif command -v buildah >/dev/null; then
    buildah build -q -f Dockerfile --build-arg "BASE=$base" -t bcmdist ../..
    container=$(buildah from bcmdist)
    trap 'buildah rm "$container" >/dev/null; finish' EXIT
    run=(buildah run "$container" --)
else
    echo "missing: a docker daemon, and buildah; the image was not built"
    exit 0
fi
echo "ok: an image from $base"
"${run[@]}" bcmdist doctor
"${run[@]}" bcmdist demo --rows 4000 --workers 1 --out /tmp/demo --json
