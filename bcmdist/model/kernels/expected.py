"""What kernels are on average where an input is uncertain, x ~ N(u, S) (thesis, section 4.1.1; SYSTEMS T18).

    E k(x, z_i)            = a |I + S|^-1/2 exp(-1/2 d_i' (I + S)^-1 d_i)
    E k(x, z_i) k(x, z_j)  = a^2 |I + 2S|^-1/2 exp(-1/4 |z_i - z_j|^2 - 1/4 e_ij' (I + 2S)^-1 e_ij)

for the squared exponential, in units of the lengthscales, with d_i = u - z_i and e_ij = d_i + d_j: the thesis's (4.7)
with the distance of a pair and that of its middle from u apart, so that no exponent is positive.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg


@dataclass(frozen=True)
class Expected:
    """Averages over x ~ N(u, S) of the covariances with m points z."""

    single: np.ndarray
    """E k(x, z_i), (m,)"""
    pairs: np.ndarray
    """E k(x, z_i) k(x, z_j), (m, m)"""
    inputs: np.ndarray
    """E k(x, z_i) x', (m, D)"""
    prior: float
    """E k(x, x)"""


def expected_bumps(u, S, Z, variance, lengthscale) -> Expected:
    """Of `variance exp(-r^2/2)`, for u (D,), S (D, D), Z (m, D) and lengthscales (D,) or (1,)."""
    D = len(u)
    unit = np.broadcast_to(lengthscale, D)
    d, T = (u - Z) / unit, S / np.outer(unit, unit)
    once = linalg.cholesky(np.asfortranarray(np.eye(D) + T), name="I + S of an uncertain input")
    twice = linalg.cholesky(np.asfortranarray(np.eye(D) + 2.0 * T), name="I + 2 S of an uncertain input")
    e = linalg.solve_lower(once, d.T.copy(order="F"))
    single = variance * np.exp(-0.5 * (np.einsum("ij,ij->j", e, e) + linalg.log_determinant(once)))
    between = _squared(d, d)
    h = linalg.solve_lower(twice, d.T.copy(order="F")).T
    pairs = variance**2 * np.exp(-0.25 * (between + _squared(h, -h)) - 0.5 * linalg.log_determinant(twice))
    middle = u - linalg.cholesky_solve(once, d.T.copy(order="F")).T @ T * unit  # of x, weighted by the bump
    return Expected(single, pairs, single[:, None] * middle, float(variance))


def expected_products(u, S, Z, lengthscale) -> Expected:
    """Of `sum_d x_d z_d / lengthscale_d^2`: moments of a plane."""
    scaled = Z / lengthscale**2
    single, slopes = scaled @ u, scaled @ S
    prior = float(u / lengthscale**2 @ u + np.trace(S / lengthscale**2))
    return Expected(single, np.outer(single, single) + slopes @ scaled.T, np.outer(single, u) + slopes, prior)


def _squared(A, B):
    """Squared distances between rows, (m, m), from differences of squares: their error is that of |a|^2."""
    return np.maximum(
        np.einsum("ij,ij->i", A, A)[:, None] + np.einsum("ij,ij->i", B, B) - 2.0 * A @ B.T,
        0.0,
    )
