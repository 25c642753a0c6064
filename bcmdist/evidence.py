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
    K = prior_covariance(kernel.cross(X, X), mean, X)
    if isinstance(likelihood, Gaussian):
        value, adjoint, tail = _gaussian(K, likelihood, obs)
    else:
        value, adjoint = _laplace(K, likelihood, obs)
        tail = np.zeros(0)
    return value, np.concatenate([kernel.pullback(X, X, adjoint), tail])


def _gaussian(K, likelihood, obs):
    """log N(y; 0, K + Psi); d/dK = 1/2 (a a' - (K + Psi)^-1) with a = (K + Psi)^-1 y.

    (Rasmussen & Williams 2006, eq. 5.9; the noise adds its own diagonal.)
    """
    noise = likelihood.noise(obs)
    K[np.diag_indices_from(K)] += noise
    L = linalg.cholesky(K, name="covariance of a partition's targets")
    a = linalg.cholesky_solve(L, obs.y)
    value = -0.5 * (obs.y @ a + linalg.log_determinant(L) + len(a) * np.log(2.0 * np.pi))
    adjoint = 0.5 * (np.outer(a, a) - linalg.inverse(L))
    return float(value), adjoint, np.atleast_1d(np.diag(adjoint) @ noise)


def _laplace(K, likelihood, obs):
    """Laplace evidence and its derivative with respect to K (SYSTEMS I.4).

    At the mode f, with score g and weights w: T = (K + w^-1)^-1 = w^1/2 B^-1 w^1/2,
    v = 1/2 var(f | y) d3 log p,  t = (I + w K)^-1 v:
    d/dK = 1/2 (g g' - T) + 1/2 (t g' + g t')     (the last part: the mode moves with K)
    """
    f = laplace_mode(K, obs, likelihood)
    g, w = likelihood.score(obs, f), likelihood.curvature(obs, f)
    root = np.sqrt(w)
    L = linalg.cholesky(np.eye(len(f), order="F") + root[:, None] * K * root, name="I + w^1/2 K w^1/2")
    value = likelihood.log_density(obs, f).sum() - 0.5 * (g @ f) - 0.5 * linalg.log_determinant(L)
    T = root[:, None] * linalg.inverse(L) * root
    C = linalg.solve_lower(L, np.asfortranarray(root[:, None] * K))
    variance = np.diag(K) - np.einsum("ij,ij->j", C, C)
    v = 0.5 * variance * likelihood.third(obs, f)
    t = v - T @ (K @ v)
    adjoint = 0.5 * (np.outer(g, g) - T + np.outer(t, g) + np.outer(g, t))
    return float(value), adjoint
