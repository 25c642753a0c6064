"""Fair sharing of a cluster: each client that asks for a portion gets workers of its own.

Tasks of a client with an allotment run on its workers only. A client that finds no free worker waits until another
client leaves. A free worker goes to the client with the fewest workers, among the clients below their portion. As soon
as any client has asked, tasks of clients without an allotment run on unallotted workers only; if every worker is
allotted, these tasks run on all workers.

The state lives in the scheduler's process. On retry: asking again changes nothing. On loss of a client, for any reason:
its workers become free. On loss of a worker: a free worker or the next new one takes its place, and tasks wait until
then. On loss of the scheduler: the allotments are lost, like all tasks.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import distributed

from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.portion import Portion

LOOK_SECONDS = 0.5  # between checks for free workers
NOWHERE = "nowhere"  # no worker; keeps a set of allowed workers from being empty, which Dask takes for no restriction
LEAST = 1e-9  # threads; absorbs rounding, so that a third of three threads is one thread


class Allotments:
    """Which client has which workers. Methods take an event and return the workers whose assignment changed."""

    def __init__(self):
        self.threads: dict[str, int] = {}
        """number of threads of each worker of the cluster, by address"""
        self.asked: dict[str, Portion] = {}
        """portion each client asked for, by client, in order of arrival"""
        self.by_client: dict[str, set[str]] = {}
        """workers of each of these clients, plus `NOWHERE`; the sets are updated in place"""
        self.others: set[str] = {NOWHERE}
        """workers for clients without an allotment, plus `NOWHERE`; also updated in place"""

    def ask(self, client: str, portion: Portion) -> list[str]:
        """Record a client's request for a portion; return the newly assigned workers, of any client."""
        self.asked[client] = portion
        self.by_client.setdefault(client, {NOWHERE})
        return self._give()

    def leave(self, client: str) -> list[str]:
        """Remove a client; return the newly assigned workers."""
        self.asked.pop(client, None)
        self.by_client.pop(client, None)
        return self._give()

    def come(self, worker: str, threads: int) -> list[str]:
        """Add a worker; return the newly assigned workers."""
        self.threads[worker] = threads
        return self._give()

    def go(self, worker: str) -> list[str]:
        """Remove a worker; return the newly assigned workers."""
        self.threads.pop(worker, None)
        for workers in self.by_client.values():
            workers.discard(worker)
        return self._give()

    def workers(self, client: str) -> list[str]:
        """Addresses of the workers allotted to a client, sorted."""
        return sorted(self.by_client.get(client, set()) - {NOWHERE})

    def allotted_threads(self) -> int:
        """Total number of allotted threads."""
        return sum(self.threads[worker] for client in self.by_client for worker in self.workers(client))

    def _give(self):
        """Assign free workers one at a time to the client with the fewest that may have more.

        The remaining workers go to clients without an allotment. Returns the newly assigned workers.
        """
        assigned, before = [], set(self.others)
        while pair := self._next():
            client, worker = pair
            self.by_client[client].add(worker)
            assigned.append(worker)
        self.others.clear()
        self.others.update(self._free() or self.threads, {NOWHERE})
        return [*assigned, *sorted(self.others - before - set(assigned))]

    def _free(self):
        taken = set().union(*self.by_client.values())
        return [worker for worker in self.threads if worker not in taken]

    def _next(self):
        free = self._free()
        for client in sorted(self.asked, key=lambda client: len(self.by_client[client])):
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
    """Scheduler plugin that restricts the tasks of each client to the workers assigned to it."""

    name = "bcmdist-allotments"
    idempotent = True  # the first client registers it for all clients

    def __init__(self):
        self.allotments = Allotments()

    async def start(self, scheduler) -> None:
        """Start with the workers that are connected, and register the request handlers."""
        self.scheduler = scheduler
        for address, worker in scheduler.workers.items():
            self.allotments.come(address, worker.nthreads)
        scheduler.handlers["bcmdist_ask"] = self.ask
        scheduler.handlers["bcmdist_allotted"] = self.allotted

    def ask(self, client, share, workers) -> dict[str, Any]:
        """Allot a portion of the cluster to a client; return the same as `allotted`."""
        self._wake(self.allotments.ask(client, Portion(share, workers)), "bcmdist-ask")
        return self.allotted(client)

    def allotted(self, client) -> dict[str, Any]:
        """Return `mine`, the threads of each of a client's workers; `held`, all allotted threads; `threads`, all."""
        allotments = self.allotments
        mine = {worker: allotments.threads[worker] for worker in allotments.workers(client)}
        return {"mine": mine, "held": allotments.allotted_threads(), "threads": sum(allotments.threads.values())}

    def update_graph(self, scheduler, *, client, tasks, **_) -> None:
        """Restrict new tasks before they are assigned to workers. Tasks with worker restrictions of their own (to
        workers of their client) keep them."""
        allotments = self.allotments
        if allotments.asked:
            for key in tasks:
                task = scheduler.tasks[key]
                # The set itself, not a copy: later changes of the client's workers apply to all its tasks.
                task.worker_restrictions = task.worker_restrictions or allotments.by_client.get(
                    client, allotments.others
                )

    def add_worker(self, scheduler, worker) -> None:
        """Add a new worker; the scheduler itself then schedules the tasks that wait for one."""
        self.allotments.come(worker, scheduler.workers[worker].nthreads)

    def remove_worker(self, scheduler, worker, *, stimulus_id="bcmdist", **_) -> None:
        """Remove a worker and schedule tasks on its replacement."""
        self._wake(self.allotments.go(worker), stimulus_id)

    def remove_client(self, scheduler, client) -> None:
        """Remove a client and schedule waiting tasks on its former workers."""
        self._wake(self.allotments.leave(client), "bcmdist-leave")

    def _wake(self, workers, stimulus_id):
        """Schedule tasks that waited for a worker on the newly assigned `workers`."""
        scheduler = self.scheduler
        for worker in (scheduler.workers[address] for address in workers):
            scheduler.transitions(scheduler.bulk_schedule_unrunnable_after_adding_worker(worker), stimulus_id)


def await_allotment(pulse: Heartbeat, portion: Portion, waits: Callable[[str], None]) -> None:
    """Ask for a portion for the heartbeat's client, and wait without limit until the client has a worker.

    Parameters
    ----------
    waits : called with a description of what the client waits for, whenever the description changes

    Raises
    ------
    SchedulerLost
    """
    client, reported = pulse.client, ""
    client.register_plugin(Allotting())
    while not (answer := pulse.ask("bcmdist_ask", client=client.id, **asdict(portion))).get("mine"):
        pulse.check_scheduler()
        if answer and reported != (reported := _waited_for(answer)):
            waits(reported)
        time.sleep(LOOK_SECONDS)


def _waited_for(answer):
    if not answer["threads"]:
        return "waiting for a worker: the cluster has none"
    return f"waiting for worker threads: other jobs hold {answer['held']} of {answer['threads']}"
