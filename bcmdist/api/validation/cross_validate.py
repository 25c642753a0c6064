"""Cross-validation of a model: its committee is built again without the rows of each fold, and predicts them.

A fold's committee is exactly that of a fit to the kept rows with the same scaling, hyper-parameters and query points:
messages, the prior mean, cells of local prediction, calibration and the distribution of errors are computed from the
kept rows alone. It costs a fit without learning for each fold, and works for every method that learns nothing from
targets but hyper-parameters.
"""

import contextlib
import functools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.fit import complete
from bcmdist.api.validation.columns import (
    column_values,
    date_words,
    is_date,
    time_column,
    times,
)
from bcmdist.api.validation.folds import (
    BLOCKS,
    GROUP,
    ROWS,
    SAMPLED_ROWS,
    TIME,
    Fold,
    Places,
    by_blocks,
    by_groups,
    by_rows,
    by_time,
    parsed,
    refuse_count,
)
from bcmdist.api.validation.mean_baseline import mean_losses
from bcmdist.api.validation.result import Scored, ValidationResult, result_of
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Cells, Facts
from bcmdist.committee.fading import Weighting
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.cell_tree import CellTree, grow
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import Location
from bcmdist.data.observations import Observations, joined
from bcmdist.data.partition import Partition, aligned_partitions
from bcmdist.data.rows import RUN_ROWS, read_all
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.experts.message import zero_message
from bcmdist.learning.column_roles import numbers_of
from bcmdist.learning.experts import EXPERTS
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernels import metric
from bcmdist.model.model import Model
from bcmdist.model.targets import model_observations
from bcmdist.prediction.datasets import judged, open_scored_rows
from bcmdist.prediction.predictive_model import CommitteeModel
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime, SerialRuntime
from bcmdist.storage.commits import SCRATCH, ModelStore, open_store
from bcmdist.storage.locate import open_storage

COPIES = 4  # of all rows, in memory at the same time


@dataclass(frozen=True)
class AllRows:
    """All rows of a data set in memory, as stored, in the order of the model's inputs."""

    X: np.ndarray
    """(N, D)"""
    obs: Observations
    X_variance: np.ndarray | None
    companions: tuple[str, ...]
    """names of the stored companions of the targets"""

    def columns(self, rows: slice | IntArray) -> dict[str, np.ndarray]:
        """Return some rows as the arrays of a data set."""
        found = {"X": self.X[rows], "y": self.obs.y[rows]}
        found |= {name: getattr(self.obs, name)[rows] for name in self.companions}
        return found | ({} if self.X_variance is None else {"X_variance": self.X_variance[rows]})


@dataclass(frozen=True)
class Validation:
    """A cross-validation whose folds are chosen, and of which everything was checked that needs no runtime."""

    snapshot: Snapshot
    rows: AllRows
    obs: Observations
    """of all rows, in the units of the model"""
    folds: list[Fold]
    places: Places
    by: str
    method: str
    inputs: str | None
    """how to average over uncertain inputs"""

    def run(self, runtime: Runtime) -> ValidationResult:
        """Leave out each fold in turn."""
        found = [self.leave_out(fold, runtime) for fold in self.folds]
        return result_of(found, by=self.by, method=self.method, unit=self.places.unit)

    def leave_out(self, fold: Fold, runtime: Runtime) -> Scored:
        """Build the committee of the kept rows, and score its predictions of the others."""
        with _scratch(self.snapshot) as place:
            kept, left_out = f"{place}/kept.zarr", f"{place}/left-out.zarr"
            for url, some in ((kept, fold.kept), (left_out, fold.left_out)):
                write_dataset(url, self.rows.columns(some), schema=self.snapshot.model.schema)
            fitted = CommitteeModel(self._committee(fold, kept, f"{place}/model", runtime))
            data = open_scored_rows(fitted, left_out, method=self.method, inputs=self.inputs)
            with fitted.held():
                rows = judged(fitted, data, self.method, runtime, most=data.rows, inputs=self.inputs)
        rows = replace(rows, number=fold.left_out)
        losses = mean_losses(self.snapshot.model, self.obs[fold.kept], rows)
        distance = self.places.distances(fold.left_out, fold.kept)
        return Scored(rows, losses, distance, len(fold.kept), fold.description)

    def _committee(self, fold: Fold, url: str, place: str, runtime: Runtime) -> Snapshot:
        """The committee of the kept rows, with the scaling, hyper-parameters and query points of the model."""
        facts, store = self.snapshot.facts, open_store(place)
        model = replace(self.snapshot.model, x_name="X", y_name="y", cells=self._cells(fold.kept))
        nothing = Committee(zero_message(model.shared, model.likelihood), model.shared.belief)
        begun = replace(self.snapshot, model=model).written(store, nothing, [], _without_rows(facts, url, store))
        with begun.held():
            several = len(facts.linearisation.passes) > 1
            return complete(begun, open_data(url, schema=model.schema), runtime, several=several)

    def _cells(self, kept: IntArray) -> CellTree | None:
        """Cells of local prediction for the kept rows, cut as by a fit; None where the model has none."""
        model, survey = self.snapshot.model, self.snapshot.facts.survey
        if model.cells is None:
            return None
        some = np.random.default_rng(0).permutation(kept)[:SAMPLED_ROWS]
        share, sizes = len(some) / len(kept), self.snapshot.facts.cells
        assert sizes.core is not None, "a model with cells knows their size"
        return grow(
            model.scaling.inputs(self.rows.X[some]),
            metric(model.shared.kernel, model.inputs),
            cell_rows=share * sizes.core,
            partition_rows=share * survey.rows_per_expert,
        )


def _without_rows(facts: Facts, url: str, store: ModelStore) -> Facts:
    """Facts of a model whose committee has absorbed no rows, fitted to the data set at `url`."""
    rows: dict[str, Any] = {"data": url, "surveyed": store.put_segment([]), "chunks": None, "job": "cross-validation"}
    passes: dict[str, Any] = {"passes": (), "linearised_at": None, "objective": None, "withdrawn_error": None}
    errors = dict.fromkeys(("spread", "calibration", "local_calibration", "recalibration", "expected", "accuracy"))
    return facts.changed(
        **rows,
        **passes,
        **errors,
        seconds={},
        skipped=[],
        lag=None,
        fading=Weighting(),
        method=EXPERTS[facts.expert].defaults.predictor,
        cells=Cells(facts.cells.core, facts.cells.with_halo),
    )


@contextlib.contextmanager
def _scratch(snapshot: Snapshot) -> Iterator[str]:
    """A directory beside the model's commits, which all workers can read; removed on exit."""
    place = f"{snapshot.url}/{SCRATCH}/{uuid.uuid4().hex}"
    try:
        yield place
    finally:
        open_storage(place).remove_all()
        with contextlib.suppress(OSError):  # an object store, or in use by other jobs
            os.rmdir(os.path.dirname(place))


# --- Preparation ---


def prepared(
    snapshot: Snapshot,
    source: Location,
    *,
    folds: int,
    by: str | ArrayLike,
    coordinates: str | Iterable[str] | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
    seed: int = 0,
) -> Validation:
    """Read the rows of a data set and divide them into folds; arguments as of `GBCM.cross_validate`.

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    _refuse_model(snapshot)
    kind, column = parsed(by) if isinstance(by, str) else (GROUP, "")
    method = CommitteeModel(snapshot).chosen_method(method)
    names = dict.fromkeys(coordinates.split(",") if isinstance(coordinates, str) else coordinates or ())
    numbers = numbers_of([name.strip() for name in names], snapshot.model.schema, snapshot.model.inputs)
    data = open_scored_rows(CommitteeModel(snapshot), source, x=x, y=y, method=method, inputs=inputs)
    refuse_count(folds, data.rows)
    rows, obs = read_rows(data, snapshot.model)
    values = functools.partial(column_values, data, snapshot.model, rows.X)
    places = _places(snapshot.model, rows.X, numbers)
    if kind == TIME:
        column = column or time_column(snapshot.model)
        places, found = _by_time(snapshot.model, values(column), column, folds)
    elif kind == GROUP:
        labels = values(column) if column else _labels(by, data.rows)
        found = by_groups(labels, folds, seed, column or "by")
    else:
        found = by_rows(data.rows, folds, seed) if kind == ROWS else by_blocks(places, folds, seed)
    named = kind if kind in (ROWS, BLOCKS) or not column else f"{kind}:{column}"
    return Validation(snapshot, rows, obs, found, places, named, method, inputs)


def _by_time(model: Model, values: np.ndarray, column: str, folds: int) -> tuple[Places, list[Fold]]:
    """Return places along a column of times, and folds of periods."""
    time = times(values, column)
    if is_date(model, column, values):
        return Places(time[:, None], f"in days of {column}"), by_time(time, folds, column, date_words)
    return Places(time[:, None], f"in {column}"), by_time(time, folds, column)


def _refuse_model(snapshot: Snapshot) -> None:
    """Raise `InvalidOption` for a model that keeps more of the rows to leave out than hyper-parameters."""
    facts = snapshot.facts
    remedy = "hold out rows before the fit (`bcmdist import --holdout`) and score these"
    if EXPERTS[facts.expert].training is not None:
        raise InvalidOption(
            f"cross-validation: expected an expert without training of its own, {facts.expert} has trained its shared "
            f"variables on the rows to be left out; {remedy}"
        )
    if facts.fading.fades:
        raise InvalidOption(
            f"cross-validation: expected rows that count equally, those of {snapshot.url} fade with age; score rows "
            "that arrive before they are ingested"
        )
    snapshot.model.refuse_moved_inputs("cross-validation")


def read_rows(data: Dataset, model: Model) -> tuple[AllRows, Observations]:
    """Read all rows; return them as stored, and their observations in the units of the model.

    Raises
    ------
    InvalidData, MemoryLimit, UnsupportedTarget
    """
    memory.refuse_above(
        COPIES * memory.FLOAT * data.rows * (data.inputs + 16),
        SerialRuntime().allowed_bytes,
        what=f"cross-validation of {data.rows:,} rows",
        remedy="take a sample of the rows (`bcmdist import --holdout`)",
    )
    read = [rows for _, rows in read_all(aligned_partitions(data, RUN_ROWS))]
    obs = functools.reduce(joined, [rows.obs for rows in read])
    variances = [rows.X_variance for rows in read if rows.X_variance is not None]
    whole = AllRows(
        np.concatenate([rows.X for rows in read]),
        obs,
        np.concatenate(variances) if variances else None,
        data.companions,
    )
    return whole, model_observations(model, Partition(data, 0, data.rows), obs, whole.X)


def _places(model: Model, X: FloatArray, numbers: Sequence[int]) -> Places:
    """Coordinates of rows: the inputs of some numbers as stored, or all inputs in units of their lengthscales."""
    if not numbers:
        lengths = metric(model.shared.kernel, model.inputs)
        return Places(model.scaling.inputs(X) / lengths, "in lengthscales")
    names = [model.schema.columns[k] if model.schema.columns else f"X[{k}]" for k in numbers]
    return Places(X[:, numbers], f"in {', '.join(names)}")


def _labels(by: ArrayLike, rows: int) -> np.ndarray:
    """Group labels (N,) as given."""
    labels = np.asarray(by)
    if labels.shape != (rows,):
        raise InvalidData(f"by: expected a label for each of {rows} rows, got shape {labels.shape}; give one each")
    return labels
