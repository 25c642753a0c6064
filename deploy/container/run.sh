#!/usr/bin/env bash
# Checks the compose file, builds the image, runs the package in it and all of the compose file (compose.sh), with what
# is installed here of docker, or of buildah, podman and podman-compose.
# From the environment: BASE (that of the Dockerfile), or BASE=debootstrap for one of Debian's packages, by buildah, where no
# registry can be reached; BUILD (nothing), options of the build, as "--volume /etc/pip.conf:/etc/pip.conf:ro";
# COMPOSE_SCHEMA, a copy of compose-spec.json of the Compose specification, checked by jsonschema and PyYAML.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
base=${BASE:-$(sed -n 's/^ARG BASE=//p' Dockerfile)}
read -r -a options <<<"${BUILD:-}"
run=()

# debian_base: an image of Debian with Python.
debian_base() {
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,redis-server "${SUITE:-bookworm}" "$scratch/debian" \
        ${MIRROR:+"$MIRROR"} >"$scratch/debootstrap.log" 2>&1 || { tail -n 5 "$scratch/debootstrap.log" >&2; exit 1; }
    ln -sf python3 "$scratch/debian/usr/bin/python"
    local container
    container=$(buildah from scratch)
    buildah copy -q "$container" "$scratch/debian" / >/dev/null
    buildah commit -q --rm "$container" localhost/debian-python >/dev/null
}

if docker compose version >/dev/null 2>&1; then
    docker compose -f compose.yaml config --quiet
    echo "ok: docker compose config"
else
    echo "missing: docker compose; compose.yaml was not checked by it"
fi
if [ -n "${COMPOSE_SCHEMA:-}" ]; then
    python - "$COMPOSE_SCHEMA" <<'PYTHON'
import json
import sys
from pathlib import Path

import jsonschema
import yaml

schema = json.loads(Path(sys.argv[1]).read_text())
jsonschema.Draft7Validator(schema).validate(yaml.safe_load(Path("compose.yaml").read_text()))
PYTHON
    echo "ok: compose.yaml against $(basename "$COMPOSE_SCHEMA")"
fi

if docker info >/dev/null 2>&1; then
    docker build -q -f Dockerfile --build-arg "BASE=$base" "${options[@]}" -t bcmdist ../..
    run=(docker run --rm bcmdist)
elif command -v buildah >/dev/null; then
    # Layers lie in the scratch directory; a chroot is all the isolation there is where this runs in a container itself.
    export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
    export CONTAINERS_STORAGE_CONF=$scratch/storage.conf
    printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' "${DRIVER:-overlay}" "$scratch/layers" \
        "$scratch/layers-run" >"$CONTAINERS_STORAGE_CONF"
    leave() {
        buildah rm --all >/dev/null 2>&1 || true
        buildah rmi --all --force >/dev/null 2>&1 || true
        finish
    }
    trap leave EXIT
    if [ "$base" = debootstrap ]; then
        need debootstrap
        debian_base
        base=localhost/debian-python
        export REDIS=localhost/debian-python
    elif ! buildah pull -q "$base" >"$scratch/pull.log" 2>&1; then
        skip "the image $base, which no registry gave (BASE=debootstrap makes a base of Debian's packages)"
    fi
    buildah build -q --format docker -f Dockerfile --build-arg "BASE=$base" "${options[@]}" -t bcmdist ../..
    container=$(buildah from bcmdist)
    run=(buildah run "$container" --)
else
    skip "a docker daemon, and buildah"
fi
echo "ok: an image from $base"
"${run[@]}" bcmdist doctor
"${run[@]}" bcmdist demo --rows 4000 --workers 1 --out /tmp/demo --json
./compose.sh
