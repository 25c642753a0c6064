"""Blocks of a sample that are left out: cells of several sizes, in the metric of a kernel.

Rows left out one by one have neighbours as near as ever. What a model predicts farther from rows is seen where a whole
block is missing. One inverse predicts each block of a sample from all rows outside of it: with T = (K + noise)^-1 and b
the rows of the block, its errors are (T_bb)^-1 (T y)_b, and their covariance is (T_bb)^-1. For a likelihood that is not
Gaussian the sites of a block are divided out of the posterior at the mode, those of other rows stay where they are.

Scores weigh single rows and blocks by the distances at which predictions will be needed, where these are known
(`shares_of`); otherwise by a mixture of both.
"""

import functools
import hashlib
from collections.abc import Hashable

import numpy as np
from scipy.spatial import cKDTree
from zict import LRU

from bcmdist import linalg
from bcmdist.data.cell_tree import grow
from bcmdist.experts.laplace import laplace_mode
from bcmdist.learning.gap_points import Gaps
from bcmdist.learning.left_out.density import label_densities, normal_density
from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.observation import predictive
from bcmdist.storage.cache import get_or_make, least_recently_used

# Numbers of blocks into which a sample is cut, one size after the other: powers of two, so that blocks are nested. The
# largest hold a quarter of the domain. Arbitrary.
CUTS = (64, 16, 4)
# Number of samples, and rows of each; with fewer rows than `LEAST_ROWS` in all, no blocks are left out.
SAMPLES, SAMPLE_ROWS, LEAST_ROWS = 4, 500, 100
# Weight of all blocks in a score if nothing is known about where predictions will be needed: most are expected where
# rows are. Arbitrary.
BLOCKS_SHARE = 0.25
# Blocks of the samples of a search, which asks for them at each of its scores.
_cache: LRU[Hashable, np.ndarray] = least_recently_used(2**24, lambda numbers: numbers.nbytes)


def block_numbers(Z) -> np.ndarray:
    """Return the block of each row at each size of `CUTS`, (S, n), for inputs Z (n, D) in units of a metric."""
    key = Z.shape, hashlib.sha256(np.ascontiguousarray(Z).tobytes()).digest()
    return get_or_make(_cache, key, functools.partial(_numbers, Z))


def _numbers(Z):
    tree = grow(Z, np.ones(Z.shape[1]), cell_rows=len(Z) / CUTS[0], partition_rows=len(Z))
    cells = tree.route(Z)
    return np.array([cells // (CUTS[0] // cut) for cut in CUTS])


def densities_by_block(K, likelihood: Likelihood, obs, numbers) -> np.ndarray:
    """Log densities of rows, each predicted without its block, (k, S, n): k steepnesses of class labels, else 1.

    Parameters
    ----------
    K : (n, n), prior covariance of f; overwritten
    numbers : (S, n), the block of each row at each size

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    if likelihood.exact:
        error, variance = errors_by_block(K, likelihood, obs, numbers)
        if not likelihood.on_labels:
            return normal_density(error, variance)[None]
        targets = likelihood.targets(obs)
        return np.stack([label_densities(targets, e, v[:, None]) for e, v in zip(error, variance, strict=True)], axis=1)
    moments = zip(*cavities_by_block(K, likelihood, obs, numbers), strict=True)
    return np.array([[predictive(likelihood, m, v, obs).log_density(obs) for m, v in moments]])


def cavities_by_block(K, likelihood: Likelihood, obs, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at rows, each without the sites of its block, (S, n) each; parameters as above.

    With V the posterior covariance of a block at the mode f, R^2 its curvatures and s its scores, C = (V^-1 - R^2)^-1 =
    V + V R A^-1 R V, where A = I - R V R is a block of (I + R K R)^-1, and the mean is f - C s.
    """
    f = laplace_mode(K, obs, likelihood)
    score, root = likelihood.score(obs, f), np.sqrt(likelihood.curvature(obs, f))
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2 of a sample")
    half, inverse = linalg.solve_lower(L, np.asfortranarray(root[:, None] * K)), linalg.inverse(L)
    mean, variance = np.empty(numbers.shape), np.empty(numbers.shape)
    for k, own in enumerate(numbers):
        for block in np.unique(own):
            rows = np.flatnonzero(own == block)
            V = K[np.ix_(rows, rows)] - half[:, rows].T @ half[:, rows]
            A = linalg.cholesky(inverse[np.ix_(rows, rows)], name="share of what others tell of a block")
            G = linalg.solve_lower(A, np.asfortranarray(root[rows, None] * V))
            mean[k, rows] = f[rows] - V @ score[rows] - G.T @ (G @ score[rows])
            variance[k, rows] = np.diag(V) + np.einsum("ij,ij->j", G, G)
    return mean, variance


def errors_by_block(K, likelihood: Likelihood, obs, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Errors of rows, each predicted without its block, (S, n) or (S, n, C), and their variances, (S, n), with noise.

    Parameters as above.

    Raises
    ------
    NotPositiveDefinite
    """
    K[np.diag_indices_from(K)] += likelihood.noise(obs)
    L = linalg.cholesky(K, name="covariance of a sample's targets")
    pull = linalg.cholesky_solve(L, likelihood.targets(obs))
    T = linalg.inverse(L)
    error, variance = np.empty(numbers.shape + pull.shape[1:]), np.empty(numbers.shape)
    for k, own in enumerate(numbers):
        for block in np.unique(own):
            rows = np.flatnonzero(own == block)
            S = linalg.inverse(linalg.cholesky(T[np.ix_(rows, rows)], name="precision of a block"))
            error[k, rows], variance[k, rows] = S @ pull[rows], np.diag(S)
    return error, variance


def means_by_block(number, density) -> np.ndarray:
    """Mean of the densities (n,) of each block, (B,), for the block of each row, (n,)."""
    _, block, count = np.unique(number, return_inverse=True, return_counts=True)
    return np.bincount(block, density) / count


def by_size(values, steepness=0) -> list[np.ndarray]:
    """Split values (1 + k, B), of each block its size and its mean densities, by size: those at one steepness."""
    return [values[1 + steepness, values[0] == size] for size in range(len(CUTS))]


def shares_of(Z, places=None, *, gaps: Gaps | None = None, blocks=True) -> tuple[float, ...]:
    """Return the weights in a score of single rows, of gaps if there are any, and of blocks of each size if used.

    Parameters
    ----------
    Z : sample of rows (n, D), in random order, in units of a metric
    places : where predictions will be needed, (m, D), in these units: each counts for the kind of left-out rows that
        are as far from the nearest row; None for a mixture of all kinds
    """
    of_gaps = [gaps.share] if gaps else []
    if places is None:
        of_blocks = [BLOCKS_SHARE / len(CUTS)] * len(CUTS) if blocks else []
        return (1.0 - sum(of_gaps) - sum(of_blocks), *of_gaps, *of_blocks)
    tree, inputs = cKDTree(Z), Z.shape[1]
    single = float(np.median(tree.query(Z[:SAMPLE_ROWS], k=2)[0][:, -1]))
    # The mean distance to the surface of a ball of radius r is r / (D + 1).
    away = [single, *([gaps.radius / (inputs + 1)] if gaps else []), *(_away(Z[:SAMPLE_ROWS]) if blocks else [])]
    levels = np.log(np.maximum(away, np.finfo(float).tiny))
    distance = np.log(np.maximum(tree.query(places)[0], np.finfo(float).tiny))
    nearest = np.abs(distance[:, None] - levels).argmin(axis=1)
    return tuple((np.bincount(nearest, minlength=len(levels)) / len(places)).tolist())


def _away(Z):
    """Median distance of rows to the nearest row outside of their block, for each size."""
    for own in block_numbers(Z):
        outside = [(own == block, cKDTree(Z[own != block])) for block in np.unique(own)]
        yield float(np.median(np.concatenate([tree.query(Z[inside])[0] for inside, tree in outside if tree.n])))
