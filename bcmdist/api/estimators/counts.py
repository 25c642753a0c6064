"""Counts as targets, with exposures."""

import warnings
from typing import Any, Self

import numpy as np
from scipy.special import xlogy

from bcmdist.api.estimators.numbers import COVERAGE, NumberEstimator
from bcmdist.api.estimators.rows import checked_column, weighted
from bcmdist.api.lazy import is_lazy
from bcmdist.errors import BcmdistWarning, UnsupportedTarget


class GBCMCountRegressor(NumberEstimator):
    """Regression of counts by a Bayesian committee machine: y ~ counts of mean exposure exp(f(x)).

    Parameters as of `GBCMRegressor`; `likelihood` None means negative_binomial, or say "poisson". The exposure of a
    row (time or area in which was counted, 1 by default) is an argument of `fit`, `predict` and `score`, which
    pipelines and searches pass where it was requested (`set_fit_request(exposure=True)`).
    """

    task = "counts"

    def fit(self, X, y, sample_weight=None, exposure=None) -> Self:
        """Learn hyper-parameters from rows X (n, D) with counts y (n,) in exposures (n,), and absorb them.

        Targets between whole numbers are shared out between their neighbours, with a warning: so the likelihood in f
        stays what its formula gives (quasi-likelihood).
        """
        return self._fitted(self._counted(X, y, sample_weight, exposure, first=True))

    def partial_fit(self, X, y, sample_weight=None, exposure=None) -> Self:
        """Absorb further rows; the first ones as `fit` does, whose hyper-parameters and query points stay."""
        if not hasattr(self, "gbcm_"):
            return self.fit(X, y, sample_weight, exposure)
        return self._more(self._counted(X, y, sample_weight, exposure, first=False))

    def predict(self, X, return_std=False, quantiles=None, exposure=None, X_std=None) -> Any:
        """Mean counts in exposures at rows X (n, D): (n,).

        With `return_std` also standard deviations of new counts (n,); with `quantiles` those of k levels (n, k) alone.
        `X_std` as of `GBCMRegressor.predict`.
        """
        return self._numbers(X, return_std, quantiles, exposure=exposure, X_std=X_std)

    def predict_interval(self, X, coverage=COVERAGE, exposure=None, X_std=None) -> np.ndarray:
        """Lower and upper end of intervals that hold new counts with probability `coverage` or more: (n, 2)."""
        return self._interval(X, coverage, exposure=exposure, X_std=X_std)

    def sample_y(self, X, n_samples=1, random_state=0, exposure=None) -> np.ndarray:
        """Counts drawn at rows X (n, D), jointly: (n, n_samples)."""
        return self._samples(X, n_samples, random_state, exposure=exposure)

    def score(self, X, y, sample_weight=None, exposure=None, X_std=None) -> float:
        """Share of Poisson's deviance that is explained (D squared), 1 at best; that of the mean rate is 0."""
        mean, y = self.predict(X, exposure=exposure, X_std=X_std), np.asarray(y, dtype=float)
        weight = np.ones(len(y)) if sample_weight is None else checked_column(sample_weight, len(y), "sample_weight")
        time = np.ones(len(y)) if exposure is None else np.broadcast_to(np.asarray(exposure, dtype=float), len(y))
        rate = (weight @ y) / (weight @ time)
        return float(1.0 - _deviance(y, mean, weight) / _deviance(y, rate * time, weight))

    def _counted(self, X, y, sample_weight, exposure, *, first):
        arrays = self._rows(X, y, first=first)
        if is_lazy(X):
            return weighted(arrays | ({} if exposure is None else {"exposure": exposure}), sample_weight)
        if exposure is not None:
            arrays["exposure"] = checked_column(exposure, len(arrays["y"]), "exposure")
        if np.any(arrays["y"] < 0):
            raise UnsupportedTarget(f"y: expected counts 0, 1, 2, ..., got {arrays['y'].min():g}; correct it")
        return whole_counts(weighted(arrays, sample_weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def whole_counts(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows by name whose counts y (n,) are whole; in place of 2.3 there are .7 of a row with 2 and .3 of one with 3.

    Terms in y and f of the log likelihoods of counts are linear in y, so that they stay what they are.
    """
    low = np.floor(arrays["y"])
    share = arrays["y"] - low
    odd = np.flatnonzero(share)
    if not len(odd):
        return arrays
    warnings.warn(
        BcmdistWarning(f"y: {len(odd)} counts are no whole numbers, the first at row {odd[0]}: a quasi-likelihood"),
        stacklevel=4,
    )
    weight = arrays.get("weight", np.ones(len(low)))
    parts = {name: np.concatenate([values, values[odd]]) for name, values in arrays.items()}
    parts["y"] = np.concatenate([low, low[odd] + 1])
    parts["weight"] = np.concatenate([weight * (1 - share), (weight * share)[odd]])
    return parts


def _deviance(y, mean, weight) -> float:
    """Twice the log density that Poisson distributions of some means (n,) lose against a mean for each row."""
    return 2.0 * float(weight @ (xlogy(y, y / mean) - y + mean))
