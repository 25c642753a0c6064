"""Joint predictions: the covariance of the latent f between new points, and samples of f.

The covariance form of `bcmdist.prediction.latent` (GBCM paper, section 6.4, after eq. 10). It needs all pairs of points
at once: memory grows with the square of their number and is checked first.
"""

import math

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.runtime import memory


def joint_latent(shared: Shared, belief: Belief, X, *, allowed_bytes=math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Joint mean and covariance of the latent f at the rows of X.

    With V the rows b(x)' and V_q its columns of the query values:
    mean = V m,  covariance = k(X, X) - V_q V_q' + V Lambda^-1 V'

    If the model's residual is independent for each row ("diagonal", "none"), that residual replaces k(X, X) - V_q V_q'.

    The diagonal equals the variance of `predict_latent`; the covariance of a subset of rows is the corresponding block.
    For a mixture of K members with f_k ~ N(m_k, C_k) at these rows,

    mean = avg m_k,  covariance = avg C_k + avg (m_k - mean) (m_k - mean)'

    which is the Gaussian process of a mixture of marginalised networks (Lazaro-Gredilla & Figueiras-Vidal, section IV;
    SYSTEMS N6), without its noise.

    Parameters
    ----------
    X : (n, D)
        Scaled inputs.
    allowed_bytes : float
        Memory limit; unlimited by default.

    Returns
    -------
    mean : (n,), covariance : (n, n), exactly symmetric, positive semi-definite up to rounding

    Raises
    ------
    MemoryLimit
        Before anything is computed.
    NotPositiveDefinite
    """
    _refuse_large(shared, len(X), 0, allowed_bytes)
    if len(X) == 0:
        return np.empty(0), np.empty((0, 0))
    if shared.members:
        return _mixed([joint_latent(one.shared, belief[k], X) for k, one in enumerate(shared.members)])
    V = shared.design(X)
    covariance = kind_of(shared).joint_lower(shared, V, X)
    mean = V @ belief.mean
    A = linalg.solve_right_transposed(belief.factor, V)
    return mean, linalg.mirror(linalg.add_outer_lower(covariance, A))


def _mixed(said):
    means, covariances = (np.stack(parts) for parts in zip(*said, strict=True))
    mean = means.mean(axis=0)
    apart = (means - mean) / np.sqrt(len(means))
    return mean, covariances.mean(axis=0) + apart.T @ apart


def sample_latent(shared: Shared, belief: Belief, X, *, size, seed, allowed_bytes=math.inf) -> np.ndarray:
    """Joint samples of the latent f at the rows of X, (size, n); reproducible for the same seed.

    A sample is mean + F z with F F' = covariance, by pivoted Cholesky without jitter. Rows determined by other rows,
    such as duplicates, agree with them to within sqrt(rounding).

    Raises
    ------
    MemoryLimit
        Before anything is computed.
    NotPositiveDefinite
    """
    if size < 0:
        raise InvalidOption(f"size: expected at least 0 samples, got {size}; give another number")
    _refuse_large(shared, len(X), size, allowed_bytes)
    mean, covariance = joint_latent(shared, belief, X)
    if len(mean) == 0:
        return np.empty((size, 0))
    F = linalg.semidefinite_factor(covariance, name="joint covariance at new points")
    samples = np.random.default_rng(seed).standard_normal((size, F.shape[1])) @ F.T
    samples += mean
    return samples


def one_belief(model: Model, committee: Committee) -> Belief:
    """The posterior of a committee with one latent process.

    Raises
    ------
    InvalidOption
        The model has several processes, such as one per class.
    """
    if model.likelihood.processes > 1:
        raise InvalidOption(
            f"joint prediction: expected one latent process, {model.likelihood.name} has "
            f"{model.likelihood.processes}; use predict"
        )
    belief = committee.posterior
    assert belief.factor is not None  # the property raises if there is no factor
    return belief


def _refuse_large(shared, rows, samples, allowed_bytes):
    memory.refuse_above(
        memory.joint_bytes(rows, shared.size, kernels=kernel_parts(shared.kernel), samples=samples),
        allowed_bytes,
        what=f"joint prediction of {rows} rows" + (f", {samples} samples" if samples else ""),
        remedy="give fewer rows at a time, or predict without covariances",
    )
