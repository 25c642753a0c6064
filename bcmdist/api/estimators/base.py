"""What all estimators share: their hyper-parameters, how they absorb rows, and the committee that they hold.

scikit-learn wants a class for each kind of target, with the options of its constructor as attributes; all that they do
is done by the facade, which is imported when the first one is fitted.
"""

from typing import ClassVar, Self

import numpy as np

from bcmdist.api.estimators.input_errors import variances
from bcmdist.api.estimators.rows import ordered, refuse_texts
from bcmdist.api.estimators.scikit import (
    BaseEstimator,
    check_array,
    check_is_fitted,
    check_random_state,
    check_X_y,
    validate_data,
)
from bcmdist.api.lazy import empty, is_lazy, mapped
from bcmdist.errors import InvalidOption
from bcmdist.learning.option_fields import said
from bcmdist.learning.settings import Settings

LARGEST_SEED = 2**32 - 1  # of `Settings`


class Estimator(BaseEstimator):
    """A committee as an estimator; `GBCMRegressor` has the parameters."""

    task: ClassVar[str]
    """of `Settings`"""
    _coding = None  # how columns that are no numbers became inputs, of a fit to a data frame with such

    def __init__(
        self,
        *,
        kernel="auto",
        mean="auto",
        likelihood=None,
        expert="bcm",
        query=None,
        rows_per_expert=None,
        partition="chunks",
        passes=None,
        noise="auto",
        effort="normal",
        options=None,
        random_state=0,
        runtime=None,
    ):
        self.kernel = kernel
        self.mean = mean
        self.likelihood = likelihood
        self.expert = expert
        self.query = query
        self.rows_per_expert = rows_per_expert
        self.partition = partition
        self.passes = passes
        self.noise = noise
        self.effort = effort
        self.options = options
        self.random_state = random_state
        self.runtime = runtime

    # --- Absorbing ---

    def _settings(self) -> Settings:
        """What a fit is asked for.

        Raises
        ------
        InvalidOption
        """
        options = dict(self.options or {})
        named = {name: value for name, value in self.get_params(deep=False).items() if name in said(Settings)}
        odd = [name for name in options if name not in said(Settings) or name in named or name in ("task", "seed")]
        if odd:
            raise InvalidOption(
                f"options: expected further fields of bcmdist.Settings, got {odd[0]!r}; correct it, or give it as a "
                "parameter of the estimator"
            )
        return Settings(task=self.task, seed=seed_of(self.random_state), **named, **options)

    def _checked(self, X, y, *, first, **how):
        """X (n, D) and y (n,), of a first fit or beside those of one; dask collections as they are."""
        from bcmdist.data.tables.frames import coding_of, framed  # quick start

        X = framed(X)
        refuse_texts(X)
        if first:
            self._coding = coding_of(X)
        if is_lazy(X):
            validate_data(self, empty(X), reset=first, skip_check_array=True)
            return X, y
        if self._coding:
            return check_X_y(self._coded(X, self._coding, first=first), y, dtype=np.float64, **how)
        return validate_data(self, X, y, dtype=np.float64, reset=first, **how)

    def _coded(self, X, coding, *, first):
        """Inputs (n, D) of a data frame with the columns of the first one."""
        from bcmdist.data.tables.frames import coded, refuse_others  # quick start

        refuse_others(X, coding)
        validate_data(self, X, reset=first, skip_check_array=True)
        return coded(X, coding)

    def _fitted(self, arrays, classes=()) -> Self:
        """Fit to the rows of `arrays` by name, X (n, D), y (n,) and companions (n,)."""
        from bcmdist.api.gbcm import GBCM  # quick start
        from bcmdist.api.running import running_for  # quick start

        settings = self._settings()
        given = self._given(ordered(arrays, settings.partition_rows), classes)
        with running_for(self.runtime, len(given.y)) as runtime:
            self.gbcm_ = GBCM.fit(given, settings, runtime=runtime)
        return self

    def _more(self, arrays, classes=()) -> Self:
        """Absorb further rows."""
        from bcmdist.api.running import running_for  # quick start

        given = self._given(arrays, classes)
        with running_for(self.runtime, len(given.y)) as runtime:
            self.gbcm_ = self.gbcm_.partial_fit(given, runtime=runtime)
        return self

    def _given(self, arrays, classes=()):
        from bcmdist.api.in_memory_rows import InMemoryRows, Named  # quick start

        X, y = arrays["X"], arrays["y"]
        names = getattr(self, "feature_names_in_", None)
        companions = {name: values for name, values in arrays.items() if name not in ("X", "y")}
        if names is not None and not is_lazy(X):
            X = Named(X, self._coding.inputs if self._coding else tuple(names))
        return InMemoryRows(X, y, companions, classes, self._coding)

    # --- Travelling ---

    def __getstate__(self):
        """Parameters and, where it is fitted, the model as bytes (`bcmdist.api.carried`); a client by its address."""
        from bcmdist.api.carried import packed  # quick start
        from bcmdist.api.running import address_of  # quick start

        state = dict(super().__getstate__())
        if "gbcm_" in state:
            state["gbcm_"] = packed(state["gbcm_"].snapshot)
        if state.get("runtime") is not None:
            state["runtime"] = address_of(state["runtime"])
        return state

    def __setstate__(self, state):
        from bcmdist.api.carried import unpacked  # quick start
        from bcmdist.api.gbcm import GBCM  # quick start

        state = dict(state)
        if "gbcm_" in state:
            state["gbcm_"] = GBCM(unpacked(state["gbcm_"]))
        super().__setstate__(state)

    def __sklearn_clone__(self):
        """As scikit-learn does it, but that a client, which has no copy, stays the same one."""
        runtime, self.runtime = self.runtime, None
        try:
            made = super().__sklearn_clone__()
        finally:
            self.runtime = runtime
        made.runtime = runtime
        return made

    # --- Predicting ---

    def _predictions(self, X, X_std=None, **how) -> dict[str, np.ndarray]:
        """Those of the facade at the rows of X (n, D), whose errors have standard deviations `X_std`."""
        X = self._new(X)
        return self.gbcm_.predict(X, X_variance=self._variances(X_std, len(X)), **how)

    def _variances(self, X_std, rows):
        """Variances (rows, D) of errors of inputs; None where they are exact."""
        if X_std is None:
            return None
        names = getattr(self, "feature_names_in_", ())
        return variances(X_std, (rows, self.gbcm_.model.inputs), names, self._coding)

    def _new(self, X):
        """New rows, checked against those of training, with their names."""
        from bcmdist.api.in_memory_rows import Named  # quick start
        from bcmdist.data.tables.frames import framed  # quick start

        check_is_fitted(self)
        X = framed(X)
        refuse_texts(X)
        if self._coding:
            X = check_array(self._coded(X, self._coding, first=False), dtype=np.float64)
            return Named(X, self._coding.inputs)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        names = getattr(self, "feature_names_in_", None)
        return X if names is None else Named(X, tuple(names))

    def _lazily(self, predict, X, width, dtype=float):
        """Predictions (N,) or (N, width) at the rows of a dask collection, lazily."""
        check_is_fitted(self)
        validate_data(self, empty(X), reset=False, skip_check_array=True)
        return mapped(predict, X, width, dtype)

    def _html_repr(self):
        from bcmdist.api.display import health_html  # quick start

        found = super()._html_repr()
        return found + health_html(self.gbcm_.snapshot) if hasattr(self, "gbcm_") else found


def seed_of(random_state) -> int:
    """A seed of ours for what scikit-learn has: a number, a generator of numpy's old kind, or None for any."""
    if random_state is None or not isinstance(random_state, (int, np.integer)):
        return int(check_random_state(random_state).randint(LARGEST_SEED, dtype=np.uint32))
    return int(random_state)
