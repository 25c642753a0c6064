"""The door to scikit-learn: all that estimators take of it."""

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
    "validate_data",
]
