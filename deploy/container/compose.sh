#!/usr/bin/env bash
# Everything of compose.yaml on this host: rows that are published are absorbed and predicted from, each once, while every
# part but the service is killed by SIGKILL once and started again by its policy. The images are there already.
# From the environment: REDIS (redis:7), an image with redis-server.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist curl
if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    engine=docker
    compose=(docker compose)
else
    need podman podman-compose
    engine=podman
    compose=(podman-compose)
fi

cp compose.yaml "$scratch"
cd "$scratch"
PORT=$(free_port)
OWNER=$(id -u):$(id -g)
WORK=$scratch/work
CERTS=$scratch/certs
export PORT OWNER WORK CERTS
compose+=(-p "bcmdist-check-$$" -f "$scratch/compose.yaml")
leave() {
    "${compose[@]}" down --volumes >"$scratch/down.log" 2>&1 || true
    finish
}
trap leave EXIT

# of PART: the id of the container of a part.
of() { "$engine" ps -q --filter "name=bcmdist-check-$$[-_]$1[-_]1"; }

# from_outside PATH [OPTION ...]: what the service tells through its port, under TLS and with a token.
from_outside() {
    curl -fsS --cacert "$CERTS/ca.pem" -H "Authorization: Bearer $token" "https://localhost:$PORT$1" "${@:2}"
}
reached() { [ "$(from_outside /models/live | figure rows)" -ge "$1" ]; }

# publish ROWS SEED: rows that become known inside of the network only.
publish() {
    "$engine" exec -i "$(of serve)" python - "$@" <<'PYTHON'
import sys

import numpy as np

import bcmdist

X = np.random.default_rng(int(sys.argv[2])).uniform(-2, 2, (int(sys.argv[1]), 2))
bcmdist.publish("redis://redis:6379/0/rows", X, np.sin(2 * X[:, 0]) + X[:, 1])
PYTHON
}

bcmdist certs authority --host scheduler --host worker --host serve --host localhost >/dev/null
mkdir -p certs work/models work/data
cp authority/ca.pem authority/node.* certs/
token=$(bcmdist tokens add work/tokens.json check --scope read --json | figure token)
add_rows first.zarr 2000 0
bcmdist fit first.zarr --model work/models/live --query 50 --prepare-only --serial --json >fit.json 2>fit.log

"${compose[@]}" up --detach --no-build >up.log 2>&1 || { cat up.log >&2; exit 1; }
until_true 120 "the service answers under TLS" from_outside /models
publish 5000 1
until_true 120 "5,000 published rows are absorbed" reached 5000
publish 20000 2
for part in ingest worker scheduler redis; do
    # By its process, and not through the engine, which would take that for a wish.
    kill -KILL "$("$engine" inspect -f '{{.State.Pid}}' "$(of "$part")")"
    echo "ok: $part was killed"
    sleep 3
done
until_true 180 "25,000 published rows are absorbed" reached 25000
sleep 5
rows=$(from_outside /models/live | figure rows)
[ "$rows" = 25000 ] || { echo "expected 25,000 rows, each once, got $rows" >&2; exit 1; }
from_outside /models/live/predict -H 'content-type: application/json' -d '{"X": [[0.5, 1.0]]}'
echo
refused 401 curl -fsS --cacert "$CERTS/ca.pem" "https://localhost:$PORT/models"
