"""Partitions pinned to workers by Dask actors, for sums that are computed over and over, as in learning.

A task takes tens of milliseconds through the scheduler; a call of an actor takes two or three, which matters for short
computations. The client adds the results in the order of the partitions, so the sum equals the sum of the serial
runtime to the last digit.

On loss of a worker, or any other failure: `NoAnswer`; the caller then computes the sum by ordinary tasks.
"""

import asyncio
import functools
import operator
from collections.abc import Sequence
from typing import Any

import distributed

from bcmdist.data.partition import Partition
from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.interface import Task, shares


class NoAnswer(Exception):
    """A worker with pinned partitions is gone, or a call of its actor failed."""


class Holder:
    """Actor on a worker, with one group of partitions per worker thread."""

    def __init__(self, groups: list[list[Partition]]):
        self.groups = groups

    async def shares(self, task: Task) -> list[list[Any]]:
        """Return the task's value for each partition of each group, computed in the worker's task threads."""
        run = asyncio.get_running_loop().run_in_executor
        threads = distributed.get_worker().executors["default"]
        return await asyncio.gather(*(run(threads, _shares, task, group) for group in self.groups))


def _shares(task, group):
    return list(shares(task, group))


class PinnedPartitions:
    """Partitions pinned to the threads of a cluster, balanced by their numbers of rows.

    Parameters
    ----------
    parts : partitions to pin
    threads : number of threads of each worker, by its address

    Raises
    ------
    NoAnswer, SchedulerLost
    """

    def __init__(self, client, parts: Sequence[Partition], threads: dict[str, int], pulse: Heartbeat):
        if not threads:
            raise NoAnswer
        self.client: Any = client
        self.numbers = distribute([part.rows for part in parts], threads)
        """indices into `parts` for each thread of each worker, by worker address"""
        self.futures: list[distributed.Future] = []
        for worker, groups in self.numbers.items():
            some = [[parts[k] for k in group] for group in groups]
            self.futures.append(client.submit(Holder, some, actor=True, workers=[worker], allow_other_workers=True))
        self.actors = self._answer(self._holders, pulse)

    def sum(self, task: Task, pulse: Heartbeat) -> Any:
        """Sum of a task over the partitions.

        Raises
        ------
        NoAnswer, SchedulerLost
        """
        answers = self._answer(functools.partial(self._shares, task), pulse)
        values: dict[int, Any] = {}
        for mine, shares_of in zip(self.numbers.values(), answers, strict=True):
            for group, some in zip(mine, shares_of, strict=True):
                values |= zip(group, some, strict=True)
        return functools.reduce(operator.add, (values[k] for k in sorted(values)))

    def release(self) -> None:
        """Remove the partitions from the workers."""
        if self.client.status == "running":
            self.client.cancel(self.futures)

    async def _holders(self):
        with self.client.as_current():
            return await self.client.gather(self.futures, asynchronous=True)

    async def _shares(self, task):
        with self.client.as_current():
            return await asyncio.gather(*(actor.shares(task) for actor in self.actors))

    def _refuse_lost(self):
        if any(future.status in ("error", "lost", "cancelled") for future in self.futures):
            raise NoAnswer

    def _answer(self, ask, pulse):
        if self.client.status != "running":
            raise NoAnswer
        answer = pulse.finished(ask(), self._refuse_lost)
        # The cause of a failure is reported when the same computation fails again as an ordinary task.
        if error := answer.exception():
            raise NoAnswer from error
        return answer.result()


def distribute(rows: Sequence[int], threads: dict[str, int]) -> dict[str, list[list[int]]]:
    """Distribute partitions over threads greedily: the largest first, each to the thread with the fewest rows.

    Parameters
    ----------
    rows : number of rows of each partition
    threads : number of threads of each worker, by its address

    Returns
    -------
    dict
        Indices of partitions for each thread that has any, by worker address.
    """
    # A worker's second thread gets a partition only when all workers have one.
    slots = [(worker, k) for k in range(max(threads.values())) for worker in sorted(threads) if k < threads[worker]]
    taken: dict[tuple[str, int], list[int]] = {slot: [] for slot in slots}
    for k in sorted(range(len(rows)), key=lambda k: -rows[k]):
        taken[min(slots, key=lambda slot: sum(rows[j] for j in taken[slot]))].append(k)
    return {
        worker: groups
        for worker in sorted(threads)
        if (groups := [taken[slot] for slot in slots if slot[0] == worker and taken[slot]])
    }
