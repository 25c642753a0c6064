"""Sums whose terms lie on workers: added where they lie, and fetched once, as one total.

What is told of a result comes by itself (`telling`). The rest stays; whenever a worker has `FEW` terms of one sum it
adds them. For a total each worker first adds what it has, then all are added up in a tree of the workers.

On loss of a worker: Dask computes what it had again, from the partitions, for as long as somebody has the sum. So a
total may be of other data than what was told, and says itself what it is of. On loss of the way back too: `SumLost`.
"""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import distributed
from distributed.client import ClosedClientError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.task import Parted

FEW = 4  # terms that a worker keeps of a sum before it adds them; with those in flight, within `SUMS_ALIVE`
FAN_IN = 8  # terms of different workers that are added at a time
SUM_PRIORITY = 10  # above batches: sums free memory


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
    by_worker: Mapping[str, tuple[Term, ...]]
    """fewer than `FEW` terms of each worker"""

    @property
    def terms(self) -> tuple[Term, ...]:
        """All of them."""
        return tuple(itertools.chain.from_iterable(self.by_worker.values()))

    def __add__(self, other: "WorkerSum") -> "WorkerSum":
        found = dict(self.by_worker)
        for worker, terms in other.by_worker.items():
            some = found.get(worker, ()) + terms
            found[worker] = some if len(some) < FEW else (_added(self.client, some),)
        return WorkerSum(self.client, found)

    def weighted(self, weight) -> "WorkerSum":
        """The same, counted so often."""
        if weight == 1.0:
            return self
        weighted = {
            worker: tuple(replace(term, weight=weight * term.weight) for term in terms)
            for worker, terms in self.by_worker.items()
        }
        return WorkerSum(self.client, weighted)

    @property
    def partitions(self) -> int:
        """How many it is of."""
        return sum(term.partitions for term in self.terms)

    def added(self) -> Term:
        """All of it as one term, which is on its way; gives this up."""
        terms = [_joined(self.client, some) for some in self.by_worker.values()]
        while len(terms) > 1:
            terms = [_joined(self.client, terms[k : k + FAN_IN]) for k in range(0, len(terms), FAN_IN)]
        return terms[0]


def one_term(client, term: Term) -> WorkerSum:
    """The sum of a single result."""
    return WorkerSum(client, {term.worker: (term,)})


def _joined(client, terms: Sequence[Term]) -> Term:
    return terms[0] if len(terms) == 1 else _added(client, terms)


def _added(client, terms: Sequence[Term]) -> Term:
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
