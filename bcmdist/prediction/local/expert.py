"""The local expert: combines the rows around a new point with the committee's posterior (PIC with halo).

The shared variables v summarise distant rows. Given v, the nearby rows contribute the rest:

    f(x) | v, rows:   mean  b'v + c'T (y - V v),   variance  k(x, x) - b_q'b_q - c'T c
    c = cov(f(x), f | v) = k(X, x) - V_q b_q,      T = (cov(f | v) + Psi)^-1

averaged over the posterior of v. If the rows are one partition of the committee this is PIC (Snelson & Ghahramani
2007); with one partition it is the exact GP. Other likelihoods are made Gaussian at the mode of these rows given the
posterior mean; no pseudo-target is divided by a weight.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.expert import find_mode
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import refuse_negative
from bcmdist.prediction.latent import BLOCK_ROWS
from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows


@dataclass(frozen=True)
class Site:
    """Gaussian site of the rows for one process, or shared by several: T = root (L L')^-1 root."""

    root: np.ndarray | None
    """w^1/2, (n,), of a linearised likelihood; None means all ones"""
    factor: np.ndarray
    """L, (n, n)"""
    noise_sd: np.ndarray | None = None
    """standard deviations of the noise of the rows, (n,); None where it is 1 / root"""

    def times(self, C) -> tuple[np.ndarray, np.ndarray]:
        """T C for C (n, m), and the diagonal of C'T C, (m,). Without a root, may overwrite C."""
        s = self._solved(C)
        explained = np.einsum("ij,ij->j", s, s)
        TC = linalg.solve_lower_transposed(self.factor, s)
        return TC if self.root is None else self.root[:, None] * TC, explained

    def within(self, C) -> np.ndarray:
        """C'T C, (m, m)."""
        return linalg.gram(self._solved(C.copy()))

    def weights(self, C) -> tuple[np.ndarray, np.ndarray]:
        """T C, the weights of the rows in predictions, and these times the standard deviations of their noise, (n, m)
        each; nothing is divided by `root`. May overwrite C."""
        solved = linalg.solve_lower_transposed(self.factor, self._solved(C))
        if self.root is not None:
            return self.root[:, None] * solved, solved
        assert self.noise_sd is not None, "a Gaussian site has noise"
        return solved, self.noise_sd[:, None] * solved

    def _solved(self, C):
        """L^-1 root C. Without a root, may overwrite C."""
        return linalg.solve_lower(self.factor, np.asfortranarray(C if self.root is None else self.root[:, None] * C))


@dataclass(frozen=True)
class LocalExpert:
    """Rows around a cell with their information beyond the shared variables; made by `local_expert`."""

    X: np.ndarray
    """(n, D), scaled; with errors of inputs, the points of `uncertain_rows`"""
    V: np.ndarray
    """columns of `CommitteeAtRows`, such as the whitened design, (n, K)"""
    sites: tuple[Site, ...]
    """one site for all processes, or one each"""
    pull: np.ndarray
    """T (y - V m) at the posterior mean m: (n,), or (n, C) for C processes"""
    obs: Observations
    """of the rows"""
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """numbers of the rows, (n,), by which the experts of several cells share rows; empty for an expert used alone"""

    @property
    def nbytes(self) -> int:
        """Approximate memory, in bytes."""
        return self.V.nbytes + self.X.nbytes + sum(site.factor.nbytes for site in self.sites)


def local_expert(seen: CommitteeAtRows, likelihood: Likelihood, X, V, obs) -> LocalExpert:
    """Make the local expert of scaled rows X (n, D), n >= 1, with columns V (n, K) and targets `obs`.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    Lam, prior_mean, input_noise = seen.left_lower(V, X), seen.mean(V), seen.input_noise(V, X)
    if likelihood.exact:
        noise = np.broadcast_to(likelihood.noise(obs) + input_noise, len(X))
        Lam[np.diag_indices_from(Lam)] += noise
        L = linalg.cholesky(Lam, name="cov(y | query) of a local expert")
        pull = linalg.cholesky_solve(L, likelihood.targets(obs) - prior_mean)
        return LocalExpert(X, V, (Site(None, L, np.sqrt(noise)),), pull, obs)
    observed = linalg.mirror(Lam.copy(order="F"))
    observed[np.diag_indices_from(observed)] += input_noise
    f = find_mode(observed, obs, likelihood, prior_mean)
    weights = likelihood.curvature(obs, f).reshape(len(X), -1)
    weights = weights / (1.0 + weights * np.reshape(input_noise, (-1, 1)))  # without the errors of inputs
    return LocalExpert(X, V, tuple(_linearised(Lam, w) for w in weights.T), likelihood.score(obs, f), obs)


def renewed(expert: LocalExpert, seen: CommitteeAtRows, likelihood: Likelihood, X, obs) -> LocalExpert | None:
    """The local expert of the same rows under a later posterior, in O(n^2); None if it must be made from the rows.

    X : (n, D) and `obs`, the rows that it must have
    """
    if not (likelihood.exact and seen.fixed_columns and np.array_equal(expert.X, X) and expert.obs.equal(obs)):
        return None
    (site,) = expert.sites
    pull = linalg.cholesky_solve(site.factor, likelihood.targets(obs) - seen.mean(expert.V))
    return replace(expert, pull=pull)


def _linearised(Lam, w):
    root = np.sqrt(w)
    B = linalg.identity_plus_scaled(Lam, root)
    return Site(root, linalg.cholesky(B, name="I + w^1/2 cov(f | query) w^1/2"))


def predict_local(seen: CommitteeAtRows, expert: LocalExpert, X, B) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the latent f at scaled rows X (n, D) with columns B: (n,), or (n, C) for C processes.

    mean = b'm + c'T (y - V m),   variance = k - b_q'b_q - c'T c + a' Lambda^-1 a  with a = b - V'T c
    """
    starts = range(0, max(len(X), 1), BLOCK_ROWS)
    blocks = [_block(seen, expert, X[a : a + BLOCK_ROWS], B[a : a + BLOCK_ROWS]) for a in starts]
    mean, variance = zip(*blocks, strict=True)
    return np.concatenate(mean), np.concatenate(variance)


def _block(seen, expert, X, B):
    c = seen.left_cross(expert.V, expert.X, B, X)
    mean = seen.mean(B) + c.T @ expert.pull
    prior = seen.left_variance(B, X)
    variances = []
    for k, site in enumerate(expert.sites):
        Tc, explained = site.times(c)
        residual = prior - explained
        refuse_negative(residual, seen.shared.kernel.diagonal(X))
        variances.append(np.maximum(residual, 0.0) + seen.belief_variance(B - Tc.T @ expert.V, k))
    if mean.ndim == 1:
        return mean, variances[0]
    return mean, np.stack(variances * (mean.shape[1] // len(variances)), axis=1)
