"""The interface between local experts and a committee: posterior moments at rows, and the covariance of f given v."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bcmdist import linalg
from bcmdist.model.kernels import cross_lower
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent import BLOCK_ROWS


class CommitteeAtRows(ABC):
    """Moments of f at rows, for local experts, from shared variables v with the posterior N(m, Lambda^-1).

    Rows are passed as their columns V (n, K), which `columns` computes once for all other methods.
    """

    shared: Shared
    belief: Belief
    block_rows: ClassVar[int]
    """new rows whose columns are computed at a time"""
    fixed_columns: ClassVar[bool] = False
    """whether the columns of a row are the same under every posterior"""

    @abstractmethod
    def columns(self, X) -> np.ndarray:
        """Columns (n, K), such as the whitened design, of the scaled rows X (n, D)."""

    @abstractmethod
    def mean(self, V) -> np.ndarray:
        """b'm at rows with columns V: (n,), or (n, C) for C processes."""

    @abstractmethod
    def left_lower(self, V, X) -> np.ndarray:
        """Lower triangle of cov(f | v) at the rows X (n, D) with columns V, (n, n)."""

    @abstractmethod
    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        """cov(f, f' | v) between the rows X (n, D) and X2 (m, D) with columns V and V2, (n, m)."""

    @abstractmethod
    def left_variance(self, V, X) -> np.ndarray:
        """Diagonal of cov(f | v), (n,)."""

    @abstractmethod
    def prior_cross(self, X, X2) -> np.ndarray:
        """The part of `left_cross` that is a function of the rows X (n, D) and X2 (m, D) themselves, (n, m)."""

    @abstractmethod
    def explained(self, A) -> np.ndarray:
        """Columns E (n, J) of rows, or sums of rows, with columns A (n, K), by which cov(f, f' | v) is below
        `prior_cross`:  left_cross = prior_cross - E E'."""

    @abstractmethod
    def belief_root(self, A, k) -> np.ndarray:
        """R (n, J) with R R' = A Lambda^-1 A' under the k-th posterior, for rows, or sums of rows, with columns A.

        May overwrite A.
        """

    def input_noise(self, V, X) -> np.ndarray | float:
        """Variances (n,) of independent errors of f at rows, from errors of their inputs; 0 where these are exact."""
        return 0.0

    def stacked_rows(self, X, rows) -> np.ndarray:
        """New rows X (n, D) and rows of experts in one array."""
        return np.concatenate([X, rows])

    def belief_variance(self, A, k) -> np.ndarray:
        """a' Lambda^-1 a for each row a of A, (n,); see `belief_root`."""
        root = self.belief_root(A, k)
        return np.einsum("ij,ij->i", root, root)


def committee_at_rows(shared: Shared, belief: Belief) -> CommitteeAtRows:
    """The `CommitteeAtRows` of shared variables with posterior `belief`."""
    return shared.committee_at_rows(belief, Designed)


@dataclass(frozen=True)
class Designed(CommitteeAtRows):
    """Uses the whitened design as columns."""

    shared: Shared
    belief: Belief
    block_rows = BLOCK_ROWS
    fixed_columns = True

    def columns(self, X) -> np.ndarray:
        return self.shared.design(X)

    def mean(self, V) -> np.ndarray:
        return V @ self.belief.mean.T

    def left_lower(self, V, X) -> np.ndarray:
        return self.shared.residual_lower(V, cross_lower(self.shared.kernel, X))

    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        return self.shared.residual_cross(V, X, V2, X2)

    def left_variance(self, V, X) -> np.ndarray:
        return self.shared.residual_variance(V, X)

    def prior_cross(self, X, X2) -> np.ndarray:
        return self.shared.kernel.cross(X, X2)

    def explained(self, A) -> np.ndarray:
        return A[:, : self.shared.functions]

    def belief_root(self, A, k) -> np.ndarray:
        factor = self.belief.factor if self.belief.factor.ndim == 2 else self.belief.factor[k]
        return linalg.solve_right_transposed(factor, np.asfortranarray(A))
