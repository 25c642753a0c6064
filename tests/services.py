"""Services for tests: models of a few rows behind the real application, asked without a network."""

import asyncio
import contextlib
import io
import signal
import subprocess
import sys
import urllib.error
from types import MappingProxyType

import numpy as np
import pytest
from processes import LONG, Commands, free_port, wait_until

from bcmdist import GBCM, Settings
from bcmdist.client import Client as PythonClient

pytest.importorskip("fastapi", reason="the service: pip install 'bcmdist[serve]'")
httpx = pytest.importorskip("httpx", reason="the service: pip install 'bcmdist[test]'")

from bcmdist.app.service.application import make_app  # noqa: E402
from bcmdist.app.service.limits import Limits  # noqa: E402
from bcmdist.app.service.service import Service  # noqa: E402

QUICK = {"query": 20, "learn": False, "kernel": "se", "rows_per_expert": 60, "partition": "chunks"}
HERE = "http://127.0.0.1"
NO_WORK = MappingProxyType({})
START = "listening on"


def fitted(folder, name="wave", *, rows=120, task="regression", **settings):
    """A small model in a directory of models."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows)
    if task != "regression":
        y = (y > 0).astype(float)
    return GBCM.fit((X, y), Settings(**QUICK | {"task": task} | settings), model=folder / name)


class Client:
    """Asks an application, one request after the other."""

    def __init__(self, app, runner):
        self.app, self._run = app, runner.run
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE)

    @property
    def service(self):
        return self.app.app.state.service

    def request(self, method, url, **options):
        return self._run(self.http.request(method, url, **options))

    def get(self, url, **options):
        return self.request("GET", url, **options)

    def post(self, url, **options):
        return self.request("POST", url, **options)


class OfService(PythonClient):
    """A client of the package whose requests reach a service in this process."""

    service = None

    def _open(self, request):
        answer = self.service.request(
            request.method, request.full_url, content=request.data, headers=dict(request.header_items())
        )
        if answer.status_code >= 400:
            raise urllib.error.HTTPError(
                request.full_url, answer.status_code, "", answer.headers, io.BytesIO(answer.content)
            )
        return io.BytesIO(answer.content)


def client_of(service):
    """A client of the package of what `asked` yields."""
    OfService.service = service
    return OfService(HERE)


@contextlib.contextmanager
def asked(folder, *, limits=None, work=NO_WORK, models=None, **options):
    """A client of a service of the models of a directory, or of a URL, which is closed afterwards."""
    service = Service(models or folder, limits or Limits(), jobs=str(folder / ".jobs"), **work)
    try:
        with asyncio.Runner() as runner:
            yield Client(make_app(service, **options), runner)
    finally:
        service.close()


def new_rows(seed=0, rows=30):
    """JSON of rows to absorb."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    return {"X": X.tolist(), "y": (np.sin(2 * X[:, 0]) + X[:, 1]).tolist()}


def send(client, rows, key, name="wave", **headers):
    """The answer to rows under an idempotency key."""
    return client.post(f"/models/{name}/rows", json=rows, headers={"Idempotency-Key": key, **headers})


async def ask(client, receive, headers):
    """Status and body of a prediction whose body comes message by message."""
    sent = []

    async def send(message):
        sent.append(message)

    names = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/models/wave/predict",
        "raw_path": b"/models/wave/predict",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in names.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await client.app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


class Server:
    """`bcmdist serve` on loopback."""

    def __init__(self, folder, *options):
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder.parent / "serve.log"
        self.command = [sys.executable, "-m", "bcmdist", "serve", str(folder), "--port", str(self.port), *options]
        self.start()

    def start(self):
        environment = Commands(self.folder.parent).environment
        begun = self.log.read_text().count(START) if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, env=environment, stderr=log)
        wait_until(lambda: self.log.read_text().count(START) > begun, f"a server: {self.log.read_text()[-500:]}")

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=LONG)
