#!/usr/bin/env bash
# Checks the files with promtool (Debian: prometheus), and that a service and an ingester expose each metric that they name.
[[ $0 != */* ]] || cd "${0%/*}"
. ../processes.sh
need curl python bcmdist

mkdir "$scratch/models"
python - "$scratch" <<'PYTHON'
import sys

import numpy as np

import bcmdist

X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
settings = bcmdist.Settings(partition="chunks", kernel="se", query=20, rows_per_expert=50, effort="quick")
bcmdist.GBCM.fit((X, np.sin(X[:, 0])), settings, model=f"{sys.argv[1]}/models/wave")
PYTHON
start serve bcmdist serve "$scratch/models" --port 0
until_true 60 "a service" grep -q "listening on" "$scratch/serve.log"
url=$(grep -o 'http://[^ ]*' "$scratch/serve.log" | head -n 1)
predict() { curl -sf -H 'Content-Type: application/json' -d '{"X": [[0.5, 1.0]]}' "$url/models/wave/predict"; }
until_true 30 "a prediction" predict
curl -sf "$url/metrics" >"$scratch/metrics"

add_rows "$scratch/more.zarr" 200 1
start ingest bcmdist ingest "$scratch/models/wave" "$scratch/more.zarr" --watch --serial --metrics 0
until_true 60 "an ingester" grep -q "metrics at" "$scratch/ingest.log"
ingester=$(grep -o 'http://[^ ]*' "$scratch/ingest.log" | head -n 1)
absorbed() { curl -sf "$ingester" | grep -q '^bcmdist_ingest_rows_total{.*} [1-9]'; }
until_true 60 "rows in the ingester's metrics" absorbed
curl -sf "${ingester%/metrics}/health" >/dev/null
curl -sf "$ingester" >>"$scratch/metrics"

python - "$scratch/metrics" <<'PYTHON'
import json
import re
import sys
from pathlib import Path

exposed = set(re.findall(r"^# TYPE (\w+)", Path(sys.argv[1]).read_text(), re.MULTILINE))
board = json.loads(Path("dashboard.json").read_text())
asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
text = "\n".join([*asked, Path("alerts.yml").read_text()])
names = {re.sub("_bucket$|_count$", "", name) for name in re.findall(r"\bbcmdist_\w+", text)}
assert names <= exposed, f"no metrics of the service or the ingester: {sorted(names - exposed)}"
numbers = [panel["id"] for panel in board["panels"]]
assert len(set(numbers)) == len(numbers)
print(f"ok: {len(names)} metrics in {len(asked)} questions of the dashboard and the alerts")
PYTHON

command -v promtool >/dev/null || skip promtool
promtool check config prometheus.yml
promtool test rules alerts_test.yml
# The questions of the dashboard, as rules with its variables filled in.
python - >"$scratch/questions.yml" <<'PYTHON'
import json
from pathlib import Path

panels = json.loads(Path("dashboard.json").read_text())["panels"]
asked = [target["expr"].replace("$model", ".*") for panel in panels for target in panel.get("targets", [])]
rules = [{"record": f"question:{number}", "expr": expression} for number, expression in enumerate(asked)]
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
PYTHON
promtool check rules "$scratch/questions.yml"
echo "ok: promtool"
