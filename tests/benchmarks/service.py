"""The service under load: predictions of 100 points by 50 connections beside ingestion, on loopback.

    python tests/benchmarks/service.py [--quick] [--workers N] [--points P] [--json]

Three loads, one after the other. Alone: one connection, one request after the other. Saturated: each connection asks
again as soon as it has its answer; that is as much as the service can do, and a time is a connection's turn among 50.
Half: each connection asks at random times, all of them together half as often as were answered at saturation, whether
or not it has been answered late; a time is that from when it meant to ask until it has its answer.

Beside the last two one asker sends rows, again under the same key after each error. The model's own compute time is
that of requests alone, as the service tells it by `Server-Timing`, a median. Bodies are made before, and askers are
plain sockets, but they share the machine's cores with the service. Full mode takes a minute for each load and is run by
hand on a quiet machine; quick mode only shows that the benchmark works.
"""

import argparse
import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from bcmdist import GBCM, Settings

CONNECTIONS, POINTS, INPUTS, ROWS = 50, 100, 8, 200
BODIES, ALONE = 20, 40  # different requests; those that are sent one by one, the first half to warm up
AGAIN_SECONDS = 1.0  # between two batches of rows, or after an error of one
WANTED = "errors 0, p50 <= 3 and p99 <= 10 times the model's own compute time"


@dataclass(frozen=True)
class Size:
    query: int
    seconds: float


FULL, QUICK = Size(query=1000, seconds=60.0), Size(query=200, seconds=3.0)


def fitted(folder, query):
    """A model that has absorbed some thousand rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, INPUTS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
    GBCM.fit(
        (X, y),
        Settings(partition="chunks", query=query, learn=False, kernel="se", rows_per_expert=ROWS),
        model=folder / "wave",
    )


def points(rng, rows):
    return {"X": rng.uniform(-2, 2, (rows, INPUTS)).tolist()}


class Asker:
    """A connection that is kept."""

    def __init__(self, port):
        self._port, self._streams = port, None

    async def ask(self, target, body: bytes, *headers):
        """Status and headers of the answer, and the answer, to a POST of JSON, or a GET without a body."""
        if self._streams and self._streams[0].at_eof():  # the server has closed what nobody used for some seconds
            self.close()
        try:
            reader, writer = self._streams = self._streams or await asyncio.open_connection("127.0.0.1", self._port)
            kind = ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
            head = [f"{'POST' if body else 'GET'} {target} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", *kind, *headers]
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            told = dict(line.lower().split(": ", 1) for line in lines if line)
            return int(status.split()[1]), told, await reader.readexactly(int(told["content-length"]))
        except (OSError, EOFError):
            self.close()
            return 0, {}, b""

    def close(self):
        if self._streams:
            self._streams[1].close()
        self._streams = None


class Load:
    """Askers of predictions, how long each answer took, and how many went wrong."""

    def __init__(self, port, bodies, connections=CONNECTIONS):
        self.askers, self.bodies = [Asker(port) for _ in range(connections)], bodies
        self.seconds, self.own_seconds, self.errors = [], [], 0

    async def _once(self, asker, body, due):
        status, told, _ = await asker.ask("/models/wave/predict", body)
        self.seconds.append(time.perf_counter() - due)
        self.errors += status != 200
        if status == 200:
            self.own_seconds.append(1e-3 * float(told["server-timing"].partition("dur=")[2]))

    async def one_by_one(self, count):
        """Requests of the first connection."""
        for number in range(count):
            await self._once(self.askers[0], self.bodies[number % BODIES], time.perf_counter())

    async def closed(self, seconds):
        """As many as are answered within a time."""
        end = time.perf_counter() + seconds

        async def go_on(first, asker):
            number = first
            while (now := time.perf_counter()) < end:
                await self._once(asker, self.bodies[number % BODIES], now)
                number += 1

        await asyncio.gather(*(go_on(k, asker) for k, asker in enumerate(self.askers)))

    async def open(self, seconds, rate):
        """So many a second, at random times; when an answer is late, the next question has waited since it was due."""
        begun = time.perf_counter()

        async def go_on(first, asker):
            rng, due = np.random.default_rng(first), begun
            while (due := due + rng.exponential(len(self.askers) / rate)) < begun + seconds:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await self._once(asker, self.bodies[rng.integers(BODIES)], due)

        await asyncio.gather(*(go_on(k, asker) for k, asker in enumerate(self.askers)))

    def close(self):
        for asker in self.askers:
            asker.close()


class Sending:
    """Rows, batch after batch, each until it is answered."""

    def __init__(self, port, rng):
        self.asker, self._rng, self.sent, self.errors, self.over = Asker(port), rng, 0, 0, False

    async def run(self):
        while not (self.over and self.sent):
            body = points(self._rng, ROWS)
            body["y"] = [row[1] for row in body["X"]]
            text, status = json.dumps(body).encode(), 0
            while status != 200:
                status, _, _ = await self.asker.ask("/models/wave/rows", text, f"Idempotency-Key: rows-{self.sent}")
                self.errors += status != 200
                await asyncio.sleep(AGAIN_SECONDS)
            self.sent += 1


class Processes:
    """CPU time of a service and its workers."""

    def __init__(self, pid):
        parent = psutil.Process(pid)
        self._all = [parent, *parent.children(recursive=True)]

    @property
    def seconds(self):
        times = [one.cpu_times() for one in self._all]
        return sum(one.user + one.system for one in times)


async def loaded(port, size, processes, asked):
    """Figures of a service under load."""
    rng = np.random.default_rng(1)
    bodies = [json.dumps(points(rng, asked), separators=(",", ":")).encode() for _ in range(BODIES)]
    alone = Load(port, bodies, 1)
    await alone.one_by_one(ALONE)
    own, whole = (np.median(seconds[ALONE // 2 :]) for seconds in (alone.own_seconds, alone.seconds))
    found = {"own_ms": 1e3 * own, "alone_ms": 1e3 * whole, "alone_times": whole / own}
    sending = Sending(port, rng)
    rows = asyncio.create_task(sending.run())
    for name in ("saturated", "half"):
        load, cpu, begun = Load(port, bodies), processes.seconds, time.perf_counter()
        if name == "saturated":
            await load.closed(size.seconds)
        else:
            await load.open(size.seconds, 0.5 * found["saturated_a_second"])
        took, after = time.perf_counter() - begun, processes.seconds
        p50, p99 = np.quantile(load.seconds, (0.5, 0.99))
        found |= {f"{name}_requests": len(load.seconds), f"{name}_errors": load.errors}
        found |= {f"{name}_a_second": len(load.seconds) / took}
        found |= {f"{name}_cpu_ms": 1e3 * (after - cpu) / len(load.seconds)}
        found |= {f"{name}_p50_ms": 1e3 * p50, f"{name}_p99_ms": 1e3 * p99}
        found |= {f"{name}_p50_times": p50 / own, f"{name}_p99_times": p99 / own}
        load.close()
    sending.over = True
    await rows
    return found | await _ingested(port, sending)


async def _ingested(port, sending):
    """What became of the rows."""
    _, _, told = await sending.asker.ask("/models/wave", b"")
    sending.asker.close()
    absorbed = json.loads(told)["rows"] - 4000
    return {"batches": sending.sent, "batch_errors": sending.errors, "rows_odd": absorbed - ROWS * sending.sent}


def figures(size, workers, asked) -> dict:
    """Of a service that is started, loaded and ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        models, log = Path(folder, "models"), Path(folder, "log")
        fitted(models, size.query)
        command = [
            sys.executable,
            "-m",
            "bcmdist",
            "serve",
            models,
            "--port",
            port,
            "--jobs",
            f"{folder}/jobs",
            "--workers",
            workers,
        ]
        with open(log, "wb") as errors:
            process = subprocess.Popen([*map(str, command), "--max-rate", "100000"], stderr=errors)
        try:
            while "listening on" not in log.read_text():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.1)
            return asyncio.run(loaded(port, size, Processes(process.pid), asked))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--points", type=int, default=POINTS, help="of a request")
    given = parser.parse_args()
    found = figures(QUICK if given.quick else FULL, given.workers, given.points)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:22}{value:10.4g}")
    print(f"wanted: {WANTED}")


if __name__ == "__main__":
    main()
