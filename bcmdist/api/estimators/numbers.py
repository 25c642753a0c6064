"""Base class of the regressors: means, standard deviations, quantiles and samples of new observations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.api.estimators.base import Estimator, seed_of
from bcmdist.api.estimators.scikit import RegressorMixin
from bcmdist.api.lazy import is_lazy
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray

COVERAGE = 0.95


class NumberEstimator(RegressorMixin, Estimator):
    """Base of estimators with numeric targets. `companions` are further columns of new rows, such as exposure."""

    def _rows(self, X: Any, y: Any, *, first: bool) -> dict[str, np.ndarray]:
        """Return validated X and y by name; see `_checked`."""
        X, y = self._checked(X, y, first=first, y_numeric=True)
        return {"X": X, "y": y}

    def _numbers(self, X: Any, return_std: bool, quantiles: Sequence[float] | None, **companions: Any) -> Any:
        """Return means (n,), means and standard deviations (n,), or quantiles (n, k)."""
        if return_std and quantiles is not None:
            raise InvalidOption("predict: expected one of return_std and quantiles, got both; leave out one of them")
        if is_lazy(X):
            more = [return_std or None, quantiles, *companions.values()]
            return self._blockwise(X, any(value is not None for value in more))
        if quantiles is not None:
            return self._quantiles(X, quantiles, **companions)
        found = self._predictions(X, **companions)
        mean = found["observation_mean"]
        return (mean, np.sqrt(found["observation_variance"])) if return_std else mean

    def _blockwise(self, X: Any, more: bool) -> Any:
        """Return means at the rows of a dask collection, lazily.

        more : whether quantiles, intervals or the like were asked for, which is refused
        """
        if more:
            raise InvalidOption("predict: expected means only of a dask collection, got more; predict its blocks")
        return self._lazily(self.predict, X, None)

    def _interval(self, X: Any, coverage: float, **companions: Any) -> FloatArray:
        """Return central intervals that contain new observations with probability `coverage`: (n, 2)."""
        if not 0 < coverage < 1:
            raise InvalidOption(f"coverage: expected a number between 0 and 1, got {coverage!r}; give one such as .95")
        return self._quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2], **companions)

    def _quantiles(self, X: Any, levels: Sequence[float], **companions: Any) -> FloatArray:
        levels = tuple(float(level) for level in np.atleast_1d(levels))
        found = self._predictions(X, quantiles=levels, **companions)
        return np.column_stack([found[f"quantile{level:g}"] for level in levels])

    def _samples(
        self, X: Any, n_samples: int, random_state: int | np.random.RandomState | None, **companions: Any
    ) -> FloatArray:
        """Return joint samples of new observations, (n, n_samples)."""
        from bcmdist.prediction.in_memory import sample_observations  # quick start
        from bcmdist.runtime.interface import SerialRuntime  # quick start

        X, snapshot = self._new(X), self.gbcm_.snapshot
        how = {"size": n_samples, "seed": seed_of(random_state), "allowed_bytes": SerialRuntime().allowed_bytes}
        how["method"] = self.gbcm_.chosen_method()
        return sample_observations(snapshot, X, **how, **companions).T
