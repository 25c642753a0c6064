#!/usr/bin/env bash
# Checks the unit file, and runs its ExecStart as a process: a prediction with a token, none without, a peaceful end.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need bcmdist curl openssl

unit=bcmdist.service
program=$(command -v bcmdist)
if command -v systemd-analyze >/dev/null; then
    # The unit as it is installed, with the program of this environment.
    sed "s|/opt/bcmdist/bin/bcmdist|$program|; s|^User=.*|User=root|" "$unit" >"$scratch/$unit"
    systemd-analyze verify "$scratch/$unit"
    echo "ok: systemd-analyze verify $unit"
else
    echo "missing: systemd-analyze; the unit file was not verified"
fi

export MODELS="$scratch/models" TOKENS="$scratch/tokens.json" WORKERS=2 PORT
PORT=$(free_port)
add_rows "$scratch/train.zarr" 2000 0
bcmdist fit "$scratch/train.zarr" --model "$MODELS/wave" --query 50 --serial --json >"$scratch/fit.json" 2>"$scratch/fit.log"
token=$(bcmdist tokens add "$TOKENS" run --scope read --json | figure token)

# What systemd makes of ExecStart: words, with variables put in.
command=$(sed -n "s|^ExecStart=/opt/bcmdist/bin/bcmdist|$program|p" "$unit")
command=${command//'${MODELS}'/$MODELS}
command=${command//'${PORT}'/$PORT}
command=${command//'${WORKERS}'/$WORKERS}
command=${command//'${TOKENS}'/$TOKENS}
read -ra words <<<"$command"
start serve "${words[@]}"
until_true 60 "the service is ready" curl -fsS "http://127.0.0.1:$PORT/ready"

ask() { curl -sS -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d '{"X": [[0.5, 1.0]]}' "$@" "http://127.0.0.1:$PORT/models/wave/predict"; }
ask -H "Authorization: Bearer $token" | tee "$scratch/answer.txt"
[ "$(tail -n 1 "$scratch/answer.txt")" = 200 ]
[ "$(ask | tail -n 1)" = 401 ] && echo "ok, refused: 401 without a token"

kill -HUP "$pid"
replaced() { [ "$(grep -c 'worker .* ended' "$scratch/serve.log")" -ge 2 ]; }
until_true 60 "workers are replaced" replaced
[ "$(ask -H "Authorization: Bearer $token" | tail -n 1)" = 200 ]
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 143 ] && echo "ok: it has ended with $code after SIGTERM"
