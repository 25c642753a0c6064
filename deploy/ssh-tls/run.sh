#!/usr/bin/env bash
# The commands of README.md on this machine alone, without ssh: a scheduler, two workers and the service, each with a
# certificate of its own; a fit, a prediction and a job over TLS; plain, foreign and missing certificates refused.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist dask curl openssl

certs="$scratch/certs"
for node in scheduler worker1 worker2 serve client; do bcmdist certs "$certs" --node "$node" >/dev/null; done
bcmdist certs "$scratch/foreign" >/dev/null
echo "ok: a CA and five nodes"

port=$(free_port)
address=tls://127.0.0.1:$port
loopback=(--host 127.0.0.1 --dashboard-address 127.0.0.1:0)
dask_files() { files=(--tls-ca-file "$certs/ca.pem" --tls-cert "$certs/$1.pem" --tls-key "$certs/$1.key"); }
dask_files scheduler
start scheduler dask scheduler --protocol tls --port "$port" "${loopback[@]}" "${files[@]}"
for number in 1 2; do
    dask_files "worker$number"
    start "worker$number" dask worker "$address" "${loopback[@]}" --nthreads 1 --local-directory "$scratch" "${files[@]}"
done
workers() { [ "$(grep -c "Starting worker compute stream" "$scratch/scheduler.log")" -ge 2 ]; }
until_true 60 "a scheduler at tls:// and two workers" workers

add_rows "$scratch/data/train.zarr" 2000 0
shown=(--tls-ca "$certs/ca.pem" --tls-cert "$certs/client.pem" --tls-key "$certs/client.key")
settings=(--query 50 --kernel se --no-learn)
fit() { bcmdist fit "$scratch/data/train.zarr" --model "$scratch/models/$1" "${settings[@]}" "${@:2}"; }
fit wave --scheduler "$address" "${shown[@]}" --json >"$scratch/fit.json" 2>"$scratch/fit.log"
echo "ok: fitted over TLS, $(figure rows <"$scratch/fit.json") rows"

foreign=(--tls-ca "$certs/ca.pem" --tls-cert "$scratch/foreign/node.pem" --tls-key "$scratch/foreign/node.key")
refused "CertificateRefused: .* it speaks TLS" fit no --scheduler "tcp://127.0.0.1:$port"
refused "CertificateRefused: .* does not take our certificate" fit no --scheduler "$address" "${foreign[@]}"
refused "InvalidOption: scheduler: expected certificates" fit no --scheduler "$address"
[ ! -e "$scratch/models/no" ]

token=$(bcmdist tokens add "$scratch/tokens.json" run --scope read --scope admin --json | figure token)
web=$(free_port)
start serve bcmdist serve "$scratch/models" --port "$web" --token-file "$scratch/tokens.json" --data "$scratch/data" \
    --scheduler "$address" --tls-ca "$certs/ca.pem" --tls-cert "$certs/serve.pem" --tls-key "$certs/serve.key"
ask() { curl -fsS --cacert "$certs/ca.pem" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$@"; }
url=https://127.0.0.1:$web
until_true 60 "the service is ready over HTTPS" ask "$url/ready"
refused "curl: (60)" curl -fsS "$url/ready"
ask -d '{"X": [[0.5, 1.0]]}' "$url/models/wave/predict"
echo
job=$(ask -d '{"request": "predict", "model": "wave", "data": "train.zarr", "out": "predicted.zarr"}' "$url/jobs" | figure id)
ended() { [ "$(ask "$url/jobs/$job" | figure state)" = finished ]; }
until_true 120 "a job that was submitted over HTTPS has finished behind TLS" ended
