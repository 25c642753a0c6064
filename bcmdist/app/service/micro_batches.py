"""Predictions together: requests that come while one is computed wait for it, and are computed as one.

A prediction of some points costs little more than that of one, since the belief is read once for all of them; and no
row's prediction depends on the others that are asked for with it (`bcmdist.prediction.interface`).
"""

import asyncio
import collections

import anyio

from bcmdist.app.service.asking import Predicted, Question, answered
from bcmdist.app.service.served import Served

MOST_ROWS = 4096  # that are computed together: nobody waits much longer than for his own


class MicroBatcher:
    """Questions to models, each model's one batch after the other; of one event loop.

    A question whose asker has gone is left out, unless it is being computed. One that fails spoils no other: those of
    its batch are computed one by one.
    """

    def __init__(self, limiter: anyio.CapacityLimiter):
        self._limiter = limiter
        self._waiting: dict[Served, collections.deque[tuple[Question, asyncio.Future]]] = {}
        """of models that are being asked, which each have a task"""
        self._tasks: set[asyncio.Task] = set()

    async def ask(self, served: Served, question: Question) -> Predicted:
        """The answer to a question.

        Raises
        ------
        InvalidData, InvalidOption, ...
        """
        done = asyncio.get_running_loop().create_future()
        asked = served in self._waiting
        self._waiting.setdefault(served, collections.deque()).append((question, done))
        if not asked:
            task = asyncio.create_task(self._answer(served))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _answer(self, served):
        """All that is asked of a model, until there is nothing."""
        try:
            while batch := taken(self._waiting[served]):
                await self._compute(served, batch)
        finally:
            del self._waiting[served]

    async def _compute(self, served, batch):
        questions = [question for question, _ in batch]
        try:
            found = await anyio.to_thread.run_sync(answered, served, questions, limiter=self._limiter)
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._compute(served, [one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, done), answer in zip(batch, found, strict=True):
            if not done.done():
                done.set_result(answer)


def taken(waiting: collections.deque) -> list:
    """Take from what waits the first question, and those after it that are asked in the same way, as far as they go
    together; the others stay in their order, and those whose asker has gone leave."""
    batch: list[tuple[Question, asyncio.Future]] = []
    load, left = 0, []
    for question, done in waiting:
        if done.done():
            continue
        if not batch or (question.way == batch[0][0].way and load + question.load <= MOST_ROWS):
            batch.append((question, done))
            load += question.load
        else:
            left.append((question, done))
    waiting.clear()
    waiting.extend(left)
    return batch
