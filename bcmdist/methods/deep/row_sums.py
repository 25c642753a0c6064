"""Tasks: log densities of rows under all layers, with gradients.

Sums over partitions (SYSTEMS D7, way b of the experts), one round each. Partitions receive the layers in the form of
`Stage` and return the sum of their log densities with its gradient in the stages; `bcmdist.methods.deep.layer`
continues the gradient to the natural parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.methods.deep.moments import Pull, Stage
from bcmdist.methods.deep.rows import log_densities
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference, load_array

Shape = tuple[int, int, int]
"""numbers of centres, inputs and units of a layer"""


@dataclass(frozen=True)
class DeepShare:
    """A partition's log densities, with their gradient; objects add."""

    value: float
    pulls: tuple[Pull, ...]

    def __add__(self, other: "DeepShare") -> "DeepShare":
        both = zip(self.pulls, other.pulls, strict=True)
        return DeepShare(self.value + other.value, tuple(one + more for one, more in both))


@dataclass(frozen=True)
class DeepDensities:
    """Task: the log densities of a partition's rows under candidate layers."""

    scaling: BlobReference
    stages: BlobReference
    """vector of `numbers_of`"""
    shapes: tuple[Shape, ...]
    likelihood: Likelihood
    power: float
    """power of the rows' likelihoods (`bcmdist.methods.deep.outputs`)"""
    classes: tuple[float, ...] | None
    """class labels, where targets are classes"""

    def __call__(self, part, rows) -> DeepShare:
        scaling = load_scaling(self.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X)
        stages = stages_of(load_array(self.stages), self.shapes)
        value, pulls = log_densities(stages, scaling.inputs(rows.X), obs, self.likelihood, self.power)
        return DeepShare(part.weight * value, tuple(pull.times(part.weight) for pull in pulls))


def numbers_of(stages: Sequence[Stage]) -> tuple[np.ndarray, tuple[Shape, ...]]:
    """Stages in one vector, and their shapes."""
    parts = [np.ravel(part) for stage in stages for part in _parts(stage)]
    return np.concatenate(parts), tuple((*stage.centres.shape, len(stage.alpha)) for stage in stages)


def _parts(stage):
    return stage.centres, stage.lengthscale, stage.variance, stage.noise, stage.alpha, stage.quadratic


def stages_of(numbers, shapes: Sequence[Shape]) -> list[Stage]:
    """Stages from the results of `numbers_of`."""
    found = []
    for M, D, U in shapes:
        sizes = np.cumsum([M * D, D, 1, 1, U * M, U * M * M])
        Z, lengthscale, variance, noise, alpha, quadratic, numbers = np.split(numbers, sizes)
        single = float(variance[0]), float(noise[0])
        found.append(Stage(Z.reshape(M, D), lengthscale, *single, alpha.reshape(U, M), quadratic.reshape(U, M, M)))
    return found
