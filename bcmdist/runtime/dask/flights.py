"""Tasks in flight on a cluster; each result, or its summary, is fetched as soon as the task is done.

On loss of a worker: fetched results are safe, others are computed again. On duplicate: a task sent twice gives one
outcome, from the copy that finishes first. On loss of the scheduler or of all workers: `SchedulerLost`.
"""

import asyncio
import concurrent.futures
import functools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import distributed

from bcmdist.data.partition import Work
from bcmdist.runtime.dask.heartbeat import PULSE_SECONDS, Heartbeat
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.sums import Term, one_term
from bcmdist.runtime.interface import Outcome, Task, is_parted, outcome_of, timed

# A flight is late after `LATE_FACTOR` times the longest duration so far, and at least `LATE_SECONDS`: its worker may be
# stopped, paused for lack of memory, or disconnected. A late flight is sent a second time, to another worker.
LATE_FACTOR, LATE_SECONDS = 4.0, 30.0


class NeverArrived(Exception):
    """A flight was lost because all workers were restarted, not because of its task. The caller sends it again."""


@dataclass(eq=False)
class Copy:
    """One run of a flight's task."""

    future: distributed.Future
    fetched: concurrent.futures.Future
    """the result with its duration, or its `Summary` if the task's results are `Parted`"""
    started: float
    """by `time.monotonic()`, in seconds"""


@dataclass(eq=False)
class Flight:
    """A task in flight over some partitions."""

    run: Callable
    """function that a worker calls with the task and the partitions"""
    task: Task
    parts: list[Work]
    worker: str | None = None
    """address of the preferred worker; None for any"""
    copies: list[Copy] = field(default_factory=list)

    def ended(self) -> Copy | None:
        """Return a copy that succeeded or, if all copies failed, a failed one; None while the flight is under way."""
        ended = [copy for copy in self.copies if copy.fetched.done()]
        good = [copy for copy in ended if not copy.fetched.exception()]
        return (good or ended)[0] if good or len(ended) == len(self.copies) else None


class Flights:
    """Submit the tasks of one operation to Dask, and return each result as soon as it is available.

    A task that takes much longer than the others is sent a second time, to another worker; the first success counts.

    Parameters
    ----------
    channel : EventChannel
        Submits tasks with `Parted` results, and receives the small part of each; the large part stays on its worker.
    pulse : Heartbeat
        Checks that the scheduler and workers are alive; its label names the operation.
    prefix : str
        Start of the keys of the Dask tasks, before the label.
    """

    def __init__(self, channel: EventChannel, pulse: Heartbeat, prefix: str):
        self.channel, self.client = channel, channel.client
        self.pulse = pulse
        self.flying: list[Flight] = []
        self._prefix = f"{prefix}{pulse.label}-{uuid.uuid4().hex[:12]}"
        self._submitted = 0
        self._longest = float("inf")
        """longest duration of a successful flight in seconds; infinite before the first has landed"""

    def __len__(self):
        return len(self.flying)

    def submit(self, run, task, parts, *, worker=None) -> "Flight":
        """Submit a task over some partitions, preferably to `worker` if given; return the flight."""
        flight = Flight(run, task, parts, worker)
        self.flying.append(flight)
        self._send(flight, [worker] if worker else None)
        return flight

    def landed(self) -> list[tuple[Flight, Outcome | None, Exception | None]]:
        """Wait until at least one flight has ended; return each ended flight with its outcome or its error."""
        while True:
            landed = [(flight, copy) for flight in self.flying if (copy := flight.ended())]
            if landed:
                return [self._land(flight, copy) for flight, copy in landed]
            waiting = [copy.fetched for flight in self.flying for copy in flight.copies if not copy.fetched.done()]
            if not concurrent.futures.wait(waiting, PULSE_SECONDS, concurrent.futures.FIRST_COMPLETED).done:
                self.pulse.check()
                self._repeat_late()

    def cancel(self) -> None:
        """Cancel all flights."""
        self._forget([copy.future for flight in self.flying for copy in flight.copies])
        self.flying = []

    def _send(self, flight, workers):
        self._submitted += 1
        parted = is_parted(flight.task)
        submit = self.channel.submit if parted else functools.partial(self.client.submit, timed)
        future = submit(
            flight.run,
            flight.task,
            flight.parts,
            key=f"{self._prefix}-{self._submitted}",
            pure=False,
            workers=workers,
            allow_other_workers=bool(workers),  # the given ones may be gone when the task arrives
        )
        # A coroutine in the client's event loop: many results are fetched concurrently, without blocking this thread.
        fetch = self.channel.summary(future) if parted else self.client.gather(future, asynchronous=True)
        fetched = asyncio.run_coroutine_threadsafe(fetch, self.client.loop.asyncio_loop)
        flight.copies.append(Copy(future, fetched, time.monotonic()))

    def _land(self, flight, copy):
        self.flying.remove(flight)
        self._forget([other.future for other in flight.copies if other is not copy])
        error, status = copy.fetched.exception(), copy.future.status
        outcome = None if error else self._outcome(flight, copy)
        if outcome is None or outcome.kept is None:
            copy.future.release()  # otherwise the scheduler keeps an error while its traceback is referenced
        if error is not None and status != "error":
            self.pulse.check_lost(error)
            return flight, None, NeverArrived()
        if error is not None:
            return flight, None, error
        seconds = time.monotonic() - copy.started
        self._longest = max(seconds, self._longest) if self._longest < float("inf") else seconds
        return flight, outcome, None

    def _outcome(self, flight, copy):
        result = copy.fetched.result()
        if not is_parted(flight.task):
            return outcome_of(flight.task, flight.parts, *result)
        term = Term(copy.future, result.worker, len(flight.parts))
        return Outcome(flight.parts, result.value, kept=one_term(self.client, term), seconds=result.seconds)

    def _repeat_late(self):
        """Send a second copy of each late flight to another worker, if there is one."""
        deadline = time.monotonic() - max(LATE_SECONDS, LATE_FACTOR * self._longest)
        late = [f for f in self.flying if len(f.copies) == 1 and f.copies[0].started < deadline]
        if not late:
            return
        busy = self.pulse.ask("processing", workers=list(self.pulse.threads()))
        holders = self.pulse.ask("who_has", keys=[flight.copies[0].future.key for flight in late])
        for flight in late:
            key = flight.copies[0].future.key
            others = [worker for worker in busy if key not in busy[worker] and worker not in holders.get(key, ())]
            if others:
                self._send(flight, others)

    def _forget(self, futures):
        if futures and self.client.status == "running":
            self.client.cancel(futures)
