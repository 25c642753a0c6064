"""The Ray runtime: partitions as tasks of Ray (`pip install 'bcmdist[ray]'`).

Results are added on the workers, in the order of the partitions; only totals come to this process. The large
parts of `Parted` results stay in the object stores of the nodes.

On retry: Ray repeats a task whose worker has died, `RETRIES` times; then it is `WorkerLost`, or for one partition of
`each` `PoisonChunk`. On loss of a kept result: Ray computes it again, otherwise `SumLost`. Nodes may come and go; all
must have the same versions of bcmdist, numpy and zarr, and see data and models under one path.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from bcmdist.data.partition import Work
from bcmdist.errors import BcmdistError, InvalidOption, MissingExtra, PoisonChunk, WorkerLost
from bcmdist.runtime import interface
from bcmdist.runtime.interface import Outcome, Progress, SumLost, Task, is_parted, run_batch, silent, timed

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise MissingExtra("RayRuntime: expected the package ray, not installed; pip install 'bcmdist[ray]'") from error

RETRIES = 3  # runs of a task after its worker has died
WINDOW = 3  # tasks in flight per thread: one running, one ready, one on its way
BATCHES_PER_THREAD, BATCH_PARTITIONS = 8, 16  # of a sum: enough that the last end together, small enough to repeat
FAN_IN = 8  # results that are added by one task
MEMORY_SHARE = 0.8  # of the memory that Ray leaves to tasks


@ray.remote(max_retries=RETRIES, num_returns=2)
def _batch(task, parts):
    """Nothing, by which the end or an error is noticed, and the result, which stays where it is."""
    return None, run_batch(task, parts)


@ray.remote(max_retries=RETRIES, num_returns=2)
def _outcome(task, parts):
    """An outcome without its kept part, and that part."""
    found, seconds = timed(run_batch, task, parts)
    outcome = interface.outcome_of(task, parts, found, seconds)
    return replace(outcome, kept=None), outcome.kept


@ray.remote(max_retries=RETRIES)
def _added(*terms):
    return functools.reduce(operator.add, terms)


@ray.remote(max_retries=RETRIES)
def _weighted_sum(weights, *terms):
    return functools.reduce(operator.add, (term.weighted(weight) for term, weight in zip(terms, weights, strict=True)))


@dataclass(frozen=True)
class KeptSum:
    """A weighted sum of results in the object stores of nodes. Adding two sums gives a third."""

    terms: tuple[tuple[Any, float], ...]
    """references to results, with their weights; fewer than `FAN_IN`"""

    def __add__(self, other: "KeptSum") -> "KeptSum":
        terms = self.terms + other.terms
        return KeptSum(terms if len(terms) < FAN_IN else ((_joined(terms), 1.0),))

    def weighted(self, weight: float) -> "KeptSum":
        """Return the sum multiplied by `weight`."""
        return KeptSum(tuple((term, weight * own) for term, own in self.terms))


def _joined(terms):
    return _weighted_sum.remote([weight for _, weight in terms], *(term for term, _ in terms))


class RayRuntime:
    """Runs tasks on the Ray that this process is connected to; raises `InvalidOption` before `ray.init` was called."""

    def __init__(self, *, progress: Progress = silent) -> None:
        if not ray.is_initialized():
            raise InvalidOption("RayRuntime: expected a connection to Ray, there is none; call ray.init before")
        self.progress = progress
        self.allowed_bytes = MEMORY_SHARE * min(
            node["Resources"]["memory"] / node["Resources"]["CPU"] for node in _nodes()
        )

    @property
    def threads(self) -> int:
        """Number of tasks that run at the same time, at least 1."""
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        """Sum of a task over partitions; batches run on any node, and results are added in their order."""
        threads, done = self.threads, 0
        size = min(BATCH_PARTITIONS, max(1, len(parts) // (BATCHES_PER_THREAD * threads)))
        waiting = (list(parts[k : k + size]) for k in range(0, len(parts), size))
        flying: dict[Any, list] = {}
        terms: list[Any] = []
        self.progress(label, 0, len(parts))
        try:
            while True:
                for batch in itertools.islice(waiting, WINDOW * threads - len(flying)):
                    end, term = _batch.remote(task, batch)
                    flying[end] = batch
                    terms = [*terms, term] if len(terms) < FAN_IN else [_added.remote(*terms), term]
                if not flying:
                    return _fetched(_added.remote(*terms), parts)
                for end in ray.wait(list(flying))[0]:
                    batch = flying.pop(end)
                    _fetched(end, batch)
                    done += len(batch)
                    self.progress(label, done, len(parts))
        finally:
            _cancel(flying)

    def each(self, work: Iterable[tuple[Task, Sequence[Work]]], *, label: str) -> Iterator[Outcome]:
        """Yield the outcome of each pair of a task and partitions, in the order of completion."""
        waiting = iter(work)
        flying: dict[Any, tuple] = {}
        try:
            while True:
                for task, parts in itertools.islice(waiting, max(0, WINDOW * self.threads - len(flying))):
                    outcome, kept = _outcome.remote(task, parts)
                    flying[outcome] = task, parts, kept
                if not flying:
                    return
                for ref in ray.wait(list(flying))[0]:
                    task, parts, kept = flying.pop(ref)
                    found = _outcome_of(ref, kept, task, parts)
                    if found is not None:
                        yield found
                    else:  # repeated one by one, so that the error has one partition
                        waiting = itertools.chain([(task, [part]) for part in parts], waiting)
        finally:
            _cancel(flying)

    def total(self, kept: Any, *, label: str) -> Any:
        """Fetch the sum of the kept results, after nodes have added them."""
        try:
            return ray.get(_joined(kept.terms))
        except RayError as error:
            raise SumLost(f"{label}: {error}") from error

    def check_same(self, probe: Callable[[], str], *, url: str) -> None:
        """Run `probe` in this process and on every node; raise `WorkerCannotRead` if the texts differ."""
        answers, ask = {}, ray.remote(interface.answer_of)
        for node in (node["NodeID"] for node in _nodes()):
            place = NodeAffinitySchedulingStrategy(node, soft=False)
            answers[node] = ask.options(num_cpus=0, scheduling_strategy=place).remote(probe)
        interface.refuse_other_answers(url, probe(), {node: ray.get(answer) for node, answer in answers.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_):
        pass


def _nodes():
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def _fetched(ref, parts):
    """Return a result, or raise the error of its task as it is."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLost(
            f"partitions {parts[0].key} to {parts[-1].key}: workers died in {RETRIES + 1} runs ({error!s:.80}); "
            "give workers more memory or lower --rows-per-expert"
        ) from error


def _outcome_of(ref, kept, task, parts):
    """Return the outcome of some partitions; None if they fail and are several."""
    try:
        outcome = _fetched(ref, parts)
    except BcmdistError as error:
        failed = PoisonChunk(f"{parts[0].key}: {error}") if isinstance(error, WorkerLost) else error
        return None if len(parts) > 1 else Outcome(parts, error=failed)
    return replace(outcome, kept=KeptSum(((kept, 1.0),))) if is_parted(task) else outcome


def _cancel(flying):
    for ref in flying if ray.is_initialized() else ():
        ray.cancel(ref)
