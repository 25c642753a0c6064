"""From the committee's belief to new points (GBCM paper, section 6.4, eq. 10).

Needs the shared variables and the belief only, never the training data. Rows are handled in blocks, so
memory does not grow with the number of new points, and no answer depends on the other rows.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bcmdist import linalg
from bcmdist.experts.residual import kind_of
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.normal_mixtures import mixture_moments

BLOCK_ROWS = 2048


def predict_latent(shared: Shared, belief: Belief, X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the latent f at the rows of X.

    b = b(x):  mean = b' m,  variance = var(f | v) + b' Lambda^-1 b

    var(f | v) is what the model's residual says: with "none" it is zero by definition of the model (SoR, weights of a
    basis), whose variance therefore vanishes where no basis function reaches.

    Of members side by side, mean and variance of the equal mixture of what each says, or what each says of its class.

    Parameters
    ----------
    X : (n, D)
        Scaled inputs.

    Returns
    -------
    mean, variance : (n,), or (n, C) for C processes; where the belief couples the processes, the
        variance is their covariance (n, C, C)
    """
    if shared.members:
        return beside(shared, [predict_latent(one.shared, belief[k], X) for k, one in enumerate(shared.members)])
    return shared.predict_latent(belief, X, _predict_latent)


def beside(shared: Shared, each: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f, (n,) or (n, C), from those that its members say, (n,) each."""
    return mixed(each) if shared.mixture else _of_classes(each)


def _of_classes(said) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (n, C) from those of each class, (n,) each."""
    means, variances = zip(*said, strict=True)
    return np.column_stack(means), np.column_stack(variances)


def _predict_latent(shared, belief, X):
    coupled = belief.mean.ndim == 1 and len(belief.mean) > shared.size
    block = _coupled_block if coupled else _block
    processes = len(belief.mean) // shared.size if coupled else 1
    step = max(1, BLOCK_ROWS // processes**2)
    parts = [block(shared, belief, X[start : start + step]) for start in range(0, max(len(X), 1), step)]
    mean, variance = zip(*parts, strict=True)
    return np.concatenate(mean), np.concatenate(variance)


def mixed(said: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, (n,) each, of the equal mixture of Gaussians of means and variances (n,)."""
    means, variances = (np.stack(parts) for parts in zip(*said, strict=True))
    return mixture_moments(means, variances)


def _block(shared, belief, X):
    V, residual = _design(shared, X)
    mean = V @ belief.mean.T
    if belief.factor.ndim == 2:
        A = linalg.solve_right_transposed(belief.factor, V)
        variance = residual + np.einsum("ij,ij->i", A, A)
        return mean, variance if mean.ndim == 1 else np.repeat(variance[:, None], mean.shape[1], axis=1)
    variance = np.empty_like(mean)
    for c, factor in enumerate(belief.factor):
        A = linalg.solve_right_transposed(factor, V.copy(order="F"))
        variance[:, c] = residual + np.einsum("ij,ij->i", A, A)
    return mean, variance


def _coupled_block(shared, belief, X):
    """Processes one after the other in v: cov_cd = b_c' Lambda^-1 b_d, b_c being b(x) in the place of c."""
    V, residual = _design(shared, X)
    S = shared.size
    C = len(belief.mean) // S
    A = np.zeros((C, len(X), C * S))
    for c in range(C):
        rows = np.zeros((len(X), C * S), order="F")
        rows[:, c * S : (c + 1) * S] = V
        A[c] = linalg.solve_right_transposed(belief.factor, rows)
    covariance = np.einsum("cij,dij->icd", A, A, optimize=True)
    covariance[:, range(C), range(C)] += residual[:, None]
    return V @ belief.mean.reshape(C, S).T, covariance


def _design(shared, X):
    """Whitened design and var(f | v) at the rows of X."""
    V = shared.design(X)
    return V, kind_of(shared).variance(shared, V, X)


def marginal(variance) -> np.ndarray:
    """Variances (n, C) of covariances (n, C, C); variances as they are."""
    return np.diagonal(variance, axis1=1, axis2=2).copy() if variance.ndim == 3 else variance
