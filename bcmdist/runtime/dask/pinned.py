"""Partitions that workers hold, to be asked about them over and over, as learning does.

A task takes tens of milliseconds on its way through the scheduler, a question to an actor that holds some partitions
two or three, which matters where the answer takes no longer. Answers are added here, in the order of the partitions:
the sum is that of the serial runtime to the last digit.

On loss of a worker, or whatever else keeps one from an answer: `NoAnswer`; the sum is to be made by tasks.
"""

import asyncio
import concurrent.futures
import functools
import operator
from collections.abc import Sequence
from typing import Any

import distributed

from bcmdist.data.partition import Partition
from bcmdist.runtime.dask.heartbeat import Heartbeat
from bcmdist.runtime.task import Task, shares

LOOK_SECONDS = 0.5  # between looks whether the cluster is alive, while no answer comes


class NoAnswer(Exception):
    """A worker that held partitions is gone, or failed."""


class Holder:
    """On a worker: some partitions for each of its threads."""

    def __init__(self, groups: list[list[Partition]]):
        self.groups = groups

    async def shares(self, task: Task) -> list[list[Any]]:
        """A task's value for each partition of each group; in the threads of the worker's tasks."""
        run = asyncio.get_running_loop().run_in_executor
        threads = distributed.get_worker().executors["default"]
        return await asyncio.gather(*(run(threads, _shares, task, group) for group in self.groups))


def _shares(task, group):
    return list(shares(task, group))


class PinnedPartitions:
    """Some partitions, spread by their rows over the threads of a cluster.

    Parameters
    ----------
    threads : of each worker, by its address

    Raises
    ------
    NoAnswer, SchedulerLost
    """

    def __init__(self, client, parts: Sequence[Partition], threads: dict[str, int], pulse: Heartbeat):
        if not threads:
            raise NoAnswer
        self.client: Any = client
        self.numbers = spread([part.rows for part in parts], threads)
        """of the partitions that each thread has, by worker"""
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
        """Let workers forget the partitions."""
        if self.client.status == "running":
            self.client.cancel(self.futures)

    async def _holders(self):
        with self.client.as_current():
            return await self.client.gather(self.futures, asynchronous=True)

    async def _shares(self, task):
        with self.client.as_current():
            return await asyncio.gather(*(actor.shares(task) for actor in self.actors))

    def _answer(self, ask, pulse):
        if self.client.status != "running":
            raise NoAnswer
        answer = asyncio.run_coroutine_threadsafe(ask(), self.client.loop.asyncio_loop)
        try:
            while not concurrent.futures.wait([answer], LOOK_SECONDS).done:
                pulse.check_sometimes()
                if any(future.status in ("error", "lost", "cancelled") for future in self.futures):
                    raise NoAnswer
        finally:
            answer.cancel()
        # Whatever has failed will fail again as a task, which says what it is.
        if error := answer.exception():
            raise NoAnswer from error
        return answer.result()


def spread(rows: Sequence[int], threads: dict[str, int]) -> dict[str, list[list[int]]]:
    """Numbers of partitions for each thread of each worker, by its address: the largest first, to who has least."""
    # A second thread only where all workers have a partition.
    slots = [(worker, k) for k in range(max(threads.values())) for worker in sorted(threads) if k < threads[worker]]
    taken: dict[tuple[str, int], list[int]] = {slot: [] for slot in slots}
    for k in sorted(range(len(rows)), key=lambda k: -rows[k]):
        taken[min(slots, key=lambda slot: sum(rows[j] for j in taken[slot]))].append(k)
    return {
        worker: groups
        for worker in sorted(threads)
        if (groups := [taken[slot] for slot in slots if slot[0] == worker and taken[slot]])
    }
