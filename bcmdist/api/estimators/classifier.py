"""`GBCMClassifier`: scikit-learn classifier."""

from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.estimators.base import Estimator
from bcmdist.api.estimators.rows import Deviations, weighted
from bcmdist.api.estimators.scikit import ClassifierMixin, check_classification_targets, right
from bcmdist.api.lazy import Lazy, is_lazy
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.linalg.arrays import FloatArray, IntArray


class GBCMClassifier(ClassifierMixin, Estimator):
    """Classification into two or more classes by a Bayesian committee machine.

    Parameters as of `GBCMRegressor`. `likelihood` None means "bernoulli" for two classes and "onehot" for more;
    "softmax", "probit" and "svm" are alternatives.

    Attributes
    ----------
    classes_ : (C,) labels, numbers or strings, in the order of the columns of `predict_proba`
    gbcm_, n_features_in_, feature_names_in_ : as of `GBCMRegressor`

    Examples
    --------
    >>> model = bcmdist.GBCMClassifier(kernel="se", query=20, effort="quick").fit(X, y > 0)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    task = "classification"

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, X_std: Deviations | None = None
    ) -> Self:
        """Learn hyper-parameters from rows X (n, D) with labels y (n,), and absorb them.

        Weights and `X_std` as of `GBCMRegressor.fit`, the latter for two classes.
        """
        return self._classified(X, y, sample_weight, None, X_std)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Absorb further rows. The first call fits, and its hyper-parameters and query points are kept.

        With `partition="auto"` the first call partitions rows as they arrive, since more will follow. `classes`: all
        class labels; the first call needs rows of each class. Other arguments as of `GBCMClassifier.fit`, which are as
        of `GBCMRegressor.fit`.
        """
        if not hasattr(self, "gbcm_"):
            return self._classified(X, y, sample_weight, classes, X_std, streamed=True)
        X, y = self._checked(X, np.asarray(y) if is_lazy(y) else y, first=False)
        arrays = weighted(self._with_errors({"X": X, "y": self._codes(y)}, X_std), sample_weight)
        return self._more(arrays, tuple(map(str, self.classes_)))

    def _classified(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, X_std: Any, *, streamed: bool = False
    ) -> Self:
        """Fit to the first rows. `classes`: all labels; default: the labels in y with positive weight."""
        X, y = self._checked(X, np.asarray(y) if is_lazy(y) else y, first=True)
        check_classification_targets(y)
        self.classes_: np.ndarray = np.unique(y if classes is None else classes)
        arrays = weighted(self._with_errors({"X": X, "y": self._codes(y)}, X_std), sample_weight)
        there = np.unique(arrays["y"])
        if len(there) < 2:
            raise InvalidData(
                f"y: expected at least two classes, got one class ({self.classes_[there[0]]!s}) in {len(y)} rows with "
                "weight; give rows of others, too"
            )
        if len(there) < len(self.classes_):
            missing = self.classes_[np.setdiff1d(np.arange(len(self.classes_)), there)[0]]
            if classes is not None:
                raise InvalidData(
                    f"y: expected rows of all classes in the first call, which learns, got none of {missing!s}; give "
                    "more rows there"
                )
            self.classes_ = self.classes_[there]
            arrays["y"] = np.searchsorted(there, arrays["y"])
        return self._fitted(arrays, tuple(map(str, self.classes_)), streamed=streamed)

    @overload
    def predict_proba(self, X: Lazy, X_std: None = None) -> Any: ...
    @overload
    def predict_proba(self, X: ArrayLike, X_std: Deviations | None = None) -> FloatArray: ...
    def predict_proba(self, X: Any, X_std: Any = None) -> Any:
        """Return class probabilities at rows X (n, D): (n, C).

        `X_std`: errors of X to average over, as in `GBCMRegressor.predict`.
        """
        if is_lazy(X):
            _refuse_lazy_errors(X_std)
            return self._lazily(self.predict_proba, X, len(self.classes_))
        return self._predictions(X, X_std)["probability"]

    @overload
    def predict(self, X: Lazy, X_std: None = None) -> Any: ...
    @overload
    def predict(self, X: ArrayLike, X_std: Deviations | None = None) -> np.ndarray: ...
    def predict(self, X: Any, X_std: Any = None) -> Any:
        """Return the most probable class at rows X (n, D): (n,). `X_std` as in `predict_proba`."""
        if is_lazy(X):
            _refuse_lazy_errors(X_std)
            return self._lazily(self.predict, X, None, self.classes_.dtype)
        probability = self.predict_proba(X, X_std)
        return self.classes_[probability.argmax(axis=1)]

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, X_std: Deviations | None = None
    ) -> float:
        """Return the accuracy of the most probable class. Arguments as of `GBCMRegressor.score`, which are as of
        `GBCMRegressor.fit`."""
        return right(y, self.predict(X, X_std), sample_weight)

    def _codes(self, y: Any) -> IntArray:
        """Return the class numbers (n,) of labels."""
        codes: IntArray = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        odd = np.flatnonzero(self.classes_[codes] != y)
        if len(odd):
            labels = ", ".join(map(repr, self.classes_[:8].tolist()))
            raise InvalidData(
                f"y: expected classes among {labels}, got {y[odd[0]]!s} at row {odd[0]}; correct it, or fit again"
            )
        return codes


def _refuse_lazy_errors(X_std: Any) -> None:
    if X_std is not None:
        raise InvalidOption("X_std: expected none beside a dask collection, got some; predict its blocks")
