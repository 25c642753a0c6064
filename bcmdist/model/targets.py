"""Convert targets to model units: check their support, number the classes, and scale."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.data.dataset import Dataset, read_schema
from bcmdist.data.observations import TARGET_VARIANCE, Observations
from bcmdist.data.partition import Partition
from bcmdist.data.rows import Rows
from bcmdist.data.schema import merged_classes
from bcmdist.errors import InvalidOption, UnsupportedTarget
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import Model


def check_support(likelihood: Likelihood, part: Partition, obs: Observations) -> None:
    """Raise `UnsupportedTarget` naming the first row outside the support of the likelihood."""
    bad = np.flatnonzero(likelihood.unsupported(obs))
    if len(bad):
        row = bad[0]
        companions = "".join(f", {name} {getattr(obs, name)[row]:g}" for name in likelihood.companions)
        raise UnsupportedTarget(
            f"{part.data.url}: expected {likelihood.support} in {part.data.y} for the likelihood {likelihood.name}, "
            f"got {obs.y[row]:g}{companions} at row {part.start + row} ({len(bad)} such rows of {part.start} to "
            f"{part.stop - 1}); recode the targets or choose another --task"
        )


def reads_variances(likelihood: Likelihood) -> bool:
    """Whether known error variances of targets are part of the likelihood."""
    return TARGET_VARIANCE in likelihood.companions


def refuse_target_variance(model: Model, where: str) -> None:
    """Raise `InvalidOption` where a model cannot use the known variances of rows.

    It has another likelihood than normal errors, or models transformed targets.
    """
    if not model.normal or not reads_variances(model.likelihood):
        raise InvalidOption(
            f"{where}: expected a model of untransformed targets with normal errors, to which known variances of "
            f"errors ({TARGET_VARIANCE}) are added, got {model.error_name}; leave {TARGET_VARIANCE} out, or fit with "
            "--likelihood gaussian and --target-transform none"
        )


def model_rows(model: Model, part: Partition, rows: Rows) -> tuple[FloatArray, Observations]:
    """Inputs (n, D) and observations of a partition in model units, checked as in `model_observations`."""
    return model.scaling.inputs(rows.X), model_observations(model, part, rows.obs, rows.X)


def model_observations(model: Model, part: Partition, obs: Observations, X: FloatArray) -> Observations:
    """Observations of rows with inputs X (n, D) in model units, checked.

    Raises
    ------
    UnsupportedTarget
        A target is outside the support, or a class that does not occur in the training data.
    InvalidData
        A row observes an output that does not occur in the training data.
    """
    labels = model.classes or tuple(map(float, range(len(model.schema.classes))))
    if labels:
        numbers = np.searchsorted(labels, obs.y).clip(max=len(labels) - 1)
        unseen = np.flatnonzero(np.asarray(labels)[numbers] != obs.y)
        if len(unseen):
            names = _class_names(model, part.data)
            new, row = names(obs.y[unseen[0]]), part.start + unseen[0]
            shown = ", ".join(names(label) for label in labels[:10]) + ", ..." * (len(labels) > 10)
            raise UnsupportedTarget(
                f"{part.data.url}: expected the classes of the training data ({shown}) in {part.data.y}, got "
                f"{new} at row {row} ({len(unseen)} such rows of {part.start} to {part.stop - 1}); drop these rows, "
                "or fit a model to data with this class"
            )
        obs = replace(obs, y=numbers.astype(float))
    check_support(model.likelihood, part, obs)
    _refuse_negative(model, part, obs)
    return model.scaling.observations(obs, model.likelihood.units, X)


def _refuse_negative(model: Model, part: Partition, obs: Observations) -> None:
    """Raise `UnsupportedTarget` for negative targets of a model that transforms positive ones: their images would be
    far away from all others."""
    transform = model.scaling.transform
    bad = np.flatnonzero(obs.y < 0.0) if transform else np.zeros(0, int)
    if transform and len(bad):
        row, kind = bad[0], transform.kind
        raise UnsupportedTarget(
            f"{part.data.url}: expected targets of at least 0 in {part.data.y}, as the model was fitted to the "
            f"{kind} of positive ones, got {obs.y[row]:g} at row {part.start + row} ({len(bad)} "
            f"such rows of {part.start} to {part.stop - 1}); drop these rows, or fit with --target-transform none"
        )


def _class_names(model: Model, data: Dataset) -> Callable[[float], str]:
    """Return a function from class labels to class names of a data set, with labels numbered as in the model."""
    if not model.schema.classes:
        return "{:g}".format
    merged = merged_classes(read_schema(data.url, x=data.x, y=data.y), model.schema)
    return lambda number: merged[int(number)] if 0 <= number < len(merged) else f"{number:g}"


def class_numbers(obs: Observations, classes: Sequence[float] | None) -> Observations:
    """Replace class labels by class numbers 0 to C - 1; without classes, return the observations unchanged."""
    return obs if classes is None else replace(obs, y=np.searchsorted(classes, obs.y).astype(float))
