"""What `bcmdist ingest --metrics` answers is what the commits say, for as long as it runs."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from processes import LONG, wait_until

parser = pytest.importorskip("prometheus_client.parser", reason="metrics: pip install 'bcmdist[serve]'")

from bcmdist import GBCM, Settings, append_rows  # noqa: E402
from bcmdist.app.ingest_metrics import COUNTERS, GAUGES, SECONDS, IngestMetrics, answering  # noqa: E402
from bcmdist.committee.ingest.options import IngestOptions  # noqa: E402
from bcmdist.data.dataset import open_data  # noqa: E402
from bcmdist.data.partition import partitions  # noqa: E402
from bcmdist.data.sources.delivery import Delivery  # noqa: E402
from bcmdist.errors import InvalidData, InvalidOption  # noqa: E402

GIVEN = Settings(kernel="se", learn=False, query=10, rows_per_expert=20)
SOURCE = "redis://someone:secret@h:6379/0/rows"


class Delivering:
    """A source of some partitions, then of some that cannot be read, and of waiting ones."""

    name = SOURCE

    def __init__(self, parts, waiting, bad=0):
        self.parts, self.waiting, self.bad = parts, waiting, bad

    def read(self, after, most):
        error = InvalidData("rows: expected numbers, got others; send them again")
        whole = [Delivery((part,), k) for k, part in enumerate(self.parts, 1)]
        spoiled = [Delivery((), len(whole) + k, bad=(f"spoiled {k}", error)) for k in range(1, self.bad + 1)]
        return [*whole, *spoiled][after or 0 :][:most]

    def ack(self, offset, keys):
        pass

    def lag(self, after):
        return self.waiting

    def close(self):
        pass


@pytest.fixture
def prepared(make_data, wave, tmp_path):
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y)
    return GBCM.prepare(path, GIVEN, model=tmp_path / "model"), partitions(open_data(path), 20)


def figures(text, **beside):
    """Values by names of samples, after the checks of a parser; those with these labels beside model and source."""
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    found = {}
    for family in families.values():
        for one in family.samples:
            labels = {name: value for name, value in one.labels.items() if name not in ("model", "source")}
            if labels == beside:
                found[one.name] = one.value
    return found


def test_figures_are_those_of_the_commits(prepared):
    gbcm, parts = prepared
    metrics, events = IngestMetrics(gbcm.url, SOURCE), []

    def observe(event):
        events.append(event)
        metrics.observe(event)

    before = time.time()
    after, report = gbcm.ingest(Delivering(parts[:7], 3), IngestOptions(commit_every=2, keep=50, observe=observe))
    found, lag = figures(metrics.text()), after.info()["lag"]
    history = GBCM.load(after.url).store.head()
    assert found["bcmdist_ingest_rows_total"] == report.rows == after.committee.total.rows == 140
    assert found["bcmdist_ingest_partitions_total"] == report.partitions == len(after.ledger) == 7
    assert found["bcmdist_ingest_commit"] == after.commit == history
    assert found["bcmdist_ingest_commit_seconds_count"] == after.commit - gbcm.commit == 4
    assert found["bcmdist_ingest_lag_rows"] == lag["rows"]
    assert found["bcmdist_ingest_lag_partitions"] == lag["sources"][SOURCE]["partitions"]
    assert found["bcmdist_ingest_worker_threads"] == 1.0
    assert before <= found["bcmdist_ingest_last_commit_timestamp_seconds"] <= time.time()
    committed = [event.seconds for event in events if event.seconds is not None]
    assert [key for event in events for key in event.keys] == [entry.key for entry in after.ledger]
    assert {len(event.keys) for event in events if event.seconds is not None} == {1, 2}
    assert found["bcmdist_ingest_last_commit_seconds"] == committed[-1]
    assert found["bcmdist_ingest_commit_seconds_sum"] == pytest.approx(sum(committed))
    assert "secret" not in metrics.text()
    assert 'model="model",source="redis://h:6379/0/rows"' in metrics.text()


def test_what_arrives_again_is_counted_apart(prepared):
    gbcm, parts = prepared
    some, _ = gbcm.ingest(Delivering(parts[:3], 0))
    metrics = IngestMetrics(gbcm.url, SOURCE)
    some.ingest(Delivering(parts[:5], None), IngestOptions(observe=metrics.observe))
    found = figures(metrics.text())
    assert (found["bcmdist_ingest_partitions_total"], found["bcmdist_ingest_duplicates_total"]) == (2.0, 3.0)
    assert "bcmdist_ingest_lag_rows" not in found  # the source does not know


@pytest.mark.parametrize("skip", [True, False])
def test_partitions_that_fail_are_counted_by_their_error(prepared, skip):
    gbcm, parts = prepared
    metrics = IngestMetrics(gbcm.url, SOURCE)
    options = IngestOptions(skip=skip, observe=metrics.observe)
    with contextlib.nullcontext() if skip else pytest.raises(InvalidData, match="expected numbers"):
        gbcm.ingest(Delivering(parts[:2], 0, bad=1), options)
    found, failed = figures(metrics.text()), figures(metrics.text(), error="InvalidData")
    assert found["bcmdist_ingest_partitions_total"] == 2.0
    assert found["bcmdist_ingest_skipped_total"] == float(skip)
    assert failed["bcmdist_ingest_failed_total"] == 1.0
    assert time.time() - failed["bcmdist_ingest_last_error_timestamp_seconds"] < LONG


def test_a_model_of_messages_in_order_is_observed_too(wave, make_data, tmp_path):
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=(y > 0).astype(float))
    settings = Settings(
        kernel="se", learn=False, query=10, rows_per_expert=20, task="classification", linearise="running"
    )
    metrics = IngestMetrics("model", path)
    gbcm = GBCM.prepare(path, settings, model=tmp_path / "model")
    after, report = gbcm.ingest(gbcm.source(path), IngestOptions(observe=metrics.observe))
    found = figures(metrics.text())
    assert found["bcmdist_ingest_rows_total"] == report.rows == after.committee.total.rows
    assert found["bcmdist_ingest_commit"] == after.commit


def ask(url):
    with urllib.request.urlopen(url, timeout=LONG) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_pages_and_their_end():
    threads, metrics = set(threading.enumerate()), IngestMetrics("models/wave", "data.zarr")
    with answering("0", metrics) as url:
        kind, text = ask(url)
        assert kind.startswith("text/plain; version=0.0.4")
        declared = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        assert declared == dict.fromkeys(COUNTERS, "counter") | dict.fromkeys(GAUGES, "gauge") | {
            SECONDS[0]: "histogram"
        }
        assert figures(text)["bcmdist_ingest_rows_total"] == 0.0
        _, health = ask(url.replace("/metrics", "/health"))
        assert json.loads(health)["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            ask(url.replace("/metrics", "/models"))
        refused.value.close()
        port = int(url.split(":")[2].split("/")[0])
        with (
            pytest.raises(InvalidOption, match="--metrics: expected a free address of this machine"),
            answering(str(port), metrics),
        ):
            pass
    with socket.create_server(("127.0.0.1", port)):
        pass
    wait_until(lambda: set(threading.enumerate()) <= threads, "no thread is left")


@pytest.mark.parametrize("place", ["", "here", "127.0.0.1:", "99999", "http://127.0.0.1:9100", "a b:1"])
def test_other_places_are_refused(place):
    with (
        pytest.raises(InvalidOption, match=r"--metrics: expected PORT or HOST:PORT"),
        answering(place, IngestMetrics("m", "s")),
    ):
        pass


def test_addresses_of_version_six_are_places():
    with contextlib.suppress(InvalidOption), answering("[::1]:0", IngestMetrics("m", "s")) as url:  # or there are none
        assert ask(url)[0].startswith("text/plain")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_waits_for_rows_answers_until_it_is_stopped(prepared, make_data, number):
    gbcm, _ = prepared
    rng = np.random.default_rng(3)
    data = make_data("more.zarr", rows_per_chunk=20, X=rng.uniform(-2, 2, (40, 2)), y=rng.standard_normal(40))
    command = [sys.executable, "-m", "bcmdist", "ingest", gbcm.url, str(data)]
    command += ["--watch", "--commit-every", "1", "--metrics", "0", "--serial", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        url = next(line.split()[-1] for line in process.stderr if line.startswith("bcmdist: metrics at "))
        reached = lambda rows: figures(ask(url)[1])["bcmdist_ingest_rows_total"] == rows  # noqa: E731
        wait_until(lambda: reached(40.0), "40 rows are absorbed")
        append_rows(data, rng.uniform(-2, 2, (20, 2)), rng.standard_normal(20))
        wait_until(lambda: reached(60.0), "20 more rows are absorbed")
        found = figures(ask(url)[1])
        assert found["bcmdist_ingest_commit"] == gbcm.store.head()
        assert found["bcmdist_ingest_lag_rows"] == 0.0
    finally:
        process.send_signal(number)
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert json.loads(out)["rows"] == 60
    with socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0]))):
        pass
