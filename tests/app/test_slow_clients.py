"""Clients that hold connections: without a token, by bodies that do not end, and by answers that they do not read."""

import contextlib
import json
import re
import socket
import time

import pytest
from processes import LONG
from services import Server, fitted, httpx

from bcmdist.app.service import protocol as limits_of_connections
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.tokens import add_token

HEAD = "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A server with tokens, and the headers of one."""
    folder = tmp_path_factory.mktemp("slow")
    fitted(folder / "models")
    token = add_token(folder / "tokens.json", "reader", ["read"])
    server = Server(folder / "models", "--token-file", str(folder / "tokens.json"))
    yield server, {"Authorization": f"Bearer {token}"}
    assert server.end() == 0


@pytest.fixture
def connect(serving):
    """Open connections, which are closed afterwards."""
    with contextlib.ExitStack() as opened:

        def opening(buffer_bytes=None):
            one = opened.enter_context(socket.socket())
            if buffer_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            one.settimeout(LONG)
            one.connect(("127.0.0.1", serving[0].port))
            return one

        yield opening


def head(method, path, headers):
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (HEAD.format(method=method, path=path) + lines + "\r\n").encode()


def ended_after(one, seconds):
    """Seconds until the server ends a connection that sends a byte now and then; more than that: it did not."""
    begun = time.monotonic()
    one.settimeout(0.2)
    while time.monotonic() - begun < seconds:
        try:
            one.sendall(b"1")
            if one.recv(4096) == b"":
                one.sendall(b"1")  # it may be half closed
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/models/wave/predict", "/health"])
def test_a_connection_ends_after_the_answer_to_an_unfinished_body(serving, connect, path):
    one = connect()
    one.sendall(head("POST", path, {"Content-Length": "100000"}) + b"1")
    assert re.match(rb"HTTP/1.1 40[15] ", one.recv(4096))
    assert ended_after(one, 15.0) < 10.0


@pytest.mark.slow
def test_a_body_in_tiny_pieces_is_refused(serving, connect):
    """Each of them would be looked at by itself: a million chunks of a byte took half a minute."""
    server, bearing = serving
    one = connect()
    chunked = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    one.sendall(head("POST", "/models/wave/predict", {**bearing, **chunked}))
    with contextlib.suppress(OSError):
        one.sendall(b"1\r\n \r\n" * 3000)
    assert one.recv(2**16).startswith(b"HTTP/1.1 400 ")
    points = json.dumps({"X": [[0.5, 1.0]] * 4000}).encode()
    pieces = (points[k : k + 300] for k in range(0, len(points), 300))  # small ones are as good as any
    with httpx.Client(base_url=server.url, timeout=LONG, headers=bearing) as http:
        answer = http.post("/models/wave/predict", content=pieces, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


@pytest.mark.slow
def test_sockets_without_a_token_keep_nobody_out(serving, connect):
    """More of them than there may be connections, each with a body that goes on after it was refused."""
    server, bearing = serving
    for _ in range(Limits().connections + 20):
        one = connect()
        with contextlib.suppress(OSError):
            one.sendall(head("POST", "/models/wave/predict", {"Content-Length": "100000"}) + b"1")
    silent = [connect() for _ in range(Limits().connections + 20)]
    with httpx.Client(base_url=server.url, timeout=LONG, headers=bearing) as http:
        begun = time.monotonic()
        codes = {http.get("/models").status_code for _ in range(5)}
    assert codes == {200}
    assert time.monotonic() - begun < limits_of_connections.HEAD_SECONDS  # nobody had to leave by himself
    assert len(silent) > Limits().connections


@pytest.mark.slow
def test_requests_in_progress_are_nobodys_to_end(serving, connect):
    """Those with a token stay while others without one come."""
    _, bearing = serving
    watching = connect()
    watching.sendall(head("GET", "/events?seconds=5", bearing))
    assert watching.recv(1) == b"H"
    for _ in range(Limits().connections + 20):
        connect()
    watching.settimeout(LONG)
    text = b""
    while not text.endswith(b"0\r\n\r\n"):
        more = watching.recv(2**16)
        assert more, "the connection was closed"
        text += more


@pytest.mark.slow
def test_answers_that_nobody_reads_are_given_up(serving, connect):
    server, bearing = serving
    with httpx.Client(base_url=server.url, timeout=LONG, headers=bearing) as http:
        size = len(http.get("/openapi.json").content)
    one, count = connect(buffer_bytes=4096), 2**23 // size  # more than the buffers of two sockets hold
    for _ in range(count):
        one.sendall(head("GET", "/openapi.json", bearing))
        time.sleep(0.006)  # fewer in a second than may be
    time.sleep(3.0 * limits_of_connections.UNREAD_SECONDS)
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while more := one.recv(2**20):
            text += more
    assert 0 < text.count(b"HTTP/1.1 200") < count
