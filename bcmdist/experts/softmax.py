"""Laplace experts of C classes: one latent process per class, coupled by the softmax.

All classes share the prior covariance K, so every kernel matrix is computed once. With the probabilities p_c of the
rows (times their weights), W = blkdiag(p_c) - P P', where P stacks the matrices diag(p_c); then (Rasmussen & Williams
2006, alg. 3.3)

    (W^-1 + K)^-1 = E - E R (sum_c E_c)^-1 R' E,   E_c = p_c^1/2 (I + p_c^1/2 K p_c^1/2)^-1 p_c^1/2

with R' = (I, ..., I), so only n x n matrices are factored: C + 1 of them. Where only the shared variables couple rows,
K = diag(d) + U U', these matrices are diagonal, and one matrix of C times the columns of U is factored.
"""

from functools import singledispatch
from typing import Protocol, cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import REUSED_SHARE, climb, site_message
from bcmdist.experts.low_rank import Covariance, LowRank
from bcmdist.experts.message import Message
from bcmdist.experts.residual_interface import Residual
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods.interface import Likelihood
from bcmdist.model.likelihoods.multiclass import AnySoftmax


def softmax_mode(
    K: Covariance, obs: Observations, likelihood: AnySoftmax, prior_mean: FloatArray | None = None
) -> FloatArray:
    """Mode of p(y | f) prod_c N(f_c; prior_mean_c, K), (n, C), by damped Newton steps.

    Raises
    ------
    LaplaceNotConverged
    """
    if prior_mean is not None and not K.diagonal().any():  # f has no variance
        return prior_mean
    kept: Coupling | None = None
    largest = 0.0

    def newton(f: FloatArray, gap: FloatArray) -> FloatArray:
        nonlocal kept, largest
        before, largest = largest, np.abs(gap).max()
        if kept is None or largest > REUSED_SHARE * before:
            kept = _coupling(K, likelihood.probability(obs, f))
        return gap - kept.solve(K @ gap)

    start = np.zeros((len(K), likelihood.processes)) if prior_mean is None else prior_mean
    return start + K @ climb(
        K, obs, likelihood, start, newton, lambda f: likelihood.probability(obs, f), np.zeros_like(start)
    )


def _times_hessian(p: FloatArray, weight: FloatArray, b: FloatArray) -> FloatArray:
    """Return W b for p, b (n, C): p_c b_c - p_c sum_d p_d b_d / weight."""
    product: FloatArray = p * (b - ((p * b).sum(axis=1) / weight)[:, None])
    return product


class Coupling(Protocol):
    """(W^-1 + K)^-1 as an operator."""

    def solve(self, B: FloatArray) -> FloatArray: ...

    def gram(self, V: FloatArray) -> FloatArray: ...

    @property
    def log_determinant(self) -> float: ...


@singledispatch
def _coupling(K: Covariance, p: FloatArray) -> Coupling:
    """(W^-1 + K)^-1 as an operator, for p (n, C); dispatches on the type of K."""
    return _Coupling(cast(FloatArray, K), p)  # other types have their own implementations


class _Coupling:
    """For a matrix K: stores the factors of all E_c and of their sum."""

    def __init__(self, K: FloatArray, p: FloatArray) -> None:
        self.roots = np.sqrt(p)
        self.factors = [
            linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + p^1/2 K p^1/2") for root in self.roots.T
        ]
        total = np.zeros_like(K, order="F")
        for L, root in zip(self.factors, self.roots.T, strict=True):
            E = linalg.inverse(L)
            E *= root[:, None]
            E *= root
            total += E
        self.sum_factor = linalg.cholesky(total, name="sum over classes of (p^-1 + K)^-1")

    def half(self, c: int, B: FloatArray) -> FloatArray:
        """Return E_c B."""
        root = self.roots[:, c].reshape(-1, *[1] * (B.ndim - 1))
        product: FloatArray = root * linalg.cholesky_solve(self.factors[c], root * B)
        return product

    def solve(self, B: FloatArray) -> FloatArray:
        """Return (W^-1 + K)^-1 B for B (n, C)."""
        EB = np.column_stack([self.half(c, B[:, c]) for c in range(B.shape[1])])
        common = linalg.cholesky_solve(self.sum_factor, EB.sum(axis=1))
        return EB - np.column_stack([self.half(c, common) for c in range(B.shape[1])])

    def gram(self, V: FloatArray) -> FloatArray:
        """Return V'(W^-1 + K)^-1_cd V in blocks by class, (C S, C S)."""
        C, S = self.roots.shape[1], V.shape[1]
        U = np.concatenate([self.half(c, V) for c in range(C)], axis=1)
        found = linalg.gram(linalg.solve_lower(self.sum_factor, np.array(U, order="F")))
        found *= -1.0
        for c in range(C):
            own = slice(c * S, (c + 1) * S)
            block = V.T @ U[:, own]
            found[own, own] += 0.5 * (block + block.T)
        return found

    @property
    def log_determinant(self) -> float:
        """log |I + K W| plus the sum of the rows' log weights."""
        return sum(map(linalg.log_determinant, self.factors)) + linalg.log_determinant(self.sum_factor)


class _LowRankCoupling:
    """For K = diag(d) + U U'. With U~ = U for each class and A = (W^-1 + diag(d))^-1, a (C, C) matrix per row,

    (W^-1 + K)^-1 = A - A U~ (I + U~' A U~)^-1 U~' A,    A_cd = e_c delta_cd - e_c e_d / sum_b e_b,
    e_c = p_c / (1 + d p_c)
    """

    def __init__(self, K: LowRank, p: FloatArray) -> None:
        self.U, self.widened = K.U, 1.0 + K.d[:, None] * p
        self.e = p / self.widened
        self.sum = self.e.sum(axis=1)
        if not self.U.shape[1]:
            return
        inner = self._between(self.U, self.U)
        inner[np.diag_indices_from(inner)] += 1.0
        self.factor = linalg.cholesky(inner, name="I + U'A U of all classes of an expert")

    def _times_a(self, B: FloatArray) -> FloatArray:
        """Return A B for B (n, C)."""
        EB = self.e * B
        product: FloatArray = EB - self.e * (EB.sum(axis=1) / self.sum)[:, None]
        return product

    def _between(self, V: FloatArray, U: FloatArray) -> FloatArray:
        """Return V~' A U~ in blocks by class, (C S, C R)."""
        (S, R), C = (V.shape[1], U.shape[1]), self.e.shape[1]
        found = np.zeros((C * S, C * R), order="F")
        for c in range(C):
            for d in range(c + 1):
                weight = self.e[:, c] * ((c == d) - self.e[:, d] / self.sum)
                block = V.T @ (weight[:, None] * U)
                found[c * S : (c + 1) * S, d * R : (d + 1) * R] = block
                found[d * S : (d + 1) * S, c * R : (c + 1) * R] = block
        return found

    def solve(self, B: FloatArray) -> FloatArray:
        """Return (W^-1 + K)^-1 B for B (n, C)."""
        AB = self._times_a(B)
        if not self.U.shape[1]:
            return AB
        common = linalg.cholesky_solve(self.factor, (self.U.T @ AB).T.ravel())
        return AB - self._times_a(self.U @ common.reshape(B.shape[1], -1).T)

    def gram(self, V: FloatArray) -> FloatArray:
        """Return V'(W^-1 + K)^-1_cd V in blocks by class, (C S, C S)."""
        found = self._between(V, V)
        if self.U.shape[1]:
            found -= linalg.gram(linalg.solve_lower(self.factor, self._between(self.U, V)))
        return 0.5 * (found + found.T)

    @property
    def log_determinant(self) -> float:
        """log |I + K W| plus the sum of the rows' log weights."""
        own = float(np.log(self.widened).sum() + np.log(self.sum).sum())
        return own + linalg.log_determinant(self.factor) if self.U.shape[1] else own


_coupling.register(LowRank, _LowRankCoupling)


def softmax_message(V: FloatArray, Lam: Residual, obs: Observations, likelihood: AnySoftmax, f: FloatArray) -> Message:
    """Message of the rows linearised at f (n, C): eta (C, S), precision (C, S, S); about C S variables if coupled.

    Uncoupled classes: for each class the message of the site w_c, w_c f_c + s_c (GBCM paper, section 5.3).
    """
    if likelihood.coupled:
        return _coupled_message(V, Lam.covariance, obs, likelihood, f)
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(f, w * f + 2.0 * s)
    parts = [site_message(V, Lam, w[:, c], w[:, c] * f[:, c] + s[:, c], 0.0) for c in range(f.shape[1])]
    return Message(
        np.stack([part.eta for part in parts]),
        np.stack([part.precision for part in parts]),
        float(constant + sum(part.evidence for part in parts)),
        len(f),
    )


def _coupled_message(
    V: FloatArray, Lam: FloatArray | LowRank, obs: Observations, likelihood: AnySoftmax, f: FloatArray
) -> Message:
    """Message about the shared variables of all classes jointly, (C S,), ordered by class.

    With g = W f + s:  eta = V'(I + W Lam)^-1 g,  precision_cd = V'((W^-1 + Lam)^-1)_cd V
    """
    p, s = likelihood.probability(obs, f), likelihood.score(obs, f)
    Wf = _times_hessian(p, obs.weight, f)
    g = Wf + s
    coupling = _coupling(Lam, p)
    a = g - coupling.solve(Lam @ g)
    constant = likelihood.log_density(obs, f).sum() - 0.5 * np.vdot(f, Wf + 2.0 * s)
    determinant = coupling.log_determinant - np.log(obs.weight).sum()
    evidence = constant + 0.5 * np.vdot(g, Lam @ a) - 0.5 * determinant
    return Message((V.T @ a).T.ravel(), coupling.gram(V), float(evidence), len(f))


def log_evidence(K: Covariance, obs: Observations, likelihood: Likelihood) -> float:
    """Laplace's log p(y | theta) of the rows alone, for C processes with prior covariance K (alg. 3.3).

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    likelihood = cast(AnySoftmax, likelihood)
    f = softmax_mode(K, obs, likelihood)
    coupling = _coupling(K, likelihood.probability(obs, f))
    determinant = coupling.log_determinant - np.log(obs.weight).sum()
    fit = np.vdot(likelihood.score(obs, f), f)
    return float(likelihood.log_density(obs, f).sum() - 0.5 * fit - 0.5 * determinant)
