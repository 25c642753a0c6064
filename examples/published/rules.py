"""Rules by which others combine Gaussian experts, as plain functions to compare a committee with.

A committee adds messages about shared query points and keeps their joint covariance. The rules here need every
expert again for every new point, so they have no state that could be fitted once; they are no part of `GBCM`.

All is about the latent f without noise, the entropies in the weights too (some published code adds the noise first,
which changes the weights), under a prior of mean zero. A pointwise rule takes the experts' posterior `means` and
`variances` (M, n) and the `prior_variance` (n,), gives mean and variance (n,), and says nothing of the covariance
between points. `parts` are pairs (X_i, y_i), the rows of each expert, no row in two of them; `noise` is a variance.
With one expert every rule returns that expert's posterior, but rBCM, whose weight for it is not 1.
"""

from collections.abc import Sequence

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidData
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare

Part = tuple[np.ndarray, np.ndarray]
"""Rows of one expert: X (n_i, D) and y (n_i,)."""

# Combinations of experts' predictions, as correlations, whose variance is below this are taken as rounding: experts
# that know f almost exactly say the same, and their differences would be divided by nothing.
COLLINEAR_SHARE = 1e-12


def expert_predictions(kernel, noise, parts: Sequence[Part], X) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of f at X (n, D) by each expert alone (GBCM paper, eqs. 6-7): means (M, n), variances (M, n)."""
    predictions = [_posterior(kernel, noise, part, X) for part in parts]
    return np.array([mean for mean, _ in predictions]), np.array([variance for _, variance in predictions])


def _posterior(kernel, noise, part, X):
    """Exact GP regression: mean and variance (n,); the prior where there are no rows."""
    rows, y = part
    prior = kernel.diagonal(X)
    if len(rows) == 0:
        return np.zeros(len(X)), prior
    L = _noisy_factor(kernel, noise, rows)
    V = linalg.solve_lower(L, kernel.cross(rows, X))
    return V.T @ linalg.solve_lower(L, np.asarray(y, dtype=float)), prior - np.einsum("ij,ij->j", V, V)


def _noisy_factor(kernel, noise, rows):
    K = kernel.cross(rows, rows)
    K[np.diag_indices_from(K)] += noise
    return linalg.cholesky(K, name="covariance of an expert's targets")


# Pointwise rules. Each is a product of Gaussians with weights: a sum of weighted natural parameters.


def poe(means, variances, prior_variance) -> tuple[np.ndarray, np.ndarray]:
    """Product of experts: precision = sum 1/s_i^2, mean = variance * sum m_i/s_i^2.

    Counts the prior M times: over-confident where experts know little, the more so the more there are.
    (Hinton 2002; for GP experts Ng & Deisenroth 2014.)
    """
    _check(means, variances, prior_variance)
    return _product(means, variances, np.ones_like(variances))


def gpoe_uniform(means, variances, prior_variance) -> tuple[np.ndarray, np.ndarray]:
    """Generalised product with weights 1/M: precision = (1/M) sum 1/s_i^2, the mean of `poe`.

    Falls back to the prior far from data, but its variance never falls below that of the best expert.
    (Deisenroth & Ng 2015, section 3.)
    """
    _check(means, variances, prior_variance)
    return _product(means, variances, np.full_like(variances, 1.0 / len(variances)))


def gpoe_entropy(means, variances, prior_variance) -> tuple[np.ndarray, np.ndarray]:
    """Generalised product with entropy weights: precision = sum w_i/s_i^2, mean = variance * sum w_i m_i/s_i^2.

    w_i = e_i / sum e_j with e_i = 1/2 log(k / s_i^2); 1/M where no expert has learned anything.
    (Cao & Fleet 2014.)
    """
    _check(means, variances, prior_variance)
    gain = entropy_gain(variances, prior_variance)
    total = gain.sum(axis=0)
    weights = np.divide(gain, total, out=np.full_like(gain, 1.0 / len(gain)), where=total > 0)
    return _product(means, variances, weights)


def bcm_pointwise(means, variances, prior_variance) -> tuple[np.ndarray, np.ndarray]:
    """Bayesian committee machine at each point on its own: precision = 1/k + sum (1/s_i^2 - 1/k).

    Exact where all experts are independent given f at this one point. It is the committee with a query set of that
    single point; Tresp's own rule (2000) is `gbcm`, joint over the query set.
    """
    _check(means, variances, prior_variance)
    return _product_over_base(0.0, prior_variance, means, variances, np.ones_like(variances))


def rbcm(means, variances, prior_variance) -> tuple[np.ndarray, np.ndarray]:
    """Robust BCM: precision = 1/k + sum b_i (1/s_i^2 - 1/k), mean = variance * sum b_i m_i/s_i^2.

    b_i = 1/2 log(k / s_i^2), the entropy that the expert's rows took from the prior; not normalised, so that one
    expert alone is not returned and weights above 1 count an expert more than once.
    (Deisenroth & Ng 2015, section 3.)
    """
    _check(means, variances, prior_variance)
    weights = entropy_gain(variances, prior_variance)
    return _product_over_base(0.0, prior_variance, means, variances, weights)


def barycentre(means, variances, prior_variance, *, weights=None) -> tuple[np.ndarray, np.ndarray]:
    """Wasserstein-2 barycentre of the experts' marginals: mean = sum w_i m_i, sd = sum w_i s_i.

    The closed form for Gaussians on the line (Agueh & Carlier 2011); as a rule for experts Cohen et al. 2020. Some
    published code averages variances instead of standard deviations. `weights` (M,) or (M, n) sum to 1 over
    experts; uniform without.
    """
    _check(means, variances, prior_variance)
    weights = np.full(len(means), 1.0 / len(means)) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape[0] != len(means) or np.any(weights < 0) or not np.allclose(weights.sum(axis=0), 1.0):
        raise InvalidData(
            f"weights: expected non-negative numbers for {len(means)} experts that sum to 1, got shape "
            f"{weights.shape} and sums {np.unique(weights.sum(axis=0))[:3]}; normalise them"
        )
    columns = weights.reshape(len(means), -1)
    return (columns * means).sum(axis=0), (columns * np.sqrt(variances)).sum(axis=0) ** 2


POINTWISE_RULES = {
    "PoE": poe,
    "gPoE uniform": gpoe_uniform,
    "gPoE entropy": gpoe_entropy,
    "BCM pointwise": bcm_pointwise,
    "rBCM": rbcm,
    "barycentre": barycentre,
}


def entropy_gain(variances, prior_variance) -> np.ndarray:
    """Fall of the differential entropy from prior to posterior, in nats: 1/2 log(k / s^2), never negative."""
    return np.maximum(0.5 * (np.log(prior_variance) - np.log(variances)), 0.0)


def _product(means, variances, weights):
    precision = (weights / variances).sum(axis=0)
    return (weights * means / variances).sum(axis=0) / precision, 1.0 / precision


def _product_over_base(base_mean, base_variance, means, variances, weights):
    """Base plus what each expert adds to it: 1/b + sum w_i (1/s_i^2 - 1/b), and the same for mean/variance."""
    precision = 1.0 / base_variance + (weights * (1.0 / variances - 1.0 / base_variance)).sum(axis=0)
    shift = base_mean / base_variance + (weights * (means / variances - base_mean / base_variance)).sum(axis=0)
    if np.any(precision <= 0):
        raise InvalidData(
            f"variances: expected no expert above its prior, got a combined precision of {precision.min():.3g}; give "
            "posteriors of f under the kernel that prior_variance comes from"
        )
    return shift / precision, 1.0 / precision


def _check(means, variances, prior_variance):
    shapes = [np.shape(a) for a in (means, variances, prior_variance)]
    if len(shapes[0]) != 2 or shapes[0] != shapes[1] or shapes[2] != shapes[0][1:] or len(means) == 0:
        raise InvalidData(
            f"experts: expected means (M, n), variances (M, n) and prior_variance (n,), got {shapes[0]}, {shapes[1]} "
            f"and {shapes[2]}; stack the experts along the first axis"
        )
    smallest = min(np.min(variances, initial=np.inf), np.min(prior_variance, initial=np.inf))
    if not smallest > 0:
        raise InvalidData(f"variances: expected positive numbers, got {smallest:.3g}; raise the noise of the experts")


# Rules that need the rows.


def grbcm(kernel, noise, communication: Part, parts: Sequence[Part], X) -> tuple[np.ndarray, np.ndarray]:
    """Generalised robust BCM: mean and variance (n,) of f at X (n, D) (Liu, Cai, Wang & Ong 2018).

    The communication expert c takes the place of the prior, and expert i is trained on the union of its rows and
    those of c:  precision = 1/s_c^2 + sum b_i (1/s_i^2 - 1/s_c^2), the mean alike,
    b_1 = 1 and b_i = 1/2 log(s_c^2 / s_i^2) for the others.

    Exact for one part. The first part is special, so the order of the parts matters slightly.
    """
    base_mean, base_variance = _posterior(kernel, noise, communication, X)
    if len(parts) == 0:
        return base_mean, base_variance
    unions = [(np.vstack([communication[0], x]), np.concatenate([communication[1], y])) for x, y in parts]
    means, variances = expert_predictions(kernel, noise, unions, X)
    _check(means, variances, base_variance)
    weights = entropy_gain(variances, base_variance)
    weights[0] = 1.0
    return _product_over_base(base_mean, base_variance, means, variances, weights)


def npae(kernel, noise, parts: Sequence[Part], X) -> tuple[np.ndarray, np.ndarray]:
    """Nested kriging (NPAE): mean and variance (n,) of f at X (n, D) (Rulliere, Durrande, Bachoc & Chevalier 2018).

    At each point the best linear predictor of f from the experts' predictions m = (m_1 ... m_M): with
    k_M = cov(m, f) and K_M = cov(m, m) under the prior,  mean = k_M' K_M^-1 m,  variance = k - k_M' K_M^-1 k_M.
    The variance is the true one of this predictor's error. Costs O(n N^2) for N rows in all: for small problems.
    """
    weights, cross, coefficients, covariance = _nested(kernel, noise, parts, X)
    means = [A @ y for A, (_, y) in zip(weights, parts, strict=True)]
    mean = sum((a * m for a, m in zip(coefficients.T, means, strict=True)), np.zeros(len(X)))
    spread = np.einsum("ni,nij,nj->n", coefficients, covariance, coefficients)
    return mean, kernel.diagonal(X) - 2.0 * (coefficients * cross).sum(axis=1) + spread


def npae_joint(kernel, noise, parts: Sequence[Part], X) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n,) of `npae` and the covariance (n, n) of its errors between points.

    With the predictor B y:  K** - B K_y* - K_*y B' + B (K_yy + noise I) B'  (covariance of the modified process of
    Bachoc, Durrande, Rulliere & Chevalier 2022).
    """
    weights, _, coefficients, _ = _nested(kernel, noise, parts, X)
    B = np.hstack([a[:, None] * A for a, A in zip(coefficients.T, weights, strict=True)])
    rows, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    cross = B @ kernel.cross(rows, X)
    return B @ y, kernel.cross(X, X) - cross - cross.T + B @ kernel.cross(rows, rows) @ B.T + noise * (B @ B.T)


def _nested(kernel, noise, parts, X):
    """Weights A_i (n, n_i) of each expert on its targets, cov(m, f) (n, M), coefficients (n, M), cov(m, m) (n, M, M).

    A_i = K_*i (K_ii + noise I)^-1, and cov(m_i, m_i) = cov(m_i, f) as m_i is a conditional expectation of f.
    """
    weights = [_regression_weights(kernel, noise, rows, X) for rows, _ in parts]
    cross = np.array([np.einsum("ij,ij->i", A, kernel.cross(X, x)) for A, (x, _) in zip(weights, parts, strict=True)]).T
    covariance = np.empty((len(X), len(parts), len(parts)))
    for i, (left, _) in enumerate(parts):
        covariance[:, i, i] = cross[:, i]
        for j, (right, _) in enumerate(parts[:i]):
            both = np.einsum("ij,ij->i", weights[i] @ kernel.cross(left, right), weights[j])
            covariance[:, i, j] = covariance[:, j, i] = both
    return weights, cross, _best_coefficients(cross, covariance), covariance


def _regression_weights(kernel, noise, rows, X):
    if len(rows) == 0:
        return np.zeros((len(X), 0))
    return linalg.cholesky_solve(_noisy_factor(kernel, noise, rows), kernel.cross(rows, X)).T


def _best_coefficients(cross, covariance):
    """K_M^-1 k_M for each point, as correlations; zero for experts that say nothing at a point."""
    sd = np.sqrt(np.maximum(cross, 0.0))
    inverse = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    correlation = inverse[:, :, None] * covariance * inverse[:, None, :]
    solved = np.linalg.pinv(correlation, rcond=COLLINEAR_SHARE, hermitian=True) @ sd[:, :, None]
    return inverse * solved[:, :, 0]


def gbcm(kernel, noise, parts: Sequence[Part], X) -> tuple[np.ndarray, np.ndarray]:
    """The joint committee with its query set at X (n, D): mean (n,) and covariance (n, n) of f (Tresp 2000).

    The package's own messages; for reference, as a fitted model keeps its query set and does not move it to X.
    """
    query = prepare(X, kernel=kernel, mean=Mean("zero"))
    messages = (expert_message(query, Gaussian(noise), rows, unweighted(y)) for rows, y in parts)
    belief = Committee(sum(messages, zero(query.size))).posterior
    A = linalg.solve_right_transposed(belief.factor, query.factor.copy(order="F"))
    return query.factor @ belief.mean, A @ A.T
