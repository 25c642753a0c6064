"""Sample the inputs of future predictions (`--query-from`), which lie in another data set.

The sampled inputs become candidates of query points, in addition to the training rows (Tresp 2000, section 4: the query
set is where predictions are needed). Only the inputs of some random partitions are read, so that memory and time do
not grow with the data set.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.dataset import Dataset, describe, read_schema
from bcmdist.data.partition import Partition
from bcmdist.data.schemes import scheme_of
from bcmdist.data.sources.open import SOURCES, Source, open_source
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.runtime.interface import Runtime

# Partitions listed per call of a source, and the maximum that is read of any data set.
LISTED, MOST_READ = 1000, 1000


@dataclass(frozen=True)
class Inputs:
    """A uniform sample of inputs: the rows of smallest random priority, drawn per partition as in a `Survey`."""

    size: int
    X: np.ndarray
    """(n, D), n <= size, in original units"""
    priority: np.ndarray
    """ascending"""

    def __add__(self, other: "Inputs") -> "Inputs":
        priority = np.concatenate([self.priority, other.priority])
        keep = np.argsort(priority)[: self.size]
        return Inputs(self.size, np.concatenate([self.X, other.X])[keep], priority[keep])


@dataclass(frozen=True)
class SampleInputs:
    """Task: sample the inputs of a partition."""

    seed: int
    size: int

    def __call__(self, part, rows) -> Inputs:
        name = np.frombuffer(part.key.encode(), np.uint8)
        priority = np.random.default_rng([self.seed, *name]).random(len(rows.X))
        keep = np.argsort(priority)[: self.size]
        return Inputs(self.size, rows.X[keep], priority[keep])


def prediction_partitions(settings: Settings, data: Dataset) -> list[Partition]:
    """At most `MOST_READ` random partitions with the inputs of `query_from`, which must match the training inputs.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
        The data set is missing, is a stream, holds no rows, or has other columns than `data`.
    """
    url = settings.query_from
    if url is None:
        return []
    if scheme_of(url) in SOURCES:
        raise InvalidOption(
            f"query_from: expected a Zarr data set or a directory of them, got the stream {url}, whose entries may be "
            "read only once; give a data set"
        )
    schema = read_schema(data.url, x=data.x)
    source = open_source(url, rows_per_expert=settings.rows_per_expert, watch=False, x=data.x, y=None, schema=schema)
    parts = list(_inputs_of(source))
    if not parts:
        raise InvalidData(f"{url}: expected rows at which predictions will be needed, found none; add some")
    for other in {part.data.url: part.data for part in parts}.values():
        if other.inputs != data.inputs:
            raise InvalidData(
                f"{other.url}: expected the {data.inputs} columns of {data.x} in {data.url}, got {other.inputs}; give "
                "the same inputs in the same order"
            )
    some = np.random.default_rng(settings.seed).permutation(len(parts))[:MOST_READ]
    return [parts[k] for k in np.sort(some)]


def _inputs_of(source: Source) -> Iterator[Partition]:
    """Yield all partitions of a source, without companion arrays."""
    after = None
    while found := source.read(after, LISTED):
        for delivery in found:
            if delivery.bad:
                raise delivery.bad[1]
            yield from (replace(part, data=replace(part.data, companions=())) for part in delivery.parts)
        after = found[-1].offset


def check_prediction_inputs(settings: Settings, data: Dataset, runtime: Runtime) -> None:
    """Check that the inputs of `query_from` exist and that workers can read them.

    Raises
    ------
    The errors of `prediction_partitions`; `WorkerCannotRead` if a worker cannot read the inputs.
    """
    for url in dict.fromkeys(part.data.url for part in prediction_partitions(settings, data)):
        runtime.check_same(functools.partial(describe, url, data.x, None), url=url)


def read_prediction_inputs(settings: Settings, data: Dataset, size, runtime: Runtime) -> np.ndarray | None:
    """Return at most `size` inputs (n, D) of `query_from`, in original units; None if the option is not given.

    Raises
    ------
    As `prediction_partitions`; InvalidData where inputs are not finite.
    """
    parts = prediction_partitions(settings, data)
    return runtime.sum(SampleInputs(settings.seed, size), parts, label="places").X if parts else None
