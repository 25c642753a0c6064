"""A cluster of which only the overhead is real: a scheduler, many workers in one process, experts that know at once.

Scheduler and workers are processes of their own, so that what each of them spends on a core can be told. Rows come
from no disk, and a stub's message is of few shared variables; ledger entries, groups of partitions, what is told of
them, sums on workers and commits are those of every ingestion.
"""

import asyncio
import contextlib
import functools
import importlib.metadata
import logging
import multiprocessing
import resource
from dataclasses import dataclass

import dask
import distributed
import numpy as np
import threadpoolctl

from bcmdist.committee.ingest.watch import Unwatched
from bcmdist.data.partition import Partition
from bcmdist.data.reader import EntryShape
from bcmdist.data.schemes import READERS
from bcmdist.experts.contributions import Contribution
from bcmdist.experts.message import Message
from bcmdist.storage.entry import Entry

LOOPBACK = "127.0.0.1"
SCHEME = "stub"
ROWS, INPUTS = 4, 2  # of a stub partition
START_SECONDS = 120.0


class Rows:
    """Reads rows that are nowhere: the URL says how many there are."""

    def named(self, url):
        return url

    def shape(self, url, x, y, companions):
        return EntryShape(int(url.rpartition("/")[2]), INPUTS)

    def columns(self, url, x, y, companions):
        return _columns(self.shape(url, x, y, companions).rows)


@functools.lru_cache(1)
def _columns(rows):
    rng = np.random.default_rng(0)
    return {"X": rng.standard_normal((rows, INPUTS)), "y": rng.standard_normal(rows)}


READERS.add(SCHEME, Rows())


def url_of(partitions):
    """Of an entry with the rows of so many partitions."""
    return f"{SCHEME}://rows/{ROWS * partitions}"


@dataclass(frozen=True)
class StubExpert:
    """A message of S shared variables, made without any arithmetic, with the ledger entry that says whose it is."""

    shared: int

    def __call__(self, part: Partition, rows):
        entry = Entry(part.key, rows.digest, part.rows, part.weight, densities=float(part.rows))
        message = Message(np.zeros(self.shared), np.eye(self.shared), -1.0, part.rows)
        return Contribution(message, {part.key: entry})


class StubWatch(Unwatched):
    """Nobody looks on, and a stub absorbs."""

    def message_task(self, expert, snapshot):
        return StubExpert(snapshot.model.shared.size)


# --- The cluster ---


@dataclass(frozen=True)
class Cluster:
    """Processes that are there until the block ends."""

    address: str
    _scheduler: object
    _workers: object

    def seconds(self):
        """Seconds on a core so far: of the scheduler, and of all workers."""
        return tuple(_asked(connection, "seconds") for connection in (self._scheduler, self._workers))


def _asked(connection, question):
    connection.send(question)
    if not connection.poll(START_SECONDS):
        raise TimeoutError(f"no answer to {question!r} within {START_SECONDS:g} s")
    return connection.recv()


@contextlib.contextmanager
def cluster(workers):
    """A scheduler in one process, and workers of one thread each in another."""
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(_process(_scheduler))
        address = scheduler.recv()
        pool = stack.enter_context(_process(_workers, address, workers))
        pool.recv()
        yield Cluster(address, scheduler, pool)


@contextlib.contextmanager
def _process(work, *arguments):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_served, args=(work, theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        with contextlib.suppress(OSError):
            ours.send("end")
        process.join(START_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()


def _served(work, connection, *arguments):
    logging.disable(logging.CRITICAL)  # several lines for each worker
    asyncio.run(work(connection, *arguments))


async def _scheduler(connection):
    async with distributed.Scheduler(host=LOOPBACK, port=0, dashboard=False, dashboard_address=f"{LOOPBACK}:0") as s:
        connection.send(s.address)
        await _answer(connection)


async def _workers(connection, address, number):
    # What a process finds out about itself, each worker would find out again.
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    threadpoolctl.threadpool_info = functools.cache(threadpoolctl.threadpool_info)
    # Each worker would watch the one process of all, with the files and threads of all.
    dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "1h"})
    # One thread runs the tasks of all workers, which take no time: a thread each would wait for the others.
    options = {"nthreads": 1, "host": LOOPBACK, "memory_limit": 0, "dashboard": False, "executor": "offload"}
    made = [distributed.Worker(address, name=k, dashboard_address=f"{LOOPBACK}:0", **options) for k in range(number)]
    await asyncio.gather(*made)
    connection.send(number)
    await _answer(connection)
    await asyncio.gather(*(worker.close(nanny=False) for worker in made))


async def _answer(connection):
    """Answers what was asked until it is the end."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, connection.recv) != "end":
        connection.send(_spent())


def _spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
