"""Prediction at category levels that do not occur in the training data, as draws from the known levels.

Let f_k, with mean m_k and variance v_k, be f at a row whose level is replaced by the k-th of K known levels. By the law
of total variance, f at a further level has

    mean  m = sum_k m_k / K,    variance  sum_k v_k / K + (1 + 1 / K) sum_k (m_k - m)^2 / (K - 1)

The vague prior of a linear mean has no information on how much levels vary, and at an unseen level the prediction would
rest on that prior alone. The model's own prediction is kept where its variance is smaller:
because of its kernel, or because rows of such levels were absorbed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bcmdist.data.tables.coding import Category
from bcmdist.model.model import Model
from bcmdist.prediction.interface import LatentPredictor
from bcmdist.prediction.latent import marginal

Latent = Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]]


def latent_over_categories(predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs X (n, D), averaged over the known levels at rows with unseen levels."""
    return averaged_over_categories(predictor.model, X, lambda inputs, rows: predictor.latent(inputs))


def averaged_over_categories(model: Model, X, latent: Latent) -> tuple[np.ndarray, np.ndarray]:
    """As `latent_over_categories`, for a function `latent` of scaled inputs and their row positions."""
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


def unseen_rows(model: Model, X) -> np.ndarray:
    """Whether each scaled row of X (n, D) has a level that the training data lack, (n,)."""
    found = [_is_unseen(model, X, *place) for place in _categories(model)]
    return np.any(found, axis=0) if found else np.zeros(len(X), dtype=bool)


def _categories(model) -> list[tuple[int, Category]]:
    """Categories with several levels, each with the position of its first input column."""
    coding, first, found = model.schema.coding, 0, []
    for code in coding.codes if coding else ():
        if isinstance(code, Category) and len(code.levels) > 1:
            found.append((first, code))
        first += len(code.inputs)
    return found


def _is_unseen(model, X, first, category):
    own = slice(first, first + len(category.inputs))
    inputs = X[:, own] * model.scaling.x_scale[own] + model.scaling.x_mean[own]
    return np.all(np.abs(inputs - category.unseen) < 1e-6, axis=1)  # inputs may be stored as float32


def _drawn(model, X, categories):
    """Yield scaled inputs with unseen levels replaced by the k-th known level, for each k.

    A category with fewer levels than the largest one repeats its levels.
    """
    for k in range(max(len(category.levels) for _, category in categories)):
        inputs = X.copy()
        for first, category in categories:
            own, level = slice(first, first + len(category.inputs)), k % len(category.levels)
            inputs[:, own] = (
                (np.arange(len(category.inputs)) == level) - model.scaling.x_mean[own]
            ) / model.scaling.x_scale[own]
        yield inputs


def _total(beliefs):
    """Mean and variance of f at a further level, from f (mean, variance) at the known levels."""
    means, variances = (np.array(parts) for parts in zip(*beliefs, strict=True))
    K, away = len(means), means - means.mean(axis=0)
    square = away**2 if means.shape == variances.shape else away[..., :, None] * away[..., None, :]
    return means.mean(axis=0), variances.mean(axis=0) + (1.0 + 1.0 / K) * square.sum(axis=0) / (K - 1)


def _size(variance):
    """Sum of the variances of each row, (n,), from variances (n,), (n, C) or covariances (n, C, C)."""
    return marginal(variance).reshape(len(variance), -1).sum(axis=1)
