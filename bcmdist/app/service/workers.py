"""Worker processes of a service, which accept connections at one socket, and their supervisor.

A worker that ends before its time is replaced. SIGTERM and SIGINT end the workers; a second one kills them. SIGHUP
replaces them one by one, each by a new one, which is ready before the old one ends, with the code and the certificates
that are installed by then. Workers whose supervisor is killed end as after SIGTERM.
"""

import collections
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from bcmdist.errors import BcmdistError, WorkerLost
from bcmdist.runtime.signals import withheld

END, RENEW = (signal.SIGTERM, signal.SIGINT), getattr(signal, "SIGHUP", None)
AGAIN_SECONDS = 1.0  # until the next worker is started after one that ended before it was ready; arbitrary
FIRST_TRIES = 3  # workers killed before all were ready for the first time, after which the service gives up; arbitrary
Work = Callable[[socket.socket, Callable[[], None]], None]
log = logging.getLogger("bcmdist.app.service")


class Worker:
    """A worker process.

    Parameters
    ----------
    work : called in the process with the socket and a function to be called when the worker is ready; picklable
    """

    def __init__(self, work: Work, listening: socket.socket):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=_run, args=(work, listening, other))
        self.ready, self.retiring = False, False
        self.error: BcmdistError | None = None
        """why it could not become ready"""
        with withheld(signal.SIGINT):  # a terminal sends it to all processes; the supervisor ends the workers
            self.process.start()
        other.close()

    def retire(self) -> None:
        """Let the worker end when its requests are answered."""
        self.retiring = True
        self.process.terminate()

    def read(self) -> None:
        """Read what the worker has sent: that it is ready, or an error."""
        try:
            self.error = self.pipe.recv()
            self.ready = self.error is None
        except EOFError:  # it has ended
            self.process.join()


def _run(work: Work, listening, pipe: Connection):
    """Run in a worker process."""
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    if RENEW is not None:
        signal.signal(RENEW, signal.SIG_IGN)
    try:
        work(listening, lambda: pipe.send(None))
    except BcmdistError as error:
        pipe.send(error)


def _end_with(pipe):
    """Wait until the supervisor has ended, then end this process as by SIGTERM."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    """Keeps a number of workers running.

    Parameters
    ----------
    make : starts a worker
    started : called once, when all workers are ready
    ended : called with the process id of each worker that has ended
    """

    def __init__(
        self, make: Callable[[], Worker], count: int, started: Callable[[], None], ended: Callable[[int], None]
    ):
        self._make, self._count, self._started, self._ended = make, count, started, ended
        self._workers: list[Worker] = []
        self._renewing: collections.deque[Worker] = collections.deque()
        """workers still to be replaced"""
        self._not_before = 0.0
        """when the next worker may be started, by `time.monotonic`"""
        self._were_ready, self._killed = False, 0
        """whether all workers were ready at once; number of workers that were killed before they were ready"""

    def run(self) -> None:
        """Run until a signal arrives and all workers have ended.

        Raises
        ------
        BcmdistError
            Before all were ready for the first time, a worker ended by itself, or several were killed.
        """
        with _received(*END, *filter(None, [RENEW])) as signals:
            try:
                while (number := self._next(signals)) not in END:
                    if number == RENEW:
                        self._renewing = collections.deque(one for one in self._workers if not one.retiring)
                    self._fill()
                for one in self._workers:
                    if not one.retiring:  # a second signal would kill it
                        one.retire()
                while self._workers and self._next(signals) not in END:
                    pass
            finally:
                for one in self._workers:
                    one.process.kill()
                    one.process.join()

    def _fill(self):
        """Start missing workers, and the successor of one to be replaced."""
        missing = self._count + bool(self._renewing) - sum(not one.retiring for one in self._workers)
        if time.monotonic() >= self._not_before:
            self._workers += [self._make() for _ in range(missing)]

    def _next(self, signals) -> int | None:
        """Wait for an event, and handle it; return the number of a signal if it is one."""
        if not self._workers:
            self._fill()
        pause = max(0.0, self._not_before - time.monotonic()) or None
        found: list[Any] = wait([signals, *(one.pipe for one in self._workers)], pause)
        if signals in found:
            return signals.recv(1)[0]
        for one in [one for one in self._workers if one.pipe in found]:
            one.read()
            if one.ready and one.process.exitcode is None:
                self._has_started(one)
            if one.process.exitcode is not None:
                self._has_ended(one)
        return None

    def _has_started(self, worker):
        log.info("worker %d is ready", worker.process.pid)
        if self._renewing:
            self._renewing.popleft().retire()
        if not self._were_ready and sum(one.ready for one in self._workers) == self._count:
            self._were_ready = True
            self._started()

    def _has_ended(self, worker):
        self._workers.remove(worker)
        found = worker.process.pid, worker.process.exitcode
        self._ended(worker.process.pid)
        worker.pipe.close()
        if worker.retiring:
            log.info("worker %d ended with code %s", *found)
        elif worker.ready:
            log.error("worker %d ended with code %s, another is started", *found)
        else:
            self._killed += found[1] < 0
            if not self._were_ready and (found[1] >= 0 or self._killed >= FIRST_TRIES):
                raise worker.error or WorkerLost(
                    f"--workers: expected each to become ready, one ended with code {found[1]}; see the log; if it was "
                    "killed (a negative code), give fewer --workers or more memory"
                )
            self._not_before = time.monotonic() + AGAIN_SECONDS
            self._renewing.clear()
            why = type(worker.error).__name__ if worker.error else "no error was reported"
            log.error("worker %d ended with code %s before it was ready: %s", *found, why)


@contextlib.contextmanager
def _received(*numbers) -> Iterator[socket.socket]:
    """Context in which the numbers of these signals can be received from a socket, a byte each."""
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    woken = signal.set_wakeup_fd(sending.fileno())
    try:
        yield receiving
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        receiving.close()
        sending.close()
