"""Sums of results that stay on workers: added there, and fetched once, as one total.

Summaries of the results arrive separately (`EventChannel`). The large parts stay on the workers; when a worker has
`FEW` terms of one sum, the worker adds them. For a total each worker first adds its own terms, then the workers' sums
are added up in a tree.

On loss of a worker: Dask recomputes its terms from the partitions for as long as the sum is referenced. If the data
have changed meanwhile, the total differs from the summaries; kept results therefore carry a record of their rows, for
the caller to compare. If recomputing fails as well: `SumLost`.
"""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import distributed
from distributed.client import ClosedClientError

from bcmdist.errors import SchedulerLost
from bcmdist.runtime.interface import Parted

FEW = 4  # terms of a sum on one worker before they are added; with terms in flight, at most `SUMS_ALIVE`
FAN_IN = 8  # terms of different workers that are added by one task
SUM_PRIORITY = 10  # above batches, because sums free memory


@dataclass(frozen=True)
class Term:
    """A result on a worker, with a weight."""

    future: distributed.Future
    """of a `Parted` result"""
    worker: str
    """address of the worker that computed it; Dask may have moved it since"""
    partitions: int
    """number of partitions in the result"""
    weight: float = 1.0
    """factor by which the result counts in the sum"""
    on: tuple[frozenset[str], ...] = ()
    """workers that its tasks are restricted to; when all workers of one of these sets are gone, a lost result cannot be
    recomputed"""


@dataclass(frozen=True)
class WorkerSum:
    """A weighted sum of results kept on workers. Adding two sums gives a third; the operands must not be used again."""

    client: distributed.Client
    by_worker: Mapping[str, tuple[Term, ...]]
    """terms by worker address, fewer than `FEW` per worker"""

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all workers."""
        return tuple(itertools.chain.from_iterable(self.by_worker.values()))

    def __add__(self, other: "WorkerSum") -> "WorkerSum":
        found = dict(self.by_worker)
        for worker, terms in other.by_worker.items():
            some = found.get(worker, ()) + terms
            found[worker] = some if len(some) < FEW else (_added(self.client, some),)
        return WorkerSum(self.client, found)

    def weighted(self, weight: float) -> "WorkerSum":
        """Return the sum multiplied by `weight`."""
        if weight == 1.0:
            return self
        weighted = {
            worker: tuple(replace(term, weight=weight * term.weight) for term in terms)
            for worker, terms in self.by_worker.items()
        }
        return WorkerSum(self.client, weighted)

    @property
    def partitions(self) -> int:
        """Number of partitions in the sum."""
        return sum(term.partitions for term in self.terms)

    @property
    def on(self) -> set[frozenset[str]]:
        """Workers that its tasks are restricted to; see `Term.on`."""
        return set(itertools.chain.from_iterable(term.on for term in self.terms))

    def added(self) -> Term:
        """Submit the addition of all terms; return the total as one term. This sum must not be used afterwards."""
        terms = [_joined(self.client, some) for some in self.by_worker.values()]
        while len(terms) > 1:
            terms = [_joined(self.client, terms[k : k + FAN_IN]) for k in range(0, len(terms), FAN_IN)]
        return terms[0]


def one_term(client, term: Term) -> WorkerSum:
    """Return the sum with a single term."""
    return WorkerSum(client, {term.worker: (term,)})


def _joined(client, terms: Sequence[Term]) -> Term:
    return terms[0] if len(terms) == 1 else _added(client, terms)


def _added(client, terms: Sequence[Term]) -> Term:
    futures, weights = [term.future for term in terms], [term.weight for term in terms]
    on = tuple(dict.fromkeys(itertools.chain.from_iterable(term.on for term in terms)))
    how = {"key": f"add-{uuid.uuid4().hex}", "workers": sorted(frozenset().union(*on)) or None}
    try:
        future = client.submit(add_kept, futures, weights, **how, pure=False, priority=SUM_PRIORITY)
    except ClosedClientError as error:
        raise SchedulerLost(
            "sums of messages: the scheduler went away; what was committed is safe: start it again, repeat the command"
        ) from error
    for added in futures:  # the scheduler keeps the task while its result may be needed to recompute the sum
        added.release()
    return Term(future, terms[0].worker, sum(term.partitions for term in terms), on=on)


def add_kept(parts: list[Parted], weights: list[float]) -> Parted:
    """Weighted sum of the `kept` parts of some results, as a `Parted` without summary."""
    total = parts[0].kept.weighted(weights[0])
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + part.kept.weighted(weight)
    return Parted(None, total)
