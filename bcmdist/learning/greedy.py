"""Greedy selection of rows as a support set, by the evidence (SGEV) or the posterior density (SGGP) of their model.

Both score the model that uses the selected rows alone (thesis, 3.3.4, 3.3.5 and A.3; SYSTEMS T14, T15).
"""

from collections.abc import Callable

import numpy as np

from bcmdist import linalg

# Candidates for each point: with 59 the best is among the best 5 % with probability 95 % (1 - .95^59).
POOL = 59
# SGGP stops when the log posterior is within this relative gap of an upper bound (Smola & Bartlett 2001). Arbitrary,
# and no indication of how well rows are predicted (thesis, 3.3.5.2).
LEAST_GAP = 0.025


class ConditionalVariance:
    """Prior variance of f at the sampled rows, given f at the rows chosen so far.

    Partial Cholesky factorisation K = V V' + remainder, with one column of V per chosen row; memory O(n count).
    """

    def __init__(self, sample, count, kernel, share):
        self.sample, self.kernel = sample, kernel
        self.variance = kernel.diagonal(sample)
        """diagonal of the remainder, (n,)"""
        self.least = share * self.variance.mean()
        """rows with less variance are determined by the chosen ones"""
        self.chosen: list[int] = []
        self._space = np.empty((len(sample), min(count, len(sample))), order="F")
        self.V = self._space[:, :0]
        """(n, chosen)"""

    @property
    def full(self) -> bool:
        """Whether the requested number of rows has been chosen."""
        return self.V.shape == self._space.shape

    def columns(self, rows) -> np.ndarray:
        """Return the column that each of `rows` (c,) would append to V, (n, c)."""
        remainder = self.kernel.cross(self.sample, self.sample[rows]) - self.V @ self.V[rows].T
        return remainder / np.sqrt(self.variance[rows])

    def choose(self, row, column) -> None:
        """Add a row, with its column (n,) from `columns`."""
        self._space[:, len(self.chosen)] = column
        self.chosen.append(int(row))
        self.V = self._space[:, : len(self.chosen)]
        self.variance = self.variance - column**2
        self.variance[row] = 0.0


def greedy_evidence(
    sample, targets, count, kernel, noise, seed, *, share=linalg.DUPLICATE_SHARE
) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows that raise the evidence of the targets; return rows and their gains (thesis, 3.3.4).

    Parameters
    ----------
    targets : (n, C)
        Targets of C processes with the same kernel, whose gains are summed.

    Returns
    -------
    rows (m,) with m <= count, gains (m,) in nats
    """

    def gain(t, d):
        return 0.5 * (t**2).sum(axis=1) - targets.shape[1] * np.log(d)

    return _chosen(sample, targets, count, kernel, noise, seed, share, gain, lambda rows, reached: False)


def greedy_posterior(
    sample, targets, count, kernel, noise, seed, *, share=linalg.DUPLICATE_SHARE, gap=LEAST_GAP
) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows that raise the posterior density at its mode; return rows and gains of its logarithm (SGGP; 3.35).

    The logarithm is the log evidence without determinants. With M rows it reaches 1/2 r'r, which is

        1/2 y' Psi^-1 V (I + V' Psi^-1 V)^-1 V' Psi^-1 y  <=  1/2 y' Psi^-1 y - 1/2 y_M' (K_MM + Psi_M)^-1 y_M,

    where the bound also holds for all rows, as y'(K + Psi)^-1 y is the maximum of 2 y'b - b'(K + Psi) b over b.
    Selection stops when the two sides differ by less than `gap` of their mean.

    Parameters and return values as of `greedy_evidence`.
    """

    def gain(t, d):
        return 0.5 * (t**2).sum(axis=1)

    most = 0.5 * float(np.sum(targets**2 / noise[:, None]))
    enough = _Bound(sample, targets, kernel, noise, most, gap)
    return _chosen(sample, targets, count, kernel, noise, seed, share, gain, enough)


class _Bound:
    """Stopping rule of SGGP, with a growing Cholesky factor of K_MM + Psi_M for its upper bound."""

    def __init__(self, sample, targets, kernel, noise, most, gap):
        self.sample, self.targets, self.kernel, self.noise = sample, targets, kernel, noise
        self.most, self.gap = most, gap
        self.L = np.empty((0, 0), order="F")

    def __call__(self, rows, reached) -> bool:
        """Whether to stop after adding the last of `rows`, at the log posterior `reached`."""
        *earlier, new = rows
        k = self.kernel.cross(self.sample[earlier], self.sample[[new]])[:, 0] if earlier else np.empty(0)
        own = float(self.kernel.diagonal(self.sample[[new]])[0] + self.noise[new])
        z = linalg.solve_lower(self.L, k[:, None].copy(order="F"))[:, 0] if earlier else k
        grown = np.zeros((len(rows), len(rows)), order="F")
        grown[:-1, :-1], grown[-1, :-1], grown[-1, -1] = self.L, z, np.sqrt(own - z @ z)
        self.L = grown
        whitened = linalg.solve_lower(grown, np.asfortranarray(self.targets[rows]))
        bound = self.most - 0.5 * float(np.sum(whitened**2))
        return bound - reached < self.gap * 0.5 * (bound + reached)


def _chosen(
    sample, targets, count, kernel, noise, seed, share, gain_of: Callable, enough: Callable
) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows one by one; return them and their gains. Each has the largest gain among `POOL` random candidates.

    The model uses the chosen rows alone (SoR): y ~ N(0, V V' + Psi) with Psi = diag(noise) and V V' the
    part of K that they explain. With L L' = I + V' Psi^-1 V and r = L^-1 V' Psi^-1 y, a column u appended to V
    appends (z', d) to L and t to r (SYSTEMS T14),

        z = L^-1 V' Psi^-1 u,   d^2 = 1 + u' Psi^-1 u - z'z,   t = (u' Psi^-1 y - z'r) / d,

    in O(n count) for each candidate. The log evidence gains t^2 / 2 - log d, the log posterior t^2 / 2.

    Parameters
    ----------
    gain_of : function of t (c, C) and d (c,) of the candidates, returns gains (c,)
    enough : stopping rule, a function of the chosen rows and their total gain
    """
    rng = np.random.default_rng(seed)
    conditional = ConditionalVariance(sample, count, kernel, share)
    size, classes = min(count, len(sample)), targets.shape[1]
    L, r = np.zeros((size, size), order="F"), np.zeros((size, classes))
    gains: list[float] = []
    free = np.flatnonzero(conditional.variance > conditional.least)
    while not conditional.full and len(free):
        pool, m = rng.choice(free, min(POOL, len(free)), replace=False), len(gains)
        U = conditional.columns(pool)
        weighted = U / noise[:, None]
        Z = linalg.solve_lower(L[:m, :m], np.asfortranarray(conditional.V.T @ weighted))
        d = np.sqrt(1.0 + np.einsum("ij,ij->j", U, weighted) - np.einsum("ij,ij->j", Z, Z))
        t = (weighted.T @ targets - Z.T @ r[:m]) / d[:, None]
        gain = gain_of(t, d)
        best = int(gain.argmax())
        L[m, :m], L[m, m], r[m] = Z[:, best], d[best], t[best]
        conditional.choose(pool[best], U[:, best])
        gains.append(float(gain[best]))
        if enough(conditional.chosen, sum(gains)):
            break
        free = np.flatnonzero(conditional.variance > conditional.least)
    return np.array(conditional.chosen), np.array(gains)
