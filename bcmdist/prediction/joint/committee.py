"""Joint moments and samples of f, and moments of weighted sums of it, by the committee alone.

Joint predictions use the covariance form of `bcmdist.prediction.latent` (GBCM paper, section 6.4, after eq. 10). They
need all pairs of points at once: memory grows with the square of their number and is checked first.
"""

import math

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import IndependentRows, kind_of
from bcmdist.experts.residual_interface import Kept
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.prediction.latent import BLOCK_ROWS
from bcmdist.prediction.local.committee_at_rows import Designed
from bcmdist.prediction.local.joint_moments import Sums, joint_moments
from bcmdist.prediction.local.samples import COSINES, by_covariance, sample_normal
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
    refuse_large_joint(shared, len(X), 0, allowed_bytes)
    if len(X) == 0:
        return np.empty(0), np.empty((0, 0))
    if shared.members:
        return _mixed([joint_latent(one.shared, belief[k], X) for k, one in enumerate(shared.members)])
    V = shared.design(X)
    covariance = kind_of(shared).joint_lower(shared, V, X)
    mean = V @ belief.mean
    A = linalg.solve_right_transposed(belief.factor, V)
    return mean, linalg.mirror(linalg.add_outer_lower(covariance, A))


def _mixed(predicted):
    means, covariances = (np.stack(parts) for parts in zip(*predicted, strict=True))
    mean = means.mean(axis=0)
    deviations = (means - mean) / np.sqrt(len(means))
    return mean, covariances.mean(axis=0) + deviations.T @ deviations


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
    refuse_large_joint(shared, len(X), size, allowed_bytes)
    return sample_normal(*joint_latent(shared, belief, X), size, np.random.default_rng(seed))


def refuse_large_joint(shared: Shared, rows, samples, allowed_bytes) -> None:
    """Raise `MemoryLimit` if a joint covariance of so many rows, and samples from it, would not fit."""
    memory.refuse_above(
        memory.joint_bytes(rows, shared.size, kernels=kernel_parts(shared.kernel), samples=samples),
        allowed_bytes,
        what=f"joint prediction of {rows} rows" + (f", {samples} samples" if samples else ""),
        remedy="give fewer rows at a time, or predict without covariances",
    )


def refuse_large_samples(shared: Shared, points, size, allowed_bytes) -> None:
    """Raise `MemoryLimit` if samples of f at so many points would not fit."""
    if by_covariance(shared, points):
        refuse_large_joint(shared, points, size, allowed_bytes)
        return
    memory.refuse_above(
        memory.FLOAT * size * (4 * points + 2 * COSINES * shared.inputs) + memory.LOCAL_BYTES,
        allowed_bytes,
        what=f"{size} samples at {points} rows",
        remedy="give fewer samples at a time",
    )


def committee_moments(shared: Shared, belief: Belief, X, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
    """Mean (count,) and covariance (count, count) of weighted sums of f over the points X (n, D), scaled.

    Of values at query points, memory does not grow with the square of the number of points. Other shared variables, and
    models with members, need the covariance of all points.
    """
    kind = kind_of(shared)
    if isinstance(kind, IndependentRows) and not shared.members:
        return _independent(shared, belief, kind, X, sums)
    if isinstance(shared, Query) and isinstance(kind, Kept):
        return joint_moments(Designed(shared, belief), [(np.arange(len(X)), None)], X, sums)
    mean, covariance = joint_latent(shared, belief, X)
    total = np.zeros((len(X), sums.count))
    total[np.arange(len(X)), sums.number] = sums.weight
    return total.T @ mean, linalg.mirror(np.asfortranarray(total.T @ covariance @ total))


def _independent(shared, belief, kind, X, sums):
    """Rows that only the shared variables couple: f = b'v + independent residuals."""
    A, own = np.zeros((sums.count, shared.size)), np.zeros(sums.count)
    for some in (slice(a, a + BLOCK_ROWS) for a in range(0, len(X), BLOCK_ROWS)):
        (numbers, weights), V = sums[some].table(), shared.design(X[some])
        A[numbers] += weights.T @ V
        own[numbers] += weights.T**2 @ kind.variance(shared, V, X[some])
    R = linalg.solve_right_transposed(belief.factor, A.copy(order="F"))
    return A @ belief.mean, R @ R.T + np.diag(own)
