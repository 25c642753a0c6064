"""What the service refuses, and that nothing of a secret or a place is in what it says."""

import asyncio
import json
import logging
import re
import shutil
import time

import numpy as np
import pytest
from click.testing import CliRunner
from services import HERE, QUICK, ask, asked, fitted, new_rows, send

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.service.answers import without_places
from bcmdist.app.service.limits import Limits, Rate
from bcmdist.app.service.middleware import OPEN, PROBES
from bcmdist.app.service.server import Listening
from bcmdist.app.service.shared import SharedTable
from bcmdist.app.service.tokens import Tokens, add_token, read_tokens, remove_token
from bcmdist.errors import InvalidOption

POINTS = {"X": [[0.5, 1.0]]}
BAD_NAMES = ["..%2Fx", "%2e%2e", "%2Fetc%2Fpasswd", "a%00b", "C:%5C", "x" * 300, ".rows", "a%2F..%2F..%2Fb", "%0A"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A directory with a model."""
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    return folder


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A directory with a model whose columns have names."""
    pandas = pytest.importorskip("pandas", reason="names of columns: pip install 'bcmdist[test]'")
    folder = tmp_path_factory.mktemp("named")
    X = np.random.default_rng(3).uniform(-2, 2, (60, 2))
    GBCM.fit((pandas.DataFrame(X, columns=["a", "b"]), X[:, 0]), Settings(**QUICK), model=folder / "named")
    return folder


@pytest.fixture
def tokens(tmp_path):
    """A file of tokens, and tokens by their scope."""
    path = tmp_path / "tokens.json"
    made = {scope: add_token(path, f"{scope}er", [scope]) for scope in ("read", "ingest", "admin")}
    return path, made | {"old": add_token(path, "old", ["admin"], days=0)}


def bearing(token):
    return {"Authorization": f"Bearer {token}"}


def routes(client):
    """Method and path of all that can be asked."""
    document = client.get("/openapi.json", headers=client.bearing).json()
    named = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    found = [(m, p.replace("{name}", "wave").replace("{id}", "20260101-000000-aaaa")) for m, p in named]
    return [*found, ("GET", "/openapi.json"), ("GET", "/nonsense"), ("POST", "/models")]


# --- Tokens ---


def test_nothing_is_answered_without_a_token_that_is_valid(models, tokens):
    path, made = tokens
    wrong = [{}, bearing("wrong"), bearing(made["old"]), {"Authorization": made["admin"]}, bearing("")]
    wrong += [{"Authorization": f"Basic {made['admin']}"}, bearing(made["admin"] + "x"), bearing("ü")]
    with asked(models, tokens=Tokens(path)) as client:
        client.bearing = bearing(made["admin"])
        found = [one for one in routes(client) if one[1] not in OPEN]
        assert len(found) > 7
        for method, url in found:
            for headers in wrong:
                encoded = {name: value.encode() for name, value in headers.items()}
                answer = client.request(method, url, json={"secret": 1}, headers=encoded)
                assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), (method, url)
                assert "secret" not in answer.text
                assert made["admin"] not in answer.text


def test_what_anybody_may_see_tells_nothing_of_models(models, tokens):
    with asked(models, tokens=Tokens(tokens[0])) as client:
        for url in OPEN:
            answer = client.get(url)
            assert answer.status_code in (200, 204)
            assert "wave" not in answer.text


@pytest.mark.parametrize(
    ("scope", "allowed"), [("read", (200, 403, 403)), ("ingest", (403, 200, 403)), ("admin", (200, 200, 409))]
)
def test_scopes(models, tokens, tmp_path, scope, allowed):
    shutil.copytree(models, tmp_path / "models")
    path, made = tokens
    with asked(tmp_path / "models", tokens=Tokens(path)) as client:
        headers = bearing(made[scope])
        predicted = client.post("/models/wave/predict", json=POINTS, headers=headers)
        absorbed = send(client, new_rows(), "a", **headers)
        submitted = client.post("/jobs", json={"request": "fit", "data": "a", "model": "b"}, headers=headers)
    assert (predicted.status_code, absorbed.status_code, submitted.status_code) == allowed


def test_a_token_that_is_removed_is_refused_at_once(models, tokens):
    path, made = tokens
    with asked(models, tokens=Tokens(path)) as client:
        assert client.get("/models", headers=bearing(made["read"])).status_code == 200
        remove_token(path, "reader")
        assert client.get("/models", headers=bearing(made["read"])).status_code == 401


def test_a_file_of_tokens_holds_none(tokens):
    path, made = tokens
    text = path.read_text()
    assert not any(token in text for token in made.values())
    assert path.stat().st_mode & 0o777 == 0o600
    assert [token.name for token in read_tokens(path)] == ["reader", "ingester", "adminer", "old"]


def test_a_file_of_tokens_that_others_may_write_is_refused(tokens):
    path, _ = tokens
    path.chmod(0o662)
    with pytest.raises(InvalidOption, match=r"only its owner may write to, .* chmod 600"):
        Tokens(path)


@pytest.mark.parametrize("text", ["", "[]", '{"tokens": 1}', '{"tokens": [{"name": "a"}]}', "[" * 100_000])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidOption, match="expected tokens as `bcmdist tokens add` writes them"):
        Tokens(path)


def test_the_commands_of_tokens(tmp_path):
    path = str(tmp_path / "tokens.json")

    def call(*arguments):
        done = CliRunner().invoke(cli, ["tokens", *arguments, "--json"])
        return json.loads(done.stdout) if done.exit_code == 0 else done.stderr

    token = call("add", path, "ward", "--scope", "read", "--scope", "ingest", "--days", "3")["token"]
    assert Tokens(path).of(token).scopes == ("read", "ingest")
    assert call("list", path)["tokens"]["ward"]["scopes"] == ["read", "ingest"]
    assert "'ward' is taken" in call("add", path, "ward", "--scope", "read")
    call("remove", path, "ward")
    assert Tokens(path).of(token) is None
    assert "expected the name of one of the file" in call("remove", path, "ward")


# --- Where from ---


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example"])
def test_another_host_is_refused(models, host):
    with asked(models) as client:
        assert client.get("/models", headers={"Host": host}).status_code == 400
        assert client.get("/models", headers={"Host": "localhost:8080"}).status_code == 200
        codes = {path: client.get(path, headers={"Host": host}).status_code for path in PROBES}
        assert codes == dict.fromkeys(["/health", "/ready", "/metrics"], 200)


def test_parameters_that_a_route_does_not_declare_are_refused_and_those_that_it_declares_listed(models, tokens):
    with asked(models, tokens=Tokens(tokens[0])) as client:
        client.bearing = bearing(tokens[1]["admin"])
        document = client.get("/openapi.json", headers=client.bearing).json()["paths"]
        found = [one for one in routes(client) if one[1] not in ("/nonsense", "/models") or one[0] == "GET"]
        for method, url in found[:-2] + [("GET", path) for path in ("/openapi.json", "/", "/page.js")]:
            answer = client.request(method, f"{url}?comit=3", headers=client.bearing)
            assert (answer.status_code, answer.json()["error"]) == (422, "InvalidRequest"), (method, url)
            assert "got 'comit'" in answer.json()["message"]
        for path, methods in document.items():
            for method, told in methods.items():
                names = sorted(one["name"] for one in told.get("parameters", []) if one["in"] == "query")
                url = path.replace("{name}", "wave").replace("{id}", "20260101-000000-aaaa")
                answer = client.request(method.upper(), f"{url}?comit=3", headers=client.bearing)
                expected = f"no other parameters than {', '.join(names)}, got" if names else "no parameters, got"
                assert expected in answer.json()["message"], (method, path)
        assert client.get("/events?model=wave&seconds=0", headers=client.bearing).status_code == 200


def test_pages_of_others_are_refused(models):
    with asked(models) as client:
        for origin in ("https://evil.example", "null", f"{HERE}.evil.example"):
            answer = client.post("/models/wave/predict", json=POINTS, headers={"Origin": origin})
            assert answer.status_code == 403
        assert client.post("/models/wave/predict", json=POINTS, headers={"Origin": HERE}).status_code == 200
        asks = {"Origin": HERE, "Access-Control-Request-Method": "POST"}
        assert "access-control-allow-origin" not in client.request("OPTIONS", "/models", headers=asks).headers


def test_a_form_is_no_request(models):
    """A page elsewhere may send one without asking us first."""
    with asked(models) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = client.post(
                "/models/wave/predict", content=json.dumps(POINTS).encode(), headers={"Content-Type": kind}
            )
            assert answer.status_code == 422


@pytest.mark.parametrize(
    ("host", "given", "text"),
    [
        ("0.0.0.0", {}, "expected 127.0.0.1 without tokens and TLS, got 0.0.0.0"),
        ("::", {"token_file": "t"}, "expected 127.0.0.1 without tokens and TLS"),
        ("10.0.0.1", {"tls_cert": "c", "tls_key": "k"}, "expected 127.0.0.1 without tokens and TLS"),
        ("127.0.0.1", {"tls_cert": "c"}, "expected both or none"),
    ],
)
def test_others_are_not_let_in_without_tokens_and_tls(host, given, text):
    with pytest.raises(InvalidOption, match=re.escape(text)):
        Listening(host, **given)
    assert "0.0.0.0" in Listening("0.0.0.0", token_file="t", tls_cert="c", tls_key="k").names
    assert Listening().names == {"127.0.0.1", "localhost", "::1"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Authorization", ["Bearer wrong", "Bearer {token}"]),
        ("Authorization", ["Bearer {token}", "Bearer {token}"]),
        ("Host", ["evil.example", "127.0.0.1"]),
        ("Origin", ["https://evil.example", HERE]),
        ("Idempotency-Key", ["a", "b"]),
    ],
)
def test_headers_that_come_twice_are_refused(models, tokens, name, values):
    path, made = tokens
    headers = [(name, value.format(token=made["admin"])) for value in values]
    if name != "Authorization":
        headers.append(("Authorization", f"Bearer {made['admin']}"))
    with asked(models, tokens=Tokens(path)) as client:
        answer = client.get("/models", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert f"{name}: expected one, got 2" in answer.json()["message"]


def test_two_lengths_of_a_body_are_refused_and_the_connection_ends(models):
    """Who stands before us may have taken the other one, and what follows for a request of somebody else."""

    async def body():
        return {"type": "http.request", "body": b"{}"}

    with asked(models) as client:
        status, text = raw(client, body, {"content-length": "2", "transfer-encoding": "chunked"})
        headers = client.get("/models", headers={"Content-Length": "2", "Transfer-Encoding": "chunked"}).headers
    assert status == 400
    assert b"expected Content-Length or Transfer-Encoding, got both" in text
    assert headers["Connection"] == "close"


# --- Names, sizes, times ---


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_elsewhere_are_refused(models, name, tmp_path):
    with asked(models) as client:
        for method, url, body in [("GET", f"/models/{name}", None), ("POST", f"/models/{name}/predict", POINTS)]:
            answer = client.request(method, url, json=body)
            assert answer.status_code in (400, 404)
            assert "root:" not in answer.text


def test_links_are_no_models(models, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "wave").symlink_to(models / "wave")
    with asked(tmp_path / "models") as client:
        assert client.get("/models").json() == {"models": []}
        assert client.get("/models/wave").status_code == 404


def test_bodies_that_are_too_large_are_refused_unread(models):
    read = []

    async def never():
        read.append(1)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with asked(models) as client:
        status, _ = raw(client, never, {"content-length": "10000000000"})
    assert (status, read) == (413, [])


def test_bodies_without_a_length_are_refused_when_they_are_too_large(models):
    read = []

    async def endless():
        read.append(1)
        return {"type": "http.request", "body": b"1" * 1000, "more_body": True}

    with asked(models, limits=Limits(body_bytes=10_000)) as client:
        status, _ = raw(client, endless, {})
    assert (status, len(read)) == (413, 11)


def test_bodies_that_do_not_come_are_given_up_and_others_served(models):
    async def slow():
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def both(client):
        slow_one = asyncio.create_task(ask(client, slow, {}))
        await asyncio.sleep(0.1)
        other = await client.http.get("/health")
        waited = slow_one.done()
        return other.status_code, waited, await slow_one

    with asked(models, limits=Limits(body_seconds=3.0)) as client:
        code, waited, (status, _) = client._run(both(client))
    assert (code, status) == (200, 408)
    assert not waited


def raw(client, receive, headers):
    return client._run(ask(client, receive, headers))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"X":' + "[" * 100_000 + "]" * 100_000 + "}", '{"X": 1', "\x00"])
def test_json_that_is_deep_or_broken_is_refused(models, text):
    with asked(models) as client:
        answer = client.post(
            "/models/wave/predict", content=text.encode(), headers={"Content-Type": "application/json"}
        )
    assert answer.status_code in (400, 422)
    assert "[[[" not in answer.text


@pytest.mark.slow
def test_too_many_points_are_refused(models):
    with asked(models, limits=Limits(rows=1000)) as client:
        answer = client.post("/models/wave/predict", json={"X": np.zeros((1001, 2)).tolist()})
        million = client.post("/models/wave/predict", json={"X": np.zeros((10**6, 2)).tolist()})
    assert (answer.status_code, million.status_code) == (413, 413)
    assert "X: expected at most 1000 rows in a request, got 1001; send them in several" in answer.json()["message"]


def test_work_that_takes_too_long_is_given_up(models, monkeypatch):
    with asked(models, limits=Limits(answer_seconds=0.1)) as client:
        monkeypatch.setattr("bcmdist.app.service.asking.answered", lambda *_: time.sleep(0.5))
        answer = client.post("/models/wave/predict", json=POINTS)
    assert (answer.status_code, answer.json()["error"]) == (504, "Timeout")


def test_a_rate_fills_a_bucket():
    now = [0.0]
    rate = Rate(2.0, SharedTable(), clock=lambda: now[0])
    assert [rate.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    assert rate.wait("b") == 0.0
    now[0] = 0.5
    assert [rate.wait("a") for _ in range(2)] == [0.0, 0.5]


def test_who_asks_too_often_is_told_to_wait(models):
    with asked(models, limits=Limits(per_second=1.0)) as client:
        answers = [client.get("/models") for _ in range(4)]
    assert [answer.status_code for answer in answers][:2] == [200, 200]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) >= 1


# --- What is said ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/srv/models/a/X[0:3]: expected b", "...: expected b"),
        ("s3://bucket/a b: expected", "... b: expected"),
        ("no file:///etc/x, got ~/y", "no ..., got ..."),
        ("expected a/b or 3/4, got n/a", "expected a/b or 3/4, got n/a"),
    ],
)
def test_places_are_left_out(text, said):
    assert without_places(text) == said


@pytest.mark.parametrize("unit", ["a", "a-", "~/", "/[1", "://", "[1:1", "a:/", "é"])
def test_places_are_left_out_in_linear_time(unit):
    """CPU time of this thread, the least of some repetitions: 16 times the text takes about 16 times as long."""

    def seconds(length):
        text, times = unit * (length // len(unit)), []
        for _ in range(5):
            begun = time.thread_time()
            without_places(text)
            times.append(time.thread_time() - begun)
        return min(times)

    assert seconds(64_000) < 64.0 * seconds(4_000)  # 256 where it is quadratic


LONG = "secret" * 2000


@pytest.mark.parametrize(
    "body",
    [
        {"X": [[0.0, 1.0]], "columns": [LONG, "b"]},
        {"X": [[0.0, 1.0]], LONG: 1},
        {"X": [[0.0, 1.0]], "method": LONG},
        {"X": [[0.0, 1.0]], "inputs": LONG},
    ],
    ids=["columns", "unknown", "method", "inputs"],
)
def test_names_of_clients_are_cut_in_messages(named, body):
    work = {"data": str(named), "scheduler": "tcp://127.0.0.1:9"}
    with asked(named, work=work) as client:
        answers = [
            client.post("/models/named/predict", json=body),
            client.get(f"/models/{LONG}"),
            client.get(f"/jobs/{LONG}"),
            client.post("/jobs", json={"request": "fit", "model": "b", "data": LONG, LONG: 1}),
            client.post("/jobs", json={"request": "fit", "model": "b", "data": LONG}),
        ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert len(answer.json()["message"]) < 600
        assert LONG[:100] not in answer.json()["message"]


def test_what_goes_wrong_is_told_by_its_class_only(models, monkeypatch, caplog):
    def wrong(*_, **__):
        raise RuntimeError("/secret/place token")

    with asked(models) as client, caplog.at_level(logging.INFO, logger="bcmdist.app.service"):
        monkeypatch.setattr("bcmdist.app.service.routes.predicted", wrong)
        answer = client.post("/models/wave/predict", json=POINTS)
        assert client.get("/models?password=secret").status_code == 422
    assert (answer.status_code, answer.json()["error"]) == (500, "InternalError")
    assert "RuntimeError at wrong, line" in caplog.text
    for text in (answer.text, caplog.text):
        assert "secret" not in text
        assert str(models) not in text


def test_answers_are_not_kept_or_guessed(models):
    with asked(models) as client:
        for url in ("/", "/models", "/nonsense"):
            headers = client.get(url).headers
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "script-src 'self'" in headers["Content-Security-Policy"]
            assert "server" not in headers


def test_nothing_of_places_is_in_what_models_tell(models):
    with asked(models) as client:
        for url in ("/models", "/models/wave", "/models/wave/history", "/metrics"):
            assert str(models) not in client.get(url).text
