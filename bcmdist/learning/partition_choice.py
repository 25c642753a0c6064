"""Choose how rows are partitioned (`--partition auto`).

Predictions from the rows around each new point are the most accurate ones. They need a copy of the rows in the order of
cells, next to the model. Where that is not possible, not needed or not what the other settings ask for, partitions are
slices of the rows as they are stored. What can be ingested later always is.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from bcmdist.data.dataset import Dataset
from bcmdist.data.schema import Schema
from bcmdist.data.tables.series import lags_of
from bcmdist.errors import InvalidOption
from bcmdist.experts.limits import _reading_bytes
from bcmdist.learning.choices import task_for
from bcmdist.learning.decisions import Decision
from bcmdist.learning.experts import FIRST, method_of
from bcmdist.learning.hyperparameters import first_kernel, with_numbered_columns
from bcmdist.learning.query_count import QUERY, query_count
from bcmdist.learning.query_selection import ALTERNATED
from bcmdist.learning.settings import Settings
from bcmdist.learning.survey import schema_of
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import kernel_parts, parse_kernel
from bcmdist.prediction.local.halos import sizes_for
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.urls import on_objects

AUTO: Final = "auto"
CHUNKS: Final = "chunks"
SPATIAL: Final = "spatial"
# Rows above which rows are not copied unless a user asks for it: the search for the rows around cells takes as long as
# all the experts.
MOST_ROWS = 1_000_000
NEAR = "rows that can be read again and copied (give chunks for a model that will be merged)"
# Free space on the disk of the model, as a multiple of the size of the copy.
FREE_SPACE = 2.0


class PartitionContext(NamedTuple):
    """What the choice depends on."""

    settings: Settings
    data: Dataset
    schema: Schema
    model: Any
    """path or URL of the model directory"""
    allowed_bytes: float
    """memory of a worker thread"""
    classes: int = 0
    """number of classes; 0 if there are none, or unknown"""

    @property
    def query(self) -> int:
        """Number of query points; the usual one where it is chosen later."""
        count = query_count(self.settings, self.data)
        return QUERY if count == "auto" else count


def as_stored(settings: Settings) -> Settings:
    """Return the settings of a committee that will absorb rows in the order in which they are stored or arrive."""
    return replace(settings, partition=CHUNKS) if settings.partition == AUTO else settings


def with_each_partition(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with each way of partitioning that `auto` may choose, or the settings if that is given."""
    if settings.partition != AUTO:
        yield settings
        return
    yield as_stored(settings)
    if _combinable(settings):
        yield replace(settings, partition=SPATIAL)


def choose_partition(
    settings: Settings, data: Dataset, model, runtime: Runtime, *, labels: Collection[float] | None = None
) -> tuple[Settings, list[dict[str, Any]]]:
    """Return the settings with the partition to use, and the decision as JSON values if there was one.

    Parameters
    ----------
    model : path or URL of the model directory
    labels : distinct targets, where they have been read and may be labels: classes need memory
    """
    if settings.partition != AUTO:
        return settings, []
    schema = schema_of(data)
    classes = len(labels or ()) if task_for(settings, labels, schema) == "classification" else 0
    context = PartitionContext(settings, data, schema, model, runtime.allowed_bytes, classes)
    reason = next((reason for reason, applies in AS_STORED.items() if applies(context)), None)
    taken = as_stored(settings) if reason else replace(settings, partition=SPATIAL)
    decision = Decision("partition", taken.partition, reason or NEAR, {})
    return taken, [decision.to_json()]


def _combinable(settings):
    """Whether the other settings can be combined with spatial partitions."""
    try:
        replace(settings, partition=SPATIAL)
    except InvalidOption:
        return False
    return True


def _concerns_one_committee(context):
    """Whether options ask for a committee of all rows in their order, which predicts by itself."""
    asked = context.settings
    of_all = asked.objective in ("committee", "subset") or asked.query_method in ALTERNATED
    return of_all or asked.linearise != "own" or asked.passes is not None


def _without_memory(context):
    """Whether the local experts of a partition would not fit in the memory of a thread."""
    data, columns = context.data, KernelColumns(context.data.inputs, context.schema)
    settings = with_numbered_columns(context.settings, columns)
    near = min(sizes_for(data.rows, data.inputs, settings.effort).with_halo, data.rows)
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=data.inputs))
    classes = max(1, context.classes, len(context.schema.classes))
    needed = memory.local_bytes(near, settings.partition_rows, context.query, kernels=kernels, classes=classes)
    return context.allowed_bytes < needed + memory.BASE_BYTES + _reading_bytes(data)


def _without_space(context):
    """Whether the disk of the model could become full."""
    place = Path(os.path.abspath(context.model))
    existing = next(one for one in (place, *place.parents) if one.exists())
    size = memory.FLOAT * context.data.rows * (context.data.inputs + 1 + len(context.data.companions))
    return shutil.disk_usage(existing).free < FREE_SPACE * size


AS_STORED: dict[str, Callable[[PartitionContext], bool]] = {
    f"another expert than {FIRST}": lambda context: context.settings.expert != FIRST,
    "inputs with errors": lambda context: method_of(context.settings).capabilities.input_errors,
    "options that it cannot be combined with": lambda context: not _combinable(context.settings),
    "options that concern one committee of all rows": _concerns_one_committee,
    "a series whose inputs are its last values": lambda context: bool(lags_of(context.schema.columns)),
    "query points as many as rows": lambda context: context.data.rows <= context.query,
    f"more than {MOST_ROWS:,} rows, which are not copied unless asked for": lambda context: (
        context.data.rows > MOST_ROWS
    ),
    "a model on an object store, where rows cannot be sorted": lambda context: on_objects(str(context.model)),
    "too little memory for local experts": _without_memory,
    "too little free disk space for a copy of the rows": _without_space,
}
"""reasons for partitions in stored order, and when each applies; the first that does is told"""
