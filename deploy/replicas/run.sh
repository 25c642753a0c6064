#!/usr/bin/env bash
# Two services behind nginx, upgraded one after the other and killed while clients ask and send rows; nothing may fail.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist curl nginx

bcmdist certs "$scratch/certs" --node models >/dev/null
add_rows "$scratch/train.zarr" 2000 0
bcmdist fit "$scratch/train.zarr" --model "$scratch/models/wave" --query 50 --kernel se --no-learn --serial \
    >/dev/null 2>"$scratch/fit.log"
token=$(bcmdist tokens add "$scratch/tokens.json" run --scope read --scope ingest --json | figure token)

ports=("$(free_port)" "$(free_port)")
web=$(free_port)
services=()
serve() {
    start "serve$1" bcmdist serve "$scratch/models" --port "${ports[$1]}" --workers 2 --max-rate 10000 \
        --token-file "$scratch/tokens.json"
    services[$1]=$pid
}
is_ready() { curl -fsS "http://127.0.0.1:${ports[$1]}/ready"; }
for number in 0 1; do
    serve "$number"
    until_true 60 "service $number" is_ready "$number"
done

# The file as it is, with ports and certificates of this run.
sed -e "s|127.0.0.1:8081|127.0.0.1:${ports[0]}|; s|127.0.0.1:8082|127.0.0.1:${ports[1]}|" \
    -e "s|listen 443|listen 127.0.0.1:$web|; s|models.example.org|127.0.0.1|" \
    -e "s|/etc/bcmdist|$scratch/certs|" \
    -e "s|^events|daemon off;\nuser $(id -un) $(id -gn);\npid $scratch/nginx.pid;\nerror_log $scratch/nginx.log;\nevents|" \
    nginx.conf >"$scratch/nginx.conf"
for kind in client_body proxy fastcgi uwsgi scgi; do temporary+="${kind}_temp_path $scratch/$kind; "; done
sed -i "s|access_log off;|access_log off; $temporary|" "$scratch/nginx.conf"
start nginx nginx -c "$scratch/nginx.conf" -e "$scratch/nginx.log"
url=https://127.0.0.1:$web
until_true 30 "nginx" curl -fsS --cacert "$scratch/certs/ca.pem" "$url/ready"

cat >"$scratch/clients.py" <<'PYTHON'
import json
import ssl
import sys
import threading
from pathlib import Path

import numpy as np

from bcmdist.client import Client

url, token, folder = sys.argv[1:]
context, stop, counted = ssl.create_default_context(cafile=f"{folder}/certs/ca.pem"), Path(folder, "stop"), [0, 0]
client = Client(url, token, tries=1, context=context)  # nothing is repeated by the client


def ask():
    while not stop.exists():
        client.predict("wave", [[0.5, 1.0]])
        counted[0] += 1


def send():
    while not stop.exists():
        X = np.random.default_rng(counted[1]).uniform(-2, 2, (50, 2))
        client.absorb("wave", X, np.sin(2 * X[:, 0]) + X[:, 1], key=f"rows-{counted[1]}")
        counted[1] += 1


def watched(work):
    try:
        work()
    except Exception as error:
        Path(folder, "failed").write_text(repr(error))


threads = [threading.Thread(target=watched, args=(work,)) for work in (ask, ask, send)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"asked": counted[0], "sent": counted[1]}))
PYTHON
start clients python "$scratch/clients.py" "$url" "$token" "$scratch"
clients=$pid
until_true 30 "rows are absorbed" grep -q 'POST /models/{name}/rows 200' "$scratch/serve0.log" "$scratch/serve1.log"

kill -HUP "${services[0]}"
renewed() { [ "$(grep -c 'worker .* ended' "$scratch/serve0.log")" -ge 2 ]; }
until_true 120 "service 0 has replaced its workers" renewed
kill -TERM "${services[1]}"
wait "${services[1]}" || true
serve 1
until_true 60 "service 1 was ended and started" is_ready 1
kill -KILL "${services[0]}"
wait "${services[0]}" 2>/dev/null || true
serve 0
until_true 60 "service 0 was killed and started" is_ready 0
touch "$scratch/stop"
wait "$clients"
[ ! -e "$scratch/failed" ] || { cat "$scratch/failed" "$scratch/nginx.log" >&2; exit 1; }
asked=$(figure asked <"$scratch/clients.log") sent=$(figure sent <"$scratch/clients.log")
rows=$(bcmdist info "$scratch/models/wave" --json | figure rows)
[ "$rows" -eq $((2000 + 50 * sent)) ] || { echo "expected $((2000 + 50 * sent)) rows, got $rows" >&2; exit 1; }
[ "$asked" -ge 20 ] && [ "$sent" -ge 5 ]
echo "ok: $asked predictions and $sent requests with rows, none failed, $rows rows, each once"
