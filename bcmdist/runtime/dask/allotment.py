"""Fair sharing of a cluster: each client that asks for a portion gets workers of its own.

The scheduler's process keeps the account, in a plugin. Clients ask for it about once a second, and submit their tasks
to the workers that they may use: those of their portion; without a portion, those that nobody has, or all workers where
everybody's are taken. A client that finds no free worker waits until another client leaves. A free worker goes to the
client with the fewest workers, among the clients below their portion.

Only runtimes of bcmdist take part: other clients of the scheduler use all workers.

On retry: asking again changes nothing. On loss of a client, for any reason: its workers become free. On loss of a
worker: a free worker or the next new one takes its place, and what was submitted to the lost one is submitted again. On
loss of the scheduler: the account is lost, like all tasks.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import distributed

from bcmdist.runtime.portion import Portion

LEAST = 1e-9  # threads; absorbs rounding, so that a third of three threads is one thread


class Allotments:
    """Which client has which workers."""

    def __init__(self):
        self.threads: dict[str, int] = {}
        """number of threads of each worker of the cluster, by address"""
        self.asked: dict[str, Portion] = {}
        """portion each client asked for, by client, in order of arrival"""
        self.by_client: dict[str, set[str]] = {}
        """workers of each of these clients"""

    def ask(self, client: str, portion: Portion) -> None:
        """Record a client's request for a portion, and assign free workers."""
        self.asked[client] = portion
        self.by_client.setdefault(client, set())
        self._assign()

    def leave(self, client: str) -> None:
        """Remove a client; its workers become free."""
        self.asked.pop(client, None)
        self.by_client.pop(client, None)
        self._assign()

    def come(self, worker: str, threads: int) -> None:
        """Add a worker."""
        self.threads[worker] = threads
        self._assign()

    def go(self, worker: str) -> None:
        """Remove a worker; a free one takes its place."""
        self.threads.pop(worker, None)
        for workers in self.by_client.values():
            workers.discard(worker)
        self._assign()

    def usable(self, client: str) -> dict[str, int]:
        """Threads of the workers that a client may use: its own; without a portion, the free ones, or all."""
        mine = self.by_client[client] if client in self.asked else self._free() or self.threads
        return {worker: self.threads[worker] for worker in sorted(mine)}

    def allotted_threads(self) -> int:
        """Total number of allotted threads."""
        return sum(self.threads[worker] for workers in self.by_client.values() for worker in workers)

    def _assign(self):
        """Assign free workers one at a time to the client with the fewest that may have more."""
        while pair := self._next():
            client, worker = pair
            self.by_client[client].add(worker)

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
        mine, asked = self.by_client[client], self.asked[client]
        if not mine:
            return True
        threads = sum(self.threads[one] for one in [*mine, worker])
        allowed = (asked.share or 1.0) * sum(self.threads.values()) + LEAST
        return threads <= allowed and len(mine) < (asked.workers or len(self.threads))


class Allotting(distributed.SchedulerPlugin):
    """Scheduler plugin that keeps the account of workers and clients as they come and go."""

    name = "bcmdist-allotments"
    idempotent = True  # the first client registers it for all clients

    def __init__(self):
        self.allotments = Allotments()

    async def start(self, scheduler) -> None:
        """Start with the workers that are connected."""
        KEPT[scheduler] = self.allotments
        for address, worker in scheduler.workers.items():
            self.allotments.come(address, worker.nthreads)

    def add_worker(self, scheduler, worker) -> None:
        """Add a new worker."""
        self.allotments.come(worker, scheduler.workers[worker].nthreads)

    def remove_worker(self, scheduler, worker, **_) -> None:
        """Remove a worker."""
        self.allotments.go(worker)

    def remove_client(self, scheduler, client) -> None:
        """Remove a client."""
        self.allotments.leave(client)


KEPT: weakref.WeakKeyDictionary[Any, Allotments] = weakref.WeakKeyDictionary()
"""the account of each scheduler in this process that keeps one"""


@dataclass(frozen=True)
class Usable:
    """Workers of a cluster, and those that one client may use: numbers of threads by address."""

    scheduler: str
    """identity of the scheduler: one that is restarted at the same address has another"""
    workers: dict[str, int]
    mine: dict[str, int]
    held: int
    """number of threads that belong to portions of any client"""

    def waited_for(self) -> str:
        """Describe what a client without workers waits for."""
        if not self.workers:
            return "waiting for a worker: the cluster has none"
        return f"waiting for worker threads: other jobs hold {self.held} of {sum(self.workers.values())}"


def usable(client: str, dask_scheduler: Any = None) -> Usable:
    """Return the workers that a client may use. Runs in the scheduler's process."""
    workers = {address: worker.nthreads for address, worker in dask_scheduler.workers.items()}
    kept = KEPT.get(dask_scheduler)
    mine, held = (kept.usable(client), kept.allotted_threads()) if kept else (workers, 0)
    return Usable(dask_scheduler.id, workers, mine, held)


def ask(client: str, portion: Portion, dask_scheduler: Any = None) -> Usable:
    """Allot a portion of the cluster to a client; return as `usable`. Runs in the scheduler's process."""
    if dask_scheduler in KEPT:  # not after a restart, which the client notices
        KEPT[dask_scheduler].ask(client, portion)
    return usable(client, dask_scheduler)
