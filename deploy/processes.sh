# Sourced by the run.sh of folders beside this file: processes in a scratch directory, which are waited for and ended by
# their ids, whatever happens. Every port is on 127.0.0.1.
set -euo pipefail

# skip WORDS: say in one line what is missing, and end with the status of what was skipped.
skip() {
    echo "skipped: missing $*"
    exit 77
}

# need COMMAND ...: skip where commands are not installed.
need() {
    local missing=""
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+="${missing:+, }$command"
    done
    [ -z "$missing" ] || skip "$missing"
}

need mktemp rm
scratch=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# One BLAS thread per worker thread: experts run side by side.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
export BCMDIST_JOBS="$scratch/jobs"

# start NAME COMMAND ...: run a process beside us, its output in NAME.log; its id in $pid.
start() {
    local name=$1
    shift
    "$@" >>"$scratch/$name.log" 2>&1 &
    pid=$!
    pids+=("$pid")
}

# until_true SECONDS WORDS COMMAND ...: try a command until it succeeds, or show the logs and fail.
until_true() {
    local end=$((SECONDS + $1)) words=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$end" ]; then
            echo "not in time: $words" >&2
            tail -n 20 "$scratch"/*.log >&2
            exit 1
        fi
        sleep 0.2
    done
    echo "ok: $words"
}

# refused WORDS COMMAND ...: a command must fail and say these words.
refused() {
    local words=$1
    shift
    if "$@" >"$scratch/refused.txt" 2>&1 || ! grep -q "$words" "$scratch/refused.txt"; then
        echo "expected a refusal with the words: $words" >&2
        cat "$scratch/refused.txt" >&2
        exit 1
    fi
    echo "ok, refused: $(grep -m 1 "$words" "$scratch/refused.txt" | cut -c 1-150)"
}

# free_port: a port of 127.0.0.1 that nobody listens on.
free_port() {
    python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# add_rows DATA.zarr N SEED: rows of a wave in two inputs, made or added to.
add_rows() {
    python - "$@" <<'PYTHON'
import sys

import numpy as np

import bcmdist

rng = np.random.default_rng(int(sys.argv[3]))
X = rng.uniform(-2, 2, (int(sys.argv[2]), 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
add = bcmdist.publish if sys.argv[1].startswith("redis:") else bcmdist.append_rows
add(sys.argv[1], X, y)
PYTHON
}

# figure NAME: a figure of the JSON object on stdin.
figure() {
    python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
