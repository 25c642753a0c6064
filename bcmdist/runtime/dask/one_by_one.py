"""`Runtime.each` on a cluster: every partition gets a result or an error of its own, also when workers die.

A batch that fails is repeated partition by partition at once. When a worker dies, all partitions assigned to the worker
become suspects. When all other work is done, each suspect is run alone, on a worker without other tasks of ours. A
suspect that survives is cleared. A suspect whose worker dies again has killed two workers and gets the error
`PoisonChunk`, unless workers also die for other reasons: then the suspect is run again, up to `MOST_TRIALS` times in
all. `Quarantine` makes these decisions, without a clock or a cluster.

A suspect that runs alone logs notes on the scheduler: at its start and every `NOTE_SECONDS` the innermost function of
our code and the memory of the worker process. The error quotes the last function and the largest memory.
"""

import collections
import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import distributed
import psutil
from distributed.client import ClosedClientError

from bcmdist.data.partition import Work
from bcmdist.errors import BcmdistError, PoisonChunk
from bcmdist.runtime.dask.flights import Flight, Flights, NeverArrived
from bcmdist.runtime.dask.heartbeat import PULSE_SECONDS, Heartbeat
from bcmdist.runtime.dask.summaries import EventChannel
from bcmdist.runtime.interface import Outcome, Task, run_batch

TOPIC = "bcmdist-notes"
NOTE_SECONDS = 0.1
FIRST_SECONDS = 0.05  # pause before the task starts, in which the first note is sent


@dataclass(frozen=True)
class LastSeen:
    """Summary of the notes logged for a partition."""

    phase: str
    """innermost function of our code in the last note, as module.function"""
    resident: float
    """largest resident memory of the worker in any note, in bytes"""


def run_with_notes(task, parts) -> Any:
    """Run a batch as `run_batch` does, while a thread logs notes about its progress on the scheduler."""
    worker, key = distributed.get_worker(), parts[0].key
    thread, homes = threading.get_ident(), {"bcmdist", type(task).__module__.partition(".")[0]}
    ended = threading.Event()

    def note(phase):
        worker.log_event(TOPIC, {"key": key, "phase": phase, "resident": psutil.Process().memory_info().rss})

    def take_notes():
        while not ended.wait(NOTE_SECONDS):
            note(_innermost(sys._current_frames().get(thread), homes))

    note("start")
    time.sleep(FIRST_SECONDS)
    notes = threading.Thread(target=take_notes, daemon=True)
    notes.start()
    try:
        return run_batch(task, parts)
    finally:
        ended.set()
        notes.join()


def last_seen(client, part) -> LastSeen:
    """Return a summary of the notes logged for a partition; phase "unknown" if there are none."""
    notes = []
    with contextlib.suppress(OSError):
        notes = [note for _, note in client.get_events(TOPIC) if note["key"] == part.key]
    return LastSeen(notes[-1]["phase"], max(n["resident"] for n in notes)) if notes else LastSeen("unknown", 0.0)


def _innermost(frame, homes):
    """Name of the innermost function, in the stack ending at `frame`, that belongs to a package in `homes`."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in homes:
            return f"{module.removeprefix('bcmdist.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "start"


MOST_TRIALS = 5  # runs alone per suspect, on a cluster whose workers also die for other reasons


@dataclass(eq=False)
class Suspect:
    """A partition that a worker was assigned when the worker died."""

    task: Task
    part: Work
    deaths: int = 0
    """number of workers that died while assigned this partition"""
    trials: int = 0
    """number of these deaths in which the partition ran alone"""


class Quarantine:
    """Suspects, and the deaths of workers that they may have caused.

    A death is explained as long as at least one of its suspects has not survived a run alone. The class takes events
    and returns decisions; it uses no clock and no cluster.
    """

    def __init__(self):
        self.waiting: deque[Suspect] = deque()
        """suspects to be run alone"""
        self.convicted: list[Suspect] = []
        """suspects that ran alone when their worker died; `convict` decides about them"""
        self._deaths: dict[str, list[Suspect]] = {}

    @property
    def deaths(self) -> set[str]:
        """Deaths reported so far: addresses of workers."""
        return set(self._deaths)

    def accuse(self, task, parts, death) -> None:
        """Record that a worker died (`death` identifies the event) while it was assigned these partitions."""
        for part in parts:
            suspect = Suspect(task, part)
            self.waiting.append(suspect)
            self._blame(suspect, death)

    def killed(self, suspect, death) -> None:
        """Record that a suspect ran alone and its worker died."""
        suspect.trials += 1
        self.convicted.append(suspect)
        self._blame(suspect, death)

    def survived(self, suspect) -> None:
        """Record that a suspect ran alone and survived, so it no longer explains any death."""
        for suspects in self._deaths.values():
            if suspect in suspects:
                suspects.remove(suspect)

    def others_kill(self, died) -> bool:
        """Whether any death in `died` is unexplained, so that something else kills workers too."""
        return any(not self._deaths.get(death) for death in died)

    def convict(self, died) -> list[Suspect]:
        """Return the guilty among the convicted, given all deaths on the cluster; queue the others to run again."""
        others_kill = self.others_kill(died)
        guilty = [s for s in self.convicted if not others_kill or s.trials >= MOST_TRIALS]
        self.waiting.extend(s for s in self.convicted if s not in guilty)
        self.convicted = []
        return guilty

    def _blame(self, suspect, death):
        suspect.deaths += 1
        self._deaths.setdefault(death, []).append(suspect)


WINDOW = 3  # flights per thread: one running, one ready on the worker, one in transit
CALM_SECONDS = 5  # without another death before a partition is blamed for the earlier deaths
AGAIN_SECONDS = 0.2  # between checks for a worker while there is none


class DeathIsFinal(distributed.SchedulerPlugin):
    """Makes the tasks of one client's `OneByOne` fail at the first death of their worker, instead of being rescheduled.

    Dask's own limit, `allowed-failures`, applies to all clients of a scheduler.
    """

    def __init__(self, client_id):
        self.client_id = client_id
        self.name = f"bcmdist-{client_id}"

    def update_graph(self, scheduler, *, client, keys, **_) -> None:
        """Use up the allowed failures of new tasks whose key starts with `PREFIX`."""
        if client == self.client_id:
            for key in keys:
                if str(key).startswith(PREFIX):
                    scheduler.tasks[key].suspicious = scheduler.allowed_failures

    def remove_client(self, scheduler, client) -> None:
        """Remove this plugin when its client has left."""
        if client == self.client_id:
            scheduler.remove_plugin(self.name)


PREFIX = "each-"  # prefix of the keys of these tasks


class OneByOne:
    """One call of `Runtime.each` on a cluster."""

    def __init__(self, channel: EventChannel, pulse: Heartbeat):
        self.client = channel.client
        self.pulse = pulse
        self.flights = Flights(channel, self.pulse, PREFIX)
        self.again: collections.deque = collections.deque()
        self.quarantine = Quarantine()
        self.killed_at = 0.0

    @property
    def window(self) -> int:
        """Largest number of flights; it follows the number of worker threads."""
        return WINDOW * self.pulse.live.threads

    def outcomes(self, work) -> Iterator[Outcome]:
        """Yield the outcome of each pair of a task and partitions, in the order of completion."""
        try:
            yield from self._in_parallel(iter(work))
            while self.quarantine.waiting or self.quarantine.convicted:
                yield from self._one_at_a_time()
                yield from self._verdicts()
        except ClosedClientError as error:
            raise self.pulse.lost() from error
        finally:
            self.flights.cancel()

    def _in_parallel(self, waiting):
        while True:
            self.pulse.check_sometimes()
            while len(self.flights) < self.window:
                pair = self.again.popleft() if self.again else next(waiting, None)
                if pair is None:
                    break
                self.flights.submit(run_batch, *pair)
            if not self.flights:
                return
            for flight, outcome, error in self.flights.landed(spare=len(self.flights) < self.window):
                if isinstance(error, distributed.KilledWorker):
                    self.quarantine.accuse(flight.task, flight.parts, error.last_worker.address)
                elif isinstance(error, NeverArrived):
                    self.again.append((flight.task, flight.parts))
                elif isinstance(error, BcmdistError) and len(flight.parts) > 1:
                    self.again.extend((flight.task, [part]) for part in flight.parts)
                else:
                    yield self._outcome(flight, outcome, error)

    def _one_at_a_time(self):
        """Yield the outcomes of suspects, each run on a worker that has no other task of ours."""
        trials: dict[Flight, Suspect] = {}
        while self.quarantine.waiting or trials:
            taken = {flight.worker for flight in trials}
            for worker in self.pulse.check():
                if worker not in taken and self.quarantine.waiting:
                    suspect = self.quarantine.waiting.popleft()
                    flight = self.flights.submit(run_with_notes, suspect.task, [suspect.part], worker=worker)
                    trials[flight] = suspect
            if not trials:
                time.sleep(AGAIN_SECONDS)
                continue
            for flight, outcome, error in self.flights.landed(spare=True):
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
        """Yield the errors of guilty partitions, after `CALM_SECONDS` without another death.

        If something else kills workers too, the convicted suspects are run again at once.
        """
        if not self.quarantine.convicted:
            return
        while not self.quarantine.others_kill(died := self._deaths()):
            if time.monotonic() >= self.killed_at + CALM_SECONDS:
                break
            time.sleep(PULSE_SECONDS)
            self.pulse.check()
        for suspect in self.quarantine.convict(died):
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
        """Addresses of workers that died for any reason, in order, from the first death recorded in the quarantine."""
        events = [event for _, event in self.client.get_events("all")]
        died = [e["worker"] for e in events if e.get("action") == "remove-worker" and not e["expected"]]
        first = next((k for k, worker in enumerate(died) if worker in self.quarantine.deaths), 0)
        return died[first:]
