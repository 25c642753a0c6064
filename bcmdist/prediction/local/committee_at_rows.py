"""What local experts ask of a committee: its belief at rows, and what its shared variables leave between them.

Both are told of rows by `columns`, (n, K), made once and cut like the rows:

    Designed    the whitened design V itself
    Waved       V m and V R, with R R' = Lambda^-1 or, of many weights, a mean of so many probes: a design of thousands
                of waves is never written down

Where waves leave nothing, local experts of them say what the committee says. Where rows around are all rows, and the
belief is that of these as one block, they say what the Gaussian process of the periodic kernel says. Between the two,
the committee takes what waves leave for noise of each row on its own, so that with many rows to a wave it is too
certain, of waves near the highest frequency most: on a validation split of heaton_simulated that mirrors its gaps,
with the same hyper-parameters, query points and rows around give CRPS .530, waves of tolerance .05 (2 rows to a weight)
.525, of .15 (26 rows to a weight) .747. A belief of less certain rows mends the one at the cost of the other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import ClassVar

import numpy as np

from bcmdist import linalg
from bcmdist.model.kernels import cross_lower
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.fourier.belief import FourierBelief
from bcmdist.model.shared.fourier.features import PREDICTED_ROWS, Fourier
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent import BLOCK_ROWS


class CommitteeAtRows(ABC):
    """Shared variables v with what a committee believes of them, N(m, Lambda^-1)."""

    shared: Shared
    belief: Belief
    block_rows: ClassVar[int]
    """new rows whose columns are made at a time"""

    @abstractmethod
    def columns(self, X) -> np.ndarray:
        """Of the rows of X (n, D), scaled: (n, K)."""

    @abstractmethod
    def mean(self, V) -> np.ndarray:
        """b'm at rows with columns V: (n,), or (n, C) for C processes."""

    @abstractmethod
    def left_lower(self, V, X) -> np.ndarray:
        """Lower triangle of cov(f | v) of the rows X with columns V, (n, n)."""

    @abstractmethod
    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        """cov(f, f' | v) between the rows of X (n, D) and of X2 (m, D) with columns V and V2, (n, m)."""

    @abstractmethod
    def left_variance(self, V, X) -> np.ndarray:
        """Diagonal of cov(f | v), (n,)."""

    @abstractmethod
    def known(self, A, k) -> np.ndarray:
        """a' Lambda^-1 a of the k-th belief, of rows or sums of rows a whose columns are A (n, K): (n,). May overwrite
        A."""


@singledispatch
def committee_at_rows(shared: Shared, belief: Belief) -> CommitteeAtRows:
    """That of shared variables under a belief."""
    return Designed(shared, belief)


@dataclass(frozen=True)
class Designed(CommitteeAtRows):
    """By the whitened design."""

    shared: Shared
    belief: Belief
    block_rows = BLOCK_ROWS

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

    def known(self, A, k) -> np.ndarray:
        factor = self.belief.factor if self.belief.factor.ndim == 2 else self.belief.factor[k]
        s = linalg.solve_right_transposed(factor, np.asfortranarray(A))
        return np.einsum("ij,ij->i", s, s)


@dataclass(frozen=True)
class Waved(CommitteeAtRows):
    """By means and roots: the first C columns are those of C processes, which share the others."""

    shared: Fourier
    belief: Belief
    block_rows = PREDICTED_ROWS

    def columns(self, X) -> np.ndarray:
        blocks = range(0, max(len(X), 1), self.block_rows)
        return np.vstack([_seen(self.belief, self.shared, X[a : a + self.block_rows]) for a in blocks])

    def mean(self, V) -> np.ndarray:
        return V[:, 0] if self.belief.mean.ndim == 1 else V[:, : len(self.belief.mean)]

    def left_lower(self, V, X) -> np.ndarray:
        left, (i, j) = cross_lower(self.shared.kernel, X), np.tril_indices(len(X))
        left[i, j] += self.shared.beyond(X[i] - X[j])
        return left

    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        lags = (X2[:, None] - X).reshape(-1, X.shape[1])
        return self.shared.kernel.cross(X, X2) + self.shared.beyond(lags).reshape(len(X2), len(X)).T

    def left_variance(self, V, X) -> np.ndarray:
        return self.shared.kernel.diagonal(X) + self.shared.beyond(np.zeros((1, X.shape[1])))

    def known(self, A, k) -> np.ndarray:
        roots = A[:, self.belief.mean.size // self.shared.size :]
        return np.einsum("ij,ij->i", roots, roots)


committee_at_rows.register(Fourier, Waved)


@singledispatch
def _seen(belief, shared, X):
    """V m and V R, (n, C + K), of a belief that was factored: R = L^-T."""
    V = shared.design(X)
    return np.column_stack([V @ belief.mean.T, linalg.solve_right_transposed(belief.factor, V)])


@_seen.register
def _(belief: FourierBelief, shared, X):
    """Of one that is known by probes: variances are means of their squares."""
    roots = np.stack([one.root for one in belief.probed()])
    return shared.values(X, np.vstack([belief.mean.reshape(-1, shared.size), roots / np.sqrt(len(roots))])).T
