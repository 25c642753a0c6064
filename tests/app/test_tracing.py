"""Spans of requests and commits, as an exporter in memory gets them."""

import numpy as np
import pytest
from services import asked, fitted

export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="spans: pip install 'bcmdist[otel]'")

from click.testing import CliRunner  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from bcmdist import GBCM  # noqa: E402
from bcmdist.app import tracing  # noqa: E402
from bcmdist.app.cli.main import cli  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
POINTS = {"X": [[0.5, 1.0], [-1.0, 0.25]]}


@pytest.fixture
def spans(monkeypatch):
    """A function that returns the spans that were made since the last call."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("bcmdist"))

    def taken():
        found = exporter.get_finished_spans()
        exporter.clear()
        return found

    yield taken
    provider.shutdown()


def test_a_request_is_a_child_of_its_parent(tmp_path, spans):
    fitted(tmp_path)
    with asked(tmp_path) as client:
        for headers in ({"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "abc-1"}, {}):
            client.post("/models/wave/predict", json=POINTS, headers=headers)
        sent, alone = spans()
        client.post("/models/wave/predict", json=POINTS, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        assert spans() == ()  # whoever began the trace does not record it
    assert (sent.name, sent.kind.name) == ("POST /models/{name}/predict", "SERVER")
    assert (f"{sent.context.trace_id:032x}", f"{sent.parent.span_id:016x}") == (TRACE, PARENT)
    assert dict(sent.attributes) == {
        "http.request.method": "POST",
        "http.route": "/models/{name}/predict",
        "http.response.status_code": 200,
        "bcmdist.request_id": "abc-1",
        "bcmdist.model": "wave",
        "bcmdist.rows": 2,
    }
    assert 0 < sent.end_time - sent.start_time < 60 * 10**9
    assert alone.parent is None
    assert alone.context.trace_id != sent.context.trace_id


def test_a_request_that_fails_is_an_error(tmp_path, spans, monkeypatch):
    fitted(tmp_path)

    def wrong(*_, **__):
        raise RuntimeError

    monkeypatch.setattr("bcmdist.app.service.routes.predicted", wrong)
    with asked(tmp_path) as client:
        client.post("/models/wave/predict", json=POINTS)
        client.post("/models/none/predict", json=POINTS)
    failed, refused = spans()
    assert (failed.attributes["http.response.status_code"], failed.status.status_code.name) == (500, "ERROR")
    assert (refused.attributes["http.response.status_code"], refused.status.status_code.name) == (404, "UNSET")


def test_commits_of_an_ingestion_are_spans(tmp_path, make_data, rng, spans):
    before = fitted(tmp_path)
    X = rng.uniform(-2, 2, (80, 2))
    data = make_data("more.zarr", rows_per_chunk=20, X=X, y=np.sin(2 * X[:, 0]) + X[:, 1])
    done = CliRunner().invoke(cli, ["ingest", before.url, str(data), "--serial", "--commit-every", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = spans()
    after = GBCM.load(before.url)
    assert {span.name for span in found} == {"commit"}
    assert [span.attributes["bcmdist.commit"] for span in found] == [*range(before.commit + 1, after.commit + 1)]
    assert sum(span.attributes["bcmdist.rows"] for span in found) == 80
    assert sum(span.attributes["bcmdist.partitions"] for span in found) == len(after.ledger) - len(before.ledger)
