"""All imports from scikit-learn that the estimators need, in one place."""

from numpy.typing import ArrayLike

from bcmdist.errors import MissingExtra

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
    from sklearn.utils import check_array, check_random_state, check_X_y
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtra(
        f"estimators: expected scikit-learn 1.7 or newer ({error}); pip install 'bcmdist[sklearn]'"
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "check_X_y",
    "check_array",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "clone",
    "explained",
    "right",
    "validate_data",
]


def explained(y: ArrayLike, mean: ArrayLike, sample_weight: ArrayLike | None) -> float:
    """Return R squared of means (n,) for targets y (n,), as scikit-learn scores regressors."""
    from sklearn.metrics import r2_score  # quick start

    return float(r2_score(y, mean, sample_weight=sample_weight))


def right(y: ArrayLike, label: ArrayLike, sample_weight: ArrayLike | None) -> float:
    """Return the accuracy of labels (n,) for y (n,), as scikit-learn scores classifiers."""
    from sklearn.metrics import accuracy_score  # quick start

    return float(accuracy_score(y, label, sample_weight=sample_weight))
