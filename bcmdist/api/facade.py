"""Methods shared by a committee and a mixture of committees: predict, score, forecast, plot, report."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from bcmdist.api.places import targets_of
from bcmdist.api.relevance import Lengthscales
from bcmdist.api.running import Where, runs
from bcmdist.api.validation.result import ValidationResult
from bcmdist.prediction import datasets
from bcmdist.prediction.joint.averages import Of
from bcmdist.prediction.joint.stored import JointSamples
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.forecast import Forecast

if TYPE_CHECKING:
    import pandas

# Imported on first use.
VALIDATION = "bcmdist.api.validation.cross_validate"
FORECASTS, PICTURES, REPORT = "bcmdist.api.forecasts", "bcmdist.api.pictures.pictures", "bcmdist.api.report.report"


class Facade(ABC):
    """Common interface of `GBCM` (one committee) and `Mixture` (several)."""

    @property
    @abstractmethod
    def predictive(self) -> PredictiveModel:
        """The committee or committees, for prediction."""

    @property
    @abstractmethod
    def url(self) -> str:
        """URL of the model directory."""

    @abstractmethod
    def single(self, what: str) -> "Facade":
        """Return a `GBCM` unchanged; raise `InvalidOption` for a mixture, which does not support `what` (a verb)."""

    @property
    @abstractmethod
    def commit(self) -> int:
        """Number of the commit."""

    @abstractmethod
    def history(self) -> list[dict[str, Any]]:
        """Describe its commits, oldest first."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Summary figures of the model, JSON-ready."""

    @abstractmethod
    def advised(self) -> list[str]:
        """Advice about the fit, one sentence per entry."""

    @abstractmethod
    def lengthscales(self) -> list[Lengthscales]:
        """Lengthscales of each part of the kernel, for each feature."""

    def chosen_method(self, method: str | None = None) -> str:
        """Return the prediction method: `method`, by default the one recorded at fit ("committee" for a mixture).

        Raises `InvalidOption` where the model lacks what the method needs.
        """
        return self.predictive.chosen_method(method)

    @abstractmethod
    def predict(self, X: Any, *args: Any, **how: Any) -> dict[str, np.ndarray]:
        """Predictions by name at rows X."""

    def predict_frame(self, X: Any, **how: Any) -> "pandas.DataFrame":
        """As `predict`, as a data frame with the index of the data frame X (n, D), or 0, 1, ...

        Probabilities are columns `probability_CLASS`. Terms, which belong to columns of their own, are left out.
        """
        import pandas  # optional

        found = {name: values for name, values in self.predict(X, **how).items() if np.shape(values)[:1] == (len(X),)}
        classes = self.predictive.snapshot.model.class_labels if "probability" in found else ()
        columns: dict[str, np.ndarray] = {}
        for name, values in found.items():
            wide = values.ndim == 2 and values.shape[1] == len(classes)
            columns |= {f"{name}_{label}": values[:, k] for k, label in enumerate(classes)} if wide else {}
            columns |= {name: values} if values.ndim == 1 else {}
        return pandas.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)

    @runs
    def predict_zarr(
        self,
        source: Any,
        out: Any,
        *,
        x: str | None = None,
        method: str | None = None,
        inputs: str | None = None,
        terms: bool = False,
        above: Sequence[float] = (),
        draws: int = 0,
        of: Of = "function",
        seed: int = 0,
        runtime: Where = None,
    ) -> int:
        """Predict at every row of a Zarr data set into the new Zarr group `out`. Return the number of rows.

        `x`: name of the input array (default: as in training). `method`: "committee", "local" (uses the training rows
        around each new point) or a registered predictor (default: as at fit; "committee" for a mixture). `inputs`: as
        in `GBCM.predict`, for data sets with an array X_variance. `terms`: also arrays `term_mean` and `term_variance`
        (N, T), with the names `term` (T,). `above`: thresholds t, of which arrays such as `above2.5` (N,) hold the
        probability that the mean of an observation is above. `draws`: also an array `sample` (N, draws) of joint
        samples of the function, or `of="observations"`, which this process draws. Raises `DataExists`, `DataNotFound`,
        `InvalidData`, `WorkerCannotRead`.
        """
        model = self.predictive
        with model.held():
            data = datasets.open_new_rows(model.snapshot, source, x=x, y=None)
            samples, how = JointSamples(draws, of, seed), (method, inputs, runtime)
            return datasets.predict_zarr(model, data, out, *how, terms=terms, above=above, samples=samples)

    def score(
        self,
        source: Any,
        y: Any = None,
        *,
        companions: Any = None,
        x: str | None = None,
        method: str | None = None,
        inputs: str | None = None,
        runtime: Where = None,
    ) -> dict[str, Any]:
        """Score predictions against the targets of a Zarr data set, or of rows X (n, D) with y (n,).

        Return `rows` and the scores of `Scores.summary` by name. The log density of a mixture is the log of the mean
        density over its members.
        """
        scores = self.scores(source, y, companions=companions, x=x, method=method, inputs=inputs, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    @runs
    def scores(
        self,
        source: Any,
        y: Any = None,
        *,
        companions: Any = None,
        x: str | None = None,
        method: str | None = None,
        inputs: str | None = None,
        runtime: Where = None,
    ) -> Scores:
        """Return the additive totals from which `score` is computed.

        For a data set, `x` and `y` are names of its arrays (default: as in training).
        """
        model, trained = self.predictive, self.predictive.snapshot.model
        rows = targets_of(source, y, companions, trained.y_name, like=trained.schema)
        with model.held(), rows as (url, name):
            data = datasets.open_new_rows(model.snapshot, url, x=x, y=name)
            return datasets.scores(model, data, method, inputs, runtime)

    @runs
    def cross_validate(
        self,
        source: Any,
        y: Any = None,
        *,
        companions: Any = None,
        folds: int = 5,
        by: str = "blocks",
        coordinates: Any = None,
        x: str | None = None,
        method: str | None = None,
        inputs: str | None = None,
        seed: int = 0,
        runtime: Where = None,
    ) -> ValidationResult:
        """Leave out blocks of rows in turn, predict each by a committee of the others, and score the predictions.

        `source`, `y`, `companions`, `x`, `method`, `inputs` as in `score`; usually the rows of the fit. `by`: "blocks"
        of neighbouring rows, random "rows", "group:COLUMN", "time:COLUMN" (later rows from earlier ones), or an array
        with the group of each row. `coordinates`: inputs in whose units blocks are cut and distances measured, such as
        ["lon", "lat"] (default: all inputs, in units of their lengthscales). Scaling, hyper-parameters and query points
        stay as learned from all rows. Raises `InvalidOption` for a mixture, and for experts that train shared variables
        on the rows to be left out.
        """
        model = self.single("cross-validate").predictive
        trained = model.snapshot.model
        rows = targets_of(source, y, companions, trained.y_name, like=trained.schema)
        with model.held(), rows as (url, name):
            how = {"x": x, "y": name, "method": method, "inputs": inputs, "seed": seed}
            prepare = import_module(VALIDATION).prepared
            return prepare(model.snapshot, url, folds=folds, by=by, coordinates=coordinates, **how).run(runtime)

    def forecast(
        self,
        state: Any,
        steps: int,
        *,
        known: Any = None,
        method: str | None = None,
        inputs: str | None = None,
        seed: int = 0,
    ) -> Forecast:
        """Forecast `steps` steps of n series, by a model whose inputs are the last L values of a series.

        `state` (n, L): the last values, newest first. `known` (n, steps, D - L): the further inputs of each step.
        `inputs`: how the uncertainty of predicted values is propagated to later steps: "exact", "taylor",
        "montecarlo" or "naive". See `api.forecasts`.
        """
        how = {"known": known, "method": method, "way": inputs, "seed": seed}
        return import_module(FORECASTS).forecast(self.predictive, state, steps, **how)

    @runs
    def plot(
        self,
        out: Any,
        *,
        what: str | None = None,
        data: Any = None,
        x: str | None = None,
        y: Any = None,
        method: str | None = None,
        inputs: str | None = None,
        above: Sequence[float] = (),
        runtime: Where = None,
    ) -> str:
        """Write a diagnostic picture to `out`; return its name. See `pictures.plot`."""
        how = {"what": what, "data": data, "x": x, "y": y, "method": method, "inputs": inputs, "above": above}
        return import_module(PICTURES).plot(self, out, runtime, **how)

    @runs
    def report(
        self,
        source: Any,
        out: Any,
        *,
        train: Any = None,
        x: str | None = None,
        y: Any = None,
        method: str | None = None,
        inputs: str | None = None,
        runtime: Where = None,
    ) -> dict[str, Any]:
        """Write an HTML report on predictions of a data set with targets; see `report.report`."""
        how = {"train": train, "x": x, "y": y, "method": method, "inputs": inputs}
        return import_module(REPORT).report(self, source, out, runtime, **how)
