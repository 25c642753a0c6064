"""Which inputs matter: by what the kernel has learned, and by what predictions lose without them.

A lengthscale says over which distance along an input the function changes, while the others stay; short ones matter.
It is known of any rows, but only of kernels that have one for each input, and two inputs that say the same share their
part. What is lost when a column is shuffled among rows (Breiman 2001) is known of every model, from rows with targets.
A category is one column, whatever the number of its levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.tables.coding import Category
from bcmdist.prediction.scoring.judged import Judged

# Rows that are predicted with a shuffled column, the fewest and the most of one. Arbitrary: some seconds.
FEWEST, MOST = 100, 2_000
# A row loses no more: of normal errors a far one would decide all of them. Arbitrary.
LARGEST_LOSS = 20.0
UNITS = ("scaled", "original")  # in which lengthscales are told


def column_names(model) -> list[str]:
    """What the inputs are called: as in the training data, or X[0], X[1], ... as elsewhere."""
    return list(model.schema.columns) or [f"X[{k}]" for k in range(model.inputs)]


@dataclass(frozen=True)
class Feature:
    """An input, or those of a category."""

    name: str
    """of the column"""
    inputs: np.ndarray
    """their numbers, (k,)"""
    levels: tuple[str, ...] | None = None
    """of a category"""

    def shown(self, x) -> float | str:
        """What it is in a row x (D,) in original units: a number, or a level."""
        if self.levels is None:
            return float(x[self.inputs[0]])
        k = int(np.argmax(x[self.inputs]))
        if x[self.inputs[k]] <= 0.0:
            return "another level"
        return self.levels[k] if k < len(self.levels) else "missing"


def features(model) -> list[Feature]:
    """What predictions depend on, (F,): the inputs, but those of a category together."""
    names = column_names(model)
    if model.schema.coding is None:
        return [Feature(name, np.array([k])) for k, name in enumerate(names)]
    found: list[Feature] = []
    for code in model.schema.coding.codes:
        first = sum(len(feature.inputs) for feature in found)
        inputs = np.arange(first, first + len(code.inputs))
        if isinstance(code, Category):
            found.append(Feature(code.name, inputs, code.levels))
        else:
            found += [Feature(names[k], np.array([k])) for k in inputs]
    return found


@dataclass(frozen=True)
class Lengthscales:
    """Of one part of a kernel, for each feature."""

    name: str
    """of the parameter"""
    scaled: np.ndarray
    """in units of the scaled inputs, (F,)"""
    original: np.ndarray
    """in units of the inputs, (F,)"""

    @property
    def shared(self) -> bool:
        """Whether all features have one and the same."""
        return bool(np.ptp(self.scaled) == 0.0)

    @property
    def share(self) -> np.ndarray:
        """1 / lengthscale beside the largest, (F,)."""
        return self.scaled.min() / self.scaled


def lengthscales(snapshot: Snapshot) -> list[Lengthscales]:
    """Those of all parts of a model's kernel that have them; none of models whose shared variables have no kernel.

    Of a category it is the shortest of its inputs; they were not one and the same in earlier versions.
    """
    first = [feature.inputs[0] for feature in features(snapshot.model)]
    kernel, scale = snapshot.model.shared.kernel, snapshot.model.scaling.x_scale
    values = [(name, kernel.parameters[name]) for name in kernel.lengthscales]
    spread = [(name, np.broadcast_to(value, scale.shape)) for name, value in values]
    return [
        Lengthscales(f"kernel.{name}", *(np.minimum.reduceat(one, first) for one in (value, value * scale)))
        for name, value in spread
    ]


def averaged(several: Sequence[Lengthscales]) -> Lengthscales:
    """Geometric means of the same part of several models."""
    scaled, original = (np.exp(np.log([getattr(one, name) for one in several]).mean(axis=0)) for name in UNITS)
    return Lengthscales(several[0].name, scaled, original)


@dataclass(frozen=True)
class Losses:
    """What predictions lose, in nats a row, when a feature is shuffled among rows: (F,) each."""

    mean: np.ndarray
    error: np.ndarray
    """standard error"""
    rows: int
    """that were predicted"""


JudgedAgain = Callable[[list[Judged]], list[Judged]]
"""From rows with other inputs to the same rows beside new predictions"""


def shuffled_losses(judged_again: JudgedAgain, of: list[Feature], rows: Judged, *, most, seed=0) -> Losses:
    """Of the log density of observations, of each feature; of some of the rows, chosen by `seed`.

    `most`: rows that are predicted again, of all features together. How uncertain inputs are stays with their rows.
    """
    rng = np.random.default_rng(seed)
    some = rows[np.sort(rng.permutation(len(rows))[: min(MOST, max(FEWEST, most // len(of)))])]
    shuffled = [replace(some, X=_shuffled(some.X, feature.inputs, rng)) for feature in of]
    found = np.array([one.columns["log_density"] for one in judged_again(shuffled)])
    lost = np.clip(some.columns["log_density"] - found, -LARGEST_LOSS, LARGEST_LOSS)
    return Losses(lost.mean(axis=1), lost.std(axis=1) / np.sqrt(max(1, len(some) - 1)), len(some))


def _shuffled(X, together, rng):
    """X (n, D) with the columns `together` in another order of rows."""
    X = X.copy()
    X[:, together] = rng.permutation(X[:, together])
    return X
