"""Tasks in flight on a cluster, each result fetched, or what is told of it, as soon as it is there.

What is fetched no worker's death takes away; what dies on its way is computed again. On duplicate: a result is handed
over once, whichever copy of its task came first. On loss of the scheduler or of all workers: `SchedulerLost`.
"""

import asyncio
import concurrent.futures
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import distributed

from bcmdist.data.partition import Work
from bcmdist.runtime.dask.heartbeat import PULSE_SECONDS, Heartbeat
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.dask.sums import Term, one_term
from bcmdist.runtime.interface import Outcome
from bcmdist.runtime.task import Task, is_parted

# A flight is late after so many times the longest that any took, and so many seconds: its worker may be stopped,
# paused for want of memory, or cut off. It is then sent a second time, to another worker.
LATE_FACTOR, LATE_SECONDS = 4.0, 30.0


class NeverArrived(Exception):
    """A flight was lost, and not by its task: all workers were restarted. It is to be sent again."""


@dataclass(eq=False)
class Copy:
    """One of the runs of a flight."""

    future: distributed.Future
    fetched: concurrent.futures.Future
    """the result, here; or what is `Summary` of it"""
    started: float


@dataclass(eq=False)
class Flight:
    """Partitions on their way through a task."""

    run: Callable
    """what a worker calls with the task and the partitions"""
    task: Task
    parts: list[Work]
    worker: str | None = None
    """where it was sent; None for anywhere"""
    copies: list[Copy] = field(default_factory=list)

    def ended(self) -> Copy | None:
        """The copy with the result, or with the error of all; None where it is on its way."""
        ended = [copy for copy in self.copies if copy.fetched.done()]
        good = [copy for copy in ended if not copy.fetched.exception()]
        return (good or ended)[0] if good or len(ended) == len(self.copies) else None


class Flights:
    """Tasks in flight under one label.

    Parameters
    ----------
    telling : Telling
        Of the client.
    pulse : Heartbeat
        Of the cluster.
    prefix : str
        Begins the keys of the tasks.
    """

    def __init__(self, telling: EventChannel, pulse: Heartbeat, prefix: str):
        self.telling, self.client = telling, telling.client
        self.pulse = pulse
        self.flying: list[Flight] = []
        self._prefix = f"{prefix}{pulse.label}-{uuid.uuid4().hex[:12]}"
        self._submitted = 0
        self._longest = float("inf")
        """seconds of the flight that took longest; infinite before the first is there"""

    def __len__(self):
        return len(self.flying)

    def submit(self, run, task, parts, *, worker=None) -> "Flight":
        """Send a task about some partitions on its way, to one worker where given; its flight."""
        flight = Flight(run, task, parts, worker)
        self.flying.append(flight)
        self._send(flight, [worker] if worker else None)
        return flight

    def landed(self) -> list[tuple[Flight, Outcome | None, Exception | None]]:
        """Flights that have come to an end, at least one, each with its outcome or its error."""
        while True:
            landed = [(flight, copy) for flight in self.flying if (copy := flight.ended())]
            if landed:
                return [self._land(flight, copy) for flight, copy in landed]
            waiting = [copy.fetched for flight in self.flying for copy in flight.copies if not copy.fetched.done()]
            if not concurrent.futures.wait(waiting, PULSE_SECONDS, concurrent.futures.FIRST_COMPLETED).done:
                self.pulse.check()
                self._repeat_late()

    def cancel(self) -> None:
        """Give up what is in flight."""
        self._forget([copy.future for flight in self.flying for copy in flight.copies])
        self.flying = []

    def _send(self, flight, workers):
        self._submitted += 1
        parted = is_parted(flight.task)
        future = (self.telling if parted else self.client).submit(
            flight.run,
            flight.task,
            flight.parts,
            key=f"{self._prefix}-{self._submitted}",
            pure=False,
            workers=workers,
            allow_other_workers=bool(workers),  # those may be gone before it arrives
        )
        # A coroutine of the client's event loop: many are fetched at the same time, and none blocks us.
        fetch = self.telling.told(future) if parted else self.client.gather(future, asynchronous=True)
        fetched = asyncio.run_coroutine_threadsafe(fetch, self.client.loop.asyncio_loop)
        flight.copies.append(Copy(future, fetched, time.monotonic()))

    def _land(self, flight, copy):
        self.flying.remove(flight)
        self._forget([other.future for other in flight.copies if other is not copy])
        error, status = copy.fetched.exception(), copy.future.status
        outcome = None if error else self._outcome(flight, copy)
        if outcome is None or outcome.kept is None:
            copy.future.release()  # the scheduler would keep an error for as long as anybody holds its traceback
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
            return Outcome(flight.parts, result)
        term = Term(copy.future, result.worker, len(flight.parts))
        return Outcome(flight.parts, result.told, kept=one_term(self.client, term))

    def _repeat_late(self):
        """Send a second copy of what has been under way for too long to another worker, where there is one."""
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
