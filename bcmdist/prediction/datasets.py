"""Predictions and scores of a committee, or a mixture of several, for whole data sets.

Tasks of partitions: predict their rows, score them, or check that a model can have them.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import __version__
from bcmdist.committee.cells import refuse_cells_on_objects
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import VARIANCE, Dataset, check_names, describe, open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.outputs import new_output
from bcmdist.data.partition import Partition, aligned_partitions
from bcmdist.data.predictions import LARGEST_OUTPUT_CHUNK, create_predictions, output_names
from bcmdist.data.reorder.external_sort import Run, Shuffle
from bcmdist.data.reorder.reorder import restore
from bcmdist.data.rows import row_numbers
from bcmdist.data.writing import write_rows
from bcmdist.errors import InvalidOption
from bcmdist.model.model import Model
from bcmdist.model.targets import check_support, model_observations
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.limits import refuse_large_prediction
from bcmdist.prediction.local.arrange import in_cells
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.row_predictor import StoredPredictor
from bcmdist.prediction.scored_rows import with_class_names
from bcmdist.prediction.scoring.judged import Judged, nothing
from bcmdist.prediction.scoring.ranking import scattered
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Check:
    """Refuse observations that a model cannot have; returns the number of rows."""

    fitted: Reference

    def __call__(self, part, rows) -> int:
        model = load_fitted(self.fitted).model
        if part.data.y is None:
            _check_companions(model, part, rows)
        else:
            model_observations(model, part, rows.obs)
        return part.rows


@dataclass(frozen=True)
class Score:
    """Totals of the scores of the rows of a partition."""

    predictor: StoredPredictor
    way: str | None = None
    """in which uncertain inputs are averaged over (`WAYS`); None where they are certain"""

    def __call__(self, part, rows) -> Scores:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        obs = model_observations(predictor.model, part, rows.obs)
        return predictor.score(Judged(number, rows.X, obs, around=input_uncertainty_of(rows, self.way))).scores()


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a partition beside their predictions: about a share of them, by their numbers in the data set, so
    that any partitioning of it gives the same."""

    predictor: StoredPredictor
    share: float
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> Judged:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        some = share_of(number, self.share)
        obs = model_observations(predictor.model, part, rows.obs)
        if not some.any():
            return nothing(predictor.model.inputs)
        around = input_uncertainty_of(rows, self.way)
        return predictor.score(Judged(number[some], rows.X[some], obs[some], around=around and around[some]))


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a partition to an output group; returns the number of rows.

    Each partition owns whole chunks of the output, so that no two tasks write to one chunk, and
    writing twice writes the same.
    """

    predictor: StoredPredictor
    out: str
    way: str | None = None
    """as of `Score`"""

    def __call__(self, part, rows) -> int:
        predictor = self.predictor.load()
        _check_companions(predictor.model, part, rows)
        around = input_uncertainty_of(rows, self.way)
        write_rows(self.out, part.start, predictor.predict(rows.X, rows.obs, around=around))
        return part.rows


@dataclass(frozen=True)
class PredictInCells:
    """Write the predictions of a partition in the order of cells as a run of the rows they stand for."""

    predictor: StoredPredictor
    shuffle: Shuffle

    def __call__(self, part, rows) -> int:
        row, predictor = row_numbers(part), self.predictor.load()
        self.shuffle.write(f"{part.start}-{part.stop}", Run(row, row, predictor.predict(rows.X, rows.obs)))
        return part.rows


def input_uncertainty_of(rows, way: str | None) -> InputUncertainty | None:
    """By how much the inputs of rows of a partition may be off; None where they are certain."""
    return None if way is None or rows.X_variance is None else InputUncertainty(rows.X_variance, way)


def share_of(number, share) -> np.ndarray:
    """Whether each row belongs to about a share of them all, by their numbers, (n,)."""
    return scattered(number) <= np.uint64(min(share * 2.0**64, 2.0**64 - 2.0**11))  # the next below 2^64


def _numbers(task, part):
    """Of the rows of a partition in their data set, (n,)."""
    return row_numbers(part) if task.predictor.in_cells and not task.way else np.arange(part.start, part.stop)


def _check_companions(model: Model, part, rows):
    """Targets are not looked at."""
    if {"exposure", "trials"} & set(model.likelihood.companions):
        check_support(model.likelihood, part, replace(rows.obs, y=np.zeros(part.rows)))


def open_new_rows(snapshot: Snapshot, source, *, x=None, y) -> Dataset:
    """A data set with the columns of the training data.

    Raises
    ------
    DataNotFound, InvalidData
    """
    data = open_data(source, x=x or snapshot.model.x_name, y=y, schema=snapshot.model.schema, uncertain=True)
    snapshot.refuse_unlike([Partition(data, 0, data.rows)])
    check_names(data, snapshot.model.schema)
    return data


def open_scored_rows(model: PredictiveModel, source, *, x=None, y=None, method=None, inputs=None) -> Dataset:
    """A data set with targets, named as in training by default, once it is clear that it can be predicted so.

    Raises
    ------
    DataNotFound, InvalidData, InvalidOption
    """
    data = open_new_rows(model.snapshot, source, x=x, y=y or model.snapshot.model.y_name)
    way_of(model, data, model.chosen_method(method), inputs)
    return data


def predict_zarr(model: PredictiveModel, data, out, method, inputs, runtime) -> int:
    """Predict at every row of a data set into a new Zarr group; the number of rows."""
    method, snapshot = model.chosen_method(method), model.snapshot
    kind, stored = model.kind(method), model.stored(method)
    way = way_of(model, data, method, inputs)
    middle, unknown = snapshot.model.scaling.x_mean[None], unweighted(np.full(1, np.nan))
    example = with_class_names(snapshot.model, model.example(middle, unknown))
    classes = {"classes": snapshot.model.class_labels, "names": snapshot.model.schema.classes}
    attributes = {
        "model": model.url,
        **model.attributes(),
        "method": method,
        "inputs": list(snapshot.model.schema.columns),
        "software": f"bcmdist {__version__}",
        "units": f"those of {snapshot.model.y_name} in the training data; variances in their square",
    }
    _refuse(model, data, kind, runtime)
    with new_output(out) as place:
        chunk = create_predictions(place, data, example, attributes, **classes)
        runtime.check_same(functools.partial(output_names, place), url=out)
        if not kind.in_cells or way:
            return runtime.sum(Predict(stored, place, way), aligned_partitions(data, chunk), label="predict")
        with in_cells(snapshot, data, runtime) as (parts, scratch):
            shuffle = Shuffle(f"{scratch}/predictions")
            shuffle.create()
            runtime.sum(PredictInCells(stored, shuffle), parts, label="predict")
            restore(shuffle, place, data.rows, chunk, runtime)
    return data.rows


def way_of(model: PredictiveModel, data: Dataset, method: str | None, inputs: str | None) -> str | None:
    """How uncertain inputs of a data set are averaged over, as asked for; None where they are certain.

    Raises
    ------
    InvalidOption
        As `chosen_way`, or a way was asked for where nothing says how uncertain they are.
    """
    if data.variance:
        return model.way(method, inputs)
    if inputs is not None:
        raise InvalidOption(
            f"inputs: expected an array {VARIANCE.format(data.x)} beside {data.x}, with the variances of inputs (N, D) "
            f"or covariances (N, D, D), got none in {data.url}; add it, or leave out --inputs"
        )
    return None


def scores(model: PredictiveModel, data, method, inputs, runtime) -> Scores:
    """Totals of the scores of predictions against the targets of a data set."""
    kind, way = model.kind(method), way_of(model, data, method, inputs)
    return _over_rows(Score(model.stored(method), way), model, data, kind, runtime, label="score")


def judged(model: PredictiveModel, data, method, runtime, *, most: int, inputs=None) -> Judged:
    """Rows of a data set, in its order, beside their predictions: all of them, or of more than `most` about so many,
    always the same ones."""
    kind, way = model.kind(method), way_of(model, data, method, inputs)
    task = ScoredRows(model.stored(method), min(1.0, most / data.rows), way)
    found = _over_rows(task, model, data, kind, runtime, label="judge")
    return found[np.argsort(found.number)]


def _over_rows(task, model, data, kind, runtime, *, label):
    """Sum of a task with a predictor over the rows of a data set."""
    _refuse(model, data, kind, runtime)
    if not kind.in_cells or task.way:
        return runtime.sum(task, _as_stored(data), label=label)
    with in_cells(model.snapshot, data, runtime) as (parts, _):
        return runtime.sum(task, parts, label=label)


def _refuse(model, data, kind, runtime):
    """What cannot be done, before it begins."""
    snapshot = model.snapshot
    refuse_cells_on_objects(snapshot.url, kind.in_cells)
    refuse_large_prediction(kind.memory(snapshot), data, runtime)
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    runtime.check_same(model.record_hashes(), url=model.url)
    looked_at = data.y is not None or {"exposure", "trials"} & set(snapshot.model.likelihood.companions)
    if kind.in_cells and looked_at:  # rows stand in another order later, in a place that is gone when it is named
        runtime.sum(Check(snapshot.reference), _as_stored(data), label="check")


def _as_stored(data):
    """Partitions of whole chunks."""
    return aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
