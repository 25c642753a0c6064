"""Each request has an id, which the answer and the log name; the log is text or JSON."""

import io
import json
import logging
import re

import pytest
from services import Server, asked, fitted, httpx, new_rows, send

from bcmdist.app.service.logs import JSONLines, log
from bcmdist.app.service.tokens import Tokens, add_token

POINTS = {"X": [[0.5, 1.0], [-1.0, 0.25]]}
MADE = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def lines(monkeypatch):
    """A function that returns what was logged since the last call, of requests or not, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines())
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "level", logging.INFO)
    monkeypatch.setattr(log, "propagate", False)

    def taken(*, of_requests=True):
        found = [json.loads(line) for line in stream.getvalue().splitlines()]
        found = [one for one in found if ("id" in one) == of_requests]  # threads log changes of models at any time
        stream.truncate(0)
        stream.seek(0)
        return found

    return taken


def test_a_request_is_one_object_with_its_id(tmp_path, lines, monkeypatch):
    fitted(tmp_path / "models")
    token = add_token(tmp_path / "tokens.json", "all", ["admin"])
    headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "abc-1"}
    with asked(tmp_path / "models", tokens=Tokens(tmp_path / "tokens.json")) as client:
        assert lines(of_requests=False)[0].keys() == {"time", "level", "message"}
        answer = client.post("/models/wave/predict", json=POINTS, headers=headers)
        assert answer.headers["X-Request-Id"] == "abc-1"
        (found,) = lines()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}\+00:00", found.pop("time"))
        assert found.pop("ms") > 0
        expected = {"id": "abc-1", "method": "POST", "path": "/models/{name}/predict", "status": 200, "model": "wave"}
        assert found == expected | {"rows": 2}
        send(client, new_rows(), "a", **headers)
        assert lines()[-1]["rows"] == 30

        for given in ([], [("X-Request-Id", "a b")], [("X-Request-Id", "a")] * 2, [("X-Request-Id", "x" * 129)]):
            answer = client.get("/models", headers=given)  # without a token
            assert answer.status_code == 401
            (found,) = lines()
            assert MADE.fullmatch(found["id"])
            assert answer.headers["X-Request-Id"] == found["id"]
            assert (found["model"], found["rows"]) == (None, None)

        def wrong(*_, **__):
            raise RuntimeError("/secret")

        monkeypatch.setattr("bcmdist.app.service.routes.predicted", wrong)
        answer = client.post("/models/wave/predict", json=POINTS, headers=headers)
        error, request = lines()
        assert (error["id"], error["level"], request["status"]) == ("abc-1", "ERROR", 500)
        assert "RuntimeError at wrong" in error["message"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("given", "logged"),
    [
        ([f"00-{TRACE}-00f067aa0ba902b7-01"], TRACE),
        ([f"cc-{TRACE}-00f067aa0ba902b7-01-later"], TRACE),  # of a version to come
        ([f"00-{TRACE}-00f067aa0ba902b7-01-later"], None),
        ([f"ff-{TRACE}-00f067aa0ba902b7-01"], None),
        ([f"00-{'0' * 32}-00f067aa0ba902b7-01"], None),
        ([f"00-{TRACE}-{'0' * 16}-01"], None),
        ([f"00-{TRACE.upper()}-00f067aa0ba902b7-01"], None),
        ([f"00-{TRACE}-00f067aa0ba902b7-01"] * 2, None),
        ([], None),
    ],
)
def test_the_trace_of_a_request_is_logged(tmp_path, lines, given, logged):
    (tmp_path / "models").mkdir()
    with asked(tmp_path / "models") as client:
        client.get("/models", headers=[("traceparent", one) for one in given])
    (found,) = lines()
    assert found.get("trace_id") == logged
    assert logged or "trace_id" not in found


def test_the_log_of_the_command_is_json(tmp_path):
    fitted(tmp_path / "models")
    server = Server(tmp_path / "models", "--log-format", "json")
    try:
        httpx.get(f"{server.url}/health", headers={"X-Request-Id": "probe"})
    finally:
        assert server.end() == 0
    found = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert [one["status"] for one in found if one.get("id") == "probe"] == [200]
