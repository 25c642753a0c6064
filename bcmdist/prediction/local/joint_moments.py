"""Joint distribution of f at new points, or of weighted sums of it, by a committee with the local experts of cells.

A prediction at x in a cell is linear in the targets of the cell's rows, with weights g = T c (`local.expert`). Its
error, given the shared variables v, is that of kriging with these rows,

    f(x) - E f(x) = r(x) - g' (r(rows) + noise),      r = f - b'v,  cov(r, r') = k - b_q'b_q'

so the errors at points of different cells are correlated through r and through the rows that their halos share. With
these errors collected in Q (1 at x, -g at the rows) and in N (g times the standard deviation of the noise), and
a = b - V'g,

    cov(f, f') = Q' cov(r) Q + N'N + A Lambda^-1 A'

holds for any two points, or weighted sums of f, of any cells. In one cell this is k - b_q'b_q - c'T c + a'Lambda^-1 a,
the variance of `predict_local`. The covariance is positive semi-definite by construction and has no term that ends at a
border. Other likelihoods have the noise of their linearisation, which may differ between two cells with a common row:
its normal deviate is the same, its standard deviation that of each cell.

Memory: the rows of all cells in question, their covariances with `TILE_ENTRIES` at a time, and the result. Time: the
square of the number of points and rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows
from bcmdist.prediction.local.expert import LocalExpert

# Entries of a covariance matrix that are in memory at a time, 32 MiB.
TILE_ENTRIES = 2**22

InCells = Iterable[tuple[np.ndarray, LocalExpert | None]]
"""Positions of new points, ascending, with the local expert of their cell, or None"""


@dataclass(frozen=True)
class Sums:
    """Weighted sums of f over points, where each point belongs to one sum."""

    number: np.ndarray
    """number of the sum of each point, (n,)"""
    weight: np.ndarray
    """(n,)"""
    count: int

    def __getitem__(self, points) -> "Sums":
        return replace(self, number=self.number[points], weight=self.weight[points])

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the sums to which the points belong, (j,), and the weights of the points in these, (n, j)."""
        numbers, place = np.unique(self.number, return_inverse=True)
        weights = np.zeros((len(self.number), len(numbers)))
        weights[np.arange(len(place)), place] = self.weight
        return numbers, weights


def each_point(points: int) -> Sums:
    """Sums of one point each, whose moments are the joint ones of f at the points."""
    return Sums(np.arange(points), np.ones(points), points)


@dataclass(frozen=True)
class Piece:
    """Points of one cell as parts of j sums."""

    sums: np.ndarray
    """numbers of the sums, (j,)"""
    X: np.ndarray
    """points, (m, D), scaled"""
    weights: np.ndarray
    """of the points, (m, j)"""
    rows: np.ndarray
    """numbers of the rows of the cell's expert, (n,)"""
    row_inputs: np.ndarray
    """`LocalExpert.X`"""
    influence: np.ndarray
    """weights g of the rows, (n, j)"""
    noise: np.ndarray
    """g times the standard deviation of the rows' noise, (n, j)"""
    mean: np.ndarray
    """(j,)"""
    A: np.ndarray
    """columns of `CommitteeAtRows`, (j, K)"""


def pieces_of(seen: CommitteeAtRows, in_cells: InCells, X, sums: Sums) -> Iterator[Piece]:
    """Yield the points X (n, D), scaled, by cells, at most `seen.block_rows` points at a time."""
    for points, expert in in_cells:
        for some in (points[a : a + seen.block_rows] for a in range(0, len(points), seen.block_rows)):
            yield _piece(seen, expert, X[some], sums[some])


def _piece(seen, expert, X, sums):
    (numbers, weights), B = sums.table(), seen.columns(X)
    mean, A = weights.T @ seen.mean(B), weights.T @ B
    if expert is None:
        none = np.zeros((0, len(numbers)))
        return Piece(numbers, X, weights, np.zeros(0, np.int64), X[:0], none, none, mean, A)
    C = np.asfortranarray(seen.left_cross(expert.V, expert.X, B, X) @ weights)
    mean = mean + C.T @ expert.pull
    influence, noise = expert.sites[0].weights(C)
    A = A - influence.T @ expert.V
    return Piece(numbers, X, weights, expert.rows, expert.X, influence, noise, mean, A)


def joint_moments(seen: CommitteeAtRows, in_cells: InCells, X, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
    """Mean (count,) and covariance (count, count) of weighted sums of f over the points X (n, D), scaled; one process.

    The covariance is exactly symmetric. Its diagonal, for sums of one point, is the variance of `predict_local`.
    """
    pieces = list(pieces_of(seen, in_cells, X, sums))
    mean, covariance = np.zeros(sums.count), np.zeros((sums.count, sums.count))
    if not pieces:
        return mean, covariance
    A = np.zeros((sums.count, pieces[0].A.shape[1]))
    for piece in pieces:
        mean[piece.sums] += piece.mean
        A[piece.sums] += piece.A
    E = seen.explained(A)
    covariance -= E @ E.T
    for covariances in _tiles(seen, pieces, sums.count):
        covariance += covariances
    R = seen.belief_root(A, 0)
    covariance += R @ R.T
    covariance = 0.5 * (covariance + covariance.T)
    diagonal = np.diag_indices_from(covariance)
    covariance[diagonal] = np.maximum(covariance[diagonal], 0.0)
    return mean, covariance


@dataclass(frozen=True)
class _Term:
    """Coefficients of some values of r in some sums."""

    at: np.ndarray
    """places of the values among all, (n,)"""
    sums: np.ndarray
    """(j,)"""
    values: np.ndarray
    """(n, j)"""
    noise: np.ndarray | None = None
    """(n, j); None without noise"""


def _tiles(seen, pieces, count):
    """Yield the parts of Q' prior Q + N'N, (count, count), from the values of r at some points and rows with all later
    ones."""
    Z, terms = _values(seen, pieces)
    step = max(1, TILE_ENTRIES // len(Z))
    for a in range(0, len(Z), step):
        prior = seen.prior_cross(Z[a : a + step], Z[a:])
        here = prior.shape[0]
        prior[:, :here] *= 0.5
        Q, N, product = np.zeros((here, count)), np.zeros((here, count)), np.zeros((here, count))
        for term in terms:
            later = term.at >= a
            if not later.any():
                continue
            product[:, term.sums] += prior[:, term.at[later] - a] @ term.values[later]
            own = later & (term.at < a + here)
            place = np.ix_(term.at[own] - a, term.sums)
            Q[place] += term.values[own]
            if term.noise is not None:
                N[place] += term.noise[own]
        half = Q.T @ product
        yield half + half.T + N.T @ N


def _values(seen, pieces) -> tuple[np.ndarray, list[_Term]]:
    """Inputs of all values of r, of the points and of each row once, and the terms of the sums."""
    points = sum(len(piece.X) for piece in pieces)
    rows, first = np.unique(np.concatenate([piece.rows for piece in pieces]), return_index=True)
    inputs = np.concatenate([piece.row_inputs for piece in pieces if len(piece.rows)] or [pieces[0].X[:0]])[first]
    Z = seen.stacked_rows(np.concatenate([piece.X for piece in pieces]), inputs)
    terms, start = [], 0
    for piece in pieces:
        terms.append(_Term(np.arange(start, start + len(piece.X)), piece.sums, piece.weights))
        start += len(piece.X)
        if len(piece.rows):
            at = points + np.searchsorted(rows, piece.rows)
            terms.append(_Term(at, piece.sums, -piece.influence, piece.noise))
    return Z, terms
