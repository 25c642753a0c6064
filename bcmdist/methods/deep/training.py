"""Train deep Gaussian processes: nearly linear initial layers, then ascent of the tied energy (Bui et al. 2016).

    F = sum over layers of (1 - N/p) phi + N/p phi of the cavity - phi of the prior, + sum_n 1/p log Z_n   (SYSTEMS D5)

The rows' factors about each layer are tied: each of N rows contributes an equal share. Z_n is the expectation of the
density of a row to a power p under the cavity, computed with the moments of `bcmdist.methods.deep`; the paper uses
p = 1. Adam maximises F in centres, kernels, noises and beliefs of all layers with minibatches (`adam`), in O(n L M^2)
for n rows. F is neither a bound nor an evidence that can be compared with other experts'.

One in ten blocks of rows is left out, and selects the step length and the best round. Processes are trained separately
for two powers, and for Gaussian targets also with many and with few hidden units. Predictions are then the equal
mixture of these processes (`bcmdist.methods.deep.mixture`): the better ones differ between data sets, and the few
left-out rows select them poorly. Leave-one-out errors of the rows of training, multiplied by a ratio that left-out rows
show, give the distribution of errors (`bcmdist.learning.training_errors`). For classes and counts these rows select one
power.

Then sweeps of expectation propagation follow where sites are requested (`bcmdist.methods.deep.propagation`).

After training, messages about the values of the last layer give its posterior (`bcmdist.methods.deep.shared`): exactly
for Gaussian rows, and by sites at the trained layers for classes and counts. With more than two classes the last layer
has one process per class, and the likelihood is their softmax.

Initial layers are nearly linear: hidden units start as the directions of largest covariance between inputs and targets
(partial least squares; random directions where there are no more of these). The last layer starts as the regression of
the targets on the hidden units. (Bui et al., section 8.1, start near the identity.)
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from bcmdist.committee.record import Record
from bcmdist.data.partition import Partition
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.query_selection import select_points
from bcmdist.learning.training_context import TrainingContext
from bcmdist.learning.training_errors import training_errors
from bcmdist.methods.deep import adam
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.mixture import DeepMixture, mixed
from bcmdist.methods.deep.objective import NOISE, DeepObjective, Reached, noisy
from bcmdist.methods.deep.options import DeepOptions
from bcmdist.methods.deep.propagation import TIED, refuse_factors, swept_as, swept_on
from bcmdist.methods.deep.rows import through
from bcmdist.methods.deep.shared import Deep
from bcmdist.methods.deep.sites import site_numbers
from bcmdist.model.kernels import metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.errors.error_distribution import trained_errors
from bcmdist.storage.fields import Count, CountFromOne, NotNegative, Number

# Noise variance of the initial regression on hidden units, the layers' noise variance, and lengthscales of later layers
# in units of their inputs. Arbitrary.
TARGET_NOISE, HIDDEN_NOISE, LENGTHSCALE = 0.1, 1e-3, 1.5
# Smallest initial noise variance of scaled targets: from far less, training may not find the way back.
LEAST_START_NOISE = 0.01
LEAST_SHARE = 1e-6  # added to a sum of precisions before its root is computed
# Remaining inputs shorter than this share of the total are no direction of their own: scaled up, such a unit would be
# steep.
SMALL = 0.05


def first_layers(centres, lengthscale, X, Y, units, depth, rng) -> list[Layer]:
    """All layers but the last: D inputs to `units` outputs, each of unit variance over the rows X (n, D).

    Parameters
    ----------
    centres : (M, D), of the first layer
    Y : (n, C), targets of the last layer
    """
    H = (X - X.mean(axis=0)) / lengthscale @ directions(X / lengthscale, Y, units, rng)
    layers: list[Layer] = []
    for k in range(depth - 1):
        inputs = X if k == 0 else H
        if k:
            centres, lengthscale = drawn_rows(H, len(centres), rng), np.full(units, LENGTHSCALE)
        layers.append(regression(centres, lengthscale, inputs, H, target_noise=TARGET_NOISE, noise=HIDDEN_NOISE))
        H = through([layers[-1].stage()], inputs)[-1].mean
    return layers


def last_layer(layers, centres, lengthscale, X, Y, noise, rng) -> Layer:
    """The last layer, whose C processes regress the targets Y (n, C) on the outputs of the other layers at X."""
    H = X
    if layers:
        H = through([layer.stage() for layer in layers], X)[-1].mean
        centres, lengthscale = drawn_rows(H, len(centres), rng), np.full(H.shape[1], LENGTHSCALE)
    return regression(centres, lengthscale, H, Y, target_noise=noise, noise=noise)


def regression(centres, lengthscale, X, Y, *, target_noise, noise) -> Layer:
    """A layer with the posterior given outputs Y (n, U) at the rows X (n, D), with variance `target_noise`."""
    M, U = len(centres), Y.shape[1]
    nothing = np.zeros((U, M)), np.zeros((U, M, M))
    layer = Layer(centres, np.log(lengthscale), np.array(0.0), np.log(noise), *nothing)
    V = np.linalg.solve(layer.factor, through([layer.stage()], X)[0].psi1.T).T
    precision = V.T @ V / target_noise + LEAST_SHARE * np.eye(M)
    mean = np.linalg.solve(np.eye(M) + precision, V.T @ Y / target_noise)
    return replace(layer, mean=mean.T, root=np.tile(np.linalg.cholesky(precision), (U, 1, 1)))


def directions(X, Y, units, rng) -> np.ndarray:
    """Weights (D, units) of uncorrelated linear combinations of the inputs, each of unit variance over the rows.

    For several targets Y (n, C), each unit uses the combination of targets with the largest covariance with the inputs.
    """
    centred, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    left, scores = centred.copy(), np.empty((len(X), units))
    least = SMALL * np.linalg.norm(centred)
    for k in range(units):
        w = _foremost(left.T @ Y)
        t = left @ (w / max(np.linalg.norm(w), np.finfo(float).tiny))
        if np.linalg.norm(t) <= least:
            t = centred @ rng.normal(size=len(w))
        scores[:, k] = t * np.sqrt(len(X)) / max(np.linalg.norm(t), np.finfo(float).tiny)
        left -= np.outer(t, t @ left) / max(t @ t, np.finfo(float).tiny)
    return np.linalg.lstsq(centred, scores, rcond=None)[0]


def _foremost(A):
    """The longest combination A v (D,), |v| = 1, of the columns of A (D, C), with the sign of its largest component."""
    v = np.linalg.svd(A)[2][0]
    return A @ (v * np.sign(v[np.abs(v).argmax()]))


def drawn_rows(H, count, rng) -> np.ndarray:
    """`count` rows of H (n, D), drawn at random; with added scatter where there are fewer."""
    if len(H) >= count:
        return H[rng.permutation(len(H))[:count]].copy()
    return H[rng.integers(len(H), size=count)] + 0.1 * H.std(axis=0) * rng.normal(size=(count, H.shape[1]))


KERNEL = "se"
CENTRES = 50  # default number of centres of a layer
# Default numbers of hidden units: for Gaussian targets processes with each number are mixed, otherwise only the first
# is used.
UNITS = (8, 2)
# Largest number of rows in training by default, and rows per sampled block.
ROWS, BLOCK = adam.GROUP, 2000
LEFT_OUT = 10  # one in so many blocks is left out, to select the best round
# Powers of the likelihood. Predictions mix one process per power and number of hidden units, in equal shares: left-out
# rows are too few to select one.
POWERS = (1.0, 0.5)
# A process whose mean log density of left-out rows is lower by this is not mixed: its training has failed. Arbitrary.
WORSE = 0.5
NOISELESS = 1e-6  # noise variance of a last layer that is a latent process


class SweepReport(Record, frozen=True):
    """Sweeps of expectation propagation of one process."""

    sweeps: CountFromOne
    energy: Number | None
    """None if a cavity is improper"""
    moved: NotNegative
    """how far the last sweep moved factors (relative) or means (in standard deviations)"""
    skipped: NotNegative
    """number of rows that it skipped"""
    density_tied: Number | None
    """density before the sweeps"""


class DeepReport(Record, frozen=True):
    """The fact `deep` of a fit, in units of the scaled targets; lists have an item for each process."""

    rows: CountFromOne
    """number of training rows"""
    left_out: Count
    """number of left-out rows"""
    evaluations: Count
    density: Number | None
    """mean log density of left-out rows of the result, the mean over the processes that it mixes"""
    powers: list[Number] = msgspec.field(default_factory=list)
    units: list[CountFromOne] = msgspec.field(default_factory=list)
    """number of units of the first layer; none in models stored before they were reported"""
    energies: list[Number] = msgspec.field(default_factory=list)
    densities: list[Number | None] = msgspec.field(default_factory=list)
    """mean log densities of left-out rows, None where training failed; none without such rows"""
    sites: list[SweepReport] = msgspec.field(default_factory=list)


def begun(basis_inputs: BasisInputs) -> Deep | DeepMixture:
    """Initial layers: the first with centres among the inputs, in the metric of the learned kernel.

    There are fewer centres than requested where some are determined by the others (`select_points`). Where processes
    with several numbers of hidden units may be trained, they are mixed in equal shares; training goes on with the first
    where the likelihood, which is not known here, is not Gaussian.
    """
    X = basis_inputs.sample
    centres = select_points(
        X, basis_inputs.count, kernel=basis_inputs.kernel, method=basis_inputs.method, seed=basis_inputs.seed
    )
    counts = units_of(basis_inputs.options)
    if not basis_inputs.learned or basis_inputs.options.layers == 1:
        counts = counts[:1]
    processes = tuple(_begun(basis_inputs, centres, units) for units in counts)
    return mixed(processes, np.ones(len(processes))) if len(processes) > 1 else processes[0]


def _begun(basis_inputs, centres, units) -> Deep:
    X, rng, depth = basis_inputs.sample, np.random.default_rng(basis_inputs.seed), basis_inputs.options.layers
    lengthscale = metric(basis_inputs.kernel, X.shape[1])
    Y = basis_inputs.targets if basis_inputs.targets is not None else np.zeros((len(X), 1))
    layers = first_layers(centres, lengthscale, X, Y, units, depth, rng)
    learned = basis_inputs.learned_noise
    noise = max(LEAST_START_NOISE, float(np.median(basis_inputs.noise if learned is None else learned)))
    layers.append(last_layer(layers, centres, lengthscale, X, Y, noise, rng))
    return Deep(tuple(layers), basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual)


def units_of(options: DeepOptions) -> tuple[int, ...]:
    """The requested number of hidden units, or the default ones."""
    return (options.units,) if options.units else UNITS


def rounds(settings, rows: int, measured: int) -> float:
    """Approximate cost of training on `rows` rows, as a number of Adam's rounds on `measured` rows."""
    steps = adam.STEPS[settings.effort] * adam.groups_of(rows) * adam.few(rows)
    return (steps + swept_as(settings) * rows) / adam.few(measured) / adam.ROUND


def refuse_rows(settings, rows: int) -> None:
    """Raise `InvalidOption` where the sites of `rows` rows would be too large."""
    if isinstance(settings.query, str):  # chosen after the kernel is learned
        return
    options, query = settings.of(DeepOptions), settings.query or CENTRES
    processes = max(units_of(options)) * (options.layers - 1) + 1
    trained = min(rows, options.train_rows or ROWS) if settings.learn else rows
    refuse_factors(options.deep_sites, trained, processes * site_numbers(query))


def trained(shared: Deep | DeepMixture, likelihood: Likelihood, context: TrainingContext) -> tuple[Shared, Likelihood]:
    """Train the layers, with sweeps if requested; return them and the likelihood with the learned noise.

    Without learning the layers stay initial, except for the sweeps.
    """
    if not context.learn and context.options.deep_sites == TIED:
        return shared, likelihood
    each = shared.each if isinstance(shared, DeepMixture) else (shared,)
    if not likelihood.normal:
        last = replace(each[0].layers[-1], log_noise=np.log(NOISELESS))
        each = (replace(each[0], layers=(*each[0].layers[:-1], last)),)
    parts, held = _looked_at(context)
    numbers = max(sum(layer.units * site_numbers(len(layer.centres)) for layer in one.layers) for one in each)
    refuse_factors(context.options.deep_sites, sum(part.rows for part in parts), numbers)
    starts, powers = zip(*itertools.product(each, POWERS), strict=True) if held else (each[:1], POWERS[:1])
    objectives = [DeepObjective(context, parts, likelihood, power) for power in powers]
    ways = zip(objectives, _climbed(starts, objectives, held), strict=True)
    reached = [swept_on(objective, at, held, context.options.deep_sites) for objective, at in ways]
    left_out = sum(part.rows for part in held)
    densities = [found.density / left_out for found in reached] if held else []
    good = [found for found in reached if found.density >= max(one.density for one in reached) - WORSE * left_out]
    if not likelihood.normal:
        good = [max(reached, key=lambda found: found.density)]
    context.found["deep"] = DeepReport(
        rows=objectives[0].rows,
        left_out=left_out,
        evaluations=sum(found.evaluations for found in reached),
        powers=list(powers),
        units=[start.layers[0].units for start in starts],
        energies=[found.energy for found in reached if found.energy is not None],
        densities=[density if np.isfinite(density) else None for density in densities],
        density=float(np.mean([found.density for found in good])) / left_out if held else None,
        sites=[SweepReport(**found.sites) for found in reached if found.sites],
    )
    if not likelihood.normal:
        return good[0].shared, likelihood
    made, likelihood = side_by_side([found.shared for found in good], likelihood)
    if held:
        residuals = training_errors(made, likelihood, context, parts, held).residuals()
        context.found["trained_errors"] = trained_errors(residuals, shared.kernel, made.inputs)
    return made, likelihood


def _looked_at(context) -> tuple[list[Partition], list[Partition]]:
    """Training and left-out partitions, from a sample of rows; without learning all partitions and none."""
    if not context.learn:
        return list(context.parts), []
    most = context.options.train_rows or ROWS
    rows = min(most, sum(part.rows for part in context.parts))
    parts = context.sampled(most, min(BLOCK, max(rows // LEFT_OUT, 1)))
    many = len(parts) - len(parts) // LEFT_OUT
    return parts[:many], parts[many:]


def _climbed(starts, objectives, held) -> list[Reached]:
    """Processes trained by the tied energy, each by an objective; without learning, the initial ones."""
    context = objectives[0].context
    if not context.learn:
        return [Reached(start, None, 0.0, 0) for start in starts]
    return adam.climbed_jointly(starts, objectives, held, adam.STEPS[context.effort])


def side_by_side(each: Sequence[Deep], likelihood: Likelihood) -> tuple[Shared, Likelihood]:
    """Mixture of processes with Gaussian noise, if there are several, and the likelihood with their mean noise.

    With that mean, and each noise relative to it, the observation variance of the mixture is that of f plus the noise.
    """
    if len(each) == 1:
        return each[0], noisy(likelihood, each[0].layers[-1])
    noise = np.exp([float(one.layers[-1].log_noise) for one in each])
    return mixed(tuple(each), noise), likelihood.with_parameters({NOISE: noise.mean(keepdims=True)})
