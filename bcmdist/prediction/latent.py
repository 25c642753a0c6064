"""Mean and variance of the latent f at new points from the committee's posterior (GBCM paper, section 6.4, eq. 10).

Uses only the shared variables and their posterior, never the training data. Rows are processed in blocks, so memory
does not grow with the number of new points. The result at a row does not depend on the other rows.
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

    With b = b(x):  mean = b' m,  variance = var(f | v) + b' Lambda^-1 b

    var(f | v) is given by the model's residual. For "none" it is zero by definition of the model (SoR, weights of a
    basis), so the variance vanishes where no basis function reaches.

    If the model has members, the result is the mean and variance of their equal mixture, or one column per class.

    Parameters
    ----------
    X : (n, D)
        Scaled inputs.

    Returns
    -------
    mean, variance : (n,), or (n, C) for C processes; if the posterior couples the processes, the
        variance is their covariance (n, C, C)
    """
    if shared.members:
        return of_members(shared, [predict_latent(one.shared, belief[k], X) for k, one in enumerate(shared.members)])
    return shared.predict_latent(belief, X, _predict_latent)


def of_members(shared: Shared, each: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Combine the predictions of the members, (n,) each: mixture moments (n,), or one column per class (n, C)."""
    return mixed(each) if shared.mixture else _of_classes(each)


def _of_classes(predictions) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (n, C) from one pair (n,), (n,) per class."""
    means, variances = zip(*predictions, strict=True)
    return np.column_stack(means), np.column_stack(variances)


def _predict_latent(shared, belief, X):
    coupled = belief.mean.ndim == 1 and len(belief.mean) > shared.size
    block = _coupled_block if coupled else _block
    processes = len(belief.mean) // shared.size if coupled else 1
    step = max(1, BLOCK_ROWS // processes**2)
    parts = [block(shared, belief, X[start : start + step]) for start in range(0, max(len(X), 1), step)]
    mean, variance = zip(*parts, strict=True)
    return np.concatenate(mean), np.concatenate(variance)


def mixed(predictions: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, (n,) each, of the equal mixture of Gaussians with means and variances (n,)."""
    means, variances = (np.stack(parts) for parts in zip(*predictions, strict=True))
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
    """Means (n, C) and covariances (n, C, C) of coupled processes at the rows of X.

    cov_cd = b_c' Lambda^-1 b_d, plus var(f | v) where c = d, with b_c equal to b(x) in the entries of process c of v.
    """
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
    """Whitened design (n, S) and var(f | v) (n,) at the rows of X."""
    V = shared.design(X)
    return V, kind_of(shared).variance(shared, V, X)


def marginal(variance) -> np.ndarray:
    """Variances (n, C) from covariances (n, C, C); variances are returned unchanged."""
    return np.diagonal(variance, axis1=1, axis2=2).copy() if variance.ndim == 3 else variance
