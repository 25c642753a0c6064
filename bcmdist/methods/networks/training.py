"""Train marginalised networks: random draws, then ascent of the evidence (Lazaro-Gredilla & Figueiras-Vidal, III, IV).

    mnn       one network of `--units` hidden units
    mnnmix    a mixture of `--networks` networks, trained from different draws to different maxima

The hyper-parameters of a kernel are learned first, as for any expert. The initial inner weights are drawn with the
kernel's lengthscales; the default kernel is `arcsine`, the limit of infinitely many such units. L-BFGS then maximises
the evidence of all rows, or of a sample, in inner weights, signal and noise variance. Each evaluation takes two rounds
over the rows, in O(n M^2).

The evidence of one network and its gradient in the inner weights, as sums over partitions (SYSTEMS N4).

Round 1 sums the messages of the current network, as for the weights of any basis. Round 2 sums each partition's part of
the gradient, given the posterior N(m, Sigma) of the output weights. With the whitened design V (n, S), e = y - V m and
the rows' noise precisions w

    d log p / dV = w (e m' - V Sigma),    d log p / d log noise = 1/2 sum w (e^2 + diag(V Sigma V')) - n / 2

The first is chained to the inner weights through d erf(a) / da = 2 / sqrt(pi) exp(-a^2).
"""

import hashlib
import json
import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from zict import LRU

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.committee.record import Record
from bcmdist.data.observations import Observations
from bcmdist.experts.expert import gaussian_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import kind_of
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.stopping import stop_when_idle
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks.options import MixtureOptions, NetworkOptions
from bcmdist.methods.networks.shared import Networks, Units, activations, one_network
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.model import described
from bcmdist.model.shared.weights import Weights
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference, load_array
from bcmdist.storage.fields import Count, CountFromOne, Number, Positive

SLOPE = 2.0 / np.sqrt(np.pi)
# Cache for designs of the first round, reused by the second: computing erf takes as long as a matrix product.
DESIGN_BYTES = 2**27
_designs: "LRU[Hashable, np.ndarray]" = least_recently_used(DESIGN_BYTES, lambda V: V.nbytes)


class NetworksReport(Record, frozen=True):
    """The fact `networks` of a fit; lists have an item for each network."""

    rows: CountFromOne
    """number of training rows"""
    log_evidence: list[Number]
    """of scaled targets"""
    noise_variance: list[Positive]
    evaluations: list[Count]
    """numbers of evaluations of the evidence"""


@dataclass(frozen=True)
class NetworkShare:
    """A partition's part of the gradient; parts add."""

    inner: np.ndarray
    """gradient in the inner weights, (M, 1 + D)"""
    noise: float
    """gradient in the log noise variance"""

    def __add__(self, other: "NetworkShare") -> "NetworkShare":
        return NetworkShare(self.inner + other.inner, self.noise + other.noise)


@dataclass(frozen=True)
class NetworkTrial:
    """A candidate network, its likelihood and the scaling of its inputs."""

    scaling: BlobReference
    inner: BlobReference
    scale: float
    kernel: Kernel
    mean: str
    likelihood: OneProcess

    def network(self) -> Weights:
        """The network as shared variables."""
        return one_network(load_array(self.inner), self.scale, self.kernel, Mean(self.mean))

    def case(self, rows) -> "TrialNetwork":
        """The network with the scaled rows of a partition."""
        scaling, network = load_scaling(self.scaling), self.network()
        X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units, rows.X)
        name = (self.scaling, self.inner, self.scale, self.mean, rows.digest)
        return TrialNetwork(network, self.likelihood, X, obs, get_or_make(_designs, name, lambda: network.design(X)))


@dataclass(frozen=True)
class TrialNetwork:
    """A candidate network with some rows and its design at these rows."""

    network: Weights
    likelihood: OneProcess
    X: np.ndarray
    """(n, D), scaled"""
    obs: Observations
    V: np.ndarray
    """whitened design of the rows, (n, S); cached, so read-only"""


@dataclass(frozen=True)
class NetworkMessage:
    """Task: the message of a partition about the output weights."""

    trial: NetworkTrial

    def __call__(self, part, rows) -> Message:
        case = self.trial.case(rows)
        residual = kind_of(case.network).residual(case.network, case.V, case.X)
        y, noise = case.likelihood.targets(case.obs), case.likelihood.noise(case.obs)
        return gaussian_message(case.V.copy(order="F"), residual, y, noise).weighted(part.weight)


@dataclass(frozen=True)
class NetworkGradient:
    """Task: a partition's part of the gradient, given the posterior from all partitions."""

    trial: NetworkTrial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> NetworkShare:
        belief = load_array(self.mean), load_array(self.covariance)
        found = network_share(self.trial.case(rows), *belief)
        return NetworkShare(part.weight * found.inner, part.weight * found.noise)


def network_share(case: TrialNetwork, mean, covariance) -> NetworkShare:
    """Part of the gradient due to some rows, given the posterior N(mean, covariance) of v."""
    network, X, V = case.network, case.X, case.V
    inner, units = network.basis.to_arrays()["inner"], network.functions
    w = 1.0 / case.likelihood.noise(case.obs)
    e, VS = case.likelihood.targets(case.obs) - V @ mean, V @ covariance
    share = w * case.likelihood.learned_noise(case.obs)
    noise = 0.5 * (share @ (w * (e**2 + np.einsum("ij,ij->i", V, VS)) - 1.0))
    pull = VS[:, :units]
    np.subtract(np.multiply.outer(e, mean[:units]), pull, out=pull)
    pull *= w[:, None]
    slope = activations(inner, X)
    np.square(slope, out=slope)
    np.negative(slope, out=slope)
    pull *= np.exp(slope, out=slope)
    to_inner = pull.T @ np.column_stack([np.ones(len(X)), X])
    return NetworkShare(SLOPE * network.scale[:, None] * to_inner, float(noise))


KERNEL = "arcsine"
UNITS = 250  # default number of hidden units
# Largest number of rows whose evidence is maximised, and rows per sampled block.
ROWS, BLOCK = 100_000, 2000
# Largest number of iterations per network.
STEPS = {"quick": 100, "normal": 300, "thorough": 1000}
# Evaluations per iteration.
EVALUATIONS = 1.05
NOISE = "noise_variance"
# Largest factor between initial and trained signal or noise: beyond it a network carries no information.
LARGEST_FACTOR = 1e6


def drawn(basis_inputs: BasisInputs) -> Networks:
    """Networks with inner weights drawn from N(0, 1 / lengthscale^2), before training.

    The prior variance of the output weights is chosen so that the networks' variance, averaged over the rows of the
    sample, equals the kernel's.
    """
    rng, widths = (
        np.random.default_rng(basis_inputs.seed),
        inner_widths(basis_inputs.kernel, basis_inputs.sample.shape[1]),
    )
    count = number(basis_inputs.options)
    inner = rng.standard_normal((count, basis_inputs.count, len(widths))) * widths
    variance = basis_inputs.kernel.diagonal(basis_inputs.sample).mean()
    scale = [np.sqrt(variance / (Units(one).features(basis_inputs.sample) ** 2).sum(axis=1).mean()) for one in inner]
    return Networks(
        inner, np.array(scale), np.ones(count), basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual
    )


def inner_widths(kernel: Kernel, inputs: int) -> np.ndarray:
    """Standard deviations of the initial inner weights of a unit, (1 + D,), the offset's first.

    Offsets vary as much as u'x does over standardised rows, so that units are steepest among the rows. With l_0^2 =
    sum l_d^2 (section V) nearly all units would be steepest at the centre of the rows.
    """
    widths = 1.0 / metric(kernel, inputs)
    return np.concatenate([[np.linalg.norm(widths)], widths])


@dataclass(frozen=True)
class Evaluated:
    """The log evidence of a network, and its gradient in all trained parameters."""

    value: float
    inner: np.ndarray
    """(M, 1 + D)"""
    log_scale: float
    log_noise: float


@dataclass(frozen=True)
class Network:
    """A network during training."""

    inner: np.ndarray
    """(M, 1 + D)"""
    scale: float
    likelihood: OneProcess

    def moved(self, inner, log_scale, log_noise) -> "Network":
        """A network with other inner weights, and with signal and noise changed by factors given as logarithms."""
        noise = self.likelihood.parameters[NOISE] * np.exp(log_noise)
        return Network(inner, float(self.scale * np.exp(log_scale)), self.likelihood.with_parameters({NOISE: noise}))


class NetworkObjective:
    """The log evidence of a network over some partitions, with its gradient; two rounds per evaluation."""

    def __init__(self, context: TrainingContext, parts, kernel: Kernel, mean: Mean):
        self.context, self.parts, self.kernel, self.mean = context, parts, kernel, mean

    def __call__(self, network: Network) -> Evaluated:
        units = len(network.inner)
        with self.context.transient({"inner": network.inner}) as references:
            trial = NetworkTrial(
                self.context.scaling,
                references["inner"],
                network.scale,
                self.kernel,
                self.mean.name,
                network.likelihood,
            )
            committee = Committee(self.context.sum(NetworkMessage(trial), self.parts))
            belief = committee.posterior
            covariance = linalg.inverse(belief.factor)
            with self.context.transient({"mean": belief.mean, "covariance": covariance}) as moments:
                share = self.context.sum(NetworkGradient(trial, **moments), self.parts)
        divergence = belief.mean[:units] @ belief.mean[:units] + np.trace(covariance[:units, :units]) - units
        return Evaluated(committee.log_evidence, share.inner, float(divergence), share.noise)


def climbed(objective: NetworkObjective, start: Network, widths, steps) -> tuple[Network, float, int]:
    """Maximise the evidence by L-BFGS; return the best network, its log evidence and the number of evaluations.

    Parameters
    ----------
    widths : (1 + D,), units of the inner weights in the search
    steps : largest number of iterations
    """
    shape, room = start.inner.shape, np.log(LARGEST_FACTOR)
    best: list[Any] = [-np.inf, start]
    counted = 0

    def loss(theta):
        nonlocal counted
        counted += 1
        network = start.moved(theta[:-2].reshape(shape) * widths, *theta[-2:])
        found = objective(network)
        if found.value > best[0]:
            best[:] = [found.value, network]
        return -found.value, -np.concatenate([(found.inner * widths).ravel(), [found.log_scale, found.log_noise]])

    first = np.concatenate([(start.inner / widths).ravel(), np.zeros(2)])
    bounds = [(None, None)] * (len(first) - 2) + [(-room, room)] * 2
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": 0.0}
    minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=stop_when_idle(), options=options)
    return best[1], best[0], counted


def climbed_once(objective, start: Network, widths, steps) -> tuple[Network, float, int]:
    """As `climbed`, but reuse the result in the scratch directory if an interrupted fit has left one."""
    path = Path(objective.context.scratch, f"network-{_identity(objective, start, steps)}.npz")
    if not path.exists():
        network, value, evaluations = climbed(objective, start, widths, steps)
        numbers = np.array([network.scale, network.likelihood.parameters[NOISE][0], value, evaluations])
        np.savez(path.with_suffix(".tmp.npz"), inner=network.inner, numbers=numbers)
        os.replace(path.with_suffix(".tmp.npz"), path)
    with np.load(path) as found:
        scale, noise, value, evaluations = found["numbers"].tolist()
        likelihood = start.likelihood.with_parameters({NOISE: np.array([noise])})
        return Network(found["inner"], scale, likelihood), value, int(evaluations)


def _identity(objective, start, steps):
    """Hash of everything that the result of `climbed` depends on."""
    how = described(objective.kernel, start.likelihood) | {"mean": objective.mean.name, "scale": start.scale}
    rows = [objective.context.scaling.digest, *(part.key for part in objective.parts)]
    digest = hashlib.sha256(json.dumps([how, rows, steps]).encode())
    digest.update(start.inner.tobytes())
    return digest.hexdigest()[:16]


def number(options: NetworkOptions) -> int:
    """Number of networks, one without a mixture."""
    return options.networks if isinstance(options, MixtureOptions) else 1


def trained(shared: Networks, likelihood: OneProcess, context: TrainingContext) -> tuple[Networks, OneProcess]:
    """Networks at maxima of their evidence, and the likelihood with the mean of their noise variances.

    With that mean, and each network's noise relative to it, the observation variance under the mixture, 1 / K
    sum (m_k^2 + v_k) - mean^2 (eq. 10b), equals the variance of f plus the noise of the likelihood. Without learning,
    the networks are returned as drawn.
    """
    if not context.learn:
        return shared, likelihood
    parts = context.sampled(ROWS, BLOCK)
    objective = NetworkObjective(context, parts, shared.kernel, shared.mean)
    widths = inner_widths(shared.kernel, shared.inputs)
    found = []
    for inner, scale in zip(shared.inner, shared.scale, strict=True):
        start = Network(inner, float(scale), likelihood)
        found.append(climbed_once(objective, start, widths, STEPS[context.effort]))
    networks, values, counts = zip(*found, strict=True)
    noise = np.array([float(one.likelihood.parameters[NOISE][0]) for one in networks])
    rows = sum(part.rows for part in parts)
    context.found["networks"] = NetworksReport(rows, list(values), noise.tolist(), list(counts))
    inner, scale = np.stack([one.inner for one in networks]), np.array([one.scale for one in networks])
    made = Networks(inner, scale, noise / noise.mean(), shared.kernel, shared.mean, shared.residual)
    return made, likelihood.with_parameters({NOISE: noise.mean(keepdims=True)})
