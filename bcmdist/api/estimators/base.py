"""Base class of the scikit-learn estimators: parameters, fitting, pickling, predictions.

scikit-learn expects one class per kind of target, with the constructor's arguments as attributes. The work is done by
`GBCM`, which is imported when an estimator is first fitted.
"""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from bcmdist.api.estimators.rows import ordered, refuse_texts, variances
from bcmdist.api.estimators.scikit import (
    BaseEstimator,
    check_array,
    check_is_fitted,
    check_random_state,
    check_X_y,
    validate_data,
)
from bcmdist.api.lazy import empty, is_lazy, mapped, refuse_lazy
from bcmdist.data.tables.coding import Coding
from bcmdist.errors import InvalidOption
from bcmdist.learning.method_options import method_options
from bcmdist.learning.option_fields import hints_of
from bcmdist.learning.settings import Settings
from bcmdist.linalg.arrays import FloatArray

X_VARIANCE = "X_variance"
LARGEST_SEED = 2**32 - 1  # largest seed that `Settings` accepts


class Estimator(BaseEstimator):
    """Base of estimators that hold a committee. `GBCMRegressor` documents the parameters."""

    task: ClassVar[str]
    """value of `Settings.task`"""
    _coding: Coding | None = None  # coding of columns that are not numeric, after a fit to a data frame with some

    def __init__(
        self,
        *,
        kernel: str = "auto",
        mean: Literal["constant", "zero", "linear", "auto"] = "auto",
        likelihood: str | None = None,
        expert: str = "bcm",
        query: int | Literal["auto"] | None = None,
        rows_per_expert: int | None = None,
        partition: Literal["auto", "chunks", "spatial"] = "auto",
        passes: Literal["1", "auto"] | None = None,
        noise: Literal["auto", "constant", "varying"] = "auto",
        target_transform: Literal["auto", "none", "log", "power"] = "auto",
        effort: Literal["quick", "normal", "thorough"] = "normal",
        missing: Literal["auto", "error"] = "auto",
        unseen: Literal["other", "error"] = "other",
        sphere: tuple[str, str] | None = None,
        options: dict[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        runtime: Any = None,
    ) -> None:
        self.kernel = kernel
        self.mean = mean
        self.likelihood = likelihood
        self.expert = expert
        self.query = query
        self.rows_per_expert = rows_per_expert
        self.partition = partition
        self.passes = passes
        self.noise = noise
        self.target_transform = target_transform
        self.effort = effort
        self.missing = missing
        self.unseen = unseen
        self.sphere = sphere
        self.options = options
        self.random_state = random_state
        self.runtime = runtime

    def __init_subclass__(cls, **how: Any) -> None:
        """Give the class an initialiser with its own name, which Python's errors of unknown arguments show."""
        super().__init_subclass__(**how)
        if "__init__" not in vars(cls):
            made = cls.__init__
            own = FunctionType(made.__code__, made.__globals__, made.__name__, made.__defaults__, made.__closure__)
            own.__kwdefaults__, own.__annotations__ = made.__kwdefaults__, made.__annotations__
            own.__qualname__ = f"{cls.__name__}.__init__"
            cls.__init__ = own  # type: ignore[method-assign]

    # --- Fitting ---

    def _settings(self, *, uncertain: bool = False) -> Settings:
        """Return the settings of a fit, from the parameters and `options`; `uncertain`: inputs have known errors.

        Raises
        ------
        InvalidOption
        """
        options = ({"noisy_inputs": "clean"} if uncertain else {}) | dict(self.options or {})
        types = {**hints_of(Settings), **method_options(named=options.keys() - hints_of(Settings).keys())}
        named = {name: value for name, value in self.get_params(deep=False).items() if name in hints_of(Settings)}
        odd = [name for name in options if name not in types or name in named or name in ("task", "seed")]
        if odd:
            raise InvalidOption(
                f"options: expected further fields of bcmdist.Settings, got {odd[0]!r}; correct it, or give it as a "
                "parameter of the estimator"
            )
        return Settings(task=self.task, seed=seed_of(self.random_state), **named, **options)

    def _checked(self, X: Any, y: Any, *, first: bool, **how: Any) -> tuple[Any, Any]:
        """Return validated X (n, D) and y (n,); dask collections are returned as they are.

        `first`: learn the columns from X; else compare X with the columns of the first fit.
        """
        from bcmdist.data.tables.frames import coding_of, framed  # quick start

        X = framed(X)
        refuse_texts(X)
        if first:
            refuse_lazy(X, self.sphere)
            output = (self.options or {}).get("output")
            self._coding = coding_of(X, missing=self.missing, unseen=self.unseen, output=output, sphere=self.sphere)
        if is_lazy(X):
            validate_data(self, empty(X), reset=first, skip_check_array=True)
            return X, y
        if self._coding:
            X, y = check_X_y(self._coded(X, self._coding, first=first), y, dtype=np.float64, **how)
            return X, y
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first, **how)
        return X, y

    def _coded(self, X: Any, coding: Coding, *, first: bool) -> FloatArray:
        """Return the coded inputs (n, D) of a data frame with the columns of the first fit; those that were not used
        may be missing."""
        from bcmdist.data.tables.frames import coded, refuse_others  # quick start

        refuse_others(X, coding)
        given = [str(name) for name in X.columns]
        fitted = () if first else getattr(self, "feature_names_in_", ())
        if given != [name for name in fitted if name in coding.columns or name in given]:
            validate_data(self, X, reset=first, skip_check_array=True)
        return coded(X, coding)

    def _fitted(self, arrays: dict[str, Any], classes: tuple[str, ...] = (), *, streamed: bool = False) -> Self:
        """Fit to rows given as arrays by name: X (n, D), y (n,) and companions (n,).

        `streamed`: further rows will follow (`partial_fit`), so that rows are partitioned as they arrive.
        """
        from bcmdist.api.gbcm import GBCM  # quick start
        from bcmdist.api.running import running_for  # quick start
        from bcmdist.learning.partition_choice import as_stored  # quick start

        settings = self._settings(uncertain=X_VARIANCE in arrays)
        settings = as_stored(settings) if streamed else settings
        rows = self._in_memory_rows(ordered(arrays, settings.partition_rows), classes)
        with running_for(self.runtime, len(rows.y)) as runtime:
            self.gbcm_ = GBCM.fit(rows, settings, runtime=runtime)
        return self

    def _more(self, arrays: dict[str, Any], classes: tuple[str, ...] = ()) -> Self:
        """Absorb further rows into the fitted committee."""
        from bcmdist.api.running import running_for  # quick start

        rows = self._in_memory_rows(arrays, classes)
        with running_for(self.runtime, len(rows.y)) as runtime:
            self.gbcm_ = self.gbcm_.partial_fit(rows, runtime=runtime)
        return self

    def _in_memory_rows(self, arrays: dict[str, Any], classes: tuple[str, ...] = ()) -> Any:
        """Return the arrays as `InMemoryRows`, with column names and coding."""
        from bcmdist.api.in_memory_rows import InMemoryRows, Named  # quick start

        X, y = arrays["X"], arrays["y"]
        names = getattr(self, "feature_names_in_", None)
        companions = {name: values for name, values in arrays.items() if name not in ("X", "y")}
        if names is not None and not is_lazy(X):
            X = Named(X, self._coding.inputs if self._coding else tuple(names))
        return InMemoryRows(X, y, companions, classes, self._coding)

    # --- Pickling and cloning ---

    def __getstate__(self) -> dict[str, Any]:
        """Parameters, the fitted model as bytes (`bcmdist.api.carried`), and the address of a Dask client."""
        from bcmdist.api.carried import packed  # quick start
        from bcmdist.api.running import address_of  # quick start

        state = dict(super().__getstate__())
        if "gbcm_" in state:
            state["gbcm_"] = packed(state["gbcm_"].snapshot)
        if state.get("runtime") is not None:
            state["runtime"] = address_of(state["runtime"])
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        from bcmdist.api.carried import unpacked  # quick start
        from bcmdist.api.gbcm import GBCM  # quick start

        state = dict(state)
        if "gbcm_" in state:
            state["gbcm_"] = GBCM(unpacked(state["gbcm_"]))
        super().__setstate__(state)

    def __sklearn_clone__(self) -> Self:
        """Clone as scikit-learn does, but share the Dask client, which cannot be copied."""
        runtime, self.runtime = self.runtime, None
        try:
            made: Self = super().__sklearn_clone__()
        finally:
            self.runtime = runtime
        made.runtime = runtime
        return made

    # --- Predicting ---

    def _predictions(self, X: Any, X_std: Any = None, **how: Any) -> dict[str, np.ndarray]:
        """Return `GBCM.predict` at rows X (n, D). `X_std`: standard deviations of the errors of X."""
        X = self._new(X)
        return self.gbcm_.predict(X, X_variance=self._variances(X_std, len(X)), **how)

    def predict_terms(self, X: ArrayLike) -> dict[str, np.ndarray]:
        """Return names `term` (T,), `term_mean` and `term_variance` (n, T) of the kernel's additive terms at rows X (n,
        D).

        The last one is the prior mean; the means add up to that of the latent function (`GBCM.predict`).
        """
        found = self._predictions(X, terms=True)
        return {name: found[name] for name in ("term", "term_mean", "term_variance")}

    def _with_errors(self, arrays: dict[str, Any], X_std: Any) -> dict[str, Any]:
        """Return arrays (n, ...) by name with the variances (n, D) of the errors of X, where X_std is given."""
        if X_std is None:
            return arrays
        if self.expert != "bcm":
            raise InvalidOption(
                f"X_std: expected the expert bcm, which learns from inputs with errors, got {self.expert!r:.80}; leave "
                "one of them out; `predict` takes X_std with every expert"
            )
        if is_lazy(arrays["X"]):
            raise InvalidOption(
                "X_std: expected none beside a dask collection, got some; write a data set with an array X_variance "
                "and fit it with --noisy-inputs"
            )
        names = getattr(self, "feature_names_in_", ())
        return arrays | {X_VARIANCE: variances(X_std, arrays["X"].shape, names, self._coding)}

    def _variances(self, X_std: Any, rows: int) -> FloatArray | None:
        """Return the variances (rows, D) of the errors of inputs; None for exact inputs."""
        if X_std is None:
            return None
        names = getattr(self, "feature_names_in_", ())
        return variances(X_std, (rows, self.gbcm_.model.inputs), names, self._coding)

    def _new(self, X: Any) -> Any:
        """Return new rows, validated against the columns of training, with column names if there were any."""
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

    def _lazily(self, predict: Callable[[Any], np.ndarray], X: Any, width: int | None, dtype: DTypeLike = float) -> Any:
        """Predict at the rows of a dask collection, lazily: (N,), or (N, width) where `width` is given."""
        check_is_fitted(self)
        validate_data(self, empty(X), reset=False, skip_check_array=True)
        return mapped(predict, X, width, dtype)

    def _html_repr(self) -> str:
        from bcmdist.api.display import health_html  # quick start

        found: str = super()._html_repr()
        return found + health_html(self.gbcm_.snapshot) if hasattr(self, "gbcm_") else found


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return a seed for scikit-learn's `random_state`: an integer, a `RandomState`, or None for a random seed."""
    if random_state is None or not isinstance(random_state, (int, np.integer)):
        return int(check_random_state(random_state).randint(LARGEST_SEED, dtype=np.uint32))
    return int(random_state)
