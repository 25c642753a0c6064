"""Trial: fit a few thousand rows of the data with given hyper-parameters, and time the tasks of each stage.

The trial is a task itself, so that it runs where the fit would run: on all threads of the runtime at the same time. It
writes to a temporary directory.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from msgspec import structs

from bcmdist import linalg
from bcmdist.api.fit import absorb_without_errors, prepare, refine
from bcmdist.data.dataset import COMPANIONS, open_data, read_schema
from bcmdist.data.observations import joined
from bcmdist.data.partition import Partition, Span, Work, partitions
from bcmdist.data.rows import read_all
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption
from bcmdist.learning import prepare as preparing
from bcmdist.learning.blocks.blocks import Blocks, CellBlocks
from bcmdist.learning.cross_validation import Folds, ValidationData
from bcmdist.learning.hyperparameters import first_mean, first_objective, fixed_hyperparameters
from bcmdist.learning.prepare import FitContext
from bcmdist.learning.query_selection import BEGUN, select_points
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import scaling_to_array
from bcmdist.prediction.local import arrange
from bcmdist.prediction.local.halos import HaloSizes
from bcmdist.prediction.measuring.measurement import measured
from bcmdist.runtime.interface import Outcome, SerialRuntime, Task
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference, open_store

# Partitions of the trial, so that each has a neighbour; blocks of an evaluation; rows of a timed matrix product.
PARTS, BLOCKS, PRODUCT_ROWS = 2, 2, 1000
CLIENT = "client"


Timings = dict[tuple[str, str], np.ndarray]
"""Seconds and number of similar tasks, (2,), by stage and label. The client's work in a stage is a task `CLIENT`."""


class _RoundEnded(Exception):
    """A second round of sums was about to begin."""


class Stopwatch(SerialRuntime):
    """A serial runtime that times the tasks of each stage by label."""

    def __init__(self, allowed_bytes: float) -> None:
        super().__init__(allowed_bytes=allowed_bytes)
        self.times: Timings = {}
        self.name = ""
        self.kinds: list[type] | None = None

    def sum(self, task: Task, parts: Sequence[Work], *, label: str) -> Any:
        if self.kinds is not None:
            if self.kinds and type(task) is self.kinds[0] is not self.kinds[-1]:
                raise _RoundEnded
            self.kinds.append(type(task))
        start = time.perf_counter()
        total = super().sum(task, parts, label=label)
        self._add(label, start, len(parts))
        return total

    def each(self, work: Iterable[tuple[Any, Sequence[Work]]], *, label: str) -> Iterator[Outcome]:
        if self.kinds is not None:
            work = ((task.one_round(), parts) for task, parts in work)
        outcomes, start = super().each(work, label=label), time.perf_counter()
        for outcome in outcomes:
            self._add(label, start, len(outcome.parts))
            yield outcome
            start = time.perf_counter()
        if self.kinds is not None:
            raise _RoundEnded

    def _add(self, label: str, start: float, tasks: int) -> None:
        self.times.setdefault((self.name, label), np.zeros(2))[:] += time.perf_counter() - start, tasks

    @contextmanager
    def stage(self, name: str, *, one_round: bool = False) -> Iterator[None]:
        """Measure a stage.

        one_round : end it when the first kind of task comes again after other kinds, or after tasks that each make
            rounds of their own (`each`), of which they make one (`one_round`)
        """
        self.name, self.kinds, start = name, [] if one_round else None, time.perf_counter()
        with suppress(_RoundEnded):
            yield
        self.kinds = None
        tasks = sum(found[0] for (stage, _), found in self.times.items() if stage == name)
        self.times[name, CLIENT] = np.array([time.perf_counter() - start - tasks, 1.0])


@dataclass(frozen=True)
class Trial:
    """Task: the trial. Returns a list with one dictionary of timings."""

    parts: tuple[Partition, ...]
    """partitions from which rows are taken"""
    settings: Settings
    """settings of the fit, with the number of query points"""
    largest: int
    """rows of a partition of the fit"""
    cells: HaloSizes
    """sizes of cells and halos in the fit"""
    several: bool
    """whether further passes follow the first"""
    allowed_bytes: float

    def __call__(self, part: Span, rows: None) -> list[Timings]:
        run = Stopwatch(self.allowed_bytes)
        product = np.ones((PRODUCT_ROWS, PRODUCT_ROWS), order="F")
        with run.stage("product"):
            _ = linalg.gram(product)
        with tempfile.TemporaryDirectory(prefix="bcmdist-") as place:
            data = f"{place}/rows.zarr"
            with run.stage("read"):
                self._copy(data)
            settings = replace(self.settings, x="X", y="y", rows_per_expert=self.largest, query_from=None)
            self._prepare(run, settings, data, f"{place}/learning")
            self._absorb(run, settings, data, f"{place}/model")
        return [run.times]

    def _copy(self, url: str) -> None:
        """Store a random sample of the rows as a data set."""
        seen, data = [rows for _, rows in read_all(self.parts)], self.parts[0].data
        X, obs = np.concatenate([rows.X for rows in seen]), seen[0].obs
        for rows in seen[1:]:
            obs = joined(obs, rows.obs)
        some = np.random.default_rng(self.settings.seed).permutation(len(X))[: PARTS * self.largest]
        names = [name for name in COMPANIONS if name in data.companions]
        columns = {"X": X[some], "y": obs.y[some]} | {name: getattr(obs, name)[some] for name in names}
        schema = read_schema(data.url, x=data.x, y=data.y)
        write_dataset(url, columns, rows_per_chunk=self.largest, schema=schema)

    def _prepare(self, run: Stopwatch, settings: Settings, url: str, place: str) -> None:
        """Evaluate the evidence, choose shared variables, and make one round of training."""
        store, data = open_store(place), open_data(url)
        case = preparing.fit_context(data, preparing.survey(data, settings, SerialRuntime()), settings, run)
        array = store.put_arrays({"scaling": scaling_to_array(case.scaling)})["scaling"]
        scaling, where = BlobReference(store.storage.url, array), preparing.FitResources(StageTimer(), place, place)
        name, kernel, likelihood, mean, found = fixed_hyperparameters(
            settings, data.inputs, (), case.likelihood, case.outputs
        )
        if settings.learn:
            self._evaluate(run, case, kernel, *preparing.learning_blocks(case, scaling, store, where), scaling)
        with run.stage("imports"):
            select_points(case.inputs[: PARTS * 2], 1, kernel=kernel)
        with run.stage("query"):
            shared = preparing.make_shared(case, kernel, likelihood, Mean(mean), found)
        context = preparing.training_context(case, case.schema.groups, scaling, store, where, found)
        if case.method.training and (rounds := case.method.training_rounds(settings, data.rows, data.rows)) != 0.0:
            with run.stage("train", one_round=rounds is not None):
                case.method.train(shared, likelihood, context)
        if case.settings.objective == "committee":
            with run.stage("polish", one_round=True):
                preparing.refined_by_evidence(case, shared, name, likelihood, context, where.log)

    def _evaluate(
        self,
        run: Stopwatch,
        case: FitContext,
        kernel: Kernel,
        near: CellBlocks | None,
        blocks: Blocks | None,
        scaling: BlobReference,
    ) -> None:
        """Evaluate the evidence over blocks of the first and of the later kind, and predict left-out rows."""
        assert blocks is not None, "where something is learned there are blocks"
        likelihood = case.likelihood.learned_as()
        classes = case.classes or ((0.0, 1.0) if likelihood is not case.likelihood else None)
        for name, at in (("first", None), ("later", kernel)):
            mean = first_mean(case.settings, case.outputs)
            objective = first_objective(case.settings, blocks(at)[:BLOCKS], scaling, classes, run, mean)
            for stage in (f"{name} reading", name):  # the rows are read once
                with run.stage(stage):
                    objective(kernel, likelihood)
        if near:
            validation = ValidationData(near, scaling, run, classes, likelihood)
            with run.stage("near"):
                some = near.neighbourhoods(kernel, np.ones(BLOCKS), validation.sizes.rows)
            folds, mean = Folds(validation, some, ()), first_mean(case.settings, case.outputs)
            for stage in ("judge reading", "judge"):
                with run.stage(stage):
                    folds.under(mean).noise_score(kernel, likelihood)

    def _absorb(self, run: Stopwatch, settings: Settings, url: str, place: str) -> None:
        """Fit with given hyper-parameters."""
        snapshot, data = prepare(url, _without_learning(settings), place, run)
        parts = partitions(data, settings.partition_rows)
        if spatial := settings.partition == "spatial":
            cells = structs.replace(snapshot.facts.cells, core=self.cells.core, with_halo=self.cells.with_halo)
            snapshot = snapshot.successor(snapshot.committee, [], cells=cells)
            with run.stage("cells"):
                snapshot = arrange.arrange(snapshot, data, run)
            parts = arrange.cell_partitions(snapshot)
        with run.stage("experts"):
            snapshot = absorb_without_errors(snapshot, parts, run)
        if self.several:
            with run.stage("passes"):
                snapshot = refine(snapshot, run, most=2)
        if spatial:
            with run.stage("halos"):
                snapshot = arrange.surround(snapshot, run)
        with run.stage("errors"):
            measured(snapshot, run)


def _without_learning(settings: Settings) -> Settings:
    """The settings of a fit with given hyper-parameters; options of a method that need learning have their defaults."""
    points = BEGUN.get(cast(str, settings.query_method), settings.query_method)
    fixed: dict[str, Any] = {"learn": False, "objective": "local", "query_method": points}
    with suppress(InvalidOption):
        return replace(settings, **fixed)
    return replace(settings, **fixed, options={})
