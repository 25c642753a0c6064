"""`GBCMCountRegressor`: scikit-learn regressor for counts with exposures."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from bcmdist.api.estimators.numbers import COVERAGE, NumberEstimator
from bcmdist.api.estimators.rows import Deviations, checked_column, weighted
from bcmdist.api.lazy import Lazy, is_lazy
from bcmdist.errors import BcmdistWarning, UnsupportedTarget
from bcmdist.linalg.arrays import FloatArray


class GBCMCountRegressor(NumberEstimator):
    """Regression of counts by a Bayesian committee machine: counts y with mean exposure * exp(f(x)).

    Parameters as of `GBCMRegressor`. `likelihood` None means "negative_binomial"; "poisson" is the alternative. The
    exposure of a row (observed time or area, default 1) is an argument of `fit`, `predict` and `score`. Pipelines and
    searches pass it if it was requested (`set_fit_request(exposure=True)`).

    Examples
    --------
    >>> counts, hours = np.round(2.0 * np.exp(y)), np.full(80, 2.0)
    >>> model = bcmdist.GBCMCountRegressor(kernel="se", query=20, effort="quick").fit(X, counts, exposure=hours)
    >>> model.predict(X[:3], exposure=1.0).shape
    (3,)
    """

    task = "counts"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Learn hyper-parameters from rows X (n, D) with counts y (n,) in `exposure` (n,), and absorb them.

        A fractional target is split between the two neighbouring integers, with a warning. The log likelihood in f is
        then that of its formula at the fractional count (quasi-likelihood). Weights and `X_std` as of
        `GBCMRegressor.fit`.
        """
        return self._fitted(self._counted(X, y, sample_weight, exposure, X_std, first=True))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Absorb further rows. The first call fits, and its hyper-parameters and query points are kept.

        With `partition="auto"` the first call partitions rows as they arrive, since more will follow.
        `exposure` (n,). Other arguments as of `GBCMRegressor.fit`.
        """
        if not hasattr(self, "gbcm_"):
            return self._fitted(self._counted(X, y, sample_weight, exposure, X_std, first=True), streamed=True)
        return self._more(self._counted(X, y, sample_weight, exposure, X_std, first=False))

    @overload
    def predict(self, X: Lazy) -> Any: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        quantiles: Sequence[float] | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        quantiles: None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Any: ...
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Any:
        """Return mean counts at rows X (n, D), for the `exposure` of each, (n,): (n,).

        With `return_std` also standard deviations of new counts (n,). With `quantiles` (k levels) return only the
        quantiles, (n, k). `X_std` as in `GBCMRegressor.predict`.
        """
        return self._numbers(X, return_std, quantiles, exposure=exposure, X_std=X_std)

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = COVERAGE,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> FloatArray:
        """Return central intervals that contain new counts with probability `coverage` or more: (n, 2).

        `exposure` of the counts, (n,) or one number; other arguments as of `GBCMRegressor.predict`.
        """
        return self._interval(X, coverage, exposure=exposure, X_std=X_std)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        exposure: ArrayLike | None = None,
    ) -> FloatArray:
        """Return joint samples of counts at rows X (n, D), given their `exposure`: (n, n_samples).

        Other arguments as of `GBCMRegressor.sample_y`.
        """
        return self._samples(X, n_samples, random_state, exposure=exposure)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> float:
        """Return D squared: the share of the Poisson deviance explained, at most 1; 0 for a constant rate.

        `exposure` of the counts y (n,); other arguments as of `GBCMRegressor.fit`.
        """
        mean, y = self.predict(X, exposure=exposure, X_std=X_std), np.asarray(y, dtype=float)
        weight = np.ones(len(y)) if sample_weight is None else checked_column(sample_weight, len(y), "sample_weight")
        time = np.ones(len(y)) if exposure is None else np.broadcast_to(np.asarray(exposure, dtype=float), len(y))
        rate = (weight @ y) / (weight @ time)
        return float(1.0 - _deviance(y, mean, weight) / _deviance(y, rate * time, weight))

    def _counted(
        self, X: Any, y: Any, sample_weight: Any, exposure: Any, X_std: Any, *, first: bool
    ) -> dict[str, np.ndarray]:
        arrays = self._with_errors(self._rows(X, y, first=first), X_std)
        if is_lazy(X):
            return weighted(arrays | ({} if exposure is None else {"exposure": exposure}), sample_weight)
        if exposure is not None:
            arrays["exposure"] = checked_column(exposure, len(arrays["y"]), "exposure")
        if np.any(arrays["y"] < 0):
            raise UnsupportedTarget(f"y: expected counts 0, 1, 2, ..., got {arrays['y'].min():g}; correct it")
        if X_std is not None and len(odd := np.flatnonzero(arrays["y"] % 1)):
            raise UnsupportedTarget(
                f"y: expected whole counts beside X_std, got {arrays['y'][odd[0]]:g} in row {odd[0]}; round them, or "
                "leave X_std out"
            )
        return whole_counts(weighted(arrays, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def whole_counts(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Split rows with fractional counts y (n,): a count of 2.3 becomes rows with counts 2 (weight .7) and 3 (.3).

    The terms of count log likelihoods that contain both y and f are linear in y, so the split does not change them.
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


def _deviance(y: FloatArray, mean: FloatArray, weight: FloatArray) -> float:
    """Return the weighted Poisson deviance: twice the log density lost with means (n,) against y itself as means."""
    return 2.0 * float(weight @ (xlogy(y, y / mean) - y + mean))
