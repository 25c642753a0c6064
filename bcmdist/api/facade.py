"""Methods of a committee and of a mixture of committees that look at it from outside: cross-validation, forecasts,
pictures, reports."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

from numpy.typing import ArrayLike

from bcmdist.api.abstract_committee import AbstractCommittee
from bcmdist.api.places import DataSource, targets_of
from bcmdist.api.requests import InputAveraging, PredictionMethod
from bcmdist.api.running import Where, runs
from bcmdist.api.validation.result import ValidationResult
from bcmdist.data.groups import Location
from bcmdist.prediction.uncertain.forecast import Forecast

# Imported on first use.
VALIDATION = "bcmdist.api.validation.cross_validate"
FORECASTS, PICTURES, REPORT = "bcmdist.api.forecasts", "bcmdist.api.pictures.pictures", "bcmdist.api.report.report"


class Facade(AbstractCommittee):
    """Validation, forecasts, pictures and reports of committees and mixtures, by modules imported on first use."""

    @runs
    def cross_validate(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        folds: int = 5,
        by: str | ArrayLike = "blocks",
        coordinates: str | Sequence[str] | None = None,
        x: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        seed: int = 0,
        runtime: Where = None,
    ) -> ValidationResult:
        """Leave out blocks of rows in turn, predict each by a committee of the others, and score the predictions.

        Scaling, hyper-parameters and query points stay as learned from all rows.

        Parameters
        ----------
        source, y, companions, x, method, inputs, runtime : as of `score`; usually the rows of the fit
        folds : number of blocks
        by : "blocks" of neighbouring rows, random "rows", "group:COLUMN", "time:COLUMN" (later rows from earlier ones),
            or an array (n,) with the group of each row
        coordinates : inputs in whose units blocks are cut and distances measured, such as ["lon", "lat"]; default: all
            inputs, in units of their lengthscales
        seed : of random rows

        Returns
        -------
        Scores of all rows, by block and by distance.

        Raises
        ------
        InvalidOption
            For a mixture, and for experts that train shared variables on the rows to be left out.
        DataNotFound, InvalidData, InvalidDtype

        Examples
        --------
        >>> found = gbcm.cross_validate(X, y, folds=4, by="rows")
        >>> found.rows, len(found.folds)
        (80, 4)
        """
        model = self.single("cross-validate").predictive
        trained = model.snapshot.model
        rows = targets_of(source, y, companions, trained.y_name, like=trained.schema)
        with model.held(), rows as (url, name):
            how = {"x": x, "y": name, "method": method, "inputs": inputs, "seed": seed}
            prepare = import_module(VALIDATION).prepared
            made: ValidationResult = prepare(
                model.snapshot, url, folds=folds, by=by, coordinates=coordinates, **how
            ).run(runtime)
            return made

    def forecast(
        self,
        state: ArrayLike,
        steps: int,
        *,
        known: ArrayLike | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | Literal["naive"] | None = None,
        seed: int = 0,
    ) -> Forecast:
        """Forecast several steps of n series, by a model whose inputs are the last L values of a series; see
        `api.forecasts`.

        Parameters
        ----------
        state : the last values of each series, newest first, (n, L)
        steps : number of steps
        known : the further inputs of each step, (n, steps, D - L)
        method : as of `predict_zarr`
        inputs : how the uncertainty of predicted values is propagated to later steps: "exact", "taylor", "montecarlo"
            or "naive"
        seed : of samples

        Returns
        -------
        Means, variances and 95 % limits, (n, steps) each, in original units.

        Raises
        ------
        InvalidData, InvalidOption

        Examples
        --------
        >>> import pandas
        >>> series = np.sin(np.arange(63.0))
        >>> lags = pandas.DataFrame({f"s[t-{k}]": series[3 - k : -k] for k in (1, 2, 3)})
        >>> model = bcmdist.GBCM.fit(lags, series[3:], settings)
        >>> model.forecast(lags[-1:], steps=5).mean.shape
        (1, 5)
        """
        how = {"known": known, "method": method, "way": inputs, "seed": seed}
        found: Forecast = import_module(FORECASTS).forecast(self.predictive, state, steps, **how)
        return found

    @runs
    def plot(
        self,
        out: Location,
        *,
        what: str | None = None,
        data: Location | None = None,
        x: str | None = None,
        y: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        above: Sequence[float] = (),
        runtime: Where = None,
    ) -> str:
        """Write a diagnostic picture. See `pictures.plot`.

        Parameters
        ----------
        out : file whose name ends in .png, .svg or .pdf
        what : a name in `PICTURES`; default: "calibration" with data, "relevance" without
        data : path or URL of a data set with targets
        x, y : names of its arrays; default: as in training
        method, inputs : as of `predict_zarr`
        above : thresholds, for each of which a map has the probability that the function is above it
        runtime : where to run; default: in this process

        Returns
        -------
        The name of the picture.

        Raises
        ------
        InvalidOption
            There is no such picture, the picture needs data, or there is nothing to draw.
        MissingExtra

        Examples
        --------
        >>> gbcm.plot("relevance.svg")
        'relevance'
        """
        how = {"what": what, "data": data, "x": x, "y": y, "method": method, "inputs": inputs, "above": above}
        picture: str = import_module(PICTURES).plot(self, out, runtime, **how)
        return picture

    @runs
    def report(
        self,
        source: Location,
        out: Location,
        *,
        train: Location | None = None,
        x: str | None = None,
        y: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        runtime: Where = None,
    ) -> dict[str, Any]:
        """Write an HTML report on predictions of a data set with targets; see `report.report`.

        Parameters
        ----------
        source : path or URL of a data set that the model has not absorbed
        out : file whose name ends in .html; an existing file is replaced
        train : path or URL of the data set that baselines learn from; default: the training data of the model
        x, y : names of the arrays; default: as in training
        method, inputs : as of `predict_zarr`
        runtime : where to run; default: in this process

        Returns
        -------
        `report`, `rows`, `method`, `scores`, `baselines`, `learned_from`, `trust` and `remarks`, JSON-ready.

        Raises
        ------
        InvalidOption, MissingExtra
            Before any work: `out` cannot be written, or matplotlib is missing.
        DataNotFound, InvalidData, UnsupportedTarget, MemoryLimit, WorkerCannotRead

        Examples
        --------
        >>> bcmdist.write_dataset("test.zarr", {"X": X + 0.1, "y": y})
        >>> bcmdist.write_dataset("base.zarr", {"X": X, "y": y})
        >>> gbcm.report("test.zarr", "report.html", train="base.zarr")["rows"]
        80
        """
        how = {"train": train, "x": x, "y": y, "method": method, "inputs": inputs}
        figures: dict[str, Any] = import_module(REPORT).report(self, source, out, runtime, **how)
        return figures
