"""Predictions and scores of a committee, or a mixture of several, for whole data sets."""

import functools

import numpy as np

from bcmdist import __version__
from bcmdist.committee.cells import refuse_cells_on_objects
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import VARIANCE, Dataset, check_names, describe, open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.outputs import new_output
from bcmdist.data.partition import Partition, aligned_partitions
from bcmdist.data.predictions import LARGEST_OUTPUT_CHUNK, create_predictions, output_names
from bcmdist.data.reorder.external_sort import Shuffle
from bcmdist.data.reorder.reorder import restore
from bcmdist.errors import InvalidOption
from bcmdist.prediction.limits import refuse_large_prediction
from bcmdist.prediction.local.arrange import in_cells
from bcmdist.prediction.partition_tasks import Check, Predict, PredictInCells, Score, ScoredRows
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.scored_rows import with_class_names
from bcmdist.prediction.scoring.judged import Judged
from bcmdist.prediction.scoring.scores import Scores


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
