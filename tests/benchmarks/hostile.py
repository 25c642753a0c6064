"""The service while ten clients try to stop it, in one way after the other, on loopback.

    python tests/benchmarks/hostile.py [--quick] [--only ATTACK] [--json]

Attacks, each for a part of the time: names of 60 and 900 kB in bodies; sockets that send on after they were refused, or
nothing; answers that nobody reads; bodies of 16 MB of unknown names, of millions of rows, of one wide row, of texts, of
tiny chunks; many quantiles of many rows; batches of 100,000 rows; addresses that are made up; as many streams of events
as there can be; two lengths of one body. The clients have tokens of their own but where they try without. They are
threads of a process of a lower priority, since theirs would be other machines.

Meanwhile somebody asks /health, and for a prediction of a single point, each by a new connection and with a token of
his own, twenty times a second; and the memory of the server is looked at. It ends with 1 where a target is missed. Full
mode takes a minute and is run by hand on a quiet machine; quick mode shows that every attack is survived.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

CLIENTS, INPUTS, EVERY_SECONDS, PATIENCE = 10, 4, 0.05, 20.0
FULL, QUICK = 60.0, 12.0  # seconds of all attacks
P99_SECONDS, GROWN_MB = 0.2, 200.0  # targets
WANTED = f"errors 0, p99 of /health <= {1e3 * P99_SECONDS:g} ms, memory + {GROWN_MB:g} MB at most"
PREDICT = "/models/wave/predict"
KEPT = 60  # connections of each client
NICER = 10


# --- Attacks: each is called again and again by each client ---


class Hostile:
    """A client, and what it keeps open."""

    def __init__(self, port, token, number):
        self.port, self.number, self.kept = port, number, []
        self.bearing = {"Authorization": f"Bearer {token}"}

    def post(self, body, path=PREDICT, **headers):
        """An answer, which is read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", path, body, self.bearing | {"Content-Type": "application/json"} | headers)
            return len(connection.getresponse().read())
        finally:
            connection.close()

    def open(self, text, buffer_bytes=None):
        """A connection that has sent a text, and is kept; of the oldest some are let go."""
        one = socket.socket()
        one.settimeout(1.0)
        if buffer_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.kept.append(one)
        one.connect(("127.0.0.1", self.port))
        one.sendall(text)
        for old in self.kept[:-KEPT]:
            old.close()
        del self.kept[:-KEPT]
        return one

    def head(self, method, path, **headers):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode()

    def drip(self):
        """A byte more on every connection; those that were ended are let go."""
        for one in list(self.kept):
            try:
                one.send(b"1")
            except OSError:
                one.close()
                self.kept.remove(one)


def names(client):
    client.post(json.dumps({"X": [[0.0] * INPUTS], "columns": ["a" * 60_000, "b", "c", "d"]}))
    client.post(json.dumps({"X": [[0.0] * INPUTS], "columns": ["a" * 900_000, "b", "c", "d"]}))
    client.post(json.dumps({"X": [[0.0] * INPUTS], "a" * 60_000: 1}))


def unfinished(client):
    client.drip()
    while len(client.kept) < KEPT:
        client.open(client.head("POST", PREDICT, **{"Content-Length": "10000000"}) + b"1")
    time.sleep(0.2)


def silent(client):
    client.drip()
    while len(client.kept) < KEPT:
        client.open(b"GET /hea" if client.number % 2 else b"")
    time.sleep(0.2)


def unread(client):
    text = client.head("GET", "/openapi.json", **client.bearing)
    one = client.open(text * 5, buffer_bytes=4096)
    body = json.dumps({"X": np.zeros((4000, INPUTS)).tolist(), "quantiles": [0.1]}).encode()
    head = client.head(
        "POST", PREDICT, **client.bearing, **{"Content-Type": "application/json", "Content-Length": len(body)}
    )
    with contextlib.suppress(OSError):
        one.sendall(head + body)
    time.sleep(0.1)


def chunks(client):
    head = client.head(
        "POST", PREDICT, **client.bearing, **{"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    )
    one = client.open(head)
    for _ in range(20):
        one.sendall(b"1\r\n \r\n" * 10_000)
    time.sleep(0.1)


def quantiles(client):
    levels = {"quantiles": [k / 100 for k in range(1, 100)], "intervals": [k / 50 for k in range(1, 50)]}
    client.post(json.dumps({"X": np.zeros((30_000, INPUTS), dtype=int).tolist(), **levels}))


def forwarded(client):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE)
    for number in range(50):
        headers = {"X-Forwarded-For": f"10.{client.number}.0.{number}"}
        connection.request("GET", "/models", headers=headers)
        connection.getresponse().read()
    connection.close()


def streams(client):
    client.drip()
    while len(client.kept) < KEPT // 2:
        client.open(client.head("GET", "/events", **client.bearing))
    time.sleep(0.2)


def lengths(client):
    both = {"Content-Length": "5", "Transfer-Encoding": "chunked"}
    client.open(client.head("POST", PREDICT, **client.bearing, **both) + b"0\r\n\r\nGET /models HTTP/1.1\r\n\r\n")


SMALL = [names, unfinished, silent, unread, chunks, quantiles, forwarded, streams, lengths]
ATTACKS = {one.__name__: one for one in SMALL}
MOST = 2**24 - 100  # bytes of a body
BODIES = {
    "unknown": lambda: b'{"X":[[0,0,0,0]],' + b",".join(b'"%d":1' % k for k in range(MOST // 12)) + b"}",
    "rows": lambda: b'{"X":[' + b",".join([b"[0]"] * (MOST // 4 - 10)) + b"]}",
    "wide": lambda: b'{"X":[[' + b",".join([b"0"] * (MOST // 2 - 10)) + b"]]}",
    "texts": lambda: b'{"columns":[' + b",".join([b'"\\""'] * (MOST // 5 - 10)) + b"]}",
    "numbers": lambda: b'{"X":[' + b",".join([b"[" + b",".join([b"0.5"] * 40) + b"]"] * 99_000) + b"]}",
    "batches": lambda: json.dumps({"X": np.random.default_rng(0).uniform(-2, 2, (100_000, INPUTS)).round(3).tolist()}),
}


def attack(name, port, tokens, seconds):
    """All clients, each as often as it can."""
    os.nice(NICER)
    body = BODIES[name]() if name in BODIES else None
    print("ready", flush=True)
    end, done = time.monotonic() + seconds, itertools.count()

    def go_on(number):
        client = Hostile(port, tokens[number], number)
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if body is None:
                    ATTACKS[name](client)
                else:
                    client.post(body)
            next(done)
            time.sleep(0.01)
        for one in client.kept:
            one.close()

    threads = [threading.Thread(target=go_on, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    print(next(done), flush=True)
    os._exit(0)  # clients wait for answers that they will not read


# --- Those who ask in peace ---


class Peaceful:
    """Asks for one thing again and again, and how long each answer took."""

    def __init__(self, port, token, path, body=None):
        self.port, self.path, self.body = port, path, body
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.seconds, self.errors, self.over = [], [], threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.over.wait(EVERY_SECONDS):
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                connection.request("POST" if self.body else "GET", self.path, self.body, self.headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.errors.append(answer.status)
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(type(error).__name__)
            finally:
                connection.close()
            self.seconds.append(time.perf_counter() - begun)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(2 * PATIENCE)

    def figures(self, name):
        p50, p99 = np.quantile(self.seconds, (0.5, 0.99))
        return {f"{name}_p50_ms": 1e3 * p50, f"{name}_p99_ms": 1e3 * p99, f"{name}_errors": len(self.errors)}


class Memory:
    """The most that a process has, looked at now and then."""

    def __init__(self, pid):
        self.process = psutil.Process(pid)
        self.before = self.most = self.process.memory_info().rss
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, self.process.memory_info().rss)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    @property
    def grown_mb(self):
        return (self.most - self.before) / 2**20


def attacked(name, port, tokens, seconds, asking):
    """Figures of those who ask in peace during an attack."""
    given = json.dumps([name, port, tokens, seconds])
    with subprocess.Popen([sys.executable, __file__, "--attack", given], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n", f"the attack {name} did not begin"
        with Peaceful(port, asking[0], "/health") as health:
            point = json.dumps({"X": [[0.5] * INPUTS]})
            with Peaceful(port, asking[1], PREDICT, point) as predict:
                tries = int(process.stdout.readline())
    print(name, *health.errors, *predict.errors, file=sys.stderr)
    return {"tries": tries, **health.figures("health"), **predict.figures("point")}, health


@contextlib.contextmanager
def served(folder):
    """Process and port of a service with tokens, and these."""
    from bcmdist import GBCM, Settings  # clients start without
    from bcmdist.app.service.tokens import add_token

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2000, INPUTS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
    GBCM.fit(
        (X, y),
        Settings(partition="chunks", query=200, learn=False, kernel="se", rows_per_expert=200),
        model=folder / "models/wave",
    )
    tokens = [add_token(folder / "tokens.json", f"reader {number}", ["read"]) for number in range(CLIENTS + 2)]
    command = [sys.executable, "-m", "bcmdist", "serve", folder / "models", "--port", "0", "--jobs", folder / "jobs"]
    command += ["--token-file", folder / "tokens.json"]
    with open(folder / "log", "wb") as errors:
        process = subprocess.Popen([*map(str, command)], stderr=errors)
    try:
        while "listening on" not in (text := (folder / "log").read_text()):
            if process.poll() is not None:
                raise SystemExit(text)
            time.sleep(0.1)
        yield process, int(text.split("listening on")[1].split()[0].rpartition(":")[2]), tokens
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def figures(seconds, wanted) -> dict:
    """By attack, and of all of them."""
    found, all_seconds, errors = {}, [], 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (process, port, tokens):
        batch = json.dumps({"X": np.zeros((20_000, INPUTS)).tolist()})
        with Peaceful(port, tokens[-1], PREDICT, batch), Peaceful(port, tokens[-2], "/openapi.json"):
            time.sleep(1.0)  # what it loads when it is first asked is not what is looked for
        with Memory(process.pid) as memory:
            for name in wanted:
                found[name], health = attacked(name, port, tokens[:-2], seconds / len(wanted), tokens[-2:])
                found[name]["grown_mb"] = memory.grown_mb
                all_seconds += health.seconds
                errors += len(health.errors)
        begun = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        ended = {"exit": process.returncode, "exit_seconds": time.perf_counter() - begun}
    p99 = float(np.quantile(all_seconds, 0.99))
    total = {"health_p99_ms": 1e3 * p99, "health_errors": errors, "grown_mb": memory.grown_mb, **ended}
    met = not errors and p99 <= P99_SECONDS and memory.grown_mb <= GROWN_MB and process.returncode == 0
    return {"attacks": found, "all": total, "met": met}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=[*ATTACKS, *BODIES], action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        attack(*json.loads(given.attack))
    found = figures(QUICK if given.quick else FULL, given.only or [*ATTACKS, *BODIES])
    if given.json:
        print(json.dumps(found))
    else:
        for name, one in {**found["attacks"], "all": found["all"]}.items():
            print(f"{name:11}", "  ".join(f"{figure} {value:.4g}" for figure, value in one.items()))
        print(f"wanted: {WANTED}")
    sys.exit(not found["met"])


if __name__ == "__main__":
    main()
