"""The command serve as a process of its own: killed twice among clients that retry, and ended in peace."""

import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from processes import LONG, Commands, wait_until
from services import Server, asked, fitted, httpx, new_rows, send

from bcmdist import GBCM
from bcmdist.app.service.tokens import add_token
from problems import assert_same_committee

REQUESTS, KILLED_AT = 10, (2, 6)


@pytest.fixture
def models(tmp_path):
    fitted(tmp_path / "models")
    shutil.copytree(tmp_path / "models", tmp_path / "peer")
    return tmp_path / "models"


@pytest.fixture
def server(models):
    server = Server(models)
    yield server
    server.end(signal.SIGKILL)


def insist(http, number):
    """Send rows until there is an answer; a server that is gone comes again."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        try:
            answer = send(http, new_rows(number), f"request-{number}")
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code < 500:
            return answer
    return pytest.fail("no answer")


@pytest.mark.slow
def test_a_server_that_is_killed_loses_and_doubles_nothing(server, models, tmp_path):
    before, answers, uncommitted = GBCM.load(models / "wave"), {}, []

    def send_all():
        with httpx.Client(base_url=server.url, timeout=LONG) as http:
            for number in range(REQUESTS):
                answers[number] = insist(http, number)
                answers[number, "again"] = insist(http, number)

    sender = threading.Thread(target=send_all, daemon=True)
    sender.start()
    for number in KILLED_AT:
        wait_until(lambda number=number: kept(models) > number, "rows that are kept")
        server.end(signal.SIGKILL)
        uncommitted.append(30 * kept(models) - (GBCM.load(models / "wave").committee.total.rows - 120))
        server.start()
    assert any(uncommitted), "both were killed when all was committed already"
    sender.join(2 * LONG)
    assert server.end() == 0
    assert {answer.status_code for answer in answers.values()} == {200}
    assert all(answers[n].json() == answers[n, "again"].json() for n in range(REQUESTS))
    after = GBCM.load(models / "wave")
    assert after.committee.total.rows == before.committee.total.rows + 30 * REQUESTS
    with asked(tmp_path / "peer") as client:
        peaceful = [send(client, new_rows(number), f"k{number}") for number in range(REQUESTS)]
    assert {answer.status_code for answer in peaceful} == {200}
    assert [a.json() for a in peaceful] == [answers[n].json() for n in range(REQUESTS)]
    assert_same_committee(after.committee, GBCM.load(tmp_path / "peer" / "wave").committee)


def kept(models):
    """Requests whose rows are kept, absorbed or not."""
    return len(list(models.glob(".rows/wave/*/*.zarr.zip")))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_is_asked_and_ends_when_it_is_told_to(server, models, number):
    """What was sent before is committed and answered."""
    told = {}
    with httpx.Client(base_url=server.url, timeout=LONG) as http:
        points = {"X": [[0.5, 1.0], [0.0, 0.0]]}
        answer = http.post("/models/wave/predict", json=points)
        expected = GBCM.load(models / "wave").predict(np.array(points["X"]))
        np.testing.assert_allclose(answer.json()["predictions"]["mean"], expected["mean"], rtol=1e-10)
        assert http.get("/").headers["Content-Type"].startswith("text/html")
        sender = threading.Thread(target=lambda: told.update(last=send(http, new_rows(), "last")))
        sender.start()
        wait_until(lambda: kept(models), "rows that are kept")
        code = server.end(number)
        sender.join(LONG)
    assert code == 0
    assert told["last"].status_code == 200
    assert GBCM.load(models / "wave").committee.total.rows == 150
    assert str(models) not in server.log.read_text()


@pytest.mark.slow
def test_an_address_that_is_taken_is_refused(server, models):
    command = [sys.executable, "-m", "bcmdist", "serve", str(models), "--port", str(server.port)]
    done = subprocess.run(
        command, env=Commands(models.parent).environment, capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 1
    assert f"expected an address that is free, 127.0.0.1 {server.port} is not" in done.stderr


@pytest.mark.slow
def test_connections_that_do_not_ask_are_given_up(server):
    with httpx.Client(base_url=server.url, timeout=LONG) as http, contextlib.ExitStack() as sockets:
        connected = [sockets.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(3)]
        connected[1].sendall(b"GET /health HT")
        connected[2].sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(0.5)
        connected[2].sendall(b"GET /hea")  # the next one on a connection that was answered
        for one in connected:
            one.settimeout(LONG)
        assert http.get("/health").status_code == 200
        for one in connected:
            while one.recv(4096):
                pass  # what was answered, and then the end
    assert httpx.get(f"{server.url}/health", timeout=LONG).status_code == 200


@pytest.mark.slow
def test_a_forwarded_address_is_no_other_asker(models):
    server = Server(models, "--max-rate", "2")
    try:
        with httpx.Client(base_url=server.url, timeout=LONG) as http:
            asked_as = [{"X-Forwarded-For": f"10.0.0.{number}"} for number in range(12)]
            codes = [http.get("/models", headers=headers).status_code for headers in asked_as]
    finally:
        server.end()
    assert codes[0] == 200
    assert codes[-1] == 429


@pytest.mark.slow
def test_others_are_let_in_with_a_token_over_tls(models, tmp_path):
    cert, key = make_certificate(tmp_path)
    token = add_token(tmp_path / "tokens.json", "reader", ["read"])
    options = ["--host", "0.0.0.0", "--allowed-host", "models.example"]
    options += ["--token-file", tmp_path / "tokens.json", "--tls-cert", cert, "--tls-key", key]
    server = Server(models, *map(str, options))
    try:
        trusted, url = ssl.create_default_context(cafile=cert), f"https://127.0.0.1:{server.port}/models"
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(verify=trusted) as http:
            assert http.get(url).status_code == 401
            assert http.get(url, headers=headers).status_code == 200
            assert http.get(url, headers=headers | {"Host": "models.example"}).status_code == 200
            assert http.get(url, headers=headers | {"Host": "evil.example"}).status_code == 400
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"), headers=headers)
        assert token not in server.log.read_text()
    finally:
        assert server.end() == 0


def make_certificate(folder):
    """A certificate for 127.0.0.1 that rests on itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates: no openssl here")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return cert, key
