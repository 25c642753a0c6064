"""Deep Gaussian processes: layers that begin near planes, and climb the tied energy of all rows (Bui et al. 2016).

    F = sum over layers of (1 - N/p) phi + N/p phi of the cavity - phi of the prior, + sum_n 1/p log Z_n   (SYSTEMS D5)

What rows say of each layer is tied: each of N says a share of it. Z_n is the mean of the density of a row to a power p,
with layers that believe the others and 1 - p of what it says itself, by the moments of `bcmdist.methods.deep`; p = 1 is
the paper's. Adam climbs F in centres, kernels, noises and beliefs of all layers, by some rows a step (`adam`), in O(n L
M^2) of n of them. F is no bound, and no evidence to compare with other experts'.

Of every ten rows one is left out, and says which round was the best. Each of two powers trains layers of its own. Of
numbers, predictions are their equal mixture (`bcmdist.methods.deep.mixture`): which one is better differs from set
to set, and the few rows that are left out are a poor judge of it. Of classes and counts these rows choose one.

From there, sweeps of expectation propagation go on where sites are asked for (`bcmdist.methods.deep.propagation`).

After training, messages about the values of the last layer give its posterior (`bcmdist.methods.deep.shared`): exactly
for Gaussian rows; for classes and counts, whose layers are trained by quadrature, by sites where training has left the
layers (`bcmdist.methods.deep.messages`). With more than two classes the last layer has a process of each, and the
likelihood is the softmax of these.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.query_selection import select_points
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.deep import adam
from bcmdist.methods.deep.beginning import first_layers, last_layer
from bcmdist.methods.deep.mixture import mixed
from bcmdist.methods.deep.objective import NOISE, DeepObjective, Reached, noisy
from bcmdist.methods.deep.propagation import TIED, refuse_factors, swept_as, swept_on
from bcmdist.methods.deep.shared import Deep
from bcmdist.methods.deep.sites import site_numbers
from bcmdist.model.kernels import metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared

KERNEL = "se"
# What stands for options that are not given: centres of a layer and hidden units.
CENTRES, UNITS = 50, 8
# Rows whose energy is climbed, at most, and those of a block of them.
ROWS, BLOCK = 50_000, 2000
LEFT_OUT = 10  # one of so many blocks is left out, and says which round of steps was best
# Powers of the factors of rows; predictions mix one process for each. Mean log densities on validation rows, of two
# splits each of 200 to 400 rows: two layers on seven sets .04 with power 1, .12 with .5, .15 with the one that left-out
# rows choose, .20 with the equal mixture. One layer on sinc and steps: -2.89 with 1 (it takes noise of .17 for .004),
# -.48 with .5, -.90 chosen, -.52 mixed: left-out rows are too few to see what power 1 overfits.
POWERS = (1.0, 0.5)
MESSAGES = 40.0  # that take as long as an evaluation of as many rows
NOISELESS = 1e-6  # noise variance of a last layer that is a latent process


def begun(known: BasisInputs) -> Deep:
    """Layers as they begin: the first one about centres of the inputs, in the metric of the kernel that was learned.

    There are as many as the kernel has degrees of freedom at the sample where that is less than was asked for.
    """
    X, rng = known.sample, np.random.default_rng(known.seed)
    centres = select_points(X, known.count, kernel=known.kernel, method=known.method, seed=known.seed)
    lengthscale = metric(known.kernel, X.shape[1])
    Y = known.targets if known.targets is not None else np.zeros((len(X), 1))
    depth, units = known.options["layers"], known.options["units"]
    layers = first_layers(centres, lengthscale, X, Y, units, depth, rng)
    noise = float(np.median(known.noise))
    layers.append(last_layer(layers, centres, lengthscale, X, Y, noise, rng))
    return Deep(tuple(layers), known.kernel, known.mean, known.residual)


def messages(settings, rows) -> float:
    """How many messages about the last layer of one process take as long as training it on so many rows, about."""
    evaluations = adam.STEPS[settings.effort] * adam.few(rows) / rows
    return MESSAGES * (evaluations * settings.learn + swept_as(settings))


def processes(settings) -> int:
    """How many are trained."""
    return len(POWERS) if settings.learn else 1


def refuse_rows(settings, rows: int) -> None:
    """Raise `InvalidOption` where sites of so many rows of data would be too large."""
    if isinstance(settings.query, str):  # known once the kernel is
        return
    units, query = settings.units or UNITS, settings.query or CENTRES
    processes = units * (settings.layers - 1) + 1
    refuse_factors(settings.deep_sites, min(rows, ROWS) if settings.learn else rows, processes * site_numbers(query))


def trained(shared: Deep, likelihood: Likelihood, ground: TrainingContext) -> tuple[Shared, Likelihood]:
    """Layers at higher tied energy, and the likelihood with the noise that they have found; then sites, if asked for.

    As they began where nothing is learned, but for the sites.
    """
    if not ground.learn and ground.options["deep_sites"] == TIED:
        return shared, likelihood
    if not likelihood.normal:
        last = replace(shared.layers[-1], log_noise=np.log(NOISELESS))
        shared = replace(shared, layers=(*shared.layers[:-1], last))
    parts, held = _looked_at(ground)
    numbers = sum(layer.units * site_numbers(len(layer.centres)) for layer in shared.layers)
    refuse_factors(ground.options["deep_sites"], sum(part.rows for part in parts), numbers)
    powers = POWERS if held else POWERS[:1]
    objectives = [DeepObjective(ground, parts, likelihood, power) for power in powers]
    ways = zip(objectives, _climbed(objectives, shared, held), strict=True)
    reached = [swept_on(objective, at, held, ground.options["deep_sites"]) for objective, at in ways]
    left_out = sum(part.rows for part in held)
    densities = [found.density / left_out for found in reached] if held else []
    ground.found["deep"] = {
        "rows": objectives[0].rows,
        "left_out": left_out,
        "evaluations": sum(found.evaluations for found in reached),
        "powers": list(powers),
        "energies": [found.energy for found in reached if found.energy is not None],
        "densities": densities,
        "density": float(np.mean(densities) if likelihood.normal else max(densities)) if held else None,
        "sites": [found.sites for found in reached if found.sites],
    }
    if likelihood.normal:
        return side_by_side([found.shared for found in reached], likelihood)
    return max(reached, key=lambda found: found.density).shared, likelihood


def _looked_at(ground) -> tuple[list[Partition], list[Partition]]:
    """Partitions that are trained on, and others: of a sample; all rows, and none, where nothing is learned."""
    if not ground.learn:
        return list(ground.parts), []
    rows = min(ROWS, sum(part.rows for part in ground.parts))
    parts = ground.sampled(ROWS, min(BLOCK, max(rows // LEFT_OUT, 1)))
    many = len(parts) - len(parts) // LEFT_OUT
    return parts[:many], parts[many:]


def _climbed(objectives, start, held) -> list[Reached]:
    """Where processes come to by the tied energy: as they begin where nothing is learned."""
    ground = objectives[0].ground
    if not ground.learn:
        return [Reached(start, None, 0.0, 0) for _ in objectives]
    return adam.climbed_jointly(objectives, start, held, adam.STEPS[ground.effort])


def side_by_side(each: Sequence[Deep], likelihood: Likelihood) -> tuple[Shared, Likelihood]:
    """The equal mixture of processes of numbers, if they are several, and the likelihood with their mean noise.

    Those shares of it are what makes the variance of an observation that of f plus the noise of the likelihood.
    """
    if len(each) == 1:
        return each[0], noisy(likelihood, each[0].layers[-1])
    noise = np.exp([float(one.layers[-1].log_noise) for one in each])
    return mixed(tuple(each), noise), likelihood.with_parameters({NOISE: noise.mean(keepdims=True)})
