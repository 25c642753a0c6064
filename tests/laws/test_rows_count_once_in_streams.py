"""Streams absorbed from the command line, while their server, their readers and their producers come and go."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.partition import from_key
from bcmdist.data.writing import write_dataset
from problems import assert_same_committee

pytest.importorskip("redis", reason="Redis: pip install 'bcmdist[redis]'")

from bcmdist.data.entries import encode, publish

pytestmark = pytest.mark.alone

ROWS = 20
DEADLINE = 90.0

# Publishes entries, each of rows that its number determines.
PRODUCER = """
import sys, time
from test_rows_count_once_in_streams import some_rows
from bcmdist.data.entries import encode, publish
url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for k in range(first, last):
    publish(url, *some_rows(k))
    time.sleep(0.02)
"""


def some_rows(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(rows)


@pytest.fixture
def model(tmp_path):
    """Path of a model that has absorbed nothing."""
    return prepared(tmp_path)


def prepared(tmp_path):
    X, y = some_rows(0, 200)
    write_dataset(tmp_path / "first.zarr", {"X": X, "y": y})
    settings = Settings(kernel="se", learn=False, query=15, rows_per_expert=ROWS)
    return GBCM.prepare(tmp_path / "first.zarr", settings, model=tmp_path / "model").url


def environment():
    folders = map(str, Path(__file__).parents[:2])  # of this file and of what it imports
    paths = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    return os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}


def ingester(model, url, *options):
    command = [sys.executable, "-m", "bcmdist", "ingest", model, url, "--serial", "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())


def producer(url, first, last):
    return subprocess.Popen([sys.executable, "-c", PRODUCER, url, str(first), str(last)], env=environment())


def finish(process, code=0):
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, err.decode()
    return json.loads(out)


def until(condition, *processes):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes), [p.communicate() for p in processes]
        time.sleep(0.01)


def unacknowledged(server):
    groups = server.client.xinfo_groups("rows")
    return groups[0]["pending"] + (groups[0].get("lag") or 0) if groups else 1


def stops_with_entries_left(process, server):
    """Stop a process; let it go on, and return False, if it has acknowledged all that was published."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.05)  # until it has stopped
    if unacknowledged(server):
        return True
    process.send_signal(signal.SIGCONT)
    return False


def ids(server):
    return [number.decode() for number, _ in server.client.xrange("rows")]


def check_heard(model, server, url):
    """Every entry once, as if all had been absorbed in peace."""
    gbcm = GBCM.load(model)
    keys = [f"{url}[{number}]/X[0:{ROWS}]" for number in ids(server)]
    assert sorted(entry.key for entry in gbcm.ledger) == sorted(keys)
    peaceful = GBCM.load(model, commit=1)
    parts = [from_key(key, y="y") for key in keys]
    assert_same_committee(
        gbcm.committee,
        peaceful.committee.absorb(peaceful.snapshot.compute_messages(parts, SerialRuntime(), label="").message),
    )


@pytest.mark.slow
def test_a_stream_whose_server_and_readers_are_killed(model, redis_server):
    url, client, hold = redis_server.url(), redis_server.client, GBCM.load(model).store.hold(1)
    with hold:  # to compare with, in the end
        publishing = producer(url, 0, 80)
        first = ingester(model, url, "--watch", "--no-grow", "--take-over", "0.5", "--commit-every", "3")
        store = GBCM.load(model).store
        until(lambda: store.head() > 3 and stops_with_entries_left(first, redis_server), first)
        left = unacknowledged(redis_server)
        first.kill()
        first.communicate()
        second = ingester(model, url, "--watch", "--no-grow", "--take-over", "0.5", "--commit-every", "3")
        before = store.head()
        until(lambda: store.head() > before + 3, second)
        redis_server.kill()
        time.sleep(0.3)
        redis_server.start()
        publish(url, *some_rows(3))  # once more, as an entry of its own
        until(lambda: publishing.poll() is not None, second)
        assert publishing.returncode == 0
        client.xgroup_destroy("rows", client.xinfo_groups("rows")[0]["name"])  # which decides nothing
        until(lambda: len(GBCM.load(model).ledger) == 81 and unacknowledged(redis_server) == 0, second)
        second.send_signal(signal.SIGTERM)
        told = finish(second)
        assert told["duplicates"] == 0  # it reads on from the offset that is committed
        assert told["waiting"] == 0
        assert left > 0
        assert client.xinfo_consumers("rows", client.xinfo_groups("rows")[0]["name"]) == []  # it has left the group
        check_heard(model, redis_server, url)


@pytest.mark.slow
def test_an_ingester_that_is_killed_is_seen_to_be_dead_until_it_is_started_again(model, redis_server):
    url = redis_server.url()

    def ingesters():
        told, code = run_without_workers("info", model)
        assert code == 0
        return [(one["source"], one["alive"]) for one in told["ingesters"] or ()], told["lag"]

    for k in range(4):
        publish(url, *some_rows(k))
    first = ingester(model, url, "--watch", "--no-grow", "--take-over", "0.5")
    until(lambda: len(GBCM.load(model).ledger) == 4, first)
    assert ingesters()[0] == [(url, True)]
    first.kill()
    first.communicate()
    for k in range(4, 9):
        publish(url, *some_rows(k))
    assert ingesters() == ([(url, False)], {"rows": None, "seconds": None, "sources": {url: None}})
    second = ingester(model, url, "--watch", "--no-grow", "--take-over", "0.5")
    until(lambda: len(GBCM.load(model).ledger) == 9, second)
    assert ingesters()[0] == [(url, True)]
    second.send_signal(signal.SIGTERM)
    assert finish(second)["waiting"] == 0
    found, lag = ingesters()
    assert (found, lag["rows"]) == ([], 0)


@pytest.mark.slow
def test_ctrl_c_finishes_what_is_under_way_on_workers(model, redis_server):
    url = redis_server.url()
    command = [
        sys.executable,
        "-m",
        "bcmdist",
        "ingest",
        model,
        url,
        "--watch",
        "--no-grow",
        "--workers",
        "2",
        "--json",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    for k in range(10):
        publish(url, *some_rows(k))
    until(lambda: GBCM.load(model).ledger, process)
    for k in range(10, 30):
        publish(url, *some_rows(k))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes, also those of workers
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, b"Traceback" in err) == (0, False), err.decode()
    told = json.loads(out)
    assert len(GBCM.load(model).ledger) == told["partitions"]
    assert told["partitions"] + told["waiting"] == 30
    assert redis_server.client.xinfo_groups("rows")[0]["pending"] == 0  # nothing is claimed by one that has ended


def run(*words):
    """What a command says that computes here, and its exit code."""
    return run_without_workers(*words, "--serial")


def run_without_workers(*words):
    result = CliRunner().invoke(cli, [*map(str, words), "--json"])
    if result.exit_code == 0:
        return json.loads(result.stdout), 0
    _, error, message = result.stderr.splitlines()[-1].split(": ", 2)
    return {"error": error, "message": message}, result.exit_code


def with_bad_entries(server, url):
    """Six entries of which the third is garbage and the fifth has other columns; their ids."""
    for k in range(2):
        publish(url, *some_rows(k))
    server.client.xadd("rows", {"data": b"garbage"})
    publish(url, *some_rows(3))
    publish(url, np.zeros((ROWS, 3)), np.zeros(ROWS))
    publish(url, *some_rows(5))
    return ids(server)


@pytest.mark.slow
@pytest.mark.parametrize("fading", [(), ("--half-life", 50)])
def test_bad_entries_are_named_and_not_acknowledged(model, redis_server, fading):
    url = redis_server.url()
    entries = with_bad_entries(redis_server, url)
    told, code = run("ingest", model, url, *fading)
    assert (code, told["error"]) == (1, "InvalidData")
    assert f"rows[{entries[2]}]: expected an Arrow IPC stream" in told["message"]
    absorbed = len(GBCM.load(model).ledger)
    assert 2 <= absorbed <= 4
    told, code = run("ingest", model, url, "--on-error", "skip", "--take-over", 0, *fading)
    assert code == 0
    assert sorted(told["skipped"]) == [f"{url}[{entries[2]}]/X[0:0]", f"{url}[{entries[4]}]/X[0:{ROWS}]"]
    assert told["partitions"] == 4 - absorbed
    assert told["waiting"] == 0
    assert unacknowledged(redis_server) == 0
    assert GBCM.load(model).info()["skipped"] == sorted(told["skipped"])


def test_other_columns_stop_an_ingester(model, redis_server):
    url = redis_server.url()
    entries = with_bad_entries(redis_server, url)
    redis_server.client.xdel("rows", entries[2])
    told, code = run("ingest", model, url)
    assert (code, told["error"]) == (1, "InvalidData")
    assert f"rows[{entries[4]}]: expected 2 columns in X, as in training, got 3" in told["message"]
    assert len(GBCM.load(model).ledger) >= 3
    assert unacknowledged(redis_server) >= 1


def test_only_bad_entries(model, redis_server):
    url = redis_server.url()
    redis_server.client.xadd("rows", {"data": b"garbage"})
    told, code = run("ingest", model, url, "--on-error", "skip")
    assert (code, told["partitions"], len(told["skipped"])) == (0, 0, 1)
    assert GBCM.load(model).info()["skipped"] == sorted(told["skipped"])
    assert unacknowledged(redis_server) == 0


def test_rows_of_a_stream_fade_by_their_position(model, redis_server):
    url = redis_server.url()
    for k in range(6):
        publish(url, *some_rows(k))
    told, code = run("ingest", model, url, "--half-life", 30, "--commit-every", 2, "--keep", 50)
    assert (code, told["partitions"]) == (0, 6)
    after, empty = GBCM.load(model), GBCM.load(model, commit=1)
    assert [entry.position for entry in after.ledger] == [20, 40, 60, 80, 100, 120]
    keys = [f"{url}[{number}]/X[0:{ROWS}]" for number in ids(redis_server)]
    parts = [from_key(key, y="y", weight=2.0 ** (-(5 - k) * ROWS / 30)) for k, key in enumerate(keys)]
    assert_same_committee(
        after.committee,
        empty.committee.absorb(empty.snapshot.compute_messages(parts, SerialRuntime(), label="").message),
    )
    redis_server.client.xadd("rows", {"data": encode(*some_rows(7))})
    told, code = run("ingest", model, url)
    assert (code, told["error"]) == (1, "InvalidOption")
    assert "expected a source that counts its rows" in told["message"]
    assert unacknowledged(redis_server) == 1


def test_an_entry_that_is_published_twice(model, redis_server):
    """Two entries of the same rows are two names for them."""
    url = redis_server.url()
    for k in (1, 2, 1):
        publish(url, *some_rows(k))
    names = [f"{url}[{number}]/X[0:{ROWS}]" for number in ids(redis_server)]
    told, code = run("ingest", model, url, "--same-rows", "refuse")
    assert (code, told["error"]) == (1, "SameRows")
    assert told["message"].startswith(f"{names[2]}: expected rows that were not absorbed, got those of {names[0]};")
    assert [entry.key for entry in GBCM.load(model).ledger] == names[:2]
    assert unacknowledged(redis_server) == 1
    told, code = run("ingest", model, url, "--same-rows", "allow", "--take-over", 0)
    assert (code, told["partitions"], told["same_rows"]) == (0, 1, 1)
    assert unacknowledged(redis_server) == 0
