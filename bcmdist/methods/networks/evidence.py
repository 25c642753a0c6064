"""The evidence of one network and its gradient in the inner weights, as sums over partitions (SYSTEMS N4).

Round 1 sums the messages of the current network, as for the weights of any basis. Round 2 sums each partition's part of
the gradient, given the posterior N(m, Sigma) of the output weights. With the whitened design V (n, S), e = y - V m and
the rows' noise precisions w

    d log p / dV = w (e m' - V Sigma),    d log p / d log noise = 1/2 sum w (e^2 + diag(V Sigma V')) - n / 2

The first is chained to the inner weights through d erf(a) / da = 2 / sqrt(pi) exp(-a^2).
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from zict import LRU

from bcmdist.data.observations import Observations
from bcmdist.experts.expert import gaussian_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import kind_of
from bcmdist.methods.networks.shared import activations, one_network
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import Weights
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

SLOPE = 2.0 / np.sqrt(np.pi)
# Cache for designs of the first round, reused by the second: computing erf takes as long as a matrix product.
DESIGN_BYTES = 2**27
_designs: "LRU[Hashable, np.ndarray]" = least_recently_used(DESIGN_BYTES, lambda V: V.nbytes)


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
        X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units)
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
