"""The evidence of one network and its gradient in the inner weights, as sums over partitions (SYSTEMS N4).

Round 1: the messages of the network on trial, as of any weights of a basis. Round 2: given the belief N(m, Sigma) of
them, each partition's part of the gradient. With the whitened design V (n, S), e = y - V m and the precisions w of rows

    d log p / dV = w (e m' - V Sigma),    d log p / d log noise = 1/2 sum w (e^2 + diag(V Sigma V')) - n / 2

of which the first is chained to the inner weights through d erf(a) / da = 2 / sqrt(pi) exp(-a^2).
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import Message
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.shared.networks import activations, one_network
from bcmdist.model.shared.weights import Weights
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

SLOPE = 2.0 / np.sqrt(np.pi)


@dataclass(frozen=True)
class NetworkShare:
    """A partition's part of the gradient; they add."""

    inner: np.ndarray
    """in the inner weights, (M, 1 + D)"""
    noise: float
    """in the log noise variance"""

    def __add__(self, other: "NetworkShare") -> "NetworkShare":
        return NetworkShare(self.inner + other.inner, self.noise + other.noise)


@dataclass(frozen=True)
class NetworkTrial:
    """A network on trial, and what it is tried on."""

    scaling: BlobReference
    inner: BlobReference
    scale: float
    kernel: Kernel
    mean: str
    likelihood: OneProcess

    def network(self) -> Weights:
        """The network itself."""
        return one_network(load_array(self.inner), self.scale, self.kernel, Mean(self.mean))

    def case(self, rows) -> tuple[Weights, OneProcess, np.ndarray, Observations]:
        """Network, likelihood, inputs (n, D) and observations in the units of the model."""
        scaling = load_scaling(self.scaling)
        obs = scaling.observations(rows.obs, self.likelihood.units)
        return self.network(), self.likelihood, scaling.inputs(rows.X), obs


@dataclass(frozen=True)
class NetworkMessage:
    """The message of a partition about the output weights."""

    trial: NetworkTrial

    def __call__(self, part, rows) -> Message:
        return expert_message(*self.trial.case(rows)).weighted(part.weight)


@dataclass(frozen=True)
class NetworkGradient:
    """A partition's part of the gradient, given the belief of all."""

    trial: NetworkTrial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> NetworkShare:
        belief = load_array(self.mean), load_array(self.covariance)
        found = network_share(*self.trial.case(rows), *belief)
        return NetworkShare(part.weight * found.inner, part.weight * found.noise)


def network_share(network: Weights, likelihood: OneProcess, X, obs: Observations, mean, covariance) -> NetworkShare:
    """Part of the gradient due to the rows X (n, D), scaled, where N(mean, covariance) is believed of v."""
    inner, units = network.basis.to_arrays()["inner"], network.functions
    V, w = network.design(X), 1.0 / likelihood.noise(obs)
    e, VS = likelihood.targets(obs) - V @ mean, V @ covariance
    noise = 0.5 * (w @ (e**2 + np.einsum("ij,ij->i", V, VS)) - len(X))
    pull = VS[:, :units]
    np.subtract(np.multiply.outer(e, mean[:units]), pull, out=pull)
    pull *= w[:, None]
    slope = activations(inner, X)
    np.square(slope, out=slope)
    np.negative(slope, out=slope)
    pull *= np.exp(slope, out=slope)
    to_inner = pull.T @ np.column_stack([np.ones(len(X)), X])
    return NetworkShare(SLOPE * network.scale[:, None] * to_inner, float(noise))
