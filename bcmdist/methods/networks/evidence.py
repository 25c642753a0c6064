"""The evidence of one network at some rows, and its gradient in the inner weights, signal and noise (SYSTEMS N4).

With the whitened design V (n, S), the rows' noise precisions w, the posterior N(m, Sigma) of the output weights given
all rows, and e = y - V m

    d log p / dV = w (e m' - V Sigma),    d log p / d log noise = 1/2 sum w (e^2 + diag(V Sigma V')) - n / 2

The first is chained to the inner weights through d erf(a) / da = 2 / sqrt(pi) exp(-a^2). Designs are kept between the
message and the gradient, in blocks of rows whose temporaries fit into a cache. In a block V is transposed and weighted,
and has the targets as a last row, so that one product gives precision and eta, and one gives the gradient in V:

    B = [V y]' w^1/2,    B B' = [precision eta; eta' y'wy],    [Sigma + m m', -m] B = (V Sigma - e m')' w^1/2
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.experts.message import Message
from bcmdist.linalg.routines import mirror
from bcmdist.methods.networks.error_function import error_function
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.mean import Mean

NOISE = "noise_variance"
SLOPE = 2.0 / np.sqrt(np.pi)
BLOCK_NUMBERS = 2**17  # entries of a block's design: a few such matrices fit into a level-2 cache


@dataclass(frozen=True)
class Network:
    """A network during training."""

    inner: np.ndarray
    """(M, 1 + D)"""
    scale: float
    """prior standard deviation of the output weights"""
    likelihood: OneProcess

    def moved(self, inner, log_scale, log_noise) -> "Network":
        """A network with other inner weights, and with signal and noise changed by factors given as logarithms."""
        noise = self.likelihood.parameters[NOISE] * np.exp(log_noise)
        return Network(inner, float(self.scale * np.exp(log_scale)), self.likelihood.with_parameters({NOISE: noise}))


@dataclass(frozen=True)
class NetworkShare:
    """Some rows' part of the gradient; parts add."""

    inner: np.ndarray
    """gradient in the inner weights, (M, 1 + D)"""
    noise: float
    """gradient in the log noise variance"""

    def __add__(self, other: "NetworkShare") -> "NetworkShare":
        return NetworkShare(self.inner + other.inner, self.noise + other.noise)

    def weighted(self, weight) -> "NetworkShare":
        """The part of rows that each count `weight` times."""
        return NetworkShare(weight * self.inner, weight * self.noise)


@dataclass(frozen=True)
class _Block:
    rows: slice
    inputs: np.ndarray
    """ones and inputs, (1 + D, n)"""
    trend: np.ndarray
    """columns of the prior mean, (P, n)"""
    design: np.ndarray
    """B, (S + 1, n)"""


class DesignedRows:
    """Rows with the design of a network at them. `fill` replaces the network.

    Parameters
    ----------
    X : (n, D), scaled
    units : number of hidden units
    """

    def __init__(self, X, obs: Observations, mean: Mean, units: int):
        self.obs, self.units = obs, units
        count = -(-len(X) * units // BLOCK_NUMBERS)
        edges = [len(X) * k // max(count, 1) for k in range(count + 1)]
        trend = mean.design(X)
        self.size = units + trend.shape[1]
        columns = np.column_stack([np.ones(len(X)), X])
        self.blocks = []
        for rows in map(slice, edges[:-1], edges[1:]):
            inputs, of_mean = (np.ascontiguousarray(some[rows].T) for some in (columns, trend))
            self.blocks.append(_Block(rows, inputs, of_mean, np.empty((self.size + 1, inputs.shape[1]))))

    @property
    def nbytes(self) -> int:
        """Bytes of the designs."""
        return sum(block.design.nbytes for block in self.blocks)

    def fill(self, network: Network) -> Message:
        """Compute the design of a network; return, and keep as `message`, its message about the output weights."""
        self.network, y, noise = network, network.likelihood.targets(self.obs), network.likelihood.noise(self.obs)
        self.root, S = 1.0 / np.sqrt(noise), self.size
        products = np.zeros((S + 1, S + 1), order="F")
        for block in self.blocks:
            B, root = block.design, self.root[block.rows]
            units = B[: self.units]
            np.matmul(network.inner, block.inputs, out=units)
            error_function(units, out=units)
            units *= network.scale * root
            np.multiply(block.trend, root, out=B[self.units : S])
            np.multiply(y[block.rows], root, out=B[S])
            products = linalg.add_gram_lower(products, B.T)
        constant = np.log(2.0 * np.pi * noise).sum()
        precision = mirror(products[:S, :S].copy(order="F"))
        self.message = Message(products[S, :S].copy(), precision, float(-0.5 * (products[S, S] + constant)), len(y))
        return self.message

    def gradient(self, mean, covariance) -> NetworkShare:
        """Part of the gradient due to the rows, given the posterior N(mean, covariance) of v."""
        network, S = self.network, self.size
        pulling = np.column_stack([covariance + np.outer(mean, mean), -mean])
        deviation = np.append(-mean, 1.0)
        learned = network.likelihood.learned_noise(self.obs) / network.likelihood.noise(self.obs)
        inner, noise = np.zeros_like(network.inner), 0.0
        for block in self.blocks:
            B, share = block.design, learned[block.rows]
            pull = pulling @ B
            squares = np.einsum("ij,ij->j", B[:S], pull) + B[S] * (deviation @ B)  # w (e^2 + diag(V Sigma V'))
            noise += 0.5 * float(share @ (squares - 1.0))
            slope = network.inner @ block.inputs
            np.square(slope, out=slope)
            np.negative(slope, out=slope)
            np.exp(slope, out=slope)
            slope *= pull[: self.units]
            inner -= slope @ (block.inputs * self.root[block.rows]).T
        return NetworkShare(SLOPE * network.scale * inner, noise)

    def log_density(self, mean, covariance) -> float:
        """Sum of the log densities of the rows' targets, each alone, given a posterior of v without these rows."""
        S, deviation, found = self.size, np.append(-mean, 1.0), 0.0
        for block in self.blocks:
            B = block.design
            variance = 1.0 + np.einsum("ij,ij->j", B[:S], covariance @ B[:S])  # in units of the noise
            found -= 0.5 * float(np.sum((deviation @ B) ** 2 / variance + np.log(variance)))
        return found - 0.5 * float(np.log(2.0 * np.pi * self.network.likelihood.noise(self.obs)).sum())


@dataclass(frozen=True)
class Evaluated:
    """The log evidence of a network, and its gradient in all trained parameters."""

    value: float
    inner: np.ndarray
    """(M, 1 + D)"""
    log_scale: float
    log_noise: float


class Evidence(ABC):
    """The log evidence of networks at training rows, some of which may be left out."""

    rows_left_out: int
    """number of rows that may be left out"""

    @abstractmethod
    def __call__(self, network: Network, *, whole: bool) -> Evaluated:
        """Log evidence of all rows (`whole`), or of the rows but those left out, and its gradient."""

    @abstractmethod
    def density(self, network: Network) -> float:
        """Log density of the rows left out, given the others."""


class EvidenceInMemory(Evidence):
    """The evidence at rows in this process.

    Parameters
    ----------
    first, left_out : the rows but those left out, and those
    """

    def __init__(self, first: DesignedRows, left_out: DesignedRows):
        self.first, self.left_out = first, left_out
        self.rows_left_out = len(left_out.obs)

    def __call__(self, network, *, whole) -> Evaluated:
        rows = [self.first, self.left_out] if whole else [self.first]
        message = add_all(one.fill(network) for one in rows)
        return evaluated(message, lambda *belief: add_all(one.gradient(*belief) for one in rows), self.first.units)

    def density(self, network) -> float:
        belief = posterior(self.first.fill(network))
        self.left_out.fill(network)
        return self.left_out.log_density(*belief)


def add_all(several) -> Any:
    """Sum of at least one element of a monoid."""
    return functools.reduce(operator.add, several)


def posterior(message: Message) -> tuple[np.ndarray, np.ndarray]:
    """Mean (S,) and covariance (S, S) of the output weights given a message."""
    belief = Committee(message).posterior
    return belief.mean, linalg.inverse(belief.factor)


def evaluated(message: Message, gradient: Callable[..., NetworkShare], units: int) -> Evaluated:
    """The log evidence from the message of all rows, and `gradient` given the posterior mean and covariance."""
    committee = Committee(message)
    m, covariance = committee.posterior.mean, linalg.inverse(committee.posterior.factor)
    share = gradient(m, covariance)
    divergence = m[:units] @ m[:units] + np.trace(covariance[:units, :units]) - units
    return Evaluated(committee.log_evidence, share.inner, float(divergence), share.noise)
