"""Liveness checks of a cluster, made while the client waits for results."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.dask.connection import WORKERS_SECONDS
from bcmdist.runtime.dask.existing import nothing_starts

PULSE_SECONDS = 1  # between checks of scheduler and workers while no result arrives
ANSWER_SECONDS = 5  # timeout for an answer of the scheduler
CONNECTION_LOST = "scheduler-connection-lost"  # Dask's reason for cancelled futures when the scheduler is lost


@dataclass
class Live:
    """What is known of the workers of one client."""

    threads: int = 1
    """number of threads when last seen, at least 1"""
    checked: set[str] = field(default_factory=set)
    """addresses of workers that need no `check`"""
    check: Callable[[list[str]], set[str]] | None = None
    """checks workers that joined and returns those that answered, or raises; None: no worker is checked"""


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
    allotted : bool
        Whether the client has an allotment of workers.
    live : Live, optional
        Number of threads, kept up to date by the checks.
    starting : callable
        Whether workers are to start that have not arrived; then a cluster without workers is waited for.
    """

    def __init__(
        self, client, scheduler, label, partitions=None, *, allotted=False, live=None, starting=nothing_starts
    ):
        self.client = client
        self._scheduler = scheduler
        self.label = label
        self.done = 0
        """number of partitions done, for errors"""
        self._allotted, self._starting = allotted, starting
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
        VersionMismatch, WorkerCannotRead
            A worker has joined that must not be used.
        """
        self.check_scheduler()
        self._checked = time.monotonic()
        threads = self.threads()
        if threads:
            self._alive, self.live.threads = time.monotonic(), sum(threads.values())
            self._check_joined(threads)
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
            if self._answering() != self._scheduler:
                raise self.lost() from error
            raise

    def check_scheduler(self) -> None:
        """Raise `SchedulerLost` if the scheduler is gone, or if another one answers at its address."""
        if self.client.status != "running" or self._answering() not in (self._scheduler, None):  # None: it may be busy
            raise self.lost()

    def _answering(self):
        """Identity of the scheduler that answers; None if none answers in time."""
        return self.ask("identity", n_workers=0).get("id") if self.client.status == "running" else None

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each of our workers, by address; {} if the scheduler does not answer."""
        if not self._allotted:
            return self.ask("ncores")
        return self.ask("bcmdist_allotted", client=self.client.id).get("mine", {})

    def ask(self, what, **options) -> Any:
        """Call the scheduler's handler `what` with `options`; return its answer, or {} if none comes in time."""
        try:
            question = getattr(self.client.scheduler, what)
            # None: another scheduler, without this handler.
            return self.client.sync(question, **options, callback_timeout=ANSWER_SECONDS) or {}
        except (OSError, TimeoutError):
            return {}

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
