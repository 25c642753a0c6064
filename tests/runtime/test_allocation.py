"""Memory that tasks free is there for the next ones: pages do not fault in again."""

import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

from bcmdist.runtime import allocation
from bcmdist.runtime.allocation import keep_pages

pytestmark = pytest.mark.alone

SIDE, TIMES = 500, 20  # of matrices of 2 MB
PAGES_OF_ALL = TIMES * SIDE**2 * 8 // os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="allocation: there is no glibc here")


def faults():
    """Pages that fault in while matrices are made and freed, one after another, once there was one."""
    import resource

    np.ones((SIDE, SIDE))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TIMES):
        np.ones((SIDE, SIDE))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def fault_in_a_thread():
    """Where tasks of a worker run."""
    found = []
    thread = threading.Thread(target=lambda: found.append(faults()))
    thread.start()
    thread.join()
    return found[0]


def under_a_nanny(work):
    """What `work` prints in a process that has the environment of Dask's workers."""
    program = f"import test_allocation as t\n{work}"
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.slow
@glibc
@pytest.mark.parametrize("count", ["faults", "fault_in_a_thread"])
def test_matrices_stand_where_others_stood(count):
    assert under_a_nanny(f"print(t.{count}())") > 0.9 * PAGES_OF_ALL
    assert under_a_nanny(f"t.keep_pages(); print(t.{count}())") < 0.1 * PAGES_OF_ALL


@glibc
def test_workers_keep_pages(cluster):
    for found in cluster._client.run(faults).values():  # beside their other threads
        assert found < 0.5 * PAGES_OF_ALL


class OldLibrary:
    """glibc before 2.35: no mapping threshold above half a heap."""

    def mallopt(self, number, value):
        return int(number != -3 or value <= 32 * allocation.MIB)


def test_an_older_library_takes_a_lower_threshold(monkeypatch):
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: OldLibrary())
    assert keep_pages()["mmap_threshold"] == 32 * allocation.MIB


def absent(name):
    raise OSError(name)


@pytest.mark.parametrize("load", [absent, lambda name: object()])
def test_nothing_is_changed_where_there_is_no_mallopt(load, monkeypatch):
    monkeypatch.setattr(allocation.ctypes, "CDLL", load)
    assert keep_pages() == {}
