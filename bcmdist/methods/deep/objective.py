"""The tied energy of the layers of a deep Gaussian process over partitions of rows, with its gradient."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds

from bcmdist.data.partition import Partition
from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.shared_reference import MessageOfRows, referenced
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.deep.classes import LARGEST_VARIANCE
from bcmdist.methods.deep.layer import Layer, gradient, tied_energy
from bcmdist.methods.deep.moments import Pull
from bcmdist.methods.deep.row_sums import DeepDensities, DeepShare, numbers_of
from bcmdist.methods.deep.shared import Deep
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.likelihoods.interface import NOISE_BOUNDS
from bcmdist.model.shared.interface import Arrays

# Bounds of log lengthscales and log variances, in units of scaled inputs and targets; far beyond them a step overflows.
LOG_BOUNDS = (-9.0, 9.0)
LOG_NOISE_BOUNDS = np.log(NOISE_BOUNDS)
NOISE = "noise_variance"
LEAST_SHARE = 1e-9  # added to a sum of precisions before its root is computed


@dataclass(frozen=True)
class Evaluated:
    """The tied energy of layers, and its gradient in their parameters."""

    value: float
    gradient: np.ndarray


class DeepObjective:
    """The tied energy over some partitions, with its gradient; one round per evaluation."""

    def __init__(self, context: TrainingContext, parts: Sequence[Partition], likelihood: Likelihood, power=1.0):
        self.context, self.parts, self.likelihood, self.power = context, parts, likelihood, power
        self.rows = sum(part.rows for part in parts)

    def __call__(self, layers: Sequence[Layer]) -> Evaluated:
        sites = self.rows / self.power
        share = self._densities([layer.stage(1.0 - 1.0 / sites) for layer in layers], self.parts, self.power)
        value = share.value + sum(tied_energy(layer, sites) for layer in layers)
        return Evaluated(value, slope(layers, sites, share.pulls))

    def place(self, what: Sequence, start: Sequence[Layer]) -> Path:
        """Path of a stored result of this objective, given a description of the computation and the initial layers."""
        asked = [self.context.scaling.digest, self.likelihood.name, self.power, *what]
        digest = hashlib.sha256(json.dumps([*asked, *(part.key for part in self.parts)]).encode())
        digest.update(joined(start).tobytes())
        return Path(self.context.scratch, f"deep-{digest.hexdigest()[:16]}.npz")

    def once(self, what: Sequence, start: Sequence[Layer], make: Callable[[], Arrays]) -> Arrays:
        """Compute a result, or load it from its `place` if an interrupted fit has stored it."""
        path = self.place(what, start)
        if not path.exists():
            np.savez(f"{path}.tmp.npz", allow_pickle=False, **make())
            os.replace(f"{path}.tmp.npz", path)
        with np.load(path) as kept:
            return dict(kept)

    def density(self, layers: Sequence[Layer], parts: Sequence[Partition]) -> float:
        """Sum of the log predictive densities of other rows; 0 without rows (SYSTEMS D8)."""
        if not parts:
            return 0.0
        return self._densities([layer.stage() for layer in layers], parts, 1.0).value

    def absorbed(self, shared: Deep) -> Deep:
        """Replace the trained belief of the last layer by the posterior from the messages of all rows, if Gaussian.

        Raises
        ------
        NotPositiveDefinite
        """
        if not self.likelihood.normal:
            return shared
        last = shared.layers[-1]
        with referenced(shared, noisy(self.likelihood, last), self.context) as reference:
            message = self.context.sum(MessageOfRows(reference), self.parts)
        belief = shared.belief(message.eta, message.precision)
        precision = message.precision + LEAST_SHARE * np.eye(shared.size)
        conditioned = replace(last, mean=belief.mean[None], root=np.linalg.cholesky(precision)[None])
        return replace(shared, layers=(*shared.layers[:-1], conditioned))

    def evaluate(self, trained: Deep, held: Sequence[Partition]) -> "Candidate":
        """The process that makes predictions after training has reached these layers, and how well it predicts.

        Training may reach layers whose uncertain outputs replace the noise of targets, as of whole numbers; the density
        of left-out rows is then high, but only until the last layer has absorbed all rows.
        """
        try:
            absorbed = self.absorbed(trained)
            density = self.density(absorbed.layers, held)
        except NotPositiveDefinite:
            return Candidate(trained, trained, -np.inf)
        return Candidate(trained, absorbed, density if np.isfinite(density) else -np.inf)

    def reached(self, at: "Candidate", evaluations: int) -> "Reached":
        """Result of training after the given number of evaluations."""
        energy = self(at.trained.layers).value
        return Reached(at.absorbed, energy if np.isfinite(energy) else None, at.density, evaluations)

    def _densities(self, stages, parts, power) -> DeepShare:
        numbers, shapes = numbers_of(stages)
        with self.context.transient({"stages": numbers}) as references:
            how = self.likelihood, power, self.context.classes
            task = DeepDensities(self.context.scaling, references["stages"], shapes, *how)
            return self.context.sum(task, parts)


def slope(layers: Sequence[Layer], sites, pulls: Sequence[Pull]) -> np.ndarray:
    """Gradient of the energy in all layers' parameters; `pulls` are the rows' gradients at the cavities."""
    each = zip(layers, pulls, strict=True)
    return np.concatenate([gradient(layer, sites, pull).numbers() for layer, pull in each])


def noisy(likelihood: Likelihood, last: Layer) -> Likelihood:
    """The likelihood with the noise of the last layer, if the likelihood is Gaussian."""
    if not likelihood.normal:
        return likelihood
    return likelihood.with_parameters({NOISE: np.exp(last.log_noise).reshape(1)})


def joined(layers: Sequence[Layer]) -> np.ndarray:
    """The parameters of all layers in one vector."""
    return np.concatenate([layer.numbers() for layer in layers])


def split(numbers, like: Sequence[Layer]) -> list[Layer]:
    """Layers with the shapes of `like` from a vector of `joined`."""
    ends = np.cumsum([len(layer.numbers()) for layer in like])
    return [layer.moved(part) for layer, part in zip(like, np.split(numbers, ends[:-1]), strict=True)]


def bounds(layers: Sequence[Layer]) -> Bounds:
    """Bounds of the parameters of all layers; means and roots are not bounded."""

    def bound(layer, sign, most):
        free = replace(layer, **{part.name: np.full_like(getattr(layer, part.name), np.inf) for part in fields(layer)})
        lengthscale, noise = np.full_like(layer.log_lengthscale, LOG_BOUNDS[1]), sign * LOG_NOISE_BOUNDS[int(sign > 0)]
        limits = {"log_lengthscale": lengthscale, "log_variance": np.array(most), "log_noise": np.array(noise)}
        return sign * replace(free, **limits).numbers()

    last = np.log(LARGEST_VARIANCE) if layers[-1].units > 1 else LOG_BOUNDS[1]  # several processes belong to classes
    most = [LOG_BOUNDS[1]] * (len(layers) - 1) + [last]
    least = [bound(layer, -1.0, LOG_BOUNDS[1]) for layer in layers]
    largest = [bound(layer, 1.0, one) for layer, one in zip(layers, most, strict=True)]
    return Bounds(np.concatenate(least), np.concatenate(largest))


@dataclass(frozen=True)
class Candidate:
    """Layers that training has reached, and the process that would predict with them."""

    trained: Deep
    absorbed: Deep
    """the same; for Gaussian targets its last layer has the posterior of the rows"""
    density: float
    """total over left-out rows, of `absorbed`; 0 without such rows, -inf where there is none"""


@dataclass(frozen=True)
class Reached:
    """The result of training a process."""

    shared: Deep
    """the process; for Gaussian targets its last layer has the posterior of the rows, otherwise the trained belief"""
    energy: float | None
    """energy of the sites, where there are sites; None without training, and where a cavity is not positive definite"""
    density: float
    """total over left-out rows; 0 without them"""
    evaluations: int
    """total number"""
    sites: dict[str, Any] | None = None
    """report of the sweeps of expectation propagation after training (`bcmdist.methods.deep.propagation`), if any"""
