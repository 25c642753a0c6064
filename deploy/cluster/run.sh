#!/usr/bin/env bash
# Starts a Dask scheduler and two workers as processes of their own on this machine, runs a command
# against them with --scheduler ADDRESS appended, and ends them. Every port is on loopback.
#
#   deploy/cluster/run.sh bcmdist demo --out demo
#
# WORKERS (2), MEMORY per worker (2GiB) and PORT (0: any free one) come from the environment.
if [ $# -eq 0 ]; then
    echo "usage: deploy/cluster/run.sh COMMAND [ARGUMENT ...]" >&2
    exit 2
fi
[[ $0 == */* ]] && folder=${0%/*} || folder=.
. "$folder/../processes.sh"
need dask "$1"

# --dashboard-address too: without it the HTTP server listens on all interfaces.
dask scheduler --host 127.0.0.1 --port "${PORT:-0}" --dashboard-address 127.0.0.1:0 \
    --scheduler-file "$scratch/scheduler.json" >"$scratch/scheduler.log" 2>&1 &
pids+=($!)

for _ in $(seq 300); do
    [ -s "$scratch/scheduler.json" ] && break
    kill -0 "${pids[0]}" 2>/dev/null || { cat "$scratch/scheduler.log" >&2; exit 1; }
    sleep 0.1
done
address=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$scratch/scheduler.json")

for number in $(seq "${WORKERS:-2}"); do
    dask worker "$address" --host 127.0.0.1 --dashboard-address 127.0.0.1:0 --nthreads 1 \
        --memory-limit "${MEMORY:-2GiB}" --local-directory "$scratch" \
        --name "worker-$number" >"$scratch/worker-$number.log" 2>&1 &
    pids+=($!)
done

echo "scheduler at $address with ${WORKERS:-2} workers" >&2
code=0
"$@" --scheduler "$address" || code=$?
if [ "$code" -ne 0 ]; then tail -n 20 "$scratch"/*.log >&2; fi
exit "$code"
