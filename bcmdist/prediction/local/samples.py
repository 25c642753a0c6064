"""Joint samples of f at new points: exact for few points, by random functions for many.

Few points: a factor of the joint covariance (`joint_moments`).

Many points: Matheron's rule (Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors",
section 3; conditioning by kriging in geostatistics). A sample is

    f(x) = E f(x) + a' (v - m) + r(x) - g' (r(rows) + noise)

with one sample of v and one function r from the prior for all cells, and one noise at each row. Neighbouring cells
correct the same r with the rows that they share, so samples do not jump at borders beyond what the predictions do. Its
mean and covariance are those of `joint_moments`, if r has the covariance of the prior. r = h - b'L^-1 h(X^q), where h
is a sum of `COSINES` cosines with frequencies from the kernel's spectral density, drawn anew for each sample. So over
samples mean and covariance are exact for any number of cosines. Only the normal distribution is approximate: the
excess kurtosis of h at a point is -1.5 / COSINES.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.experts.residual_interface import Kept
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows
from bcmdist.prediction.local.joint_moments import InCells, each_point, pieces_of

# Points up to which samples come from a factor of their covariance. Arbitrary: some seconds.
FEW_POINTS = 2000
# Cosines of a random function, and rows whose cosines are in memory at a time.
COSINES = 1024
COSINE_ROWS = 2048


def by_covariance(shared: Shared, points: int) -> bool:
    """Whether to sample f at so many points by its joint covariance: if they are few, or if no functions can be drawn
    from the prior. Otherwise by `sample_paths`."""
    if points <= FEW_POINTS or not isinstance(shared, Query) or not isinstance(kind_of(shared), Kept):
        return True
    try:
        shared.kernel.random_function(np.random.default_rng(0), 1, shared.inputs)
    except InvalidOption:
        return True
    return False


def sample_normal(mean, covariance, size, rng) -> np.ndarray:
    """Samples of N(mean, covariance), (size, n), by pivoted Cholesky without jitter."""
    if len(mean) == 0:
        return np.empty((size, 0))
    F = linalg.semidefinite_factor(covariance, name="joint covariance at new points")
    samples = rng.standard_normal((size, F.shape[1])) @ F.T
    samples += mean
    return samples


class RandomResiduals:
    """Samples of r ~ GP(0, cov(f | v)) at any points, and of the noise of rows.

    Rows keep their values, so that all cells with a row use the same ones.
    """

    def __init__(self, shared: Query, size: int, rng: np.random.Generator):
        self.shared, self.rng, self.size = shared, rng, size
        self.functions = [shared.kernel.random_function(rng, COSINES, shared.inputs) for _ in range(size)]
        at_query = self._prior(shared.points) + np.sqrt(shared.jitter) * rng.standard_normal((shared.functions, size))
        self.weights = linalg.solve_lower(shared.factor, np.asfortranarray(at_query))
        self.positions: dict[int, int] = {}
        self.values = np.zeros((0, size))
        self.deviates = np.zeros((0, size))

    def __call__(self, X, V) -> np.ndarray:
        """Values at points X (n, D) with design V (n, S): (n, size)."""
        return self._prior(X) - V[:, : self.shared.functions] @ self.weights

    def at_rows(self, rows, X, V) -> tuple[np.ndarray, np.ndarray]:
        """Values of r, and standard normal deviates of the noise, at numbered rows: (n, size) each."""
        unseen = np.flatnonzero([row not in self.positions for row in rows.tolist()])
        if len(unseen):
            start = len(self.positions)
            self.positions |= {row: start + k for k, row in enumerate(rows[unseen].tolist())}
            self._make_room(len(self.positions))
            self.values[start : len(self.positions)] = self(X[unseen], V[unseen])
            self.deviates[start : len(self.positions)] = self.rng.standard_normal((len(unseen), self.size))
        at = [self.positions[row] for row in rows.tolist()]
        return self.values[at], self.deviates[at]

    def _make_room(self, count):
        if count > len(self.values):
            more = np.zeros((2 * count - len(self.values), self.size))
            self.values, self.deviates = (np.concatenate([one, more]) for one in (self.values, self.deviates))

    def _prior(self, X):
        points = X.reshape(-1, self.shared.inputs)  # several of each row whose input has errors
        blocks = [points[a : a + COSINE_ROWS] for a in range(0, max(len(points), 1), COSINE_ROWS)]
        values = np.concatenate([np.column_stack([one(x) for one in self.functions]) for x in blocks])
        return values if len(points) == len(X) else values.reshape(len(X), -1, self.size).mean(axis=1)


def sample_paths(seen: CommitteeAtRows, in_cells: InCells, X, size, rng) -> np.ndarray:
    """Joint samples of f at the points X (n, D), scaled, by Matheron's rule: (size, n); of values at query points.

    Memory: `size` numbers for each point and each row of the cells. Time: `COSINES` cosines for each of these.
    """
    shared = seen.shared
    assert isinstance(shared, Query), "values at query points"
    residuals, found, z = RandomResiduals(shared, size, rng), np.empty((size, len(X))), None
    for points, expert in in_cells:
        for piece in pieces_of(seen, [(points, expert)], X, each_point(len(X))):
            root = seen.belief_root(piece.A, 0)
            z = rng.standard_normal((root.shape[1], size)) if z is None else z
            f = piece.mean[:, None] + root @ z + residuals(piece.X, seen.columns(piece.X))
            if expert is not None:
                r, e = residuals.at_rows(expert.rows, expert.X, expert.V)
                f -= piece.influence.T @ r + piece.noise.T @ e
            found[:, piece.sums] = f.T
    return found
