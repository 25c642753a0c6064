#!/usr/bin/env bash
# The commands of README.md on a real object store that this script starts: data imported to it, a fit on a cluster of
# processes, an ingestion during which the store's gateway is killed, predictions, and the service, all of s3://. The
# store is Ceph's, or moto's where Ceph is not installed: in memory, so that it is not killed. From the environment:
# MOTO_SERVER (moto_server), of `pip install 'moto[server]'` in an environment of its own.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
. ./store.sh
need bcmdist dask curl openssl
python -c 'import obstore' 2>/dev/null || skip "obstore (bcmdist[s3])"

chosen_store
"${store}_made" >"$scratch/store.log" 2>&1 || { tail -n 20 "$scratch"/*.log >&2; exit 1; }
bucket_made bucket
echo "ok: an object store at $AWS_ENDPOINT_URL, $store"

# Of two writers one wins, whoever they are: what the commits of a model rest on. Moto's server looks for a name and
# writes it in two steps, between which another writer may come.
eight_writers() {
    python - <<'PYTHON'
import threading
import uuid

from bcmdist.storage.locate import open_storage

storage = open_storage("s3://bucket/race")
for _ in range(25):
    name, barrier, won = f"commits/{uuid.uuid4().hex}", threading.Barrier(8), []

    def write(k):
        barrier.wait()
        if storage.put_if_absent(name, b"%d" % k):
            won.append(b"%d" % k)

    writers = [threading.Thread(target=write, args=(k,)) for k in range(8)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert won == [storage.get(name)], won
print("ok: of eight writers of one name, one wins: 25 times of 25")
PYTHON
}
if [ "$store" = ceph ]; then
    eight_writers
else
    echo "missing: a store of which eight writers of one name can be tried"
fi

python - "$scratch" <<'PYTHON'
import sys

import numpy as np

rng = np.random.default_rng(0)
for name, rows in {"first": 4000, "more": 16_000, "new": 1000}.items():
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows)
    np.savez(f"{sys.argv[1]}/{name}.npz", X=X, y=y)
PYTHON

port=$(free_port)
loopback=(--host 127.0.0.1 --dashboard-address 127.0.0.1:0)
start scheduler dask scheduler --port "$port" "${loopback[@]}"
for number in 1 2; do
    start "worker$number" dask worker "tcp://127.0.0.1:$port" "${loopback[@]}" --nthreads 1 --local-directory "$scratch"
done
cluster=(--scheduler "tcp://127.0.0.1:$port" --json)

# all_of PLACE: the same commands for s3:// and, to compare, for a disk.
all_of() {
    for name in first more new; do
        bcmdist import "$scratch/$name.npz" "$1/$name.zarr" --rows-per-chunk 1000 --json >/dev/null
    done
    bcmdist fit "$1/first.zarr" --model "$1/models/wave" --query 200 --kernel se --no-learn --rows-per-expert 500 \
        --partition chunks "${cluster[@]}" >"$scratch/fit.json" 2>"$scratch/fit.log"
    ingested "$1"
    bcmdist predict "$1/models/wave" "$1/new.zarr" --out "$1/predicted.zarr" "${cluster[@]}" >/dev/null 2>"$scratch/predict.log"
}
ingest() {
    bcmdist ingest "$1/models/wave" "$1/more.zarr" --commit-every 2 "${cluster[@]}" >>"$scratch/ingest.json" 2>>"$scratch/ingest.log"
}
commits() { [ "$(bcmdist info "$1/models/wave" --json | figure commit)" -ge "$2" ]; }

ingested() { ingest "$1"; }
all_of "$scratch/disk"

ingested() {
    ingest "$1" &
    local ingesting=$!
    pids+=("$ingesting")
    until_true 120 "ingestion has begun" commits "$1" 3
    if [ "$store" = moto ]; then
        wait "$ingesting"
        return
    fi
    kill -KILL "$gateway"
    wait "$gateway" 2>/dev/null || true
    sleep 2
    gateway_started
    if wait "$ingesting"; then
        echo "ok: ingestion has waited for the store"
    else
        echo "ok: ingestion has ended with the store, and is repeated"
        ingest "$1"
    fi
}
all_of s3://bucket

python - "$scratch/disk" s3://bucket <<'PYTHON'
import sys

import numpy as np

from bcmdist import GBCM
from bcmdist.data.groups import open_group

disk, objects = (GBCM.load(f"{place}/models/wave") for place in sys.argv[1:])
assert objects.committee.total.rows == disk.committee.total.rows == 20_000, objects.committee.total.rows
assert len({entry.key for entry in objects.ledger}) == len(objects.ledger) == len(disk.ledger)
for name in ("eta", "precision"):  # sums of the same numbers, in another order
    ours, theirs = (getattr(one.committee.total, name) for one in (objects, disk))
    assert np.abs(ours - theirs).max() <= 1e-10 * np.abs(theirs).max(), name
mean, other = (open_group(f"{place}/predicted.zarr")["mean"][...] for place in sys.argv[1:])
print(f"ok: 20000 rows, each once; predictions as those of a disk, to {np.abs(mean - other).max():.1e}")
PYTHON

web=$(free_port)
start serve bcmdist serve s3://bucket/models --port "$web"
url=http://127.0.0.1:$web/models/wave
until_true 120 "the service has the model" curl -fsS "$url"
ask() { curl -fsS -H 'Content-Type: application/json' "$@"; }
ask -d '{"X": [[0.5, 1.0]]}' "$url/predict"
echo
ask -H 'Idempotency-Key: a' -d '{"X": [[0.5, 1.0]], "y": [1.8]}' "$url/rows"
echo
[ "$(bcmdist info s3://bucket/models/wave --json | figure rows)" = 20001 ] && echo "ok: a row over HTTP is in the store"
