"""Several worker processes behind one port: shared limits, metrics and rows, and their replacement."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from processes import LONG, wait_until
from services import START, Server, fitted, httpx, new_rows, send

from bcmdist import GBCM
from bcmdist.app.service import shared
from bcmdist.app.service.limits import Rate
from bcmdist.app.service.shared import SharedTable

POINT = {"X": [[0.5, 1.0]]}


@pytest.fixture
def served(tmp_path):
    fitted(tmp_path / "models")
    server = Server(tmp_path / "models", "--workers", "2", "--max-rate", "100000")
    yield server
    server.end(signal.SIGKILL)


def ready(server):
    """Process ids of the workers that were ready and have not ended, as logged."""
    log = server.log.read_text()
    return [int(pid) for pid in re.findall(r"worker (\d+) is ready", log) if f"worker {pid} ended" not in log]


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def metric(text, name):
    """Sum of a metric's samples."""
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}(\{{| )", line))


def test_tables_of_two_processes_are_one(tmp_path):
    """A client's rate holds for all: what one process has counted, the other one counts too."""
    path, now = str(tmp_path / "rates"), [0.0]
    tables = [SharedTable(path) for _ in range(2)]
    one, other = (Rate(2.0, table, clock=lambda: now[0]) for table in tables)
    assert [rate.wait("a") for rate in (one, other, one, other, one)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    assert other.wait("b") == 0.0
    now[0] = 0.5
    assert [one.wait("a"), other.wait("a")] == [0.0, 0.5]
    for table in tables:
        table.close()


def test_a_process_waits_for_the_entry_of_another(tmp_path):
    """Each of two processes adds 1 to the same level 2,000 times; none is lost."""
    path = str(tmp_path / "rates")

    def count():
        table = SharedTable(path)
        for _ in range(2_000):
            with table.entry("a") as entry:
                level = float(entry["level"])
                entry["level"], entry["time"] = level + 1.0, 1.0
        table.close()

    child = os.fork()
    if not child:
        count()
        os._exit(0)
    count()
    assert os.waitpid(child, 0)[1] == 0
    table = SharedTable(path)
    with table.entry("a") as entry:
        assert entry["level"] == 4_000.0
    table.close()


def test_the_oldest_names_are_forgotten(monkeypatch):
    monkeypatch.setattr(shared, "SLOTS", 8)
    table = SharedTable()
    for time_, name in enumerate("abcdefghi"):  # one more than there are slots
        with table.entry(name) as entry:
            assert entry["level"] == 0.0
            entry["level"], entry["time"] = 1.0, time_
    levels = []
    for name in "ihb":
        with table.entry(name) as entry:
            levels.append(float(entry["level"]))
            entry["time"] = 10.0
    assert levels == [1.0, 1.0, 1.0]
    with table.entry("a") as entry:  # takes the place of the oldest that is left
        assert entry["level"] == 0.0


@pytest.mark.slow
def test_workers_are_replaced_without_a_failed_request(served):
    """SIGHUP replaces both while clients ask and send rows; the metrics count the requests of all workers."""
    before = ready(served)
    assert len(before) == 2
    rows = GBCM.load(served.folder / "wave").committee.total.rows
    stop, failed, counted = threading.Event(), [], []

    def ask():
        with httpx.Client(base_url=served.url, timeout=LONG) as http:
            while not stop.is_set():
                answer = http.post("/models/wave/predict", json=POINT)
                counted.append(1)
                if answer.status_code != 200:
                    failed.append(answer.text)

    def absorb(first):
        with httpx.Client(base_url=served.url, timeout=LONG) as http:
            for number in range(first, first + 6):
                answer = send(http, new_rows(number), f"k{number}")
                if answer.status_code != 200:
                    failed.append(answer.text)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads += [threading.Thread(target=absorb, args=(first,)) for first in (0, 3, 6)]
    for thread in threads:
        thread.start()
    served.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(ready(served)) == 2 and not set(before) & set(ready(served)), "new workers")
    stop.set()
    for thread in threads:
        thread.join(LONG)
    assert not failed
    text = httpx.get(f"{served.url}/metrics").text
    assert metric(text, "bcmdist_ingested_rows_total") == 12 * 30
    assert metric(text, "bcmdist_requests_total") >= len(counted) + 12
    assert metric(text, "bcmdist_model_waiting_rows") == 0
    assert GBCM.load(served.folder / "wave").committee.total.rows == rows + 12 * 30
    assert served.end(signal.SIGTERM) == 0
    assert all(map(gone, ready(served)))


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_none_outlives_its_supervisor(served):
    first, second = ready(served)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(ready(served)) == 2 and first not in ready(served), "a new worker")
    assert second in ready(served)
    assert httpx.post(f"{served.url}/models/wave/predict", json=POINT).status_code == 200
    left = ready(served)
    os.kill(left[0], signal.SIGSTOP)  # keeps the address for a while
    served.end(signal.SIGKILL)
    threading.Timer(4.0, os.kill, (left[0], signal.SIGCONT)).start()
    served.start()  # waits for the address
    wait_until(lambda: all(map(gone, left)), "the end of the workers")
    assert httpx.post(f"{served.url}/models/wave/predict", json=POINT).status_code == 200


@pytest.mark.slow
def test_a_service_that_cannot_start_ends_with_the_error_of_a_worker(tmp_path):
    command = [sys.executable, "-m", "bcmdist", "serve", str(tmp_path / "none"), "--port", "0", "--workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert ended.returncode == 1
    assert "MODELS_DIR: expected a directory of models" in ended.stderr
    assert START not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_service_that_is_ended_while_it_starts_ends_in_peace(tmp_path):
    fitted(tmp_path / "models")
    command = [sys.executable, "-m", "bcmdist", "serve", str(tmp_path / "models"), "--port", "0", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    children = wait_until(lambda: psutil.Process(process.pid).children(), "workers that start")
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LONG)
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert START not in log
    wait_until(lambda: all(gone(child.pid) for child in children), "the end of the workers")


PROGRAM = """
import functools, os, signal, socket
from bcmdist.app.service.workers import Supervisor, Worker


def work(listening, is_ready):  # of all workers that are started the first TIMES kill themselves
    with open("starts", "ab") as file:
        file.write(b"x")
        file.flush()
        count = file.tell()
    if count <= TIMES:
        os.kill(os.getpid(), signal.SIGKILL)
    is_ready()
    signal.pause()


if __name__ == "__main__":
    with socket.socket() as listening:
        end = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
        Supervisor(functools.partial(Worker, work, listening), 2, end, lambda pid: None).run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("times", "starts"), [(2, True), (3, False)])
def test_workers_that_are_killed_while_the_service_starts_are_started_again(tmp_path, times, starts):
    (tmp_path / "program.py").write_text(PROGRAM.replace("TIMES", str(times)))
    command = [sys.executable, "program.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG)
    assert (ended.returncode == 0) is starts, ended.stderr
    assert starts or "workers: expected each to become ready, one ended with code -9" in ended.stderr


@pytest.mark.slow
def test_a_renewal_before_there_are_workers_changes_nothing(tmp_path):
    """SIGHUP while a service starts, from the moment on at which it is ignored."""
    fitted(tmp_path / "models")
    command = [sys.executable, "-m", "bcmdist", "serve", str(tmp_path / "models"), "--port", "0", "--workers", "2"]
    with open(tmp_path / "serve.log", "wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_until(lambda: ignores(process.pid, signal.SIGHUP), "a service that ignores it")
        while START not in (text := (tmp_path / "serve.log").read_text()):
            assert process.poll() is None, text
            process.send_signal(signal.SIGHUP)
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


def ignores(pid, number):
    """Whether a process ignores a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return bool(mask >> (number - 1) & 1)
