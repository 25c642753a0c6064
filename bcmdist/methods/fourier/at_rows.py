"""The committee of Fourier features in the form that local experts use.

The columns of a row are V m and V R, with R R' = Lambda^-1 or, for many weights, its average over probes. A design with
thousands of features is never formed.

Local experts agree with the committee where the truncated frequencies do not matter. They agree with the Gaussian
process of the periodic kernel where the neighbours are all rows and the belief is that of these rows as one block.
Otherwise the committee treats the truncated frequencies as independent noise, so with many rows per weight it is
overconfident, most of all near the highest frequency (tests/benchmarks/README.md).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.methods.fourier.belief import PREDICTION_ROWS, IterativeBelief
from bcmdist.model.kernels import cross_lower
from bcmdist.model.shared.belief import Factored
from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows


@dataclass(frozen=True)
class FourierAtRows(CommitteeAtRows):
    """Columns of means and roots: the first C columns are the means of C processes, which share the root columns."""

    shared: Any
    """`Fourier`"""
    belief: Factored | IterativeBelief
    block_rows = PREDICTION_ROWS

    def columns(self, X) -> np.ndarray:
        blocks = range(0, max(len(X), 1), self.block_rows)
        return np.vstack([self._means_and_roots(X[a : a + self.block_rows]) for a in blocks])

    def _means_and_roots(self, X):
        """V m and V R, (n, C + K)."""
        if isinstance(self.belief, Factored):
            V = self.shared.design(X)
            return np.column_stack([V @ self.belief.mean.T, linalg.solve_right_transposed(self.belief.factor, V)])
        roots = np.stack([one.root for one in self.belief.probes()])
        means = self.belief.mean.reshape(-1, self.shared.size)
        return self.shared.design_product(X, np.vstack([means, roots / np.sqrt(len(roots))])).T

    def mean(self, V) -> np.ndarray:
        return V[:, 0] if self.belief.mean.ndim == 1 else V[:, : len(self.belief.mean)]

    def left_lower(self, V, X) -> np.ndarray:
        left, (i, j) = cross_lower(self.shared.kernel, X), np.tril_indices(len(X))
        left[i, j] += self.shared.residual_less_kernel(X[i] - X[j])
        return left

    def left_cross(self, V, X, V2, X2) -> np.ndarray:
        lags = (X2[:, None] - X).reshape(-1, X.shape[1])
        return self.shared.kernel.cross(X, X2) + self.shared.residual_less_kernel(lags).reshape(len(X2), len(X)).T

    def left_variance(self, V, X) -> np.ndarray:
        return self.shared.kernel.diagonal(X) + self.shared.residual_less_kernel(np.zeros((1, X.shape[1])))

    def belief_variance(self, A, k) -> np.ndarray:
        roots = A[:, self.belief.mean.size // self.shared.size :]
        return np.einsum("ij,ij->i", roots, roots)
