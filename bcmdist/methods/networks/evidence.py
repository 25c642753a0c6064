"""The evidence of one network and its gradient in the inner weights, as sums over partitions (SYSTEMS N4).

Round 1: the messages of the network on trial, as of any weights of a basis. Round 2: given the belief N(m, Sigma) of
them, each partition's part of the gradient. With the whitened design V (n, S), e = y - V m and the precisions w of rows

    d log p / dV = w (e m' - V Sigma),    d log p / d log noise = 1/2 sum w (e^2 + diag(V Sigma V')) - n / 2

of which the first is chained to the inner weights through d erf(a) / da = 2 / sqrt(pi) exp(-a^2).
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
# Memory for designs of the first round that the second one takes up: an error function takes as long as a product.
DESIGN_BYTES = 2**27
_designs: "LRU[Hashable, np.ndarray]" = least_recently_used(DESIGN_BYTES, lambda V: V.nbytes)


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

    def case(self, rows) -> "TrialNetwork":
        """The network before the rows of a partition."""
        scaling, network = load_scaling(self.scaling), self.network()
        X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units)
        name = (self.scaling, self.inner, self.scale, self.mean, rows.digest)
        return TrialNetwork(network, self.likelihood, X, obs, get_or_make(_designs, name, lambda: network.design(X)))


@dataclass(frozen=True)
class TrialNetwork:
    """A network, and what it is tried on."""

    network: Weights
    likelihood: OneProcess
    X: np.ndarray
    """(n, D), scaled"""
    obs: Observations
    V: np.ndarray
    """the network's whitened design of these, (n, S); not to be changed"""


@dataclass(frozen=True)
class NetworkMessage:
    """The message of a partition about the output weights."""

    trial: NetworkTrial

    def __call__(self, part, rows) -> Message:
        case = self.trial.case(rows)
        residual = kind_of(case.network).residual(case.network, case.V, case.X)
        y, noise = case.likelihood.targets(case.obs), case.likelihood.noise(case.obs)
        return gaussian_message(case.V.copy(order="F"), residual, y, noise).weighted(part.weight)


@dataclass(frozen=True)
class NetworkGradient:
    """A partition's part of the gradient, given the belief of all."""

    trial: NetworkTrial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> NetworkShare:
        belief = load_array(self.mean), load_array(self.covariance)
        found = network_share(self.trial.case(rows), *belief)
        return NetworkShare(part.weight * found.inner, part.weight * found.noise)


def network_share(case: TrialNetwork, mean, covariance) -> NetworkShare:
    """Part of the gradient due to some rows, where N(mean, covariance) is believed of v."""
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
