"""Micro-batches: prediction requests that arrive during a computation are computed together after it.

Predictions at several points cost little more than at one, since the posterior is read once for all of them. The
prediction at a row does not depend on the other rows of its batch (`bcmdist.prediction.interface`).
"""

import asyncio
import collections

import anyio

from bcmdist.app.service.asking import Predicted, Question, answered
from bcmdist.app.service.served import Served

MOST_ROWS = 4096  # in a batch: so few that a request waits little longer than for its own prediction


class MicroBatcher:
    """Queues of questions, computed one batch at a time per model; used in one event loop.

    A question whose client has disconnected is dropped, unless it is being computed. If a batch fails, its questions
    are computed one by one, so that a failing question does not affect the others.
    """

    def __init__(self, limiter: anyio.CapacityLimiter):
        self._limiter = limiter
        self._waiting: dict[Served, collections.deque[tuple[Question, asyncio.Future]]] = {}
        """queue of each model with open questions; each such model has a task"""
        self._tasks: set[asyncio.Task] = set()

    async def ask(self, served: Served, question: Question) -> Predicted:
        """Queue a question and wait for its predictions.

        Raises
        ------
        InvalidData, InvalidOption, or any other error of the prediction
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
        """Compute batches for one model until its queue is empty."""
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
    """Remove the next batch from a queue and return it.

    A batch is the first question and later ones with the same `way`, up to a load of `MOST_ROWS`. The other questions
    keep their order; those whose client has disconnected are dropped.
    """
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
