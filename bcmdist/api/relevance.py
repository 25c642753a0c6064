"""Relevance of inputs, by lengthscales of the kernel and by permutation importance.

A lengthscale is the distance along an input over which the function changes with the other inputs fixed; inputs with
short lengthscales matter. Lengthscales need no data, but a kernel with one per input, and two redundant inputs share
their relevance. Permutation importance (Breiman 2001) is the loss of log density when a column is shuffled among rows.
It works for every model, but needs rows with targets. A categorical column, or a point on a sphere, is one feature.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.tables.coding import Category
from bcmdist.data.tables.sphere import Sphere, degrees
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.model import Model
from bcmdist.prediction.scored_rows import Judged

# Least and largest number of rows predicted per shuffled column. Arbitrary: takes some seconds.
FEWEST, MOST = 100, 2_000
# Bound on the loss of one row, in nats: under normal noise one outlier would dominate the mean. Arbitrary.
LARGEST_LOSS = 20.0
UNITS = ("scaled", "original")  # fields of `Lengthscales`


def column_names(model: Model) -> list[str]:
    """Return the names of the inputs in the training data, or X[0], X[1], ... where they have none."""
    return list(model.schema.columns) or [f"X[{k}]" for k in range(model.inputs)]


@dataclass(frozen=True)
class Feature:
    """A numeric input, or the inputs that code one categorical column, or a point on a sphere."""

    name: str
    """name of the column"""
    inputs: np.ndarray
    """indices of the inputs, (k,)"""
    levels: tuple[str, ...] | None = None
    """levels of a categorical column; None for others"""

    @property
    def on_sphere(self) -> bool:
        """Whether it is a point on a sphere."""
        return self.levels is None and len(self.inputs) > 1

    def shown(self, x: FloatArray) -> float | str:
        """Return the value of the feature in a row x (D,), in original units: a number, name of a level, or degrees."""
        if self.on_sphere:
            lon, lat = degrees(x[self.inputs][None])
            return f"{lon[0]:.6g}, {lat[0]:.6g}"
        if self.levels is None:
            return float(x[self.inputs[0]])
        k = int(np.argmax(x[self.inputs]))
        if x[self.inputs[k]] <= 0.0:
            return "another level"
        return self.levels[k] if k < len(self.levels) else "missing"


def features(model: Model) -> list[Feature]:
    """Return the F features of a model: its numeric inputs, categorical columns and points on a sphere."""
    names = column_names(model)
    if model.schema.coding is None:
        return [Feature(name, np.array([k])) for k, name in enumerate(names)]
    found: list[Feature] = []
    for code in model.schema.coding.codes:
        first = sum(len(feature.inputs) for feature in found)
        inputs = np.arange(first, first + len(code.inputs))
        if isinstance(code, (Category, Sphere)):
            found.append(Feature(code.name, inputs, getattr(code, "levels", None)))
        else:
            found += [Feature(names[k], np.array([k])) for k in inputs]
    return found


@dataclass(frozen=True)
class Lengthscales:
    """Lengthscales of one part of a kernel, for F features."""

    name: str
    """name of the parameter"""
    scaled: FloatArray
    """in units of the scaled inputs, (F,)"""
    original: FloatArray
    """in the original units of the inputs, (F,); of warped inputs at their mean"""

    @property
    def shared(self) -> bool:
        """Whether all features have the same lengthscale."""
        return bool(np.all(self.scaled == self.scaled[0]))

    @property
    def share(self) -> FloatArray:
        """1 / lengthscale as a share of the largest 1 / lengthscale, (F,)."""
        share: FloatArray = self.scaled.min() / self.scaled
        return share


def lengthscales(snapshot: Snapshot) -> list[Lengthscales]:
    """Return the lengthscales of each part of a model's kernel that has any; empty where there is no kernel.

    The lengthscale of a categorical column is the shortest of its inputs, which may differ in models of earlier
    versions; that of a column that a part does not use is infinite.
    """
    first = [feature.inputs[0] for feature in features(snapshot.model)]
    kernel, scale = snapshot.model.shared.kernel, snapshot.model.scaling.input_units
    shown, found = kernel_columns(snapshot.model).shown, []
    for name, columns in kernel.lengthscale_columns(len(scale)).items():
        value = np.full(len(scale), np.inf)
        value[columns] = kernel.parameters[name]
        both = (np.minimum.reduceat(one, first) for one in (value, value * scale))
        found.append(Lengthscales(shown(f"kernel.{name}"), *both))
    return found


def averaged(several: Sequence[Lengthscales], weights: Sequence[float] | None = None) -> Lengthscales:
    """Return the geometric means of the lengthscales of the same part of several models, with equal weights or (K,)."""
    logs = (np.log([getattr(one, name) for one in several]) for name in UNITS)
    scaled, original = (np.exp(np.average(one, axis=0, weights=weights)) for one in logs)
    return Lengthscales(several[0].name, scaled, original)


@dataclass(frozen=True)
class Losses:
    """Mean loss of log density, in nats per row, when a feature is shuffled among rows."""

    mean: np.ndarray
    """(F,)"""
    error: np.ndarray
    """standard errors, (F,)"""
    rows: int
    """number of rows predicted per feature"""


JudgedAgain = Callable[[list[Judged]], list[Judged]]
"""Function from sets of rows with changed inputs to the same rows with new predictions"""


def shuffled_losses(judged_again: JudgedAgain, of: list[Feature], rows: Judged, *, most: int, seed: int = 0) -> Losses:
    """Return the permutation importance of each feature, on a random subset of the rows.

    `judged_again` predicts rows again. `most`: number of predicted rows for all features together, about. Variances
    of uncertain inputs are not shuffled.
    """
    rng = np.random.default_rng(seed)
    some = rows[np.sort(rng.permutation(len(rows))[: min(MOST, max(FEWEST, most // len(of)))])]
    shuffled = [replace(some, X=_shuffled(some.X, feature.inputs, rng)) for feature in of]
    found = np.array([one.columns["log_density"] for one in judged_again(shuffled)])
    lost = np.clip(some.columns["log_density"] - found, -LARGEST_LOSS, LARGEST_LOSS)
    return Losses(lost.mean(axis=1), lost.std(axis=1) / np.sqrt(max(1, len(some) - 1)), len(some))


def _shuffled(X: FloatArray, columns: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return a copy of X (n, D) with the rows of the columns `columns` permuted."""
    X = X.copy()
    X[:, columns] = rng.permutation(X[:, columns])
    return X
