"""The interface of a model that predicts: a committee at one commit, or a mixture of committees.

Prediction of data sets, plots, reports and the service use a `PredictiveModel` and need not distinguish the two
(`bcmdist.prediction.mixture`).

A `RowPredictor` is its form that tasks can load: it predicts and scores rows in original units.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from bcmdist.committee.cells import outside_in_words, rows_outside
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.registry import Registry
from bcmdist.data.schema import warn
from bcmdist.errors import InvalidOption
from bcmdist.model.model import Model
from bcmdist.prediction.interface import Fitted, Latent, Predictor, fitted_of
from bcmdist.prediction.local.neighbours import LocallyFitted
from bcmdist.prediction.scored_rows import Judged, predict_rows, predict_terms, score_predictions
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.storage.commits import Reference, record_digest

PREDICTORS: Registry[type[Predictor]] = Registry("method")
PREDICTORS.add("committee", Fitted)
PREDICTORS.add("local", LocallyFitted)


def register_predictor(name: str, predictor: type[Predictor]) -> None:
    """Register a predictor under the name that `method` and `--method` accept.

    The command line finds it if its module is listed in the entry points of `bcmdist.data.registry`. Tasks carry the
    class, so workers must be able to import it.

    Parameters
    ----------
    name : for `method=name`
    predictor : a subclass of `bcmdist.prediction.interface.Predictor`

    Raises
    ------
    InvalidOption
        The name is taken.

    Examples
    --------
    >>> from bcmdist.prediction.interface import Fitted
    >>> class Careful(Fitted):
    ...     pass
    >>> bcmdist.register_predictor("careful", Careful)
    >>> gbcm.predict(X[:3], method="careful")["mean"].shape
    (3,)
    """
    PREDICTORS.add(name, predictor)


def predictor_of(snapshot: Snapshot, method: str | None) -> type[Predictor]:
    """The predictor class of `method`, by default the method of the fit.

    Warns if local prediction cannot use some rows as neighbours.

    Raises
    ------
    InvalidOption
        As in `chosen_method`.
    """
    predictor = PREDICTORS[chosen_method(snapshot, method)]
    if predictor.in_cells:
        warn_of_rows_outside(snapshot)
    return predictor


def warn_of_rows_outside(snapshot: Snapshot) -> None:
    """Emit a `BcmdistWarning` if rows were absorbed after the fit: local prediction does not use them as neighbours."""
    if rows := rows_outside(snapshot):
        warn(f"{snapshot.url}: {outside_in_words(rows, snapshot.committee.total.rows)}")


def chosen_method(snapshot: Snapshot, method: str | None) -> str:
    """`method`, or the method recorded by the fit if it is None.

    Raises
    ------
    InvalidOption
        There is no such method, or the model lacks what it needs.
    """
    method = method or snapshot.facts.method
    PREDICTORS[method].refuse(snapshot)
    return method


class RowPredictor(ABC):
    """Predicts rows in original units."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """Model with the columns, units, likelihood and classes of the rows."""

    @abstractmethod
    def predict(self, X, obs, quantiles=(), uncertainty: Latent | None = None, above=()) -> dict[str, np.ndarray]:
        """All predicted quantities at rows of X (n, D), by name; see `predict_rows`."""

    def terms(self, X) -> dict[str, np.ndarray]:
        """Additive terms of f at rows of X (n, D); see `predict_terms`. Raises `InvalidOption` where there are none."""
        raise InvalidOption(f"terms: expected a committee or a mixture, got {type(self).__name__}; leave them out")

    @abstractmethod
    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        """Add predictions and scores to sets of rows whose observations are in the units of the model."""

    def score(self, rows: Judged) -> Judged:
        """As `score_each`, for one set."""
        return self.score_each([rows])[0]


@dataclass(frozen=True)
class CommitteePredictor(RowPredictor):
    """Predicts rows by one committee."""

    predictor: Predictor

    @property
    def model(self) -> Model:
        return self.predictor.model

    def predict(self, X, obs, quantiles=(), uncertainty=None, above=()) -> dict[str, np.ndarray]:
        return predict_rows(self.predictor, X, obs, quantiles, uncertainty, above)

    def terms(self, X) -> dict[str, np.ndarray]:
        return predict_terms(self.predictor, X)

    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        return [score_predictions(self.predictor, s.X, s.obs, s.number, s.uncertainty) for s in several]


class StoredPredictor(ABC):
    """Reference to a stored row predictor, a few hundred bytes, which tasks carry."""

    @property
    @abstractmethod
    def in_cells(self) -> bool:
        """Whether new rows must be sorted by the model's cells; see `Predictor`."""

    @abstractmethod
    def load(self) -> RowPredictor:
        """Load the predictor, on any worker. Called for each partition."""


@dataclass(frozen=True)
class StoredCommittee(StoredPredictor):
    """One commit and the class that predicts from it."""

    reference: Reference
    predictor: type[Predictor]

    @property
    def in_cells(self) -> bool:
        return self.predictor.in_cells

    def load(self) -> CommitteePredictor:
        return CommitteePredictor(self.predictor.of_commit(self.reference))


class PredictiveModel(ABC):
    """One or more committees in memory that predict together."""

    snapshot: Snapshot
    """the committee, or the first of several; all share columns, units, absorbed rows and settings"""

    @property
    @abstractmethod
    def snapshots(self) -> Sequence[Snapshot]:
        """The committees; may be loaded on access."""

    @property
    @abstractmethod
    def several(self) -> int:
        """Number of committees averaged over; 1 for a single committee."""

    @property
    @abstractmethod
    def weights(self) -> Sequence[float] | None:
        """Weights of the committees, with the sum 1; None where all are equal."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Directory of the model."""

    @property
    @abstractmethod
    def version(self) -> Hashable:
        """Unique identifier of this state of this model; None if the model has no path.

        It differs from that of any other model stored later under the same path.
        """

    @property
    @abstractmethod
    def state(self) -> str:
        """The version as text: the commit number, of a mixture with the number of members."""

    @abstractmethod
    def held(self) -> AbstractContextManager:
        """Context manager that keeps a committee's commit from being pruned."""

    @abstractmethod
    def chosen_method(self, method=None) -> str:
        """Name of the prediction method, the model's default for None; raise `InvalidOption` if it is not available."""

    @abstractmethod
    def kind(self, method=None) -> type[Predictor]:
        """The predictor class of the method. Warns if local prediction cannot use some absorbed rows."""

    @abstractmethod
    def predictor(self, method=None) -> RowPredictor:
        """The row predictor, in memory."""

    @abstractmethod
    def stored(self, method=None) -> StoredPredictor:
        """Small reference that tasks carry instead of `predictor`."""

    @abstractmethod
    def example(self, X, obs) -> dict[str, np.ndarray]:
        """Predictions with the names, shapes and dtypes of all others; from the committee alone."""

    @abstractmethod
    def way(self, method, asked: str | None) -> str:
        """How to average over uncertain inputs; raise `InvalidOption` as `chosen_way` does."""

    @abstractmethod
    def attributes(self) -> dict:
        """The model's identity, JSON-ready, for the attributes of stored predictions."""

    @abstractmethod
    def record_hashes(self) -> Callable[[], str]:
        """A function that returns hashes of the model's commit records; all workers must see the same hashes."""


@dataclass(frozen=True)
class CommitteeModel(PredictiveModel):
    """A model that is a single committee."""

    snapshot: Snapshot

    several, weights = 1, None

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return (self.snapshot,)

    @property
    def url(self) -> str:
        return self.snapshot.url

    @property
    def version(self) -> Reference:
        return self.snapshot.reference

    @property
    def state(self) -> str:
        return str(self.snapshot.commit)

    def held(self) -> AbstractContextManager:
        return self.snapshot.held()

    def chosen_method(self, method=None) -> str:
        return chosen_method(self.snapshot, method)

    def kind(self, method=None) -> type[Predictor]:
        return predictor_of(self.snapshot, method)

    def predictor(self, method=None) -> CommitteePredictor:
        return CommitteePredictor(PREDICTORS[self.chosen_method(method)].of_snapshot(self.snapshot))

    def stored(self, method=None) -> StoredCommittee:
        return StoredCommittee(self.snapshot.reference, PREDICTORS[self.chosen_method(method)])

    def example(self, X, obs) -> dict[str, np.ndarray]:
        return predict_rows(fitted_of(self.snapshot), X, obs)

    def way(self, method, asked) -> str:
        return chosen_way(PREDICTORS[self.chosen_method(method)], self.snapshot, asked)

    def attributes(self) -> dict:
        return {"commit": self.snapshot.commit}

    def record_hashes(self) -> Callable[[], str]:
        return functools.partial(record_digest, self.snapshot.url, self.snapshot.commit)
