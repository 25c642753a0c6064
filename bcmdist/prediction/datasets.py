"""Predictions and scores of whole data sets, by one committee or a mixture of committees.

Contains the tasks for partitions: predict rows, score rows, or check that the model's likelihood supports them.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import __version__
from bcmdist.committee.cells import refuse_cells_on_objects
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import VARIANCE, Dataset, describe, open_named
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
from bcmdist.prediction.exceedance import above_name, refuse_thresholds
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.joint.stored import NO_SAMPLES, JointSamples
from bcmdist.prediction.limits import refuse_large_prediction
from bcmdist.prediction.local.arrange import in_cells
from bcmdist.prediction.predictive_model import PredictiveModel, StoredPredictor
from bcmdist.prediction.scored_rows import Judged, nothing, scores_by_output, with_class_names
from bcmdist.prediction.scoring.ranking import scattered
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.terms import refuse_terms, refuse_uncertain_terms, term_names
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Check:
    """Task: raise if the likelihood does not support the observations of a partition; return the number of rows."""

    fitted: Reference

    def __call__(self, part, rows) -> int:
        model = load_fitted(self.fitted).model
        if part.data.y is None:
            _check_companions(model, part, rows)
        else:
            model_observations(model, part, rows.obs, rows.X)
        return part.rows


@dataclass(frozen=True)
class Score:
    """Task: score totals of the rows of a partition."""

    predictor: StoredPredictor
    way: str | None = None
    """how to average over uncertain inputs (a key of `WAYS`); None if the inputs are certain"""

    def __call__(self, part, rows) -> Scores:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        obs = model_observations(predictor.model, part, rows.obs, rows.X)
        judged = predictor.score(Judged(number, rows.X, obs, uncertainty=input_uncertainty_of(rows, self.way)))
        return scores_by_output(predictor.model, judged)


@dataclass(frozen=True)
class ScoredRows:
    """Task: a random share of the rows of a partition, with predictions and scores (`Judged`).

    Rows are selected by their numbers in the data set, so the selection does not depend on the partitioning.
    """

    predictor: StoredPredictor
    share: float
    way: str | None = None
    """as in `Score`"""

    def __call__(self, part, rows) -> Judged:
        predictor = self.predictor.load()
        number = _numbers(self, part)
        some = share_of(number, self.share)
        obs = model_observations(predictor.model, part, rows.obs, rows.X)
        if not some.any():
            return nothing(predictor.model.inputs)
        uncertainty = input_uncertainty_of(rows, self.way)
        return predictor.score(
            Judged(number[some], rows.X[some], obs[some], uncertainty=uncertainty and uncertainty[some])
        )


@dataclass(frozen=True)
class Predict:
    """Task: write the predictions of a partition to an output group; return the number of rows.

    Each partition owns whole chunks of the output: no two tasks write to the same chunk, and a retry writes the same
    values.
    """

    predictor: StoredPredictor
    out: str
    way: str | None = None
    """as in `Score`"""
    terms: bool = False
    """whether to write the terms of f too"""
    above: tuple[float, ...] = ()
    """thresholds whose probabilities to write too"""

    def __call__(self, part, rows) -> int:
        predictor = self.predictor.load()
        _check_companions(predictor.model, part, rows)
        uncertainty = input_uncertainty_of(rows, self.way)
        found = predictor.predict(rows.X, rows.obs, uncertainty=uncertainty, above=self.above)
        write_rows(self.out, part.start, found | _terms_of(predictor, rows.X, self.terms))
        return part.rows


@dataclass(frozen=True)
class PredictInCells:
    """Task: write predictions of a partition in cell order as a run of the external sort, by original row number."""

    predictor: StoredPredictor
    shuffle: Shuffle
    terms: bool = False
    """as in `Predict`"""
    above: tuple[float, ...] = ()
    """as in `Predict`"""

    def __call__(self, part, rows) -> int:
        row, predictor = row_numbers(part), self.predictor.load()
        found = predictor.predict(rows.X, rows.obs, above=self.above) | _terms_of(predictor, rows.X, self.terms)
        self.shuffle.write(f"{part.start}-{part.stop}", Run(row, row, found))
        return part.rows


def _terms_of(predictor, X, requested) -> dict[str, np.ndarray]:
    """Means and variances of the terms by name, (n, T) each; {} unless they are requested."""
    return {name: values for name, values in predictor.terms(X).items() if name != "term"} if requested else {}


def input_uncertainty_of(rows, way: str | None) -> InputUncertainty | None:
    """Uncertainty of the inputs of a partition's rows; None if the inputs are certain."""
    return None if way is None or rows.X_variance is None else InputUncertainty(rows.X_variance, way)


def share_of(number, share) -> np.ndarray:
    """Whether each row is among a random share of all rows, (n,), decided by a hash of its number."""
    return scattered(number) <= np.uint64(min(share * 2.0**64, 2.0**64 - 2.0**11))  # the largest double below 2^64


def _numbers(task, part):
    """Numbers of the partition's rows in their data set, (n,)."""
    return row_numbers(part) if task.predictor.in_cells and not task.way else np.arange(part.start, part.stop)


def _check_companions(model: Model, part, rows):
    """Check exposure and trials; the targets are ignored."""
    if {"exposure", "trials"} & set(model.likelihood.companions):
        check_support(model.likelihood, part, replace(rows.obs, y=np.zeros(part.rows)))


def open_new_rows(snapshot: Snapshot, source, *, x=None, y) -> Dataset:
    """Open a data set and check that its columns match the training data.

    Raises
    ------
    DataNotFound, InvalidData
    """
    data = open_named(source, x=x or snapshot.model.x_name, y=y, schema=snapshot.model.schema, uncertain=True)
    snapshot.refuse_unlike([Partition(data, 0, data.rows)])
    return data


def open_scored_rows(model: PredictiveModel, source, *, x=None, y=None, method=None, inputs=None) -> Dataset:
    """Open a data set with targets, with the column names of training by default, and check the method and `inputs`.

    Raises
    ------
    DataNotFound, InvalidData, InvalidOption
    """
    data = open_new_rows(model.snapshot, source, x=x, y=y or model.snapshot.model.y_name)
    way_of(model, data, model.chosen_method(method), inputs)
    return data


def predict_zarr(
    model: PredictiveModel,
    data,
    out,
    method,
    inputs,
    runtime,
    *,
    terms=False,
    above=(),
    samples: JointSamples = NO_SAMPLES,
) -> int:
    """Predict at every row of a data set into a new Zarr group; return the number of rows.

    Parameters
    ----------
    above : thresholds of which to write probabilities (`prediction.exceedance`)
    samples : joint samples to write, which this process draws
    """
    above = tuple(above)
    refuse_thresholds(model.snapshot.model, above)
    method, snapshot = model.chosen_method(method), model.snapshot
    kind, stored = model.kind(method), model.stored(method)
    way = way_of(model, data, method, inputs)
    samples.refuse(model, way)
    middle = _middle(snapshot.model)
    unknown = unweighted(np.full(1, np.nan))
    example = with_class_names(snapshot.model, model.example(middle, unknown))
    classes = {"classes": snapshot.model.class_labels, "names": snapshot.model.schema.classes}
    if terms:
        _refuse_terms(model, way)
        classes["terms"] = term_names(snapshot.model)
        example |= {name: np.zeros((1, len(classes["terms"]))) for name in ("term_mean", "term_variance")}
    example |= {above_name(t): np.zeros(1) for t in above} | samples.example()
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
            runtime.sum(Predict(stored, place, way, terms, above), aligned_partitions(data, chunk), label="predict")
        else:
            with in_cells(snapshot, data, runtime) as (parts, scratch):
                shuffle = Shuffle(f"{scratch}/predictions")
                shuffle.create()
                runtime.sum(PredictInCells(stored, shuffle, terms, above), parts, label="predict")
                restore(shuffle, place, data.rows, chunk, runtime)
        samples.write(model, data, method, place, chunk, runtime.allowed_bytes)
    return data.rows


def _middle(model) -> np.ndarray:
    """The mean of the inputs, of the first output where there are several, (1, D)."""
    middle = model.scaling.original_inputs(np.zeros((1, model.inputs)))
    if model.scaling.outputs:
        middle[:, model.scaling.outputs.columns[0]] = 1.0
    return middle


def _refuse_terms(model, way):
    """Raise `InvalidOption` before any row is read where the model has no terms, or several latent functions."""
    refuse_uncertain_terms(True, way)
    found = model.snapshot.model
    refuse_terms(found)
    if found.likelihood.processes > 1:
        raise InvalidOption(
            f"terms: expected one latent function for a data set, got {found.likelihood.processes} of classes; predict "
            "rows in memory by GBCM.predict(X, terms=True)"
        )


def way_of(model: PredictiveModel, data: Dataset, method: str | None, inputs: str | None) -> str | None:
    """How to average over the uncertain inputs of a data set; None if the inputs are certain.

    Raises
    ------
    InvalidOption
        As in `chosen_way`, or `inputs` was given but the data set has no variances of its inputs.
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
    """Score totals of the predictions against the targets of a data set."""
    kind, way = model.kind(method), way_of(model, data, method, inputs)
    return _over_rows(Score(model.stored(method), way), model, data, kind, runtime, label="score")


def judged(model: PredictiveModel, data, method, runtime, *, most: int, inputs=None) -> Judged:
    """Rows of a data set, in its order, with predictions and scores.

    Returns all rows, or about `most` of a larger data set; the selection is always the same.
    """
    kind, way = model.kind(method), way_of(model, data, method, inputs)
    task = ScoredRows(model.stored(method), min(1.0, most / data.rows), way)
    found = _over_rows(task, model, data, kind, runtime, label="judge")
    return found[np.argsort(found.number)]


def _over_rows(task, model, data, kind, runtime, *, label):
    """Sum of the results of a prediction task over the partitions of a data set."""
    _refuse(model, data, kind, runtime)
    if not kind.in_cells or task.way:
        return runtime.sum(task, _as_stored(data), label=label)
    with in_cells(model.snapshot, data, runtime) as (parts, _):
        return runtime.sum(task, parts, label=label)


def _refuse(model, data, kind, runtime):
    """Raise before the prediction starts if it is impossible or too large, or if workers see other files."""
    snapshot = model.snapshot
    refuse_cells_on_objects(snapshot.url, kind.in_cells)
    refuse_large_prediction(kind.memory(snapshot), data, runtime)
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    runtime.check_same(model.record_hashes(), url=model.url)
    looked_at = data.y is not None or {"exposure", "trials"} & set(snapshot.model.likelihood.companions)
    if kind.in_cells and looked_at:  # later errors would name a temporary copy
        runtime.sum(Check(snapshot.reference), _as_stored(data), label="check")


def _as_stored(data):
    """Partitions of whole chunks, in storage order."""
    return aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
