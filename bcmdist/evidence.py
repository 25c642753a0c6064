"""Log evidence of one expert on its own, with its gradient in the log hyper-parameters.

The sum over a few partitions is what learning maximises. theta is the kernel's log parameters
followed by the likelihood's. The prior mean's weights are integrated out with the kernel.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.expert import laplace_mode, prior_covariance
from bcmdist.likelihoods import Gaussian


def local_evidence(kernel, mean, likelihood, X, obs):
    """log p(y | theta) of the rows X (n, D) alone and its gradient.

    Returns
    -------
    value : float, in nats; gradient : (P,)
    """
    K, pullback = kernel.cross_and_pullback(X, X)
    K = prior_covariance(K, mean, X)
    if isinstance(likelihood, Gaussian):
        value, adjoint, tail = _gaussian(K, likelihood, obs)
    else:
        value, adjoint = _laplace(K, likelihood, obs)
        tail = np.zeros(0)
    return value, np.concatenate([pullback(adjoint), tail])


def _gaussian(K, likelihood, obs):
    """log N(y; 0, K + Psi); d/dK = 1/2 (a a' - (K + Psi)^-1) with a = (K + Psi)^-1 y.

    (Rasmussen & Williams 2006, eq. 5.9; the noise adds its own diagonal.)
    """
    noise = likelihood.noise(obs)
    K[np.diag_indices_from(K)] += noise
    L = linalg.cholesky(K, name="covariance of a partition's targets")
    a = linalg.cholesky_solve(L, obs.y)
    value = -0.5 * (obs.y @ a + linalg.log_determinant(L) + len(a) * np.log(2.0 * np.pi))
    adjoint = linalg.inverse(L)
    adjoint *= -0.5
    adjoint = linalg.add_outer(adjoint, 0.5, a)
    return float(value), adjoint, np.atleast_1d(np.diag(adjoint) @ noise)


def _laplace(K, likelihood, obs):
    """Laplace evidence and its derivative with respect to K (SYSTEMS I.4).

    At the mode f, with score g and weights w: T = (K + w^-1)^-1 = w^1/2 B^-1 w^1/2,
    v = 1/2 var(f | y) d3 log p,  t = (I + w K)^-1 v:
    d/dK = 1/2 (g g' - T) + 1/2 (t g' + g t')     (the last part: the mode moves with K)
         = 1/2 ((g + t)(g + t)' - t t' - T)
    """
    f = laplace_mode(K, obs, likelihood)
    g, w = likelihood.score(obs, f), likelihood.curvature(obs, f)
    root = np.sqrt(w)
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2")
    value = likelihood.log_density(obs, f).sum() - 0.5 * (g @ f) - 0.5 * linalg.log_determinant(L)
    T = linalg.inverse(L)
    T *= root[:, None]
    T *= root
    C = linalg.solve_lower(L, np.multiply(root[:, None], K, order="F"))
    variance = np.diag(K) - np.einsum("ij,ij->j", C, C)
    v = 0.5 * variance * likelihood.third(obs, f)
    t = v - T @ (K @ v)
    T *= -0.5
    return float(value), linalg.add_outer(linalg.add_outer(T, 0.5, g + t), -0.5, t)
