"""Gaussian sites of rows of two classes, with three forms of the cavity variance (SYSTEMS T25).

At a row, the posterior is f ~ N(mu, Sig), the prior f ~ N(0, K), K = [Phi A^-1 Phi']_ii, and the distribution without
this row (cavity) f ~ N(m, V), where

    laplace   V = 0: the joint mode of all rows
    naive     V = K: naive mean field
    cavity    1/V = 1/Sig - Om: the cavity of expectation propagation (adaptive TAP)

and m is such that N(m, V) p(y | f) has mean mu: m = mu - V tau,  tau = dlog Z/dm,  Z = E p(y | m + V^1/2 z).
The row is then replaced by the site exp(nu f - 1/2 Om f^2),

    Om = -tau'/(1 + V tau'),   nu = tau + Om mu,

so that A w = Phi'tau once the weights w converge (Quinonero-Candela 2004, paper C, section 4, whose (18) counts the
noise of the probit twice: Z = Phi(+-m / (1 + V)^1/2)). Z is computed by quadrature, which also handles row weights, for
probit and bernoulli alike; the paper covers the probit only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import EPNotConverged
from bcmdist.model.likelihoods.tilted import tilted_site

# Convergence: moves of m, in units of V^1/2, and of log V; far below the tolerance of the passes over all rows, and
# above rounding. Newton's method takes about five steps.
STILL, MOST_STEPS = 1e-7, 100


@dataclass(frozen=True)
class Weighed:
    """Belief about the weights of some functions; tasks receive it as one array."""

    active: np.ndarray
    """indices of the functions in the model, (m,)"""
    mean: np.ndarray
    """(m,)"""
    prior: np.ndarray
    """prior variances 1/alpha, (m,)"""
    covariance: np.ndarray
    """(m, m)"""

    def to_array(self) -> np.ndarray:
        """Store in one array (3 + m, m); inverse of `from_array`."""
        return np.vstack([self.active, self.mean, self.prior, self.covariance])

    @classmethod
    def from_array(cls, array) -> "Weighed":
        """Restore from the result of `to_array`."""
        return cls(array[0].astype(int), array[1], array[2], array[3:])

    def marginals(self, Phi) -> "Marginals":
        """Marginal beliefs about f at rows with functions Phi, (n, M)."""
        some = Phi[:, self.active]
        return Marginals(some @ self.mean, some**2 @ self.prior, np.einsum("ij,ij->i", some @ self.covariance, some))


NOTHING = Weighed(np.empty(0, dtype=int), np.empty(0), np.empty(0), np.empty((0, 0)))


@dataclass(frozen=True)
class Marginals:
    """Marginal beliefs about f at n rows."""

    mean: np.ndarray
    """mu, (n,)"""
    prior: np.ndarray
    """K, (n,)"""
    variance: np.ndarray
    """Sig, (n,)"""

    def __getitem__(self, rows) -> "Marginals":
        return Marginals(self.mean[rows], self.prior[rows], self.variance[rows])


def laplace(at: Marginals, omega) -> np.ndarray:
    """V = 0."""
    return np.zeros_like(omega)


def naive(at: Marginals, omega) -> np.ndarray:
    """V = K."""
    return at.prior


def cavity(at: Marginals, omega) -> np.ndarray:
    """V = Sig / (1 - Om Sig), at most K; before convergence a site may be more informative than the posterior."""
    left = 1.0 - omega * at.variance
    return np.divide(at.variance, left, out=at.prior.copy(), where=at.variance <= at.prior * left)


FORMS: dict[str, Callable[[Marginals, np.ndarray], np.ndarray]] = {
    "laplace": laplace,
    "naive": naive,
    "cavity": cavity,
}


def sites(form: str, likelihood, obs, at: Marginals) -> tuple[np.ndarray, np.ndarray]:
    """Om and nu of rows, (n,) each, by Newton steps m <- mu + V (Om mu - nu) starting from V = 0.

    Raises
    ------
    EPNotConverged
        m does not converge for some rows.
    """
    omega = likelihood.curvature(obs, at.mean)
    nu = omega * at.mean + likelihood.score(obs, at.mean)
    moving, centre, without = np.arange(len(nu)), at.mean.copy(), np.zeros_like(nu)
    for _ in range(MOST_STEPS):
        some, tau = at[moving], omega[moving]
        V = FORMS[form](some, tau)
        m = some.mean + V * (tau * some.mean - nu[moving])
        still = np.abs(m - centre[moving]) <= STILL * np.sqrt(V)
        still &= np.abs(V - without[moving]) <= STILL * V
        centre[moving], without[moving] = m, V
        moving = moving[~still]
        if not len(moving):
            return omega, nu
        _, omega[moving], nu[moving] = tilted_site(likelihood, obs[moving], centre[moving], without[moving])
    raise EPNotConverged(
        f"rvm_classes: expected {form} to find rows without what they say themselves, after {MOST_STEPS} steps "
        f"{len(moving)} still move; give --rvm-classes laplace"
    )
