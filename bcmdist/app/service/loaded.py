"""What is loaded of a model directory: one commit of a committee, or a mixture, ready to be asked."""

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture, contents_of, is_mixture
from bcmdist.api.opened import refuse_mixture
from bcmdist.committee.ingest.lag_meter import lags
from bcmdist.errors import InvalidOption
from bcmdist.prediction.in_memory import predict_by
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.mixtures.tasks import Contents
from bcmdist.prediction.predictors import PREDICTORS
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.storage.commits import Reference, open_store

Version = Reference | Contents


class Loaded(ABC):
    """One state of a model, which stays as it is; kept from pruning until it is closed."""

    fitted: GBCM | Mixture
    state: str
    """as answers name it: number of the commit, or how many members a mixture has"""
    version: Version | None
    """what no other state has, also of another model under the same path; None of what lies under no path"""

    @abstractmethod
    def predict(self, X, *, method, X_variance=None, inputs=None, **how) -> tuple[str, dict[str, np.ndarray]]:
        """The method that was taken, and predictions by the names of `GBCM.predict`; any thread may ask."""

    @property
    @abstractmethod
    def committee(self) -> GBCM:
        """The committee that hears rows; `InvalidOption` of a mixture."""

    @property
    @abstractmethod
    def member(self) -> GBCM:
        """A committee that tells of all of them what inputs and targets are."""

    @property
    @abstractmethod
    def lag(self) -> dict[str, dict | None]:
        """How far ingestion was behind its sources when this was committed, by source; None where that is unknown."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""


class OneCommittee(Loaded):
    """A commit, with what was worked out for its predictions."""

    def __init__(self, gbcm: GBCM, lease: contextlib.ExitStack):
        self.fitted, self.state, self._lease = gbcm, str(gbcm.commit), lease
        self.version = gbcm.snapshot.reference
        self._predictors: dict[str, Predictor] = {}
        self._ways: dict[tuple, str] = {}
        """of averaging over uncertain inputs, by method and by what was asked for"""
        self._making = threading.Lock()
        self._predictor(gbcm.chosen_method())  # before anybody waits for it

    def _predictor(self, method):
        with self._making:
            if method not in self._predictors:
                self._predictors[method] = PREDICTORS[method].of_snapshot(self.committee.snapshot)
            return self._predictors[method]

    def _way(self, method, inputs):
        if (method, inputs) not in self._ways:
            self._ways[method, inputs] = chosen_way(PREDICTORS[method], self.committee.snapshot, inputs)
        return self._ways[method, inputs]

    def predict(self, X, *, method, X_variance=None, inputs=None, **how) -> tuple[str, dict[str, np.ndarray]]:
        method = self.committee.chosen_method(method)
        way = None if X_variance is None else self._way(method, inputs)
        return method, predict_by(self._predictor(method), X, X_variance=X_variance, way=way, **how)

    @property
    def committee(self) -> GBCM:
        assert isinstance(self.fitted, GBCM)
        return self.fitted

    member = committee

    @property
    def lag(self) -> dict[str, dict | None]:
        return lags(self.committee.snapshot)

    def close(self) -> None:
        self._lease.close()


class Members(Loaded):
    """A mixture, which never changes; its members are loaded when they are needed."""

    def __init__(self, mixture: Mixture):
        self.fitted, self.mixture, self.version = mixture, mixture, mixture.contents
        self.state = f"mixture of {len(mixture.members)}"
        self._first = mixture.members[0]

    def predict(
        self, X, *, method, X_variance=None, inputs=None, quantiles=(), **how
    ) -> tuple[str, dict[str, np.ndarray]]:
        given = [name for name, value in how.items() if value is not None]
        if given:
            raise InvalidOption(f"{given[0]}: expected none for a mixture of committees; leave it out")
        method, uncertain = self.mixture.chosen_method(method), {"X_variance": X_variance, "inputs": inputs}
        return method, self.mixture.predict(X, quantiles=quantiles, **uncertain)

    @property
    def committee(self) -> GBCM:
        refuse_mixture(self.mixture.url, "ingest into or look into")
        raise AssertionError("a mixture is refused")

    @property
    def member(self) -> GBCM:
        return self._first

    @property
    def lag(self) -> dict[str, dict | None]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


def newest_version(url) -> Version:
    """The version of the newest state of a model directory, of which nothing else is loaded; errors as of `load`."""
    return contents_of(url) if is_mixture(url) else open_store(url).newest()


def load(url) -> Loaded:
    """The newest state of a model directory.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    if is_mixture(url):
        return Members(Mixture.load(url))
    with contextlib.ExitStack() as lease:
        gbcm = lease.enter_context(GBCM.held(url))
        return OneCommittee(gbcm, lease.pop_all())


def hold(gbcm: GBCM) -> Loaded:
    """A commit that was just made."""
    with contextlib.ExitStack() as lease:
        held: Any = lease.enter_context(gbcm.snapshot.held())
        return OneCommittee(GBCM(held), lease.pop_all())
