"""What a row of two classes says of f, by how uncertain f is taken to be there without it (SYSTEMS T25).

Given all rows f ~ N(mu, Sig) at a row, and before any N(0, K), K = [Phi A^-1 Phi']_ii. Without this row f ~ N(m, V),

    laplace   V = 0: the joint mode of all rows
    naive     V = K: naive mean field
    cavity    1/V = 1/Sig - Om: as expectation propagation takes a row out (adaptive TAP)

with the mean m at which N(m, V) p(y | f) has the mean mu: m = mu - V tau,  tau = dlog Z/dm,  Z = E p(y | m + V^1/2 z).
The row is then the site exp(nu f - 1/2 Om f^2),

    Om = -tau'/(1 + V tau'),   nu = tau + Om mu,

so that where weights w stand still A w = Phi'tau (Quinonero-Candela 2004, paper C, section 4, whose (18) counts the
noise of the probit twice: Z = Phi(+-m / (1 + V)^1/2)). Z is taken by quadrature, which does for rows that weigh more
than one, for probit and bernoulli alike; the paper has the probit only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import EPNotConverged
from bcmdist.model.likelihoods.tilted import tilted_site

# Moves of m, in units of V^1/2, and of log V, below which they stand still; far below what ends the passes over all
# rows, and above what rounding leaves. Newton's steps: some five of them are enough.
STILL, MOST_STEPS = 1e-7, 100


@dataclass(frozen=True)
class Weighed:
    """What is believed of the weights of some functions, of which tasks carry one array."""

    active: np.ndarray
    """numbers of the functions in the model, (m,)"""
    mean: np.ndarray
    """(m,)"""
    prior: np.ndarray
    """prior variances 1/alpha, (m,)"""
    covariance: np.ndarray
    """(m, m)"""

    def to_array(self) -> np.ndarray:
        """(3 + m, m)."""
        return np.vstack([self.active, self.mean, self.prior, self.covariance])

    @classmethod
    def from_array(cls, array) -> "Weighed":
        """What `to_array` described."""
        return cls(array[0].astype(int), array[1], array[2], array[3:])

    def marginals(self, Phi) -> "Marginals":
        """Of f at rows with functions Phi, (n, M)."""
        some = Phi[:, self.active]
        return Marginals(some @ self.mean, some**2 @ self.prior, np.einsum("ij,ij->i", some @ self.covariance, some))


NOTHING = Weighed(np.empty(0, dtype=int), np.empty(0), np.empty(0), np.empty((0, 0)))


@dataclass(frozen=True)
class Marginals:
    """What is believed of f at n rows, each on its own."""

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
    """V = Sig / (1 - Om Sig), at most K: on the way there a row may seem to say more than is known."""
    left = 1.0 - omega * at.variance
    return np.divide(at.variance, left, out=at.prior.copy(), where=at.variance <= at.prior * left)


FORMS: dict[str, Callable[[Marginals, np.ndarray], np.ndarray]] = {
    "laplace": laplace,
    "naive": naive,
    "cavity": cavity,
}


def sites(form: str, likelihood, obs, at: Marginals) -> tuple[np.ndarray, np.ndarray]:
    """Om and nu of rows by a form, (n,) each, by Newton's steps m <- mu + V (Om mu - nu) from V = 0 on.

    Raises
    ------
    EPNotConverged
        Some m do not stand still.
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
