"""Boosted trees (scikit-learn's histogram gradient boosting), with which a model is compared.

They are another model of the same rows, not a simple baseline. A first fit to 80 % of the rows finds the number of
trees that predicts the other rows best; a second one, to all rows, predicts.
"""

from typing import Any

import numpy as np

from bcmdist.linalg.arrays import FloatArray, IntArray

Learned = tuple[FloatArray, FloatArray, IntArray]
"""predictions (m, T) at new inputs and (k, T) of training rows that were left out, and indices (k,) of the latter"""
NAME = "boosted trees"
MOST_TREES, LEAST_TREES = 100, 30
RATE, LARGEST_RATE = 0.1, 0.3  # learning rate of `MOST_TREES` trees, and of fewer
LEFT_OUT = 5  # one row in so many finds the number of trees
LEAST_ROWS = 20
# Limit on trees * inputs * (rows + OVERHEAD) of a fit, about half a second; with more there are fewer trees, then
# fewer rows. The overhead stands for histograms, which do not depend on the number of rows.
WORK, OVERHEAD = 6e7, 5000
FEWEST_ROWS = 1000  # not fewer rows than this to keep within the limit
BINS = 255  # of a column, as scikit-learn has


def boosted_numbers(
    X: FloatArray, y: FloatArray, new: FloatArray, seed: int = 0, *, weight: FloatArray | None = None
) -> Learned | None:
    """Predictions (m,) at inputs `new`, of rows that were left out, and the indices (k,) of these; None if they would
    take too long or there are too few rows. `weight` (n,) of the rows in sums of squared errors."""
    return _boosted(X, y, new, weight, seed, loss="squared_error")


def boosted_rates(
    X: FloatArray, events: FloatArray, size: FloatArray, new: FloatArray, seed: int = 0
) -> Learned | None:
    """As `boosted_numbers`: rates, events (n,) per size (n,), by the Poisson likelihood of the events."""
    some = size > 0.0
    if not events[some].sum() > 0.0:
        return None
    found = _boosted(X[some], events[some] / size[some], new, size[some], seed, loss="poisson")
    return found and (found[0], found[1], np.flatnonzero(some)[found[2]])


def boosted_classes(X: FloatArray, labels: FloatArray, classes: int, new: FloatArray, seed: int = 0) -> Learned | None:
    """As `boosted_numbers`: probabilities (m, C) and (k, C) of `classes` classes, from class numbers (n,)."""
    present = np.unique(labels)
    if len(present) < 2:
        return None
    found = _boosted(X, np.searchsorted(present, labels), new, None, seed, classes=len(present))
    if found is None:
        return None
    whole = [np.zeros((len(p), classes)) for p in found[:2]]
    for p, few in zip(whole, found[:2], strict=True):
        p[:, present.astype(int)] = few
    return whole[0], whole[1], found[2]


def _boosted(
    X: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    weight: FloatArray | None,
    seed: int,
    *,
    classes: int = 0,
    loss: str = "",
) -> Learned | None:
    trees_at_once = classes if classes > 2 else 1
    size = _size(len(X), X.shape[1] * trees_at_once)
    if size is None:
        return None
    rows, most = size
    if weight is not None and np.ptp(weight) == 0.0:
        weight = None
    if weight is not None:
        X, new = _binned(X, weight, new)
    order = np.random.default_rng(seed).permutation(len(X))
    if classes:  # a row of each class is first, and not left out
        firsts = np.unique(y[order], return_index=True)[1]
        order = np.concatenate([order[firsts], np.delete(order, firsts)])
    kept, out = np.split(order[:rows], [rows - rows // LEFT_OUT])
    first = _learned(X, y, weight, kept, most, most, classes, loss)
    stages = first.staged_predict_proba(X[out]) if classes else first.staged_predict(X[out])
    left_out = list(stages)
    losses = [_loss(y[out], one, None if weight is None else weight[out], loss) for one in left_out]
    best = int(np.argmin(losses))
    whole = _learned(X, y, weight, order[:rows], best + 1, most, classes, loss)
    return (whole.predict_proba if classes else whole.predict)(new), left_out[best], out


def _size(rows: int, inputs: int) -> tuple[int, int] | None:
    """Numbers of rows and trees that keep within the limit; None if there are none."""
    trees = int(WORK / inputs / (rows + OVERHEAD))
    if trees < LEAST_TREES:
        rows = int(min(rows, WORK / inputs / LEAST_TREES - OVERHEAD))
        trees = LEAST_TREES
        if rows < FEWEST_ROWS:
            return None
    return (rows, min(trees, MOST_TREES)) if rows >= LEAST_ROWS else None


def _binned(X: FloatArray, weight: FloatArray, new: FloatArray) -> tuple[IntArray, IntArray]:
    """Both with numbers of bins, between quantiles of the weights of X (n, D), in place of values: scikit-learn would
    sort all rows again for each bin."""
    shares, columns = np.linspace(0.0, 1.0, BINS + 1)[1:-1], []
    for x, u in zip(X.T, new.T, strict=True):
        order = np.argsort(x)
        reached = np.cumsum(weight[order])
        edges = np.unique(x[order][np.searchsorted(reached, shares * reached[-1])])
        columns.append((np.searchsorted(edges, x), np.searchsorted(edges, u)))
    ours, theirs = (np.column_stack(parts) for parts in zip(*columns, strict=True))
    return ours, theirs


def _learned(
    X: FloatArray,
    y: FloatArray,
    weight: FloatArray | None,
    some: IntArray,
    trees: int,
    most: int,
    classes: int,
    loss: str,
) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # quick start

    how: dict[str, Any] = {
        "max_iter": trees,
        "learning_rate": min(LARGEST_RATE, RATE * MOST_TREES / most),
        "early_stopping": False,
        "random_state": 0,
    }
    model = HistGradientBoostingClassifier(**how) if classes else HistGradientBoostingRegressor(loss=loss, **how)
    return model.fit(X[some], y[some], sample_weight=None if weight is None else weight[some])


def _loss(y: FloatArray, predicted: FloatArray, weight: FloatArray | None, loss: str) -> float:
    """Mean loss of rows: squared errors, Poisson log loss of rates, or log loss of classes."""
    if predicted.ndim == 2:
        tiny = np.finfo(float).tiny
        return float(-np.log(np.maximum(predicted[np.arange(len(y)), y.astype(int)], tiny)).mean())
    if loss == "poisson":
        return float(np.average(predicted - y * np.log(predicted), weights=weight))
    return float(np.average((y - predicted) ** 2, weights=weight))
