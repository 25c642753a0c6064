"""Fair use of a cluster: who asks for a part of it is given workers, and nobody else who asks is given the same.

Tasks of a client with an allotment run on its workers only. One that finds no worker free waits until another client
leaves; what comes free goes to whoever has least of it, up to what it asked for. Tasks of all other clients keep to the
workers that nobody has, from the moment that somebody asks; where there is none, they run on all, beside the others.

All is kept in the scheduler's process. On retry: to ask again changes nothing. On loss of a client, by whatever death:
its workers are free. On loss of a worker: a free one takes its place, or the next that comes; tasks wait that long. On
loss of the scheduler all is forgotten, as are its tasks.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import distributed

from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.portion import Portion

LOOK_SECONDS = 0.5  # between looks whether workers have come free
NOWHERE = "nowhere"  # Dask takes a task without addresses for one that may run anywhere
LEAST = 1e-9  # of a thread: a third of three threads is one of them, whatever the rounding


class Allotments:
    """Who has which workers: events in, workers out."""

    def __init__(self):
        self.threads: dict[str, int] = {}
        """of each worker of the cluster, by address"""
        self.asked: dict[str, Portion] = {}
        """by client, in order of arrival"""
        self.given: dict[str, set[str]] = {}
        """workers of each of these clients; sets that grow and shrink, beside `NOWHERE`"""
        self.others: set[str] = {NOWHERE}
        """workers of clients that ask for nothing, another such set"""

    def ask(self, client: str, portion: Portion) -> list[str]:
        """A client wants part of the cluster; the workers that come to somebody, whoever it is."""
        self.asked[client] = portion
        self.given.setdefault(client, {NOWHERE})
        return self._give()

    def leave(self, client: str) -> list[str]:
        """A client has left; the workers that come to somebody."""
        self.asked.pop(client, None)
        self.given.pop(client, None)
        return self._give()

    def come(self, worker: str, threads: int) -> list[str]:
        """A worker has come; the workers that come to somebody."""
        self.threads[worker] = threads
        return self._give()

    def go(self, worker: str) -> list[str]:
        """A worker is gone; the workers that come to somebody."""
        self.threads.pop(worker, None)
        for workers in self.given.values():
            workers.discard(worker)
        return self._give()

    def workers(self, client: str) -> list[str]:
        """Those of a client."""
        return sorted(self.given.get(client, set()) - {NOWHERE})

    def held(self) -> int:
        """Threads that somebody has."""
        return sum(self.threads[worker] for client in self.given for worker in self.workers(client))

    def _give(self):
        """Give workers that are free, one at a time, to who has least and may have more; the rest is the others'."""
        given, before = [], set(self.others)
        while pair := self._next():
            client, worker = pair
            self.given[client].add(worker)
            given.append(worker)
        self.others.clear()
        self.others.update(self._free() or self.threads, {NOWHERE})
        return [*given, *sorted(self.others - before - set(given))]

    def _free(self):
        taken = set().union(*self.given.values())
        return [worker for worker in self.threads if worker not in taken]

    def _next(self):
        free = self._free()
        for client in sorted(self.asked, key=lambda client: len(self.given[client])):
            for worker in free:
                if self._may_have(client, worker):
                    return client, worker
        return None

    def _may_have(self, client, worker):
        mine, asked = self.workers(client), self.asked[client]
        if not mine:
            return True
        threads = sum(self.threads[one] for one in [*mine, worker])
        allowed = (asked.share or 1.0) * sum(self.threads.values()) + LEAST
        return threads <= allowed and len(mine) < (asked.workers or len(self.threads))


class Allotting(distributed.SchedulerPlugin):
    """Keeps the tasks of clients to the workers that are theirs."""

    name = "bcmdist-allotments"
    idempotent = True  # the first client brings it, for all

    def __init__(self):
        self.allotments = Allotments()

    async def start(self, scheduler) -> None:
        """From now on, with the workers there are."""
        self.scheduler = scheduler
        for address, worker in scheduler.workers.items():
            self.allotments.come(address, worker.nthreads)
        scheduler.handlers["bcmdist_ask"] = self.ask
        scheduler.handlers["bcmdist_allotted"] = self.allotted

    def ask(self, client, share, workers) -> dict[str, Any]:
        """As `allotted`, from now on with a part of the cluster."""
        self._wake(self.allotments.ask(client, Portion(share, workers)), "bcmdist-ask")
        return self.allotted(client)

    def allotted(self, client) -> dict[str, Any]:
        """The threads of each worker of a client; how many somebody has, and how many there are."""
        known = self.allotments
        mine = {worker: known.threads[worker] for worker in known.workers(client)}
        return {"mine": mine, "held": known.held(), "threads": sum(known.threads.values())}

    def update_graph(self, scheduler, *, client, tasks, **_) -> None:
        """New tasks are there, before they are sent anywhere. Those that name a worker, one of theirs, may."""
        known = self.allotments
        if known.asked:
            for key in tasks:
                task = scheduler.tasks[key]
                # The set itself, for all tasks of the client: their workers come and go.
                task.worker_restrictions = task.worker_restrictions or known.given.get(client, known.others)

    def add_worker(self, scheduler, worker) -> None:
        """A worker has come; the scheduler itself looks then for what waits for it."""
        self.allotments.come(worker, scheduler.workers[worker].nthreads)

    def remove_worker(self, scheduler, worker, *, stimulus_id="bcmdist", **_) -> None:
        """A worker is gone."""
        self._wake(self.allotments.go(worker), stimulus_id)

    def remove_client(self, scheduler, client) -> None:
        """A client has left."""
        self._wake(self.allotments.leave(client), "bcmdist-leave")

    def _wake(self, workers, stimulus_id):
        """Send tasks that had no worker to those that are theirs now."""
        scheduler = self.scheduler
        for worker in (scheduler.workers[address] for address in workers):
            scheduler.transitions(scheduler.bulk_schedule_unrunnable_after_adding_worker(worker), stimulus_id)


def await_allotment(pulse: Heartbeat, portion: Portion, waits: Callable[[str], None]) -> None:
    """Ask for a portion in the name of a client, and wait until it has a worker, however long.

    Parameters
    ----------
    waits : told what is waited for, whenever that changes

    Raises
    ------
    SchedulerLost
    """
    client, told = pulse.client, ""
    client.register_plugin(Allotting())
    while not (said := pulse.ask("bcmdist_ask", client=client.id, **asdict(portion))).get("mine"):
        pulse.check_scheduler()
        if said and told != (told := _waited_for(said)):
            waits(told)
        time.sleep(LOOK_SECONDS)


def _waited_for(said):
    if not said["threads"]:
        return "waiting for a worker: the cluster has none"
    return f"waiting for worker threads: other jobs hold {said['held']} of {said['threads']}"
