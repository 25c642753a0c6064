"""Partitions computed one by one on a cluster: every one gets a result, or an error of its own.

Batches that fail are repeated partition by partition, at once. Partitions whose worker died are set aside and tried
alone when nothing else is left (`quarantine`).
"""

import collections
import time
from collections.abc import Iterator

import distributed
from distributed.client import ClosedClientError

from bcmdist.errors import BcmdistError, PoisonChunk
from bcmdist.runtime.dask.flights import Flight, Flights, NeverArrived
from bcmdist.runtime.dask.heartbeat import PULSE_SECONDS, Heartbeat
from bcmdist.runtime.dask.last_phase import last_seen, run_noted
from bcmdist.runtime.dask.quarantine import Quarantine, Suspect
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.interface import Outcome
from bcmdist.runtime.task import run_batch

WINDOW = 3  # flights per thread: one runs, one is ready, one is on its way
CALM_SECONDS = 5  # without another death, before a partition is blamed for the deaths there were
AGAIN_SECONDS = 0.2  # until a missing worker is looked for again


class DeathIsFinal(distributed.SchedulerPlugin):
    """Reports the death of a worker for each task of one client, at once, instead of running the task elsewhere.

    Dask's own limit, `allowed-failures`, is one for all clients of a scheduler.
    """

    def __init__(self, client_id):
        self.client_id = client_id
        self.name = f"bcmdist-{client_id}"

    def update_graph(self, scheduler, *, client, keys, **_) -> None:
        """New tasks have arrived: those that are one of many flights have no failures left."""
        if client == self.client_id:
            for key in keys:
                if str(key).startswith(PREFIX):
                    scheduler.tasks[key].suspicious = scheduler.allowed_failures

    def remove_client(self, scheduler, client) -> None:
        """The client has gone, and so does this."""
        if client == self.client_id:
            scheduler.remove_plugin(self.name)


PREFIX = "each-"  # of the keys of such tasks


class OneByOne:
    """One call of `Runtime.each` on so many threads of a cluster."""

    def __init__(self, telling: EventChannel, threads, pulse: Heartbeat):
        self.client = telling.client
        self.window = WINDOW * threads
        self.pulse = pulse
        self.flights = Flights(telling, self.pulse, PREFIX)
        self.again: collections.deque = collections.deque()
        self.quarantine = Quarantine()
        self.killed_at = 0.0

    def outcomes(self, work) -> Iterator[Outcome]:
        """Outcome of each pair of a task and partitions, in the order of completion."""
        try:
            yield from self._together(iter(work))
            while self.quarantine.waiting or self.quarantine.convicted:
                yield from self._alone()
                yield from self._verdicts()
        except ClosedClientError as error:
            raise self.pulse.lost() from error
        finally:
            self.flights.cancel()

    def _together(self, waiting):
        while True:
            while len(self.flights) < self.window:
                pair = self.again.popleft() if self.again else next(waiting, None)
                if pair is None:
                    break
                self.flights.submit(run_batch, *pair)
            if not self.flights:
                return
            for flight, outcome, error in self.flights.landed():
                if isinstance(error, distributed.KilledWorker):
                    self.quarantine.accuse(flight.task, flight.parts, error.last_worker.address)
                elif isinstance(error, NeverArrived):
                    self.again.append((flight.task, flight.parts))
                elif isinstance(error, BcmdistError) and len(flight.parts) > 1:
                    self.again.extend((flight.task, [part]) for part in flight.parts)
                else:
                    yield self._outcome(flight, outcome, error)

    def _alone(self):
        """Outcomes of suspects, each tried on a worker that has nothing else of ours to do."""
        trials: dict[Flight, Suspect] = {}
        while self.quarantine.waiting or trials:
            taken = {flight.worker for flight in trials}
            for worker in self.pulse.check():
                if worker not in taken and self.quarantine.waiting:
                    suspect = self.quarantine.waiting.popleft()
                    flight = self.flights.submit(run_noted, suspect.task, [suspect.part], worker=worker)
                    trials[flight] = suspect
            if not trials:
                time.sleep(AGAIN_SECONDS)
                continue
            for flight, outcome, error in self.flights.landed():
                suspect = trials.pop(flight)
                if isinstance(error, distributed.KilledWorker):
                    self.quarantine.killed(suspect, error.last_worker.address)
                    self.killed_at = time.monotonic()
                elif isinstance(error, NeverArrived):
                    self.quarantine.waiting.append(suspect)
                else:
                    self.quarantine.survived(suspect)
                    yield self._outcome(flight, outcome, error)

    def _verdicts(self):
        """Outcomes of the partitions that are to blame, said when the cluster has been calm for a while.

        Where something else kills workers too, the convicted are tried again, at once.
        """
        if not self.quarantine.convicted:
            return
        while not self.quarantine.others_kill(died := self._deaths()):
            if time.monotonic() >= self.killed_at + CALM_SECONDS:
                break
            time.sleep(PULSE_SECONDS)
            self.pulse.check()
        for suspect in self.quarantine.judge(died):
            seen = last_seen(self.client, suspect.part)
            error = PoisonChunk(
                f"{suspect.part.key} killed {suspect.deaths} workers (last phase {seen.phase}, estimated "
                f"{seen.resident / 1e9:.2g} GB); give workers more memory, lower --rows-per-expert, or leave it out"
            )
            yield Outcome([suspect.part], error=error)

    def _outcome(self, flight, outcome, error):
        if error is not None and not isinstance(error, BcmdistError):
            raise error
        self.pulse.done += 0 if getattr(flight.task, "aside", False) else len(flight.parts)
        return outcome or Outcome(flight.parts, error=error)

    def _deaths(self):
        """Workers that died on the cluster, for whatever reason, from the first of the known deaths on."""
        events = [event for _, event in self.pulse.ask("events", topic="all")]
        died = [e["worker"] for e in events if e.get("action") == "remove-worker" and not e["expected"]]
        first = next((k for k, worker in enumerate(died) if worker in self.quarantine.deaths), 0)
        return died[first:]
