"""Methods that a committee and a mixture of several have in common: predict and score data sets, draw, report."""

from abc import ABC, abstractmethod
from importlib import import_module

from bcmdist.api.places import targets_of
from bcmdist.api.relevance import Lengthscales
from bcmdist.api.running import Where, runs
from bcmdist.prediction import datasets
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.forecast import Forecast

# Modules beside the facade; they are loaded when a forecast, a picture or a report is asked for.
FORECASTS, PICTURES, REPORT = "bcmdist.api.forecasts", "bcmdist.api.pictures.pictures", "bcmdist.api.report.report"


class Facade(ABC):
    """What users ask of a model, whether it is one committee or several."""

    @property
    @abstractmethod
    def predictive(self) -> PredictiveModel:
        """The committees that predict."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Of the model directory."""

    @abstractmethod
    def single(self, what: str) -> "Facade":
        """The model as a `GBCM` that one can do `what` with; `InvalidOption` of a mixture."""

    @abstractmethod
    def info(self) -> dict:
        """Figures of the model, JSON-ready."""

    @abstractmethod
    def advised(self) -> list[str]:
        """Advice about the fit, a sentence each."""

    @abstractmethod
    def lengthscales(self) -> list[Lengthscales]:
        """By part of the kernel and feature."""

    def chosen_method(self, method=None) -> str:
        """The given method, or the one recorded at fit, and "committee" of a mixture; `InvalidOption` where the model
        lacks what it needs."""
        return self.predictive.chosen_method(method)

    @runs
    def predict_zarr(self, source, out, *, x=None, method=None, inputs=None, runtime: Where = None) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group; the number of rows.

        `x`: name of the input array, as in training by default; `method`: "committee", "local" with the rows around
        each new point, or a registered one, as at fit by default, and "committee" for a mixture; `inputs` as of
        `predict`, where X_variance is beside X. Raises `DataExists`, `DataNotFound`, `InvalidData`, `WorkerCannotRead`.
        """
        model = self.predictive
        with model.held():
            data = datasets.open_new_rows(model.snapshot, source, x=x, y=None)
            return datasets.predict_zarr(model, data, out, method, inputs, runtime)

    @runs
    def score(
        self, source, y=None, *, companions=None, x=None, method=None, inputs=None, runtime: Where = None
    ) -> dict:
        """`rows`, and scores of predictions against targets, as named by `Scores.summary`: of a Zarr data set, or of
        rows X (n, D) with y (n,). The log density under a mixture is the log of the average density over members."""
        scores = self.scores(source, y, companions=companions, x=x, method=method, inputs=inputs, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    @runs
    def scores(
        self, source, y=None, *, companions=None, x=None, method=None, inputs=None, runtime: Where = None
    ) -> Scores:
        """The totals behind `score`, which add; `x`, and `y` of a data set, are names of its arrays, those in training
        by default."""
        model, trained = self.predictive, self.predictive.snapshot.model
        rows = targets_of(source, y, companions, trained.y_name, like=trained.schema)
        with model.held(), rows as (url, name):
            data = datasets.open_new_rows(model.snapshot, url, x=x, y=name)
            return datasets.scores(model, data, method, inputs, runtime)

    def forecast(self, state, steps: int, *, known=None, method=None, inputs=None, seed=0) -> Forecast:
        """Steps ahead of series by a model of their last L values, from these, (n, L), the newest first, and what else
        is `known` of each step, (n, steps, D - L); `inputs`: how to go on from what is itself predicted, "exact",
        "taylor", "montecarlo" or "naive". See `api.forecasts`."""
        how = {"known": known, "method": method, "way": inputs, "seed": seed}
        return import_module(FORECASTS).forecast(self.predictive, state, steps, **how)

    @runs
    def plot(
        self, out, *, what=None, data=None, x=None, y=None, method=None, inputs=None, runtime: Where = None
    ) -> str:
        """Write a picture of what it has learned, or of how far it can be trusted; see `pictures.plot`."""
        how = {"what": what, "data": data, "x": x, "y": y, "method": method, "inputs": inputs}
        return import_module(PICTURES).plot(self, out, runtime, **how)

    @runs
    def report(
        self, source, out, *, train=None, x=None, y=None, method=None, inputs=None, runtime: Where = None
    ) -> dict:
        """Write a page about predictions of a data set with targets; see `report.report`."""
        how = {"train": train, "x": x, "y": y, "method": method, "inputs": inputs}
        return import_module(REPORT).report(self, source, out, runtime, **how)
