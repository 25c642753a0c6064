"""Liveness checks of a cluster, made while the client waits for results."""

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.dask.allotment import Allotting, Usable, ask, usable
from bcmdist.runtime.dask.connection import WORKERS_SECONDS
from bcmdist.runtime.dask.existing import nothing_starts
from bcmdist.runtime.portion import Portion

PULSE_SECONDS = 1  # between checks of scheduler and workers while no result arrives
LOOK_SECONDS = 0.5  # between checks for free workers, and while an answer is awaited
ANSWER_SECONDS = 5  # timeout for an answer of the scheduler
CONNECTION_LOST = "scheduler-connection-lost"  # Dask's reason for cancelled futures when the scheduler is lost


class Orphaned(Exception):
    """All workers that tasks were restricted to have left: submit these tasks again, to others."""


@dataclass
class Live:
    """What is known of the workers of one client."""

    threads: int = 1
    """number of threads when last seen, at least 1"""
    only: frozenset[str] | None = None
    """addresses of the workers to which its tasks are restricted; None: all workers of the cluster"""
    connected: frozenset[str] = frozenset()
    """addresses of all workers of the cluster when last seen"""
    checked: set[str] = field(default_factory=set)
    """addresses of workers that need no `check`"""
    check: Callable[[list[str]], set[str]] | None = None
    """checks workers that joined and returns those that answered, or raises; None: no worker is checked"""

    def orphaned(self, only: frozenset[str] | None) -> bool:
        """Whether all of these workers have left, so that tasks restricted to them wait in vain."""
        return only is not None and not only & self.connected


class Heartbeat:
    """Checks the scheduler and the workers during one operation.

    Parameters
    ----------
    client : distributed.Client
    scheduler : str
        Identity of the scheduler that the client connected to. A scheduler restarted at the same address has another
        identity; Dask's client reconnects to it silently.
    label : str
        Name of the operation, for errors.
    partitions : int, optional
        Total number of partitions, for errors.
    live : Live, optional
        Number of threads, kept up to date by the checks.
    starting : callable
        Whether workers are to start that have not arrived; then a cluster without workers is waited for.
    """

    def __init__(self, client, scheduler, label, partitions=None, *, live=None, starting=nothing_starts):
        self.client = client
        self._scheduler = scheduler
        self.label = label
        self.done = 0
        """number of partitions done, for errors"""
        self.on: set[frozenset[str]] = set()
        """workers that tasks of the operation are restricted to"""
        self._starting = starting
        self.live = live or Live()
        self._of_all = "" if partitions is None else f" of {partitions}"
        self._alive = self._checked = time.monotonic()

    def check_sometimes(self) -> None:
        """Call `check` if the last check was at least `PULSE_SECONDS` ago."""
        if time.monotonic() - self._checked >= PULSE_SECONDS:
            self.check()

    def check(self) -> list[str]:
        """Return the addresses of our workers; [] if the scheduler does not answer in time.

        Raises
        ------
        SchedulerLost
            The scheduler is gone or was replaced by another one, or there was no worker for `WORKERS_SECONDS`.
        Orphaned
            We have workers, but none of those that some tasks of the operation are restricted to.
        VersionMismatch, WorkerCannotRead
            A worker has joined that must not be used.
        """
        self._checked, threads = time.monotonic(), self.threads()
        if threads:
            self._alive, self.live.threads = time.monotonic(), sum(threads.values())
            self._check_joined(threads)
            if any(map(self.live.orphaned, self.on)):
                raise Orphaned(self.label)
        elif self._starting():
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive >= WORKERS_SECONDS:
            raise SchedulerLost(
                f"{self.label}: expected a worker, there was none for {WORKERS_SECONDS} s after {self.done}"
                f"{self._of_all} partitions; what was committed is safe: start workers and repeat the command"
            )
        return list(threads)

    def _check_joined(self, workers):
        joined = sorted(workers.keys() - self.live.checked)
        if joined and self.live.check is not None:
            self.live.checked |= self.live.check(joined)

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Context that converts a lost connection into `SchedulerLost`, unless the scheduler still answers."""
        try:
            yield
        except (CommClosedError, ClosedClientError) as error:
            if self._look() is None:
                raise self.lost() from error
            raise

    def check_scheduler(self) -> None:
        """Raise `SchedulerLost` if the scheduler is gone, or if another one answers at its address."""
        self._look()

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each of our workers, by address; {} if the scheduler does not answer.

        Raises
        ------
        SchedulerLost
        """
        found = self._look()
        return found.mine if found else {}

    def _look(self) -> Usable | None:
        if self.client.status != "running":
            raise self.lost()
        found: Usable | None = self.on_scheduler(usable, self.client.id)
        if found is None:  # it may be busy
            return None
        if found.scheduler != self._scheduler:
            raise self.lost()
        self.live.connected = frozenset(found.workers)
        if found.mine:  # otherwise tasks are submitted to the workers that were lost, and again when there are others
            self.live.only = None if found.mine == found.workers else frozenset(found.mine)
        return found

    def on_scheduler(self, function, *arguments) -> Any:
        """Run a short function in the scheduler's process; return its result, or None if none comes in time.

        Raises
        ------
        SchedulerLost
            The scheduler has no bcmdist, so that it is another one.
        """
        try:
            return self.client.run_on_scheduler(function, *arguments, callback_timeout=ANSWER_SECONDS)
        except ImportError as error:
            raise self.lost() from error
        except (OSError, TimeoutError):
            return None

    def finished(self, coroutine, meanwhile: Callable[[], None] = lambda: None) -> concurrent.futures.Future:
        """Run a coroutine in the client's event loop and return its future once it has ended.

        Until then the cluster is checked, and `meanwhile` is called, every `LOOK_SECONDS`; their errors end it.
        """
        answer = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        try:
            while not concurrent.futures.wait([answer], LOOK_SECONDS).done:
                self.check_sometimes()
                meanwhile()
        finally:
            answer.cancel()
        return answer

    def lost(self) -> SchedulerLost:
        """Return the error for a scheduler that went away."""
        return SchedulerLost(
            f"{self.label}: the scheduler went away after {self.done}{self._of_all} partitions; what was committed is "
            "safe: start it again and repeat the command"
        )

    def check_lost(self, error) -> None:
        """Raise `SchedulerLost` if futures failed with this error because the scheduler is gone.

        Returns normally if the workers were restarted instead.
        """
        if CONNECTION_LOST in str(error):
            raise self.lost() from error
        self.check_scheduler()


def await_portion(pulse: Heartbeat, portion: Portion, waits: Callable[[str], None]) -> None:
    """Ask for a portion for the heartbeat's client, and wait without limit until the client has a worker.

    Parameters
    ----------
    waits : called with a description of what the client waits for, whenever the description changes

    Raises
    ------
    SchedulerLost
    """
    reported = ""
    pulse.client.register_plugin(Allotting())
    while True:
        found: Usable | None = pulse.on_scheduler(ask, pulse.client.id, portion)
        pulse.check_scheduler()
        if found and found.mine:
            return
        if found and reported != (reported := found.waited_for()):
            waits(reported)
        time.sleep(LOOK_SECONDS)
