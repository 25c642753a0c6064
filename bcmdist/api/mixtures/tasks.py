"""Tasks of sampling: one chain, and the committee of one sample; each runs serially where it is.

Chains and members do not depend on each other. Where there are at least as many as threads that could work on the
partitions of one, each is a task of its own: then nothing waits for the sums of single evaluations. Repeated on loss, a
chain is the same by its seed; a member continues the fit in its directory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bcmdist.api import fit
from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixtures.density import Coordinates, MakeObjective
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition, Span, Work, partitions
from bcmdist.experts.hmc import HMC, Chain, sample
from bcmdist.learning.settings import Settings
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.local import arrange
from bcmdist.runtime.interface import Runtime, SerialRuntime, Task
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class SampleChain:
    """Task: sample the chain of a number, from a prepared committee and its rows."""

    prepared: Reference
    source: Location
    settings: Settings
    hmc: HMC
    objective: MakeObjective

    def __call__(self, span: Span, rows: None) -> Chain:
        return self.on(span.start, SerialRuntime())

    def on(self, number: int, runtime: Runtime) -> Chain:
        """Sample a chain, with evaluations of the objective on a runtime."""
        prepared = GBCM.load(self.prepared.url, commit=self.prepared.number)
        value = self.objective(prepared, parts_of(prepared, self.source, self.settings), runtime)
        coordinates = coordinates_of(prepared)
        start = coordinates.start(number, learned=prepared.model.cells is not None)
        return sample(coordinates.log_density(value), start, settings=self.hmc, seed=[self.settings.seed, number])


def coordinates_of(prepared: GBCM) -> Coordinates:
    """The coordinates in which a prepared committee is sampled."""
    begun = prepared.model
    return Coordinates(begun.shared.kernel, begun.likelihood, begun.schema.groups)


def parts_of(prepared: GBCM, source: Location, settings: Settings) -> list[Partition]:
    """The partitions whose evidence is sampled: the cells of a prepared committee, or rows as they are stored."""
    if prepared.model.cells is not None:
        return arrange.cell_partitions(prepared.snapshot)
    return partitions(_opened(source, settings), settings.partition_rows)


def _opened(source: Location, settings: Settings) -> Dataset:
    return open_data(source, x=settings.x, y=settings.y)


@dataclass(frozen=True)
class FitMember:
    """Task: fit the committee of a sample; return its commit."""

    source: Location
    settings: Settings
    """with the hyper-parameters of the sample"""
    model: str
    """directory of the member"""
    cells: Reference | None
    """the commit of which it takes the cells; None for partitions of rows as they are stored"""

    def __call__(self, span: Span, rows: None) -> Reference:
        return self.on(SerialRuntime())

    def on(self, runtime: Runtime) -> Reference:
        """Fit the committee on a runtime."""
        if self.cells is None:
            return GBCM.fit(self.source, self.settings, model=self.model, runtime=runtime).snapshot.reference
        return fit.fit(self.source, self.settings, self.model, runtime, cells=self.cells).reference


def each(
    tasks: Sequence[Any], on_runtime: Callable[[int], Any], parts: int, runtime: Runtime, *, label: str, first: int = 0
) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and results of tasks as they end: side by side, or one after the other over partitions.

    Parameters
    ----------
    on_runtime : the result of the task of a number, computed over its partitions by the runtime
    parts : number of partitions
    first : number of the first task
    """
    if len(tasks) < min(runtime.threads, parts):
        for number in range(first, first + len(tasks)):
            yield number, on_runtime(number)
        return
    done = 0
    runtime.progress(label, done, len(tasks))
    work: list[tuple[Task, list[Work]]] = [(task, [Span(first + k, first + k + 1)]) for k, task in enumerate(tasks)]
    for outcome in runtime.each(work, label=label):
        if outcome.error is not None:
            raise outcome.error
        done += 1
        runtime.progress(label, done, len(tasks))
        yield outcome.parts[0].start, outcome.result


def fixed_at(settings: Settings, named: Mapping[str, FloatArray]) -> Settings:
    """The settings of a member: nothing is learned, hyper-parameters have the values `named`."""
    return replace(settings, learn=False, set={name: values.tolist() for name, values in named.items()})
