"""The interface of a model that predicts: a committee at one commit, or a mixture of committees.

Prediction of data sets, plots, reports and the service use a `PredictiveModel` and need not distinguish the two
(`bcmdist.prediction.mixture`).
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.fitted import fitted_of
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.predictors import PREDICTORS, chosen_method, predictor_of
from bcmdist.prediction.row_predictor import CommitteePredictor, RowPredictor, StoredCommittee, StoredPredictor
from bcmdist.prediction.scored_rows import predict_rows
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.storage.commits import Reference, record_digest


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
        """The version as text: the commit number, or the number of members of a mixture."""

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

    several = 1

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
