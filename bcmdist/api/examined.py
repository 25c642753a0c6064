"""What pictures and reports are of: a committee, or a mixture of several, by what they ask of either."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.api.advice import advised
from bcmdist.api.relevance import Lengthscales, lengthscales
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import Dataset
from bcmdist.prediction import datasets
from bcmdist.prediction.in_memory import predict
from bcmdist.prediction.predictors import PREDICTORS, chosen_method
from bcmdist.prediction.scored_rows import score_again
from bcmdist.prediction.scoring.judged import Judged
from bcmdist.runtime.interface import Runtime


class Examined(ABC):
    """Whatever predicts rows, and can be asked how well."""

    @abstractmethod
    def first(self) -> Snapshot:
        """The committee, or one of several, which have columns, units, rows heard and settings in common."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Of its directory."""

    @property
    @abstractmethod
    def several(self) -> int:
        """How many committees are averaged over; 1 of a single one."""

    @abstractmethod
    def chosen_method(self, method=None) -> str:
        """How it predicts, as asked for; `InvalidOption` where it cannot."""

    @abstractmethod
    def opened(self, source, *, x=None, y=None, method=None, inputs=None) -> Dataset:
        """A data set with targets, once it is clear that it can be predicted so."""

    @abstractmethod
    def judged(self, data: Dataset, runtime: Runtime, *, method, inputs, most: int) -> Judged:
        """Rows of a data set beside predictions, as `datasets.judged`."""

    @abstractmethod
    def judged_again(self, several: Sequence[Judged], method) -> list[Judged]:
        """The same rows with other inputs beside new predictions."""

    @abstractmethod
    def predicted(self, X, method) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), as `GBCM.predict`."""

    @abstractmethod
    def lengthscales(self) -> list[Lengthscales]:
        """By part of the kernel and feature."""

    @abstractmethod
    def advised(self) -> list[str]:
        """What is to be known of its fit, a sentence each."""


@dataclass(frozen=True)
class Alone(Examined):
    """A single committee."""

    snapshot: Snapshot

    several = 1

    def first(self) -> Snapshot:
        return self.snapshot

    @property
    def url(self) -> str:
        return self.snapshot.url

    def chosen_method(self, method=None) -> str:
        return chosen_method(self.snapshot, method)

    def opened(self, source, *, x=None, y=None, method=None, inputs=None) -> Dataset:
        data = datasets.open_new_rows(self.snapshot, source, x=x, y=y or self.snapshot.model.y_name)
        datasets.way_of(self.snapshot, data, PREDICTORS[self.chosen_method(method)], inputs)
        return data

    def judged(self, data: Dataset, runtime: Runtime, *, method, inputs, most: int) -> Judged:
        with self.snapshot.held():
            return datasets.judged(self.snapshot, data, method, runtime, most=most, inputs=inputs)

    def judged_again(self, several: Sequence[Judged], method) -> list[Judged]:
        predictor = PREDICTORS[method].of_snapshot(self.snapshot)
        return [score_again(predictor, rows) for rows in several]

    def predicted(self, X, method) -> dict[str, np.ndarray]:
        return predict(self.snapshot, X, method=method)

    def lengthscales(self) -> list[Lengthscales]:
        return lengthscales(self.snapshot)

    def advised(self) -> list[str]:
        return advised(self.snapshot)
