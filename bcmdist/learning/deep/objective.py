"""The tied energy of the layers of a deep Gaussian process over partitions of rows, with its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.evidence.deep_tasks import DeepDensities, DeepMessage, DeepShare, numbers_of
from bcmdist.learning.ground import Ground
from bcmdist.model.deep.layer import Layer, gradient, tied_energy
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.deep import Deep

NOISE = "noise_variance"
LEAST_SHARE = 1e-9  # added to a sum of precisions, of which a root is taken


@dataclass(frozen=True)
class Evaluated:
    """The tied energy of layers, and its gradient in their numbers."""

    value: float
    gradient: np.ndarray


class DeepObjective:
    """The tied energy over some partitions of rows, with its gradient; one round each."""

    def __init__(self, ground: Ground, parts: Sequence[Partition], likelihood: Likelihood, power=1.0):
        self.ground, self.parts, self.likelihood, self.power = ground, parts, likelihood, power
        self.rows = sum(part.rows for part in parts)

    def __call__(self, layers: Sequence[Layer]) -> Evaluated:
        sites = self.rows / self.power
        share = self._densities([layer.stage(1.0 - 1.0 / sites) for layer in layers], self.parts, self.power)
        value = share.value + sum(tied_energy(layer, sites) for layer in layers)
        each = zip(layers, share.pulls, strict=True)
        return Evaluated(value, np.concatenate([gradient(layer, sites, pull).numbers() for layer, pull in each]))

    def density(self, layers: Sequence[Layer], parts: Sequence[Partition]) -> float:
        """Sum of the log densities of other rows (SYSTEMS D8)."""
        return self._densities([layer.stage() for layer in layers], parts, 1.0).value

    def heard(self, shared: Deep) -> Deep:
        """With what the messages of all rows say of the last layer, in place of what it was trained with."""
        last = shared.layers[-1]
        arrays, _ = shared.to_arrays()
        likelihood = noisy(self.likelihood, last)
        with self.ground.transient(arrays) as references:
            named = tuple(references.items())
            task = DeepMessage(self.ground.scaling, named, shared.kernel, likelihood)
            message = self.ground.sum(task, self.parts)
        belief = shared.belief(message.eta, message.precision)
        precision = message.precision + LEAST_SHARE * np.eye(shared.size)
        known = replace(last, mean=belief.mean[None], root=np.linalg.cholesky(precision)[None])
        return replace(shared, layers=(*shared.layers[:-1], known))

    def _densities(self, stages, parts, power) -> DeepShare:
        numbers, shapes = numbers_of(stages)
        with self.ground.transient({"stages": numbers}) as references:
            how = self.likelihood, power, self.ground.classes
            task = DeepDensities(self.ground.scaling, references["stages"], shapes, *how)
            return self.ground.sum(task, parts)


def noisy(likelihood: Likelihood, last: Layer) -> Likelihood:
    """The likelihood with the noise of the last layer, if it has normal errors."""
    if not likelihood.normal:
        return likelihood
    return likelihood.with_parameters({NOISE: np.exp(last.log_noise).reshape(1)})


def joined(layers: Sequence[Layer]) -> np.ndarray:
    """The numbers of all layers."""
    return np.concatenate([layer.numbers() for layer in layers])


def split(numbers, like: Sequence[Layer]) -> list[Layer]:
    """Layers of the shapes of others from `joined` numbers."""
    ends = np.cumsum([len(layer.numbers()) for layer in like])
    return [layer.moved(part) for layer, part in zip(like, np.split(numbers, ends[:-1]), strict=True)]
