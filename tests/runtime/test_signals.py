"""Interrupts: what Ctrl-C does to a command, whenever it comes."""

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import SEED
from distributed.client import AllExit
from processes import wait_until

from bcmdist.runtime.signals import finished_first, heeded, interruptible, withheld

pytestmark = pytest.mark.alone

DELAYS = [random.Random(SEED + k).uniform(0.0, 4.0) for k in range(8)]  # from when the command has begun to load


@pytest.fixture
def heeding():
    """Python's own handler, the default one of what is started: a shell in the background ignores this signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("delay", DELAYS)
def test_ctrl_c_while_a_cluster_starts_is_one_line(delay, tmp_path, heeding):
    """As a terminal sends it: to all processes of the group."""
    (tmp_path / "temporary").mkdir()
    command = [
        sys.executable,
        "-m",
        "bcmdist",
        "demo",
        "--rows",
        "2000",
        "--workers",
        "2",
        "--out",
        "demo",
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=pipe, text=True, start_new_session=True)
    wait_until(lambda: _has_begun(process.pid), "the command")
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    assert said.splitlines()[-1] == (
        "bcmdist: Interrupted: expected to finish, got an interrupt; run the same command again"
    )
    assert process.returncode == 1
    wait_until(lambda: not _group(process.pid), "the end of all processes of the command")
    assert {path.name for path in tmp_path.iterdir()} <= {"temporary", "demo"}
    assert not list((tmp_path / "temporary").glob("*dask*"))
    assert not list((tmp_path / "temporary").glob("bcmdist-*"))


def _has_begun(number):
    """Whether a command loads what it works with; before that Python is on its own."""
    return any("_multiarray_umath" in found.path for found in psutil.Process(number).memory_maps())


def _group(number):
    """Processes of a group that have not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def test_a_request_waits_for_what_must_be_finished():
    done = []

    def work():
        with finished_first():
            signal.raise_signal(signal.SIGINT)
            done.append("finished")
        done.append("not heeded")

    with interruptible(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["finished"]


def test_the_second_request_does_not_wait(heeding):
    with pytest.raises(KeyboardInterrupt), finished_first():  # noqa: PT012 (the first one is only noted)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_what_a_shell_in_the_background_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert heeded(signal.SIGINT, signal.SIGTERM) == (signal.SIGTERM,)
        with finished_first():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_after_an_exec():
    """Interrupted within one, Python would end by the signal and not with our exit code."""
    reached = []

    def work():
        exec("signal.raise_signal(signal.SIGINT); reached.append(1)", {"signal": signal, "reached": reached})
        time.sleep(5)

    with interruptible(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        work()
    assert reached == [1]


def test_an_error_that_somebody_made_of_an_interrupt_is_one():
    def load():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("failed to load") from None

    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGINT):
        load()


def test_processes_from_which_a_request_is_withheld():
    with withheld(signal.SIGINT):
        process = subprocess.Popen(["sleep", "60"])
    try:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    finally:
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_that_a_destructor_swallows_is_raised_once_more(heeding):
    class Closing:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def close_and_wait():
        thing = Closing()
        del thing
        wait_until(lambda: False, "the interrupt")

    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGINT):
        close_and_wait()
    assert sys.unraisablehook is hook


@pytest.mark.parametrize(("error", "reported"), [(AllExit, False), (ValueError, True)])
def test_results_that_an_interrupt_leaves_unfetched_are_not_reported(error, reported, heeding, caplog):
    async def fails():
        raise error

    async def leave():
        task = asyncio.create_task(fails())
        await asyncio.sleep(0.01)
        del task
        gc.collect()

    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
    asyncio.run(leave())
    assert ("never retrieved" in caplog.text) is reported
