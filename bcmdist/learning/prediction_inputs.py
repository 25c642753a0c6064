"""Where predictions will be wanted (`--query-from`): a random sample of the inputs of another data set.

They become candidates of query points beside the training rows (Tresp 2000, section 4: the query set is where
predictions are asked for). Only inputs are read, of some partitions in random order, so that the memory and the time
that it takes do not grow with the data set.
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

# Partitions asked of a source at a time, and those that are read at most, however large the data set is.
LISTED, MOST_READ = 1000, 1000


@dataclass(frozen=True)
class Inputs:
    """A uniform sample of inputs: those of smallest random priority, drawn for each partition as in a `Survey`."""

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
    """Sample the inputs of a partition."""

    seed: int
    size: int

    def __call__(self, part, rows) -> Inputs:
        name = np.frombuffer(part.key.encode(), np.uint8)
        priority = np.random.default_rng([self.seed, *name]).random(len(rows.X))
        keep = np.argsort(priority)[: self.size]
        return Inputs(self.size, rows.X[keep], priority[keep])


def prediction_partitions(settings: Settings, data: Dataset) -> list[Partition]:
    """Partitions with the inputs of `query_from`, at most `MOST_READ` at random, in the order of the training columns.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
        There is no such data set, or it holds no rows or other columns than those of `data`; it is a stream.
    """
    url = settings.query_from
    if url is None:
        return []
    if scheme_of(url) in SOURCES:
        raise InvalidOption(
            f"query_from: expected a Zarr data set or a directory of them, got the stream {url}, whose entries may be "
            "read once; give a data set"
        )
    schema = read_schema(data.url, x=data.x)
    source = open_source(url, rows_per_expert=settings.rows_per_expert, watch=False, x=data.x, y=None, schema=schema)
    parts = list(_inputs_of(source))
    if not parts:
        raise InvalidData(f"{url}: expected rows in which predictions will be wanted, found none; add some")
    for other in {part.data.url: part.data for part in parts}.values():
        if other.inputs != data.inputs:
            raise InvalidData(
                f"{other.url}: expected the {data.inputs} columns of {data.x} in {data.url}, got {other.inputs}; give "
                "the same inputs in the same order"
            )
    some = np.random.default_rng(settings.seed).permutation(len(parts))[:MOST_READ]
    return [parts[k] for k in np.sort(some)]


def _inputs_of(source: Source) -> Iterator[Partition]:
    """All partitions of a source, without companions."""
    after = None
    while found := source.read(after, LISTED):
        for delivery in found:
            if delivery.bad:
                raise delivery.bad[1]
            yield from (replace(part, data=replace(part.data, companions=())) for part in delivery.parts)
        after = found[-1].offset


def check_prediction_inputs(settings: Settings, data: Dataset, runtime: Runtime) -> None:
    """Refuse what `prediction_partitions` does, or a worker cannot read (`WorkerCannotRead`)."""
    for url in dict.fromkeys(part.data.url for part in prediction_partitions(settings, data)):
        runtime.check_same(functools.partial(describe, url, data.x, None), url=url)


def read_prediction_inputs(settings: Settings, data: Dataset, size, runtime: Runtime) -> np.ndarray | None:
    """At most `size` of the inputs (n, D) of `query_from`, in original units; None where it is not given.

    Raises
    ------
    As `prediction_partitions`; InvalidData where inputs are not finite.
    """
    parts = prediction_partitions(settings, data)
    return runtime.sum(SampleInputs(settings.seed, size), parts, label="places").X if parts else None
