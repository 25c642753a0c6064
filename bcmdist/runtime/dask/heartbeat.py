"""Whether a cluster still does work: asked while somebody waits for it."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.dask.connection import WORKERS_SECONDS

PULSE_SECONDS = 1  # how often scheduler and workers are looked at while nothing arrives
ANSWER_SECONDS = 5  # for a scheduler that is alive
CONNECTION_LOST = "scheduler-connection-lost"  # why Dask cancels futures when the scheduler goes away


class Heartbeat:
    """The scheduler and the workers of one piece of work.

    Parameters
    ----------
    client : distributed.Client
    scheduler : str
        Identity of the scheduler that the client connected to. One that is restarted at the same
        address has another: Dask's client connects to that one, and looks as if nothing had happened.
    label : str
        Of the work, for errors.
    partitions : int, optional
        In all, for errors.
    allotted : bool
        Whether the client has workers of its own there.
    """

    def __init__(self, client, scheduler, label, partitions=None, *, allotted=False):
        self.client = client
        self._scheduler = scheduler
        self.label = label
        self.done = 0
        """partitions that are done, for errors"""
        self._allotted = allotted
        self._of_all = "" if partitions is None else f" of {partitions}"
        self._alive = self._checked = time.monotonic()

    def check_sometimes(self) -> None:
        """As `check`, where the last one was `PULSE_SECONDS` ago."""
        if time.monotonic() - self._checked >= PULSE_SECONDS:
            self.check()

    def check(self) -> list[str]:
        """Addresses of our workers; none where the scheduler does not answer in time.

        Raises
        ------
        SchedulerLost
            The scheduler is gone or another one, or there has been no worker for `WORKERS_SECONDS`.
        """
        self.check_scheduler()
        self._checked = time.monotonic()
        workers = list(self.threads())
        if workers:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive >= WORKERS_SECONDS:
            raise SchedulerLost(
                f"{self.label}: expected a worker, there was none for {WORKERS_SECONDS} s after {self.done}"
                f"{self._of_all} partitions; what was committed is safe: start workers and repeat the command"
            )
        return workers

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Where a connection may be lost: `SchedulerLost`, unless it was another one than that to the scheduler."""
        try:
            yield
        except (CommClosedError, ClosedClientError) as error:
            if self._answering() != self._scheduler:
                raise self.lost() from error
            raise

    def check_scheduler(self) -> None:
        """Raise `SchedulerLost` where the scheduler is gone, or another one answers in its place."""
        if self.client.status != "running" or self._answering() not in (self._scheduler, None):  # None: it may be busy
            raise self.lost()

    def _answering(self):
        """Identity of the scheduler that answers; None where none does in time."""
        return self.ask("identity", n_workers=0).get("id") if self.client.status == "running" else None

    def threads(self) -> dict[str, int]:
        """Of each of our workers, by address; {} where the scheduler does not answer in time."""
        if not self._allotted:
            return self.ask("ncores")
        return self.ask("bcmdist_allotted", client=self.client.id).get("mine", {})

    def ask(self, what, **options) -> Any:
        """Answer of the scheduler to a question about workers and tasks, by name; {} where none comes in time."""
        try:
            question = getattr(self.client.scheduler, what)
            # None: another scheduler, which does not know the question.
            return self.client.sync(question, **options, callback_timeout=ANSWER_SECONDS) or {}
        except (OSError, TimeoutError):
            return {}

    def lost(self) -> SchedulerLost:
        """Error of a scheduler that went away."""
        return SchedulerLost(
            f"{self.label}: the scheduler went away after {self.done}{self._of_all} partitions; what was committed is "
            "safe: start it again and repeat the command"
        )

    def check_lost(self, error) -> None:
        """Raise `SchedulerLost` where that is why futures were lost with this error; else workers were restarted."""
        if CONNECTION_LOST in str(error):
            raise self.lost() from error
        self.check_scheduler()
