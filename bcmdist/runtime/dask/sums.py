"""Sums whose terms lie on workers: added where they lie, and fetched once, as one total.

What is told of a result is asked of its worker, past the tasks that wait there. The rest stays; whenever a worker has
`FEW` terms of one sum it adds them, and a total is added up in a tree of the workers.

On loss of a worker: Dask computes what it had again, from the partitions, for as long as somebody has the sum. So a
total may be of other data than what was told, and says itself what it is of. On loss of the way back too: `SumLost`.
"""

import asyncio
import contextlib
import itertools
import pickle
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

import distributed
from distributed.client import ClosedClientError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.dask.heartbeat import ANSWER_SECONDS
from bcmdist.runtime.task import Parted

FEW = 4  # terms that a worker keeps of a sum before it adds them; with those in flight, within `SUMS_ALIVE`
FAN_IN = 8  # terms of different workers that are added at a time
SUM_PRIORITY = 10  # above batches: sums free memory
LOOK_SECONDS = 0.5  # between looks whether a worker that does not answer is still there
TELL = "bcmdist-tell"  # the question to a worker what is told of a result
QUESTIONS = 20  # before a result is fetched as a whole
AGAIN_SECONDS = 0.05  # until a result whose worker has died is asked for again


@dataclass(frozen=True)
class Term:
    """A result on a worker, as often as it counts."""

    future: distributed.Future
    """of something `Parted`"""
    worker: str
    """where it was computed; it may have been elsewhere since"""
    partitions: int
    weight: float = 1.0


@dataclass(frozen=True)
class WorkerSum:
    """A sum of what workers have kept. Adding two gives a third, and gives these up."""

    client: distributed.Client
    terms: tuple[Term, ...]
    """fewer than `FEW` of each worker"""

    def __add__(self, other: "WorkerSum") -> "WorkerSum":
        terms: list[Term] = []
        for _, group in itertools.groupby(sorted(self.terms + other.terms, key=_worker), _worker):
            some = tuple(group)
            terms += some if len(some) < FEW else [_added(self.client, some)]
        return WorkerSum(self.client, tuple(terms))

    def weighted(self, weight) -> "WorkerSum":
        """The same, counted so often."""
        if weight == 1.0:
            return self
        return replace(self, terms=tuple(replace(term, weight=weight * term.weight) for term in self.terms))

    @property
    def partitions(self) -> int:
        """How many it is of."""
        return sum(term.partitions for term in self.terms)

    def added(self) -> Term:
        """All of it as one term, which is on its way; gives this up."""
        terms = self.terms
        while len(terms) > 1:
            groups = (terms[k : k + FAN_IN] for k in range(0, len(terms), FAN_IN))
            terms = tuple(some[0] if len(some) == 1 else _added(self.client, some) for some in groups)
        return terms[0]


def _worker(term):
    return term.worker


def _added(client, terms) -> Term:
    futures, weights = [term.future for term in terms], [term.weight for term in terms]
    key = f"add-{uuid.uuid4().hex}"
    try:
        future = client.submit(add_kept, futures, weights, key=key, pure=False, priority=SUM_PRIORITY)
    except ClosedClientError as error:
        raise SchedulerLost(
            "sums of messages: the scheduler went away; what was committed is safe: start it again, repeat the command"
        ) from error
    for added in futures:  # by the scheduler it is kept for as long as it may have to be added again
        added.release()
    return Term(future, terms[0].worker, sum(term.partitions for term in terms))


def add_kept(parts: list[Parted], weights: list[float]) -> Parted:
    """What is kept of some results, as often as each counts."""
    total = parts[0].kept.weighted(weights[0])
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + part.kept.weighted(weight)
    return Parted(None, total)


@dataclass(frozen=True)
class Told:
    """What is told of a result, and the worker that has it."""

    told: Any
    worker: str


async def told(client, future) -> Told:
    """What is told of a result that stays on its worker, as soon as it is there; raises what gathering it would."""
    for _ in range(QUESTIONS):
        with contextlib.suppress(distributed.CancelledError), client.as_current():
            await distributed.wait(future)
        if future.status != "finished":
            break
        for worker in await _holders(client, future.key):
            if answer := await _asked(client, worker, future.key):
                return Told(pickle.loads(answer), worker)
        await asyncio.sleep(AGAIN_SECONDS)  # it died meanwhile: the scheduler will say so
    whole: Parted = await client.gather(future, asynchronous=True)
    return Told(whole.told, "")


async def _holders(client, key):
    return (await client.scheduler.who_has(keys=[key])).get(key, ())


async def _asked(client, worker, key) -> bytes | None:
    """What a worker tells of a result; None where it has none by now, or does not answer."""
    question = {"op": TELL, "key": key}
    answers = asyncio.ensure_future(client.scheduler.broadcast(msg=question, workers=[worker], on_error="ignore"))
    deadline = time.monotonic() + ANSWER_SECONDS
    while not (await asyncio.wait([answers], timeout=LOOK_SECONDS))[0]:
        # Dask would try to reach a dead worker for half a minute.
        if time.monotonic() >= deadline or worker not in await _holders(client, key):
            answers.cancel()
            return None
    return answers.result().get(worker)


def run_and_tell(run, task, parts) -> Parted:
    """As `run`, on a worker that from now on answers what is told of results, in its event loop."""
    data = distributed.get_worker().data

    def tell(key):
        found: Any = data.get(key)
        return found and pickle.dumps(found.told)

    distributed.get_worker().handlers.setdefault(TELL, tell)
    return run(task, parts)
