"""The service under load: predictions of 100 points by 50 connections beside ingestion, on loopback.

    python tests/benchmarks/service.py [--quick] [--json]

Each connection asks `RATE` times a second on average, at random times, whether or not it has been answered late: a
time is that from when it meant to ask until it has its answer. Beside them one asker sends rows, again under the same
key after each error. The model's own compute time is that of a request alone, as the service tells it by
`Server-Timing`, the median of some before the load. Askers share the machine's cores with the service. Full mode takes
a minute and is run by hand on a quiet machine; quick mode only shows that the benchmark works.
"""

import argparse
import asyncio
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from bcmdist import GBCM, Settings

CONNECTIONS, POINTS, INPUTS, ROWS = 50, 100, 8, 200
WANTED = "errors 0, p50 <= 3 and p99 <= 10 times the model's own compute time"


@dataclass(frozen=True)
class Size:
    query: int
    seconds: float
    rate: float
    """requests of a connection a second"""


FULL, QUICK = Size(query=1000, seconds=60.0, rate=0.25), Size(query=200, seconds=4.0, rate=0.5)


def fitted(folder, query):
    """A model that has heard some thousand rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, INPUTS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
    GBCM.fit((X, y), Settings(query=query, learn=False, kernel="se", rows_per_expert=ROWS), model=folder / "wave")


def points(rng, rows):
    return {"X": rng.uniform(-2, 2, (rows, INPUTS)).tolist()}


async def predicting(http, size, rng, found):
    """Ask until the time is over; when an answer is late, the next question has waited since it was due."""
    due, end = time.perf_counter(), time.perf_counter() + size.seconds
    while (due := due + rng.exponential(1.0 / size.rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            answer = await http.post("/models/wave/predict", json=points(rng, POINTS))
            found["errors"] += answer.status_code != 200
        except httpx.TransportError:
            found["errors"] += 1
        found["seconds"].append(time.perf_counter() - due)


async def sending(http, size, rng, found):
    """Send rows, one request after the other, each until it is answered."""
    end = time.perf_counter() + size.seconds
    while time.perf_counter() < end:
        body = points(rng, ROWS)
        body["y"] = [row[1] for row in body["X"]]
        key = f"rows-{found['sent']}"
        answer = await http.post("/models/wave/rows", json=body, headers={"Idempotency-Key": key})
        found["errors"] += answer.status_code != 200
        found["sent"] += 1
        await asyncio.sleep(1.0)


async def alone(http, rng):
    """Milliseconds of computing, and until the answer, of requests that come one by one."""
    own, whole = [], []
    for _ in range(15):
        begun = time.perf_counter()
        answer = await http.post("/models/wave/predict", json=points(rng, POINTS))
        whole.append(1e3 * (time.perf_counter() - begun))
        own.append(float(answer.headers["Server-Timing"].partition("dur=")[2]))
    return statistics.median(own[5:]), statistics.median(whole[5:])


async def loaded(url, size):
    """Figures of a service under load."""
    limits = httpx.Limits(max_connections=CONNECTIONS + 1, max_keepalive_connections=CONNECTIONS + 1)
    found = {"seconds": [], "errors": 0, "sent": 0}
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as http:
        own, whole = await alone(http, np.random.default_rng(1))
        askers = [predicting(http, size, np.random.default_rng(10 + k), found) for k in range(CONNECTIONS)]
        await asyncio.gather(*askers, sending(http, size, np.random.default_rng(2), found))
        rows = (await http.get("/models/wave")).json()["rows"]
    p50, p99 = (1e3 * np.quantile(found["seconds"], level) for level in (0.5, 0.99))
    return {
        "requests": len(found["seconds"]),
        "errors": found["errors"],
        "own_ms": own,
        "alone_ms": whole,
        "p50_ms": p50,
        "p99_ms": p99,
        "p50_times": p50 / own,
        "p99_times": p99 / own,
        "rows_lost_or_doubled": rows - 4000 - ROWS * found["sent"],
    }


def figures(size) -> dict:
    """Of a service that is started, loaded and ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        models, log = Path(folder, "models"), Path(folder, "log")
        fitted(models, size.query)
        command = [sys.executable, "-m", "bcmdist", "serve", models, "--port", port, "--jobs", f"{folder}/jobs"]
        with open(log, "wb") as errors:
            process = subprocess.Popen([*map(str, command), "--max-rate", "1000"], stderr=errors)
        try:
            while "listening on" not in log.read_text():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.1)
            return asyncio.run(loaded(f"http://127.0.0.1:{port}", size))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = figures(QUICK if given.quick else FULL)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:22}{value:10.4g}")
    print(f"wanted: {WANTED}")


if __name__ == "__main__":
    main()
