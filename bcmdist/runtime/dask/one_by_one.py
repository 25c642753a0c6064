"""Partitions computed one by one on a cluster: every one gets a result, or an error of its own.

Batches that fail are repeated partition by partition, at once. Partitions whose worker died are set aside and tried
alone when nothing else is left.

Who is to blame when workers die: partitions are suspected, tried alone, and given up.

A worker that dies makes suspects of all partitions it had. At the end of the work each is tried alone, on a worker
that has nothing else. Whoever survives is innocent. Whoever's worker dies again has killed two workers and is
convicted, unless workers die for other reasons too: then it is tried again, up to `MOST_TRIALS` times.

Events in, decisions out; no clock and no cluster here.

What a partition was doing when it killed its worker: notes that the scheduler keeps.

Only partitions under suspicion, which are tried alone, leave notes: on start and every `NOTE_SECONDS` from then on,
the innermost function of ours and the memory of the process.
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
from bcmdist.runtime.interface import Outcome
from bcmdist.runtime.task import Task, run_batch

TOPIC = "bcmdist-notes"
NOTE_SECONDS = 0.1
FIRST_SECONDS = 0.05  # for the first note to leave before anything can happen


@dataclass(frozen=True)
class LastSeen:
    """The last of the notes about a partition."""

    phase: str
    """innermost function of ours, as module.function"""
    resident: float
    """largest memory of its worker, bytes"""


def run_noted(task, parts) -> Any:
    """As `run_batch`, on a worker that tells the scheduler how far it is."""
    worker, key = distributed.get_worker(), parts[0].key
    thread, homes = threading.get_ident(), {"bcmdist", type(task).__module__.partition(".")[0]}
    ended = threading.Event()

    def note(phase):
        worker.log_event(TOPIC, {"key": key, "phase": phase, "resident": psutil.Process().memory_info().rss})

    def keep_noting():
        while not ended.wait(NOTE_SECONDS):
            note(_innermost(sys._current_frames().get(thread), homes))

    note("start")
    time.sleep(FIRST_SECONDS)
    notes = threading.Thread(target=keep_noting, daemon=True)
    notes.start()
    try:
        return run_batch(task, parts)
    finally:
        ended.set()
        notes.join()


def last_seen(client, part) -> LastSeen:
    """What is known about the trials of a partition."""
    notes = []
    with contextlib.suppress(OSError):
        notes = [note for _, note in client.get_events(TOPIC) if note["key"] == part.key]
    return LastSeen(notes[-1]["phase"], max(n["resident"] for n in notes)) if notes else LastSeen("unknown", 0.0)


def _innermost(frame, homes):
    """Name of the innermost function that belongs to us, of the stack that ends with `frame`."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in homes:
            return f"{module.removeprefix('bcmdist.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "start"


MOST_TRIALS = 5  # alone, of a partition on a cluster whose workers die for other reasons


@dataclass(eq=False)
class Suspect:
    """A partition that a worker had when it died."""

    task: Task
    part: Work
    deaths: int = 0
    """workers that died with it"""
    trials: int = 0
    """of them, alone"""


class Quarantine:
    """Suspects and the deaths that they may have caused.

    A death is explained as long as one of its suspects has not survived a trial.
    """

    def __init__(self):
        self.waiting: deque[Suspect] = deque()
        """to be tried"""
        self.convicted: list[Suspect] = []
        """killed alone; the verdict stands when everything else is done"""
        self._deaths: dict[str, list[Suspect]] = {}

    @property
    def deaths(self) -> set[str]:
        """Deaths that were reported here."""
        return set(self._deaths)

    def accuse(self, task, parts, death) -> None:
        """A worker died (`death` names the event) when it had these partitions, among others."""
        for part in parts:
            suspect = Suspect(task, part)
            self.waiting.append(suspect)
            self._blame(suspect, death)

    def killed(self, suspect, death) -> None:
        """It was tried alone, and the worker died."""
        suspect.trials += 1
        self.convicted.append(suspect)
        self._blame(suspect, death)

    def survived(self, suspect) -> None:
        """It was tried alone and came through: some deaths lose their explanation."""
        for suspects in self._deaths.values():
            if suspect in suspects:
                suspects.remove(suspect)

    def others_kill(self, died) -> bool:
        """Whether one of these deaths on the cluster is without an explanation."""
        return any(not self._deaths.get(death) for death in died)

    def judge(self, died) -> list[Suspect]:
        """The convicted who are guilty, where these are the deaths on the cluster; the others are tried again."""
        others_kill = self.others_kill(died)
        guilty = [s for s in self.convicted if not others_kill or s.trials >= MOST_TRIALS]
        self.waiting.extend(s for s in self.convicted if s not in guilty)
        self.convicted = []
        return guilty

    def _blame(self, suspect, death):
        suspect.deaths += 1
        self._deaths.setdefault(death, []).append(suspect)


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
