"""`GBCMLifetimeRegressor`: scikit-learn regressor for right-censored lifetimes."""

from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.estimators.numbers import COVERAGE, NumberEstimator
from bcmdist.api.estimators.rows import Deviations, checked_column, weighted
from bcmdist.api.estimators.scikit import check_is_fitted
from bcmdist.api.lazy import Lazy, is_lazy
from bcmdist.errors import InvalidData
from bcmdist.linalg.arrays import FloatArray


class GBCMLifetimeRegressor(NumberEstimator):
    """Regression of lifetimes by a Bayesian committee machine: P(T > t) = exp(-(t / exp(f(x)))^shape).

    Parameters as of `GBCMRegressor`. `likelihood` None means "weibull"; "exponential" is the alternative. `event`, an
    argument of `fit` and `score`, is 1 where a lifetime ended and 0 where it is right-censored. Pipelines and searches
    pass it if it was requested (`set_fit_request(event=True)`).

    Examples
    --------
    >>> years, ended = np.exp(y), np.arange(80) % 4 > 0
    >>> model = bcmdist.GBCMLifetimeRegressor(kernel="se", query=20, effort="quick").fit(X, years, event=ended)
    >>> model.predict_interval(X[:3]).shape
    (3, 2)
    """

    task = "lifetimes"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        event: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Learn hyper-parameters from rows X (n, D) with times y (n,), and absorb them.

        `event` (n,): 1 where a lifetime ended, 0 where it is censored. Weights and `X_std` as of `GBCMRegressor.fit`.
        """
        return self._fitted(self._timed(X, y, sample_weight, event, X_std, first=True))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        event: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Absorb further rows. The first call fits, and its hyper-parameters and query points are kept.

        With `partition="auto"` the first call partitions rows as they arrive, since more will follow.
        `event` (n,) as in `fit`. Other arguments as of `GBCMRegressor.fit`.
        """
        if not hasattr(self, "gbcm_"):
            return self._fitted(self._timed(X, y, sample_weight, event, X_std, first=True), streamed=True)
        return self._more(self._timed(X, y, sample_weight, event, X_std, first=False))

    @overload
    def predict(self, X: Lazy) -> Any: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        quantiles: None = None,
        X_std: Deviations | None = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
    ) -> Any: ...
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
    ) -> Any:
        """Return mean lifetimes at rows X (n, D): (n,).

        With `return_std` also standard deviations of new lifetimes (n,). With `quantiles` (k levels) return only the
        quantiles, (n, k). `X_std` as in `GBCMRegressor.predict`.
        """
        return self._numbers(X, return_std, quantiles, X_std=X_std)

    def predict_interval(self, X: ArrayLike, coverage: float = COVERAGE, X_std: Deviations | None = None) -> FloatArray:
        """Return central intervals that contain new lifetimes with probability `coverage`: (n, 2).

        Other arguments as of `GBCMRegressor.predict`.
        """
        return self._interval(X, coverage, X_std=X_std)

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> FloatArray:
        """Return joint samples of lifetimes at rows X (n, D): (n, n_samples); as of `GBCMRegressor.sample_y`."""
        return self._samples(X, n_samples, random_state)

    def score(
        self, X: ArrayLike, y: ArrayLike, event: ArrayLike | None = None, X_std: Deviations | None = None
    ) -> float:
        """Return the concordance: the share of comparable pairs whose medians are in the right order; .5 by chance.

        y: times (n,). `event` (n,) as in `fit`. Other arguments as of `GBCMRegressor.fit`.
        """
        check_is_fitted(self)
        arrays: dict[str, Any] = self._timed(X, y, None, event, None, first=False)
        if X_std is not None:
            arrays |= {"X_variance": self._variances(X_std, len(arrays["X"]))}
        return float(self.gbcm_.scores(self._in_memory_rows(arrays)).summary()["concordance"])

    def _timed(
        self, X: Any, y: Any, sample_weight: Any, event: Any, X_std: Any, *, first: bool
    ) -> dict[str, np.ndarray]:
        arrays = self._with_errors(self._rows(X, y, first=first), X_std)
        if is_lazy(X):
            return weighted(arrays | ({} if event is None else {"event": event}), sample_weight)
        if event is not None:
            arrays["event"] = checked_column(event, len(arrays["y"]), "event")
            if not set(np.unique(arrays["event"])) <= {0.0, 1.0}:
                raise InvalidData("event: expected 1 where a lifetime ended and 0 where not, got others; correct them")
        return weighted(arrays, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
