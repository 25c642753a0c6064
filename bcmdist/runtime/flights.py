"""Tasks in flight on a cluster, each result fetched as soon as it is there.

What is fetched no worker's death takes away. On retry and duplicate: a result is handed over once, whichever
copy of its task came first. On loss of the scheduler or of all workers: `SchedulerLost`.
"""

import asyncio
import concurrent.futures
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import distributed

from bcmdist.errors import SchedulerLost
from bcmdist.partition import Work
from bcmdist.tasks import Task, run_batch

PULSE_SECONDS = 1  # how often scheduler and workers are looked at while nothing lands
ANSWER_SECONDS = 5  # for a scheduler that is alive
WORKERS_SECONDS = 60  # how long to wait for a first, or a new, worker


class Pulse:
    """Tells whether a cluster can still do work; to be asked every now and then while waiting for it."""

    def __init__(self, client, label):
        self.client = client
        self.label = label
        self.alive = time.monotonic()

    def check(self, done):
        """Raise `SchedulerLost` where `done` partitions are all that will come."""
        if self.client.status != "running":
            raise lost(self.label, done)
        if self._workers():
            self.alive = time.monotonic()
        if time.monotonic() - self.alive >= WORKERS_SECONDS:
            raise SchedulerLost(
                f"{self.label}: expected a worker, there was none for {WORKERS_SECONDS} s after {done} partitions; "
                f"{REPEAT.replace('it', 'workers')}"
            )

    def _workers(self):
        try:
            return self.client.sync(self.client.scheduler.ncores, callback_timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return {}


REPEAT = "what was committed is safe: start it again and repeat the command"


def lost(label, done):
    """Error of a scheduler that went away."""
    return SchedulerLost(f"{label}: the scheduler went away after {done} partitions; {REPEAT}")


@dataclass
class Flight:
    """Partitions on their way through a task."""

    task: Task
    parts: list[Work]
    future: distributed.Future
    fetched: concurrent.futures.Future
    """the result, here"""
    started: float = field(default_factory=time.monotonic)


class Flights:
    """Tasks in flight under one label.

    Parameters
    ----------
    client : distributed.Client
    label : str
        Begins the keys of the tasks.
    """

    def __init__(self, client, label):
        self.client = client
        self.prefix = f"{label}-{uuid.uuid4().hex[:12]}"
        self.pulse = Pulse(client, label)
        self.flying: list[Flight] = []
        self.submitted = self.done = 0

    def __len__(self):
        return len(self.flying)

    def submit(self, task, parts, **where):
        """Send a task about some partitions on its way."""
        self.submitted += 1
        future = self.client.submit(run_batch, task, parts, key=f"{self.prefix}-{self.submitted}", pure=False, **where)
        # A coroutine of the client's event loop: several fetch at the same time, and none blocks us.
        fetch = self.client.gather(future, asynchronous=True)
        fetched = asyncio.run_coroutine_threadsafe(fetch, self.client.loop.asyncio_loop)
        self.flying.append(Flight(task, parts, future, fetched))

    def landed(self) -> list[tuple[Flight, Any, Exception | None]]:
        """Flights that have come to an end, at least one, each with its result or its error."""
        while True:
            fetched = [flight.fetched for flight in self.flying]
            done, _ = concurrent.futures.wait(fetched, PULSE_SECONDS, concurrent.futures.FIRST_COMPLETED)
            if done:
                break
            self.pulse.check(self.done)
        landed = [flight for flight in self.flying if flight.fetched in done]
        self.flying = [flight for flight in self.flying if flight.fetched not in done]
        return [(flight, *_ended(flight.fetched)) for flight in landed]

    def cancel(self):
        """Give up what is in flight."""
        if self.flying and self.client.status == "running":
            self.client.cancel([flight.future for flight in self.flying])
        self.flying = []


def _ended(fetched):
    error = fetched.exception()
    return (None, error) if error else (fetched.result(), None)
