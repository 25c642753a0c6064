"""Deep Gaussian processes: layers that begin near planes, and climb the tied energy of all rows (Bui et al. 2016).

    F = sum over layers of (1 - N/p) phi + N/p phi of the cavity - phi of the prior, + sum_n 1/p log Z_n   (SYSTEMS D5)

What rows say of each layer is tied: each of N says a share of it. Z_n is the mean of the density of a row to a power p,
with layers that believe the others and 1 - p of what it says itself, by the moments of `bcmdist.model.deep`; p = 1 is
the paper's. L-BFGS climbs F of all rows, or of a sample of them, in centres, kernels, noises and beliefs of all layers:
one round over the rows for each evaluation (`evidence.deep_tasks`), in O(n L M^2). F is no bound, and no evidence to
compare with other experts'.

Of every ten rows one is left out, and says when to end. Each of two powers trains layers of its own. Of numbers,
predictions are their equal mixture (`bcmdist.model.shared.deep_mixture`): which one is better differs from set to set,
and the few rows that are left out are a poor judge of it. Of classes and counts these rows choose one.

Then the last layer is heard anew by messages about its values (`bcmdist.model.shared.deep`): exactly, of numbers; of
classes and counts, whose layers climb by quadrature, by the passes of all experts.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from bcmdist.data.partition import Partition
from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.evidence.deep_tasks import DeepDensities, DeepMessage, DeepShare, numbers_of
from bcmdist.learning.ground import Ground
from bcmdist.learning.known import Known
from bcmdist.learning.query_selection import select_points
from bcmdist.model.deep.beginning import first_layers, last_layer
from bcmdist.model.deep.layer import Layer, gradient, tied_energy
from bcmdist.model.kernels import metric
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.shared.deep import Deep
from bcmdist.model.shared.deep_mixture import mixed
from bcmdist.model.shared.interface import Shared

KERNEL = "se"
# What stands for options that are not given: centres of a layer and hidden units.
CENTRES, UNITS = 50, 2
# Rows whose energy is climbed, at most, and those of a block of them.
ROWS, BLOCK = 20_000, 2000
# Iterations, at most, and those of a round, after which what was found is kept for a process that comes after this one,
# and rows that are left out are asked: one of so many blocks. It ends when so many rounds in a row have not gained,
# by the few rows that there may be: on training rows of Yacht that no climb has seen log densities are -0.57 where two
# rounds are enough, and -0.40 with four; on such of Boston the same.
STEPS = {"quick": 100, "normal": 600, "thorough": 3000}
ROUND, LEFT_OUT, PATIENCE = 100, 10, 4
# Powers to which rows say what they say. Mean log densities on training rows of Concrete that no climb had seen (three
# folds), after 300 iterations with 1 and 400 with 0.5: -3.14 and -3.12, and -3.05 of their mixture.
POWERS = (1.0, 0.5)
# Messages that take as long as an evaluation, and evaluations for each iteration.
MESSAGES, EVALUATIONS = 40.0, 1.1
NOISE = "noise_variance"
LEAST_SHARE = 1e-9  # added to a sum of precisions, of which a root is taken
NOISELESS = 1e-6  # noise variance of a last layer that is a latent process
NOWHERE = 1e12  # what is lost where a covariance is none
MEMORY = 100  # of L-BFGS: on a split of Concrete the energy after 800 iterations was 30 higher than with 20
# Of a log lengthscale and a log variance, in units of scaled inputs and targets: a step far beyond overflows.
LOG_BOUNDS = (-9.0, 9.0)


def begun(known: Known) -> Deep:
    """Layers as they begin: the first one about centres of the inputs, in the metric of the kernel that was learned.

    There are as many as the kernel has degrees of freedom at the sample where that is less than was asked for.
    """
    X, rng = known.sample, np.random.default_rng(known.seed)
    centres = select_points(X, known.count, kernel=known.kernel, method=known.method, seed=known.seed)
    lengthscale = metric(known.kernel, X.shape[1])
    y = known.targets[:, 0] if known.targets is not None else np.zeros(len(X))
    depth, units = known.options["layers"], known.options["units"]
    layers = first_layers(centres, lengthscale, X, y, units, depth, rng)
    noise = float(np.median(known.noise))
    layers.append(last_layer(layers, centres, lengthscale, X, y, noise, rng))
    return Deep(tuple(layers), known.kernel, known.mean, known.residual)


@dataclass(frozen=True)
class Evaluated:
    """The tied energy of layers, and its gradient in their numbers."""

    value: float
    gradient: np.ndarray


class DeepObjective:
    """The tied energy over some partitions of rows, with its gradient; one round each."""

    def __init__(self, ground: Ground, parts: Sequence[Partition], likelihood: OneProcess, power=1.0):
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


def noisy(likelihood: OneProcess, last: Layer) -> OneProcess:
    """The likelihood with the noise of the last layer, if it has normal errors."""
    if not likelihood.normal:
        return likelihood
    return likelihood.with_parameters({NOISE: np.exp(last.log_noise).reshape(1)})


def climbed(objective, start: Sequence[Layer], steps) -> tuple[list[Layer], float, int]:
    """The layers that L-BFGS finds in at most so many iterations, their energy, and evaluations made."""
    best: list[Any] = [-np.inf, list(start)]
    counted = 0

    def loss(numbers):
        nonlocal counted
        counted += 1
        layers = split(numbers, start)
        try:
            found = objective(layers)
        except (NotPositiveDefinite, np.linalg.LinAlgError):  # a step too far
            return NOWHERE, np.zeros_like(numbers)
        if found.value > best[0]:
            best[:] = [found.value, layers]
        return -found.value, -found.gradient

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
    minimize(loss, joined(start), jac=True, method="L-BFGS-B", bounds=bounds(start), options=options)
    return best[1], best[0], counted


def bounds(layers: Sequence[Layer]) -> Bounds:
    """Of the numbers of all layers: lengthscales and variances have some."""

    def bound(layer, sign):
        free = replace(layer, **{part.name: np.full_like(getattr(layer, part.name), np.inf) for part in fields(layer)})
        own = np.full_like(layer.log_lengthscale, LOG_BOUNDS[1]), np.array(LOG_BOUNDS[1])
        return sign * replace(free, log_lengthscale=own[0], log_variance=own[1]).numbers()

    return Bounds(*(np.concatenate([bound(layer, sign) for layer in layers]) for sign in (-1.0, 1.0)))


def joined(layers: Sequence[Layer]) -> np.ndarray:
    """The numbers of all layers."""
    return np.concatenate([layer.numbers() for layer in layers])


def split(numbers, like: Sequence[Layer]) -> list[Layer]:
    """Layers of the shapes of others from `joined` numbers."""
    ends = np.cumsum([len(layer.numbers()) for layer in like])
    return [layer.moved(part) for layer, part in zip(like, np.split(numbers, ends[:-1]), strict=True)]


@dataclass(frozen=True)
class Reached:
    """Where some rounds of a climb have come to."""

    shared: Deep
    """its last layer knows what rows say of it; of others than numbers by what it was trained with"""
    energy: float
    density: float
    """of rows that were left out, in all; the energy where none were"""
    evaluations: int
    """in all"""


def climbed_on(objective: DeepObjective, start: Deep, held: Sequence[Partition], steps) -> Reached:
    """The best that rounds of `climbed` come to, until rows that were left out are predicted no better.

    The energy goes on rising where layers begin to know their rows by heart: on training rows of Boston that were left
    out, from 200 to 800 iterations log densities fall from -2.3 to -2.5. What a process that was killed has finished is
    found among the scratch.
    """
    layers, evaluations, best = list(start.layers), 0, None
    path = Path(objective.ground.scratch, f"deep-{_identity(objective, start)}")
    for done in range(0, steps, ROUND):
        layers, energy, more = _once(f"{path}-{done}.npz", lambda at=layers: climbed(objective, at, ROUND), layers)
        evaluations += more
        reached = replace(start, layers=tuple(layers))
        if objective.likelihood.normal:
            reached = objective.heard(reached)
        density = objective.density(reached.layers, held) if held else energy
        if best is None or density > best.density:
            best, since = Reached(reached, energy, density, evaluations), 0
        elif (since := since + 1) == PATIENCE:
            break
    assert best is not None, "there are steps"
    return replace(best, evaluations=evaluations)


def _once(path, climb, like) -> tuple[list[Layer], float, int]:
    """What a climb finds, or has found."""
    if not os.path.exists(path):
        layers, energy, evaluations = climb()
        np.savez(f"{path}.tmp.npz", numbers=joined(layers), counts=np.array([energy, evaluations]))
        os.replace(f"{path}.tmp.npz", path)
    with np.load(path) as kept:
        energy, evaluations = kept["counts"].tolist()
        return split(kept["numbers"], like), energy, int(evaluations)


def _identity(objective, start):
    """Of all that a climb depends on but how long it is."""
    asked = [objective.ground.scaling.digest, objective.likelihood.name, objective.power]
    digest = hashlib.sha256(json.dumps([*asked, *(part.key for part in objective.parts)]).encode())
    digest.update(joined(start.layers).tobytes())
    return digest.hexdigest()[:16]


def messages(settings) -> float:
    """How many messages about the last layer of one process take as long as training it, about."""
    return MESSAGES * EVALUATIONS * STEPS[settings.effort] * settings.learn


def processes(settings) -> int:
    """How many are trained."""
    return len(POWERS) if settings.learn else 1


def trained(shared: Deep, likelihood: OneProcess, ground: Ground) -> tuple[Shared, OneProcess]:
    """Layers at higher tied energy, and the likelihood with the noise that they have found.

    As they began where nothing is learned.
    """
    if not ground.learn:
        return shared, likelihood
    if not likelihood.normal:
        last = replace(shared.layers[-1], log_noise=np.log(NOISELESS))
        shared = replace(shared, layers=(*shared.layers[:-1], last))
    rows = min(ROWS, sum(part.rows for part in ground.parts))
    parts = ground.sampled(ROWS, min(BLOCK, max(rows // LEFT_OUT, 1)))
    held = parts[LEFT_OUT - 1 :: LEFT_OUT]
    climbed_rows = [part for part in parts if part not in held]
    powers = POWERS if held else POWERS[:1]
    objectives = [DeepObjective(ground, climbed_rows, likelihood, power) for power in powers]
    reached = [climbed_on(objective, shared, held, STEPS[ground.effort]) for objective in objectives]
    left_out = sum(part.rows for part in held)
    densities = [found.density / left_out for found in reached] if held else []
    ground.found["deep"] = {
        "rows": objectives[0].rows,
        "left_out": left_out,
        "evaluations": sum(found.evaluations for found in reached),
        "powers": list(powers),
        "energies": [found.energy for found in reached],
        "densities": densities,
        "density": float(np.mean(densities) if likelihood.normal else max(densities)) if held else None,
    }
    if likelihood.normal:
        return side_by_side([found.shared for found in reached], likelihood)
    return max(reached, key=lambda found: found.density).shared, likelihood


def side_by_side(each: Sequence[Deep], likelihood: OneProcess) -> tuple[Shared, OneProcess]:
    """The equal mixture of processes of numbers, if they are several, and the likelihood with their mean noise.

    Those shares of it are what makes the variance of an observation that of f plus the noise of the likelihood.
    """
    if len(each) == 1:
        return each[0], noisy(likelihood, each[0].layers[-1])
    noise = np.exp([float(one.layers[-1].log_noise) for one in each])
    return mixed(tuple(each), noise), likelihood.with_parameters({NOISE: noise.mean(keepdims=True)})
