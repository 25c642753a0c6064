"""Checks of the installation and the machine; each reports its findings and, on failure, what to do."""

import os
import platform
import socket
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from bcmdist.app.failures import described
from bcmdist.app.model_check import checks_of
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistError
from bcmdist.runtime.allocation import MIB, keep_pages
from bcmdist.runtime.software import software
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.locate import open_storage

PACKAGES = ("numpy", "scipy", "zarr", "dask", "distributed", "scikit-learn", "threadpoolctl")
MEASURED_ORDER, MEASURED_TIMES = 1500, 3  # order of the matrix factored to time BLAS threads, and repetitions
OPTIONAL = (
    *("matplotlib", "pandas", "pyarrow", "obstore", "finufft"),
    *("redis", "confluent-kafka", "sqlalchemy", "icechunk", "paho-mqtt"),  # sources
)


def examine() -> list[dict]:
    """Run all checks, in order; return a dict with `check`, `ok` and `found` for each."""
    checks = [_python, _packages, _extras, _memory, _blas, _allocation, _storage, _zarr, _loopback, _cluster]
    return [_result(check) for check in checks]


def examine_model(url: str) -> list[dict]:
    """Check a model directory; results as of `examine`, up to the first that fails."""
    found, checks = list[dict](), checks_of(url)
    try:
        found += [{"check": name, "ok": True, "found": text} for name, text in checks]
    except (BcmdistError, OSError) as error:
        found.append({"check": "model", "ok": False, "found": f"{type(error).__name__}: {error}"})
    return found


def _result(check):
    try:
        return {"check": check.__name__.strip("_"), "ok": True, "found": check()}
    except OSError as error:
        name, words = (type(error).__name__, str(error)) if isinstance(error, BcmdistError) else described(error)
        return {"check": check.__name__.strip("_"), "ok": False, "found": f"{name}: {words}"}
    except (BcmdistError, ValueError, RuntimeError, ImportError) as error:
        return {"check": check.__name__.strip("_"), "ok": False, "found": f"{type(error).__name__}: {error}"}


def _python():
    return f"{platform.python_version()} on {platform.system()}, {os.cpu_count()} cores"


def _packages():
    ours = software()
    source = f"bcmdist {ours['bcmdist']} (source {ours['source']}, commit {ours['commit']})"
    return ", ".join([source, *(f"{name} {version(name)}" for name in PACKAGES)])


def _extras():
    return ", ".join(f"{name} {_version_or(name, 'absent')}" for name in OPTIONAL)


def _version_or(name, default):
    try:
        return version(name)
    except PackageNotFoundError:
        return default


def _memory():
    import psutil

    return f"{psutil.virtual_memory().available / 1e9:.1f} GB available"


def _blas():
    import threadpoolctl

    _factor_seconds()  # loads the BLAS that experts use
    found = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    if not found:
        raise RuntimeError("expected a BLAS that threadpoolctl can control, found none; install numpy from a wheel")
    threads = max(lib["num_threads"] or 1 for lib in found)
    with one_thread():
        one = _factor_seconds()
    libraries = ", ".join(f"{lib['internal_api']} {lib['version']}" for lib in found)
    measured = f"a matrix of order {MEASURED_ORDER} is factored in {1e3 * one:.0f} ms by one"
    if threads > 1:
        measured += f", in {1e3 * _factor_seconds():.0f} ms by {threads}"
    load = f", at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    return f"{libraries}: one thread for each task, as several would wait for each other; {measured}{load}"


def _factor_seconds():
    """Median time of a Cholesky factorisation of order `MEASURED_ORDER`, in seconds."""
    from bcmdist import linalg  # quick start

    seconds = []
    for _ in range(MEASURED_TIMES):
        K = np.eye(MEASURED_ORDER, order="F")
        start = time.perf_counter()
        _ = linalg.cholesky(K, name="doctor")
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[MEASURED_TIMES // 2]


def _allocation():
    taken = keep_pages()  # as workers do
    if not taken:
        return "as the C library does by itself (no glibc): tasks may get their memory again each time"
    return "workers keep what tasks free: " + ", ".join(f"{name} {size // MIB} MiB" for name, size in taken.items())


def _storage():
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        storage = open_storage(folder)
        if not storage.put_if_absent("probe", b"1") or storage.put_if_absent("probe", b"2"):
            raise RuntimeError(
                f"expected files in {Path.cwd()} to be created only once, they were overwritten; use another disk"
            )
    return f"{Path.cwd()} keeps commits (hard links, fsync)"


def _zarr():
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder, "probe.zarr"))
        write_dataset(url, {"X": np.ones((8, 2)), "y": np.zeros(8)}, rows_per_chunk=4)
        rows = [rows.X for _, rows in read_all(partitions(open_data(url), 4))]
        if not np.array_equal(np.concatenate(rows), np.ones((8, 2))):
            raise RuntimeError("expected to read back what was written, got other values; reinstall zarr")
    return "writes and reads back with checksums"


def _loopback():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"ports open on 127.0.0.1 (tried {server.getsockname()[1]})"


def _cluster():
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    start = time.perf_counter()
    with DaskRuntime(workers=1) as runtime:
        allowed = runtime.allowed_bytes
    seconds = time.perf_counter() - start
    return f"a local Dask worker started and ended in {seconds:.1f} s, {allowed / 1e9:.1f} GB per worker"
