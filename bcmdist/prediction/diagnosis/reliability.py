"""How large the errors of a Gaussian committee really are, without sampling.

The committee's mean at new points is linear in the targets, A y. If f is drawn from the Gaussian process of the
model, the error of that mean has the covariance

    K** - A Ky* - K*y A' + A (Kyy + Psi) A'

which needs no data but the inputs. The variance that is reported is another one, because a committee takes what the
query set leaves unexplained to be independent from partition to partition and of new points. With the shared
variables v and the rest r, f = b'v + r, both parts of the prior, the mean's weights included, are exact in

    error = (b - A V)' v + r* - A (r + e)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.experts.expert import gaussian_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import Block
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.query import Query
from bcmdist.prediction.latent import predict_latent


@dataclass(frozen=True)
class PartitionRows:
    """Rows of one partition of a committee."""

    X: np.ndarray
    """(n, D), scaled"""
    obs: Observations
    """of which the targets are not looked at"""
    weight: float = 1.0
    """how many times its message counts"""


@dataclass(frozen=True)
class Reliability:
    """Variances of the error of f at some points: as reported and as they are, (n,) each."""

    reported: np.ndarray
    actual: np.ndarray

    def __getitem__(self, points):
        return Reliability(self.reported[points], self.actual[points])

    def coverage(self, level) -> float:
        """Probability that f lies in the central interval reported for probability `level`, mean over the points."""
        half = ndtri(0.5 + 0.5 * level) * np.sqrt(self.reported / self.actual)
        return float(np.mean(2.0 * ndtr(half) - 1.0))

    @property
    def variance_ratio(self) -> float:
        """Actual over reported variance, mean over the points."""
        return float(np.mean(self.actual / self.reported))


def reliability(query: Query, likelihood: Likelihood, heard: Sequence[PartitionRows], X) -> Reliability:
    """Reported and actual variances of the committee of `heard` at the rows of X (n, D), scaled.

    Time grows with the square of all rows, memory with their number and the square of the largest partition.

    Raises
    ------
    NotPositiveDefinite
    """
    A, reported = smoother(query, likelihood, heard, X)
    return Reliability(reported, error_variance(query, likelihood, heard, X, A))


def smoother(
    query: Query, likelihood: Likelihood, heard: Sequence[PartitionRows], X
) -> tuple[list[np.ndarray], np.ndarray]:
    """A of the committee's mean A y at the rows of X, one block (n, rows) per partition; and the reported variance.

    Each expert is asked for unit targets: line j of its eta is what a 1 at row j alone would say.
    """
    etas, precision, rows = [], np.zeros((query.size, query.size)), 0
    for part in heard:
        V = query.design(part.X)
        R = query.residual_lower(V, query.kernel.cross(part.X, part.X))
        message = gaussian_message(V, Block(R), np.eye(len(part.X)), likelihood.noise(part.obs)).weighted(part.weight)
        etas.append(message.eta)
        precision, rows = precision + message.precision, rows + message.rows
    belief = Committee(Message(np.zeros(query.size), precision, 0.0, rows)).posterior
    M = linalg.cholesky_solve(belief.factor, query.design(X).T)
    return [(eta @ M).T for eta in etas], predict_latent(query, belief, X)[1]


def error_variance(query: Query, likelihood: Likelihood, heard: Sequence[PartitionRows], X, A) -> np.ndarray:
    """Variance of f - A y at the rows of X under the Gaussian process of the model, (n,)."""
    B, designs = query.design(X), [query.design(part.X) for part in heard]
    unexplained = B - sum(a @ V for a, V in zip(A, designs, strict=True))
    variance = np.einsum("ij,ij->i", unexplained, unexplained) + query.residual_variance(B, X)
    for i, (part, V, a) in enumerate(zip(heard, designs, A, strict=True)):
        own = query.residual_cross(V, part.X, V, part.X)
        own[np.diag_indices_from(own)] += likelihood.noise(part.obs)
        pull = a @ own - 2.0 * query.residual_cross(B, X, V, part.X)
        for j in range(i):
            pull += 2.0 * A[j] @ query.residual_cross(designs[j], heard[j].X, V, part.X)
        variance += np.einsum("ij,ij->i", pull, a)
    return variance
