"""Predictions and scores of a fitted committee for whole data sets."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from bcmdist import __version__
from bcmdist.data.dataset import describe
from bcmdist.data.partition import aligned_partitions
from bcmdist.data.reorder.external_sort import Shuffle
from bcmdist.data.reorder.reorder import restore
from bcmdist.data.writing import LARGEST_OUTPUT_CHUNK, create_predictions, new_output, output_names
from bcmdist.errors import InvalidOption
from bcmdist.learning.first_commit import refuse_cells_on_objects
from bcmdist.prediction.limits import refuse_large_local, refuse_large_prediction
from bcmdist.prediction.local.arrange import in_cells, surrounded
from bcmdist.prediction.local.tasks import METHODS
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.tasks import Check, Predict, PredictInCells, Score
from bcmdist.storage.commits import record_digest

if TYPE_CHECKING:
    from bcmdist.api.gbcm import GBCM


def chosen_method(facts: dict, method) -> str:
    """The method that was asked for, or the one recorded among the facts of a fit.

    Raises
    ------
    InvalidOption
        There is no such method, or the model has no cells for it.
    """
    method = method or facts.get("method", "committee")
    if method not in METHODS:
        raise InvalidOption(f"method: expected one of {', '.join(METHODS)}, got {method!r}; give one of these")
    if method == "local" and not surrounded(facts):
        raise InvalidOption(
            "method: expected a model fitted with --partition spatial for local prediction, this one has no cells; use "
            "--method committee"
        )
    return method


def predict_zarr(gbcm: "GBCM", data, out, method, runtime) -> int:
    """Predict at every row of a data set into a new Zarr group; the number of rows."""
    example = gbcm.predict(np.zeros((1, data.inputs)), method="committee")
    classes = {"classes": gbcm.model.class_labels, "names": gbcm.model.schema.classes}
    attributes = {
        "model": gbcm.url,
        "commit": gbcm.commit,
        "method": method,
        "inputs": list(gbcm.model.schema.columns),
        "software": f"bcmdist {__version__}",
        "units": f"those of {gbcm.model.y_name} in the training data; variances in their square",
    }
    _refuse(gbcm, data, method, runtime)
    with new_output(out) as place:
        chunk = create_predictions(place, data, example, attributes, **classes)
        runtime.check_same(functools.partial(output_names, place), url=out)
        if method == "committee":
            return runtime.sum(Predict(gbcm.reference, place), aligned_partitions(data, chunk), label="predict")
        with in_cells(gbcm, data, runtime) as (parts, scratch):
            shuffle = Shuffle(f"{scratch}/predictions")
            shuffle.create()
            runtime.sum(PredictInCells(gbcm.reference, shuffle), parts, label="predict")
            restore(shuffle, place, data.rows, chunk, runtime)
    return data.rows


def scores(gbcm: "GBCM", data, method, runtime) -> Scores:
    """Totals of the scores of predictions against the targets of a data set."""
    _refuse(gbcm, data, method, runtime)
    if method == "committee":
        parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
        return runtime.sum(Score(gbcm.reference, method), parts, label="score")
    with in_cells(gbcm, data, runtime) as (parts, _):
        return runtime.sum(Score(gbcm.reference, method), parts, label="score")


def _refuse(gbcm, data, method, runtime):
    """What cannot be done, before it begins."""
    if method == "committee":
        refuse_large_prediction(data, gbcm.model.query, runtime)
    else:
        refuse_cells_on_objects(gbcm.url, True)
        refuse_large_local(gbcm, data, runtime)
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    runtime.check_same(functools.partial(record_digest, gbcm.url, gbcm.commit), url=gbcm.url)
    looked_at = data.y is not None or {"exposure", "trials"} & set(gbcm.model.likelihood.companions)
    if method == "local" and looked_at:  # later rows stand in another order, in a place that is gone when it is named
        parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
        runtime.sum(Check(gbcm.reference), parts, label="check")
