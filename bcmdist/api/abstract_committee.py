"""The interface that a committee and a mixture of committees have in common: what they are, predictions, scores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.places import DataSource, targets_of
from bcmdist.api.relevance import Lengthscales
from bcmdist.api.requests import InputAveraging, PredictionMethod
from bcmdist.api.running import Where, runs
from bcmdist.data.groups import Location
from bcmdist.prediction import datasets
from bcmdist.prediction.joint.averages import Of
from bcmdist.prediction.joint.stored import JointSamples
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.scoring.scores import Scores

if TYPE_CHECKING:
    import pandas


class AbstractCommittee(ABC):
    """A committee, or several: `GBCM` or `Mixture`. Predicts data sets and scores predictions."""

    @property
    @abstractmethod
    def predictive(self) -> PredictiveModel:
        """The committee or committees, for prediction."""

    @property
    @abstractmethod
    def url(self) -> str:
        """URL of the model directory."""

    @abstractmethod
    def single(self, what: str) -> "AbstractCommittee":
        """Return a `GBCM` unchanged, for what a mixture does not support.

        Parameters
        ----------
        what : the act, a verb

        Returns
        -------
        This object.

        Raises
        ------
        InvalidOption
            It is a mixture.

        Examples
        --------
        >>> gbcm.single("plot") is gbcm
        True
        """

    @property
    @abstractmethod
    def commit(self) -> int:
        """Number of the commit."""

    @abstractmethod
    def history(self) -> list[dict[str, Any]]:
        """Describe its commits, oldest first.

        Returns
        -------
        Dictionaries, JSON-ready, with `commit`, `rows` and `partitions` among others.

        Examples
        --------
        >>> gbcm.history()[0]["number"]
        1
        """

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Summary figures of the model, JSON-ready.

        Returns
        -------
        Figures by name: `rows`, `partitions`, `query`, `kernel`, `hyperparameters` (in units of scaled inputs and
        target), `log_evidence` (nats) and others.

        Examples
        --------
        >>> gbcm.info()["rows"], gbcm.info()["query"]
        (80, 20)
        """

    @abstractmethod
    def advised(self) -> list[str]:
        """Advice about the fit.

        Returns
        -------
        One sentence per entry; none where there is nothing to do.

        Examples
        --------
        >>> all(isinstance(sentence, str) for sentence in gbcm.advised())
        True
        """

    @abstractmethod
    def lengthscales(self) -> list[Lengthscales]:
        """Lengthscales of each part of the kernel, for each feature.

        Returns
        -------
        One entry per part, with lengthscales (F,) of the features in scaled units.

        Examples
        --------
        >>> len(gbcm.lengthscales())
        1
        """

    def chosen_method(self, method: PredictionMethod | None = None) -> str:
        """Return the prediction method.

        Parameters
        ----------
        method : asked for; default: the one recorded at fit ("committee" for a mixture)

        Returns
        -------
        Its name.

        Raises
        ------
        InvalidOption
            The model lacks what the method needs.

        Examples
        --------
        >>> gbcm.chosen_method("committee")
        'committee'
        """
        return self.predictive.chosen_method(method)

    @abstractmethod
    def predict(self, X: ArrayLike, *args: Any, **how: Any) -> dict[str, np.ndarray]:
        """Predictions by name at rows X (n, D)."""

    def predict_frame(self, X: ArrayLike, **how: Any) -> "pandas.DataFrame":
        """Predictions as a data frame with the index of the data frame X (n, D), or 0, 1, ...

        Probabilities are columns `probability_CLASS`. Terms, which belong to columns of their own, are left out.

        Parameters
        ----------
        X : data frame or array (n, D)
        how : further arguments of `predict`

        Returns
        -------
        Data frame of n rows, with the names of `predict` as columns, (n,) each.

        Raises
        ------
        BcmdistError
            As `predict`.

        Examples
        --------
        >>> gbcm.predict_frame(X[:3])["mean"].shape
        (3,)
        """
        import pandas  # optional

        rows: Any = X
        predicted = self.predict(X, **how)
        found = {name: values for name, values in predicted.items() if np.shape(values)[:1] == (len(rows),)}
        classes = self.predictive.snapshot.model.class_labels if "probability" in found else ()
        columns: dict[str, np.ndarray] = {}
        for name, values in found.items():
            wide = values.ndim == 2 and values.shape[1] == len(classes)
            columns |= {f"{name}_{label}": values[:, k] for k, label in enumerate(classes)} if wide else {}
            columns |= {name: values} if values.ndim == 1 else {}
        return pandas.DataFrame(columns, index=rows.index if hasattr(X, "iloc") else None)

    @runs
    def predict_zarr(
        self,
        source: Location,
        out: Location,
        *,
        x: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        terms: bool = False,
        above: Sequence[float] = (),
        draws: int = 0,
        of: Of = "function",
        seed: int = 0,
        runtime: Where = None,
    ) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group.

        Parameters
        ----------
        source : path or URL of the data set
        out : path or URL of the new group
        x : name of the input array; default: as in training
        method : "committee", "local" (uses the training rows around each new point) or a registered predictor; default:
            as at fit; "committee" for a mixture
        inputs : as of `GBCM.predict`, for data sets with an array X_variance
        terms : also arrays `term_mean` and `term_variance` (N, T), with the names `term` (T,)
        above : thresholds t, of which arrays such as `above2.5` (N,) hold the probability that the mean of an
            observation is above
        draws : number of joint samples in an array `sample` (N, draws), which this process draws; default: none
        of : "function" or "observations", of which these are samples
        seed : of the samples
        runtime : where to run; default: in this process

        Returns
        -------
        Number of rows.

        Raises
        ------
        DataExists, DataNotFound, InvalidData, WorkerCannotRead

        Examples
        --------
        >>> bcmdist.write_dataset("rows.zarr", {"X": X})
        >>> gbcm.predict_zarr("rows.zarr", "predictions.zarr")
        80
        """
        model = self.predictive
        with model.held():
            data = datasets.open_new_rows(model.snapshot, source, x=x, y=None)
            samples, how = JointSamples(draws, of, seed), (method, inputs, runtime)
            return datasets.predict_zarr(model, data, out, *how, terms=terms, above=above, samples=samples)

    def score(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        x: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        runtime: Where = None,
    ) -> dict[str, Any]:
        """Score predictions against the targets of a Zarr data set, or of rows.

        The log density of a mixture is the log of the mean density over its members.

        Parameters
        ----------
        source : path or URL of a Zarr group, or rows X (n, D)
        y : targets (n,) beside X; of a data set the name of its array, by default as in training
        companions : further columns by name, beside X
        x : name of the input array of a data set; default: as in training
        method, inputs : as of `predict_zarr`
        runtime : where to run; default: in this process

        Returns
        -------
        `rows` and the scores of `Scores.summary` by name: `rmse` in the unit of the target, `mnlp` in nats, and others.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype, InvalidOption

        Examples
        --------
        >>> scores = gbcm.score(X, y)
        >>> scores["rows"], scores["rmse"] < 0.2
        (80, True)
        """
        scores = self.scores(source, y, companions=companions, x=x, method=method, inputs=inputs, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    @runs
    def scores(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        x: str | None = None,
        method: PredictionMethod | None = None,
        inputs: InputAveraging | None = None,
        runtime: Where = None,
    ) -> Scores:
        """Return the additive totals from which `score` is computed.

        Parameters
        ----------
        source, y, companions, x, method, inputs, runtime : as of `score`

        Returns
        -------
        Totals, which can be added to those of other rows; `summary()` are the scores.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype, InvalidOption

        Examples
        --------
        >>> both = gbcm.scores(X[:40], y[:40]) + gbcm.scores(X[40:], y[40:])
        >>> int(both.totals["rows"])
        80
        """
        model, trained = self.predictive, self.predictive.snapshot.model
        rows = targets_of(source, y, companions, trained.y_name, like=trained.schema)
        with model.held(), rows as (url, name):
            data = datasets.open_new_rows(model.snapshot, url, x=x, y=name)
            return datasets.scores(model, data, method, inputs, runtime)
