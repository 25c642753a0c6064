"""Tasks in flight on a cluster; each result, or its summary, is fetched as soon as the task is done.

On loss of a worker: fetched results are safe, others are computed again. On duplicate: a task sent twice gives one
outcome, from the copy that finishes first. On loss of the scheduler or of all workers: `SchedulerLost`.
"""

import asyncio
import collections
import concurrent.futures
import functools
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import distributed

from bcmdist.data.partition import Work
from bcmdist.runtime.dask.heartbeat import PULSE_SECONDS, Heartbeat
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.sums import Term, one_term
from bcmdist.runtime.interface import Outcome, Task, is_parted, outcome_of, timed

# A flight is late after `LATE_FACTOR` times the median duration of recent partitions, times its number of partitions,
# plus `LATE_SECONDS`: its worker may be slow, stopped, paused for lack of memory, or disconnected. A late flight is
# sent a second time, to a worker with an idle thread. One that is meant to run alone gets `ALONE_SECONDS` more.
LATE_FACTOR, LATE_SECONDS, ALONE_SECONDS = 2.0, 1.0, 30.0
RECENT = 100  # flights whose durations count


class NeverArrived(Exception):
    """A flight was lost because its workers were restarted or left, not because of its task. The caller sends it
    again."""


@dataclass(eq=False)
class Copy:
    """One run of a flight's task."""

    future: distributed.Future
    fetched: concurrent.futures.Future
    """the result with its duration, or its `Summary` if the task's results are `Parted`"""
    started: float
    """by `time.monotonic()`, in seconds"""
    on: frozenset[str] | None = None
    """workers that it is restricted to; None: it may run on any"""


@dataclass(eq=False)
class Flight:
    """A task in flight over some partitions."""

    run: Callable
    """function that a worker calls with the task and the partitions"""
    task: Task
    parts: Sequence[Work]
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

    A late task is sent a second time, to an idle thread of another worker; the first success counts, and the other
    copy is cancelled.

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
        self._durations: collections.deque[float] = collections.deque(maxlen=RECENT)
        """seconds per partition of the last successful flights, without waiting"""
        self._looked = time.monotonic()

    def __len__(self):
        return len(self.flying)

    def submit(self, run, task, parts, *, worker=None) -> "Flight":
        """Submit a task over some partitions, preferably to `worker` if given; return the flight."""
        flight = Flight(run, task, parts, worker)
        self.flying.append(flight)
        self._send(flight, [worker] if worker else None)
        return flight

    def landed(self, *, spare: bool) -> list[tuple[Flight, Outcome | None, Exception | None]]:
        """Wait until at least one flight has ended; return each ended flight with its outcome or its error.

        spare : whether late flights may be sent again, since no other work waits for a thread
        """
        while True:
            if spare and time.monotonic() - self._looked >= PULSE_SECONDS:
                self._looked = time.monotonic()
                self._repeat_late()
            landed = [(flight, copy) for flight in self.flying if (copy := flight.ended())]
            if landed:
                return [self._land(flight, copy) for flight, copy in landed]
            waiting = [copy.fetched for flight in self.flying for copy in flight.copies if not copy.fetched.done()]
            if not concurrent.futures.wait(waiting, PULSE_SECONDS, concurrent.futures.FIRST_COMPLETED).done:
                workers, orphaned = self.pulse.check(), self.pulse.live.orphaned
                orphans = [f for f in self.flying if workers and all(orphaned(copy.on) for copy in f.copies)]
                if orphans:
                    return [self._lost(flight) for flight in orphans]

    def cancel(self) -> None:
        """Cancel all flights."""
        self._forget([copy.future for flight in self.flying for copy in flight.copies])
        self.flying = []

    def _send(self, flight, preferred):
        self._submitted += 1
        on = None if preferred else self.pulse.live.only
        parted = is_parted(flight.task)
        submit = self.channel.submit if parted else functools.partial(self.client.submit, timed)
        future = submit(
            flight.run,
            flight.task,
            flight.parts,
            key=f"{self._prefix}-{self._submitted}",
            pure=False,
            workers=preferred or sorted(on or ()) or None,
            allow_other_workers=bool(preferred),  # the preferred one may be gone when the task arrives
        )
        # A coroutine in the client's event loop: many results are fetched concurrently, without blocking this thread.
        fetch = self.channel.summary(future) if parted else self.client.gather(future, asynchronous=True)
        fetched = asyncio.run_coroutine_threadsafe(fetch, self.client.loop.asyncio_loop)
        flight.copies.append(Copy(future, fetched, time.monotonic(), on))

    def _lost(self, flight):
        self.flying.remove(flight)
        self._forget([copy.future for copy in flight.copies])
        return flight, None, NeverArrived()

    def _land(self, flight, copy):
        self.flying.remove(flight)
        self._forget([other.future for other in flight.copies if other is not copy])
        error, status = copy.fetched.exception(), copy.future.status
        if error is not None:
            copy.future.release()  # otherwise the scheduler keeps an error while its traceback is referenced
            if status == "error":
                return flight, None, error
            self.pulse.check_lost(error)
            return flight, None, NeverArrived()
        outcome = self._outcome(flight, copy)
        if outcome.kept is None:
            copy.future.release()
        if outcome.seconds is not None:
            self._durations.append(outcome.seconds / len(flight.parts))
        return flight, outcome, None

    def _outcome(self, flight, copy):
        result = copy.fetched.result()
        if not is_parted(flight.task):
            return outcome_of(flight.task, flight.parts, *result)
        on = (copy.on,) if copy.on else ()
        term = Term(copy.future, result.worker, len(flight.parts), on=on)
        return Outcome(flight.parts, result.value, kept=one_term(self.client, term), seconds=result.seconds)

    def _repeat_late(self):
        """Send a second copy of each late flight to an idle thread of a worker without late flights, if there is one.

        A flight that no worker has yet is not sent again: the next idle thread takes it.
        """
        late = [flight for flight in self.flying if len(flight.copies) == 1 and self._is_late(flight)]
        if not late:
            return
        keys = [flight.copies[0].future.key for flight in late]
        threads, answer = self.pulse.threads(), self.pulse.on_scheduler(placement, keys)
        if answer is None:
            return
        found, busy = answer
        slow = set().union(*found.values())
        idle = [w for w, k in threads.items() if w in busy and w not in slow for _ in range(k - busy[w])]
        for flight, key in zip(late, keys, strict=True):
            if idle and found.get(key):
                self._send(flight, [idle.pop()])

    def _is_late(self, flight):
        if not self._durations:
            return False
        usual = statistics.median(self._durations) * len(flight.parts)
        patience = LATE_FACTOR * usual + LATE_SECONDS + (ALONE_SECONDS if flight.worker else 0.0)
        return time.monotonic() - flight.copies[0].started > patience

    def _forget(self, futures):
        if futures and self.client.status == "running":
            self.client.cancel(futures)


def placement(keys, dask_scheduler=None) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Return the workers that compute or hold each of some tasks, and the number of tasks that each worker computes.

    Runs in the scheduler's process.
    """
    found: dict[str, set[str]] = {}
    for task in (dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks):
        workers = {task.processing_on, *(task.who_has or ())} - {None}
        found[task.key] = {worker.address for worker in workers}
    return found, {address: len(worker.processing) for address, worker in dask_scheduler.workers.items()}
