"""Levels of a category that training did not have: draws from the levels that it had.

With f_k what is believed of f at a row whose level is replaced by the k-th of K known ones, of mean m_k and variance
v_k, that of a further level has by the law of total variance

    mean  m = sum_k m_k / K,    variance  sum_k v_k / K + (1 + 1 / K) sum_k (m_k - m)^2 / (K - 1)

The vague prior of a linear mean says nothing of how far levels scatter: at the inputs of such a level, which no row of
training shares, it alone would be left. Where a model is more certain of these inputs than that - by its kernel, or
since rows of such levels were absorbed - what it says stays.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bcmdist.data.tables.coding import Category
from bcmdist.model.model import Model
from bcmdist.prediction.latent import marginal
from bcmdist.prediction.latent_predictor import LatentPredictor

Latent = Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]]


def latent_over_categories(predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs X (n, D), averaged over levels where those of rows are not known."""
    return averaged_over_categories(predictor.model, X, lambda inputs, rows: predictor.latent(inputs))


def averaged_over_categories(model: Model, X, latent: Latent) -> tuple[np.ndarray, np.ndarray]:
    """As `latent_over_categories`, of beliefs that `latent` makes of scaled inputs and the numbers of their rows."""
    mean, variance = latent(X, slice(None))
    categories = _categories(model)
    if not categories:
        return mean, variance
    mean, variance = mean.copy(), variance.copy()
    unseen = np.column_stack([_is_unseen(model, X, *place) for place in categories])
    for pattern in np.unique(unseen[unseen.any(axis=1)], axis=0):
        rows = np.flatnonzero((unseen == pattern).all(axis=1))
        drawn = _drawn(model, X[rows], [place for place, one in zip(categories, pattern, strict=True) if one])
        m, v = _total([latent(inputs, rows) for inputs in drawn])
        surer = _size(v) < _size(variance[rows])
        mean[rows[surer]], variance[rows[surer]] = m[surer], v[surer]
    return mean, variance


def _categories(model) -> list[tuple[int, Category]]:
    """Categories of several levels, with the first of their inputs."""
    coding, first, found = model.schema.coding, 0, []
    for code in coding.codes if coding else ():
        if isinstance(code, Category) and len(code.levels) > 1:
            found.append((first, code))
        first += len(code.inputs)
    return found


def _is_unseen(model, X, first, category):
    own = slice(first, first + len(category.inputs))
    inputs = X[:, own] * model.scaling.x_scale[own] + model.scaling.x_mean[own]
    return np.all(np.abs(inputs - category.unseen) < 1e-6, axis=1)  # inputs may be stored in single precision


def _drawn(model, X, categories):
    """Scaled inputs with known levels in place of others: the k-th of each category, as often as the largest has."""
    for k in range(max(len(category.levels) for _, category in categories)):
        inputs = X.copy()
        for first, category in categories:
            own, level = slice(first, first + len(category.inputs)), k % len(category.levels)
            inputs[:, own] = (
                (np.arange(len(category.inputs)) == level) - model.scaling.x_mean[own]
            ) / model.scaling.x_scale[own]
        yield inputs


def _total(beliefs):
    """Mean and variance of one more of several beliefs (mean, variance) about the same rows."""
    means, variances = (np.array(parts) for parts in zip(*beliefs, strict=True))
    K, away = len(means), means - means.mean(axis=0)
    square = away**2 if means.shape == variances.shape else away[..., :, None] * away[..., None, :]
    return means.mean(axis=0), variances.mean(axis=0) + (1.0 + 1.0 / K) * square.sum(axis=0) / (K - 1)


def _size(variance):
    """Of each row, (n,): variances (n,), (n, C), or covariances (n, C, C)."""
    return marginal(variance).reshape(len(variance), -1).sum(axis=1)
