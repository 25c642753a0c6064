"""A model that predicts: a committee at one commit, or a mixture of several (`bcmdist.prediction.mixture`).

Whoever predicts data sets, draws, reports or serves asks a `PredictiveModel`, whichever it is.
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
    """Committees that predict together, in memory; at least one."""

    snapshot: Snapshot
    """the committee, or the first of several, which have columns, units, rows absorbed and settings in common"""

    @property
    @abstractmethod
    def snapshots(self) -> Sequence[Snapshot]:
        """The committees, which may be loaded when they are asked for."""

    @property
    @abstractmethod
    def several(self) -> int:
        """How many committees are averaged over; 1 of a single one."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Of its directory."""

    @property
    @abstractmethod
    def version(self) -> Hashable:
        """What no other state has, also of another model under the same path; None of what lies under no path."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The version as text: the number of the commit, or how many members a mixture has."""

    @abstractmethod
    def held(self) -> AbstractContextManager:
        """Kept from pruning while this is open."""

    @abstractmethod
    def chosen_method(self, method=None) -> str:
        """How it predicts, as asked for; `InvalidOption` where it cannot."""

    @abstractmethod
    def kind(self, method=None) -> type[Predictor]:
        """The class that predicts f of a committee, with a warning about rows that it does not find near by."""

    @abstractmethod
    def predictor(self, method=None) -> RowPredictor:
        """The predictor of rows, in memory."""

    @abstractmethod
    def stored(self, method=None) -> StoredPredictor:
        """What tasks carry in place of `predictor`."""

    @abstractmethod
    def example(self, X, obs) -> dict[str, np.ndarray]:
        """Predictions that have the names, shapes and dtypes of all others."""

    @abstractmethod
    def way(self, method, asked: str | None) -> str:
        """How uncertain inputs are averaged over, as asked for; `InvalidOption` as of `chosen_way`."""

    @abstractmethod
    def attributes(self) -> dict:
        """What predicts, JSON-ready, for the attributes of stored predictions."""

    @abstractmethod
    def record_hashes(self) -> Callable[[], str]:
        """A function that gives hashes of the records of its commits: all workers must see the same."""


@dataclass(frozen=True)
class CommitteeModel(PredictiveModel):
    """A single committee."""

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
