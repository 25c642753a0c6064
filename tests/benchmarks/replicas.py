"""Two services of one model directory, and two ingesters of one stream, while processes are killed.

    python tests/benchmarks/replicas.py [--quick] [--rate R] [--seconds S] [--every S] [--json | --write]

Each service has two worker processes. Clients, which know both services, ask for single points at random times, at half
the rate that was answered before without pause (or R a second), and send rows under keys, each key by two clients at
once. Rows also arrive in a Redis stream. Every few seconds a process is killed and started again: a worker, a service
or an ingester; or a service replaces its workers (SIGHUP). At the end the model must have each row once, and no
request may have failed: a client repeats those that a killed process has cut off. A time is that from when a client
meant to ask until it has its answer; the model's own compute time is that of single points before, as services tell it
by `Server-Timing`, a median. Full mode takes 11 minutes and is run by hand on a quiet machine; needs redis. `--write`
keeps the result, from which the guide's page on benchmarks draws its picture of kills.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

import records
from bcmdist import GBCM, Settings, publish
from bcmdist.client import Client
from bcmdist.errors import BcmdistError
from measurement import conditions
from redis_server import RedisServer

INPUTS, FIRST_ROWS, ROWS = 2, 4000, 100  # columns; rows of the first fit; rows of a request or an entry
ASKERS, SENDERS = 8, 2
LOOK_SECONDS = 2.0
RESULT = "replicas"  # in the folder of results
WANTED = "odd_rows 0, failed 0, p99_times <= 10"


def rows(rng, count):
    X = rng.uniform(-2, 2, (count, INPUTS))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(count)


class Program:
    """A command that is started again whenever it was killed."""

    def __init__(self, folder, name, *command):
        self.name, self.log, self.command = name, folder / f"{name}.log", [sys.executable, "-m", "bcmdist", *command]
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    @property
    def children(self):
        return [one.pid for one in psutil.Process(self.process.pid).children() if "spawn_main" in str(one.cmdline())]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


class Clients:
    """Threads that ask and send, and what became of it."""

    def __init__(self, urls):
        self.urls, self.stop, self.failed, self.published = urls, threading.Event(), [], 0
        self.seconds, self.keys, self.threads = [], Counter(), []

    def client(self, number):
        return Client(self.urls[number % 2 :] + self.urls[: number % 2], timeout=30.0, tries=30)

    def start(self, target, *arguments):
        self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self.threads[-1].start()

    def ask(self, number, rate):
        """Single points at random times; None: without pause."""
        rng, client, due = np.random.default_rng(number), self.client(number), time.perf_counter()
        while not self.stop.is_set():
            if rate is not None:
                due += rng.exponential(1.0 / rate)
                time.sleep(max(0.0, due - time.perf_counter()))
            else:
                due = time.perf_counter()
            try:
                client.predict("wave", rng.uniform(-2, 2, (1, INPUTS)))
                self.seconds.append(time.perf_counter() - due)
            except BcmdistError as error:
                self.failed.append(repr(error))

    def send(self, number):
        """Rows under the same keys as the other senders, at the same times."""
        client, key = self.client(number), 0
        while not self.stop.is_set():
            X, y = rows(np.random.default_rng((7, key)), ROWS)
            try:
                client.absorb("wave", X, y, key=f"rows-{key}")
                self.keys[key] += 1
            except BcmdistError as error:
                self.failed.append(repr(error))
            key += 1
            time.sleep(0.5)

    def publish(self, url):
        """Entries of a stream."""
        rng = np.random.default_rng(11)
        while not self.stop.is_set():
            X, y = rows(rng, ROWS)
            publish(url, X, y)
            self.published += 1
            time.sleep(0.5)

    def watch(self, model):
        """Seconds, rows that were acknowledged or published, rows in the model, and single points answered."""
        begun, self.timeline = time.monotonic(), []
        while not self.stop.wait(LOOK_SECONDS):
            try:
                absorbed = GBCM.load(model).committee.total.rows
            except BcmdistError:  # pruned meanwhile
                continue
            self.timeline.append((round(time.monotonic() - begun, 1), self.sent, absorbed, len(self.seconds)))

    @property
    def sent(self):
        """Rows of the first fit, of requests and of the stream."""
        return FIRST_ROWS + ROWS * (1 + len(self.keys) + self.published)

    def join(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.threads, self.stop = [], threading.Event()


def disturb(services, ingesters, seconds, every):
    """Kill processes in turn; the second and the kind of each."""
    done, rng, begun = [], np.random.default_rng(3), time.monotonic()
    while time.monotonic() + every < begun + seconds:
        time.sleep(every)
        for one in (*services, *ingesters):
            if one.process.poll() is not None:
                raise SystemExit(f"{one.name} has ended by itself: {one.log.read_text()[-2000:]}")
        kind = ("worker", "service", "ingester", "renewal")[len(done) % 4]
        service, ingester = services[rng.integers(2)], ingesters[rng.integers(2)]
        if kind == "worker" and not service.children:
            kind = "renewal"
        if kind == "worker":
            os.kill(int(rng.choice(service.children)), signal.SIGKILL)
        elif kind == "service":
            service.kill()
        elif kind == "ingester":
            ingester.kill()
        else:
            service.process.send_signal(signal.SIGHUP)
        done.append((round(time.monotonic() - begun, 1), kind))
    return done


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("not in time")
        time.sleep(0.2)


def answers(url):
    try:
        return urllib.request.urlopen(f"{url}/ready", timeout=5).status == 200
    except OSError:
        return False


def figures(folder, stream, seconds, every, rate):
    X, y = rows(np.random.default_rng(0), FIRST_ROWS)
    settings = Settings(partition="chunks", query=200, learn=False, kernel="se", rows_per_expert=200)
    GBCM.fit((X, y), settings, model=folder / "models/wave")
    publish(stream, *rows(np.random.default_rng(5), ROWS))
    ports, services = [free_port() for _ in range(2)], []
    common = ["--workers", "2", "--max-rate", "1e6", "--jobs", str(folder / "jobs")]
    with contextlib.ExitStack() as stack:
        for number, port in enumerate(ports):
            command = ["serve", str(folder / "models"), "--port", str(port), *common]
            services.append(Program(folder, f"service{number}", *command))
            stack.callback(services[-1].end)
        ingesters = []
        for number in range(2):
            command = ["ingest", str(folder / "models/wave"), stream, "--watch", "--serial", "--no-grow", "--quiet"]
            ingesters.append(Program(folder, f"ingester{number}", *command, "--take-over", "5"))
            stack.callback(ingesters[-1].end)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        wait_until(lambda: all(map(answers, urls)))
        clients = Clients(urls)
        own = np.median([own_seconds(urls[0]) for _ in range(40)][20:])
        full = saturated(clients, min(20.0, seconds / 3))
        rate = rate or 0.5 * full
        for number in range(ASKERS):
            clients.start(clients.ask, number, rate / ASKERS)
        for number in range(SENDERS):
            clients.start(clients.send, number)
        clients.start(clients.publish, stream)
        clients.start(clients.watch, folder / "models/wave")
        killed = disturb(services, ingesters, seconds, every)
        clients.join()
        with contextlib.suppress(SystemExit):
            wait_until(lambda: GBCM.load(folder / "models/wave").committee.total.rows >= clients.sent)
        time.sleep(3.0)
        absorbed = GBCM.load(folder / "models/wave").committee.total.rows
    p50, p99 = np.quantile(clients.seconds, (0.5, 0.99))
    return {
        "own_ms": 1e3 * own,
        "full_a_second": full,
        "requests": len(clients.seconds),
        "p50_ms": 1e3 * p50,
        "p99_ms": 1e3 * p99,
        "p99_times": p99 / own,
        "keys": len(clients.keys),
        "entries": clients.published,
        "rows": absorbed,
        "odd_rows": absorbed - clients.sent,
        "failed": len(clients.failed),
        "first_failure": (clients.failed or [""])[0],
        "seconds": seconds,
        "every": every,
        "rate": rate,
        "kills": killed,
        "timeline": clients.timeline,
    }


def saturated(clients, seconds):
    """Requests a second that are answered when clients ask without pause."""
    for number in range(ASKERS):
        clients.start(clients.ask, number, None)
    time.sleep(seconds)
    clients.join()
    found, clients.seconds = len(clients.seconds) / seconds, []
    return found


def own_seconds(url):
    """Seconds of computing a single point, as the service tells it."""
    body, kind = json.dumps({"X": [[0.1] * INPUTS]}).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/models/wave/predict", body, kind)) as answer:
        return 1e-3 * float(answer.headers["Server-Timing"].partition("dur=")[2])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"keep the result in results/{RESULT}.json")
    parser.add_argument("--seconds", type=float, default=600.0, help="for which processes are killed")
    parser.add_argument("--every", type=float, default=6.0, help="seconds between two kills [default: %(default)g]")
    parser.add_argument("--rate", type=float, help="single points a second [default: half of what can be answered]")
    options, machine_state = parser.parse_args(), conditions()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(folder)
        try:
            seconds, every = (24.0, 4.0) if options.quick else (options.seconds, options.every)
            found = figures(Path(folder), server.url("rows"), seconds, every, options.rate)
        finally:
            server.stop()
    if options.json:
        print(json.dumps(found))
        return
    if options.write:
        records.keep_trial(RESULT, machine_state | found)
    found["kills"] = dict(Counter(kind for _, kind in found.pop("kills")))
    del found["timeline"]
    for name, value in found.items():
        print(f"{name:16}{value if isinstance(value, (str, dict)) else format(value, '10.5g')}")
    print(f"wanted: {WANTED}")


if __name__ == "__main__":
    main()
